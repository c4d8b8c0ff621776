"""The list of metrics is what is sent: each of its metrics, when the list says, and no other."""

from __future__ import annotations

from datetime import UTC, datetime

from tidegate.core.outputs import RunReport
from tidegate.runs.reports.report import new_report
from tidegate.views.pages.ahead import Backlog
from tidegate.views.signals import metrics
from tidegate.views.signals.metrics import METRICS, WHEN, Metric, Sample, When

NAME = "orders"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def make(outcome: str | None) -> RunReport:
    """A report with a value for every metric that is made of one."""
    report = new_report(NAME, "R1")
    report.outcome, report.started_at = outcome, "2026-01-01T11:00:00.000+00:00"
    report.ended_at = None if outcome is None else "2026-01-01T11:10:00.000+00:00"
    report.duration_seconds["ingest"] = 1.0
    report.watermark = "2026-01-01T10:00:00.000+00:00"
    report.sinks = [{"name": "further", "version": 3, "behind": 1, "error": None}]
    report.rows |= {"read": 5, "published": 4}
    report.sources = {"clicks": {"rows": 5, "files": 1, "bytes": 100}}
    report.quality["verdict"] = "warned"
    report.quality["results"] = [
        {
            "rule": "good",
            "type": "",
            "severity": "warning",
            "success": False,
            "unexpected_count": 1,
            "observed_value": None,
        }
    ]
    return report.to_json()


def of(samples: list[Sample]) -> set[Metric]:
    """What was sent; each sample has a value for each tag of its metric."""
    assert all(set(one.tags) == set(one.metric.tags) for one in samples)
    return {one.metric for one in samples}


def named(*when: When) -> set[Metric]:
    """What the list says is sent on these occasions."""
    return {one for one in METRICS if one.when in when}


def test_every_occasion_has_a_metric() -> None:
    assert len({one.key for one in METRICS}) == len(METRICS) > 25
    assert {one.when for one in METRICS} == set(WHEN)


def test_each_is_sent_when_the_list_says() -> None:
    assert of(metrics.measure_run(make(None), None, NOW)) == named("task")
    assert of(metrics.measure_run(make("published"), "published", NOW)) == named("task")
    assert of(metrics.measure_run(make("held"), None, NOW)) == named("task", "outcome")
    published = of(metrics.measure_run(make("published"), None, NOW)) | of(metrics.measure_table(NAME, 3, [100]))
    assert published == named("task", "outcome", "end", "records", "published")
    judged = {metrics.VERDICTS, metrics.RULES_FAILED}  # when the run was held, or never
    discarded = of(metrics.measure_run(make("discarded"), "held", NOW))
    assert discarded == named("task", "outcome", "end", "records") - judged
    nothing_new = of(metrics.measure_run(make("nothing_new"), None, NOW))
    assert nothing_new == named("task", "outcome", "end") - judged
    adopted: RunReport = {**make("published"), "published_by": "R2"}  # whose figures hold this run's
    assert of(metrics.measure_run(adopted, None, NOW)) == named("task", "outcome", "end") - judged
    waiting: Backlog = {
        "source": "clicks",
        "kind": "files",
        "files": 1,
        "bytes": 100,
        "offsets": 7,
        "settling": 0,
        "oldest": "2026-01-01T11:00:00.000+00:00",
        "taken": None,
    }
    assert of(metrics.measure_lag(NAME, [waiting], NOW)) == named("look")
    assert of([metrics.measure_undecided(NAME, 1)]) == named("state")
