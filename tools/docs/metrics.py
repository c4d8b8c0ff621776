"""``metrics.md``: every metric that the tasks send, from the list that they send by."""

from __future__ import annotations

from tidegate.views.signals.metrics import METRICS, WHEN, Metric, Sample
from tools.docs.markdown import MADE, code, table

_EXAMPLE = {"pipeline": "orders", "mode": "incremental", "outcome": "published", "source": "clicks"}
_TAGS = {
    "pipeline": "the pipeline's name",
    "mode": "what kind of run it is: `incremental`, `reread`, `backfill`, `refresh`, `maintain`, ...",
    "outcome": "`published`, `nothing_new`, `discarded`, `held`, `failed`",
    "source": "the source's name in the spec",
    "sink": "the sink's name in reports",
    "verdict": "`passed`, `warned`, `failed`, `unchecked`",
    "rule": "the rule's name in the suite",
    "severity": "`critical`, `warning`, `info`",
    "step": "`ingest`, `audit`, `publish`, `deliver`",
}


def render_metrics() -> str:
    """The page."""
    used = list(dict.fromkeys(tag for metric in METRICS for tag in metric.tags))
    parts = [
        MADE,
        "# Metrics\n",
        "Sent by the tasks of a pipeline's DAG when they end, also when they fail or are skipped, through Airflow's "
        "own metrics client. Where to, and whether at all, is in `[metrics]` of Airflow's configuration: how to set it "
        "up, and a Grafana dashboard, are in [metrics and alerts](../how-to/metrics-and-alerts.md). Commands in a "
        "terminal send none.\n",
        "Airflow puts its prefix in front (`airflow.` unless set otherwise). There are counters and gauges alone. Some "
        "ways of sending lose packets, and a task that is killed while it sends has its values sent again: what must "
        "be right is in the run report.\n",
        table(["name", "type", "unit", "tags", "sent", "what it is"], [_row(metric) for metric in METRICS]),
        "## When\n",
        table(["sent", "that is"], [[code(when), text] for when, text in WHEN.items()]),
        "A task that is cleared and finds its run finished counts nothing a second time.\n",
        "## Tags\n",
        table(["tag", "its values"], [[code(tag), _TAGS[tag]] for tag in used]),
        "Letters other than `a-z A-Z 0-9 _ . -` of a value become `_`.\n",
        "## Names without tags\n",
        "A StatsD server without tags would mix the pipelines up. So while `[metrics] legacy_names_on` is true, which "
        "is Airflow's default, each metric is also sent under a name that holds the values of its tags, in the order "
        "of the table, with `__` for a dot in them:\n",
        "".join(f"    {name}\n" for name in _long_names()),
    ]
    return "\n".join(parts)


def _row(metric: Metric) -> list[str]:
    tags = ", ".join(code(tag) for tag in metric.tags)
    return [code(metric.name), metric.kind, metric.unit, tags, code(metric.when), metric.meaning]


def _long_names() -> list[str]:
    shown = [metric for metric in METRICS if metric.key in ("runs", "rows.published", "lag.oldest.seconds")]
    return [Sample(metric, 0, {tag: _EXAMPLE[tag] for tag in metric.tags}).long_name for metric in shown]
