"""What the tasks send when they end, as a StatsD server on UDP gets it through Airflow's own client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from tests.airflow.endings import listen, make_context, make_tasks, run_to_its_end, run_without_spark
from tests.support.held import BAD, GOOD, NAME, Held, commands
from tidegate.core.errors import HeldError, TryAgainError, UsageError
from tidegate.runs.gate_steps import publish_run
from tidegate.runs.reports.verdicts import forget, list_verdicts
from tidegate.views.pages.ahead import AheadPage
from tidegate.views.signals.metrics import METRICS, PREFIX

_LINE = re.compile(r"airflow\.([^,:]+)((?:,[^=,:]+=[^=,:]+)*):(-?[\d.]+)\|([cg])")


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    run_without_spark(monkeypatch)
    # No broker is there.
    monkeypatch.setattr("tidegate.airflow.metrics.look_at_ahead", lambda project, name: make_ahead())
    pipeline = Held(tmp_path / "project", malformed=1)
    with commands(lambda: pipeline):
        yield pipeline


def make_ahead(*backlog: Any) -> AheadPage:
    """What a look at the sources finds."""
    return AheadPage(NAME, backlog=list(backlog))


def read(lines: list[str]) -> dict[str, float]:
    """{name, with its tags: value}; a line that is no metric of ours, or none of the list, is refused."""
    found: dict[str, float] = {}
    known = {metric.name: metric for metric in METRICS}
    for line in lines:
        match = _LINE.fullmatch(line)
        assert match is not None, line
        name, tags, value, kind = match.groups()
        metric = known[name]
        assert kind == metric.kind[0], line
        assert sorted(one.partition("=")[0] for one in tags.split(",")[1:]) == sorted(metric.tags), line
        values = ",".join(f"{one}" for one in sorted(tags.split(",")[1:]))
        key = f"{name.removeprefix(PREFIX + '.')} {values}".strip()
        found[key] = found.get(key, 0) + float(value) if kind == "c" else float(value)
    return found


def test_a_run_that_publishes_counts_once(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, context = make_tasks(held), make_context("R1")
    held.arriving = [GOOD]
    with listen(monkeypatch) as receive:
        assert run_to_its_end(lambda: tasks.ingest.execute(context)) is None
        assert run_to_its_end(lambda: tasks.audit.execute(context)) is None
        before = read(receive())
        assert not [key for key in before if key.startswith(("runs", "rows", "table"))]
        assert f"step.seconds pipeline={NAME},step=audit" in before
        assert run_to_its_end(lambda: tasks.publish.execute(context)) is None
        told = read(receive())
        run = f"mode=incremental,pipeline={NAME}"
        assert told[f"runs mode=incremental,outcome=published,pipeline={NAME}"] == 1
        rows = {key: told[f"rows.{key} {run}"] for key in ("read", "malformed", "quarantined", "published", "late")}
        assert rows == {"read": 5, "malformed": 1, "quarantined": 1, "published": 4, "late": 0}
        assert told[f"quarantine.share {run}"] == 0.2 and told[f"verdicts pipeline={NAME},verdict=passed"] == 1
        assert told[f"table.version pipeline={NAME}"] == 0 and told[f"table.files pipeline={NAME}"] == 1
        assert told[f"table.bytes pipeline={NAME}"] > 0 and told[f"published.at pipeline={NAME}"] > 1.7e9
        assert told[f"source.rows pipeline={NAME},source=orders"] == 5
        event = context["outlet_events"][tasks.publish.asset].extra
        assert event["rows"]["published"] == 4 and "cut" not in event
        # Cleared, and run again: nothing counts twice.
        assert run_to_its_end(lambda: tasks.publish.execute(context)) is None
        assert not [key for key in read(receive()) if key.startswith(("runs", "rows", "source", "verdicts"))]


def test_a_skipped_a_held_and_a_failed_task_say_so(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = make_tasks(held)
    with listen(monkeypatch) as receive:
        assert isinstance(run_to_its_end(lambda: tasks.ingest.execute(make_context("R1"))), AirflowSkipException)
        told = read(receive())
        assert told[f"runs mode=incremental,outcome=nothing_new,pipeline={NAME}"] == 1
        assert not [key for key in told if key.startswith("rows")]

        monkeypatch.setattr("tidegate.airflow.operators.ask", lambda *_: None)
        held.arriving = [BAD]
        assert run_to_its_end(lambda: tasks.ingest.execute(make_context("R2"))) is None
        assert isinstance(run_to_its_end(lambda: tasks.audit.execute(make_context("R2"))), HeldError)
        told = read(receive())
        assert told[f"runs mode=incremental,outcome=held,pipeline={NAME}"] == 1
        assert told[f"rules.failed pipeline={NAME},rule=good,severity=critical"] == 1
        assert told[f"verdicts pipeline={NAME},verdict=failed"] == 1 == told[f"undecided pipeline={NAME}"]

        def fail(*_: object) -> None:
            raise TryAgainError("BROKER_AWAY", "away")

        held.decide("discard", "R2")
        with pytest.MonkeyPatch.context() as patch:  # undone before the stand-in that it is in the place of
            patch.setattr("tidegate.runs.steps.drain_sources", fail)
            for _ in range(2):  # tried again: the run has failed once
                assert isinstance(run_to_its_end(lambda: tasks.ingest.execute(make_context("R3"))), TryAgainError)
        assert read(receive())[f"runs mode=incremental,outcome=failed,pipeline={NAME}"] == 1


def test_maintenance_that_cannot_begin_is_no_run_that_failed(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.airflow.operators import MaintainOperator

    def refuse(*_: object) -> None:
        raise TryAgainError("LEASE_HELD", "a run is at work")

    task = MaintainOperator(task_id="maintain", pipeline=NAME, project_root=str(held.root))
    monkeypatch.setattr("tidegate.rework.maintain.command.maintain_pipeline", refuse)
    with listen(monkeypatch) as receive:
        assert isinstance(run_to_its_end(lambda: task.execute(make_context("M1"))), TryAgainError)
        told = read(receive())
        assert told == {f"runs mode=maintain,outcome=failed,pipeline={NAME}": 1, f"undecided pipeline={NAME}": 0}


def test_what_waits_is_sent_by_source(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [
        {"source": "a", "files": 2, "bytes": 10, "offsets": None, "oldest": "2026-01-01T00:00:00.000+00:00"},
        {"source": "b", "files": None, "bytes": None, "offsets": 0, "oldest": None},
    ]
    monkeypatch.setattr("tidegate.airflow.metrics.look_at_ahead", lambda project, name: make_ahead(*waiting))
    with listen(monkeypatch) as receive:
        run_to_its_end(lambda: make_tasks(held).ingest.execute(make_context("R1")))
        told = read(receive())
    lag = {key.removeprefix("lag."): value for key, value in told.items() if key.startswith("lag.")}
    assert lag.pop(f"oldest.seconds pipeline={NAME},source=a") > 0
    a, b = (f"pipeline={NAME},source={source}" for source in "ab")
    assert lag == {f"files {a}": 2, f"bytes {a}": 10, f"offsets {b}": 0, f"oldest.seconds {b}": 0}


def test_a_server_without_tags_gets_names_with_their_values(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    with listen(monkeypatch, influx=False, legacy=True) as receive:
        run_to_its_end(lambda: make_tasks(held).ingest.execute(make_context("R1")))
        lines = receive()
    assert f"airflow.tidegate.runs.{NAME}.incremental.nothing_new:1|c" in lines and "airflow.tidegate.runs:1|c" in lines


def test_nothing_of_it_fails_a_task(
    held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the server is on fire")

    with listen(monkeypatch):
        monkeypatch.setattr("tidegate.airflow.metrics._send", broken)
        ended = run_to_its_end(lambda: make_tasks(held).ingest.execute(make_context("R1")))
    assert isinstance(ended, AirflowSkipException)


def test_without_a_server_no_source_is_looked_at(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("tidegate.airflow.metrics.look_at_ahead", lambda project, name: looked.append(name))
    run_to_its_end(lambda: make_tasks(held).ingest.execute(make_context("R1")))
    assert not looked


def test_names_are_told_apart_and_every_metric_is_described() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names) and all(re.fullmatch(r"tidegate(\.[a-z]+)+", name) for name in names)
    assert all(metric.meaning and "pipeline" in metric.tags for metric in METRICS)


def test_an_answer_to_what_was_held_before_is_asked_for_again(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records were read again in a terminal since, and others are held under the same run id."""
    asked: list[Any] = []
    monkeypatch.setattr("tidegate.airflow.operators.ask", lambda *given: asked.append(given[-1]))
    task, context = make_tasks(held).audit, make_context("R1")
    held.stage(BAD, run_id="R1")
    run_to_its_end(lambda: task.execute(context))
    [verdict], [before] = list_verdicts(held.paths), asked
    event = {"chosen_options": ["Release"], "params_input": {"reason": "three rows"}}
    held.stage([{"id": None, "n": n} for n in range(40)], run_id="R1")
    forget(held.paths, verdict)
    assert isinstance(run_to_its_end(lambda: task.execute_decision(context, event, of=before)), HeldError)
    assert held.rows() == [] and len(asked) == 2 and asked[0] != asked[1]
    assert run_to_its_end(lambda: task.execute_decision(context, event, of=asked[1])) is None
    assert len(held.rows()) == 43


def test_a_decision_by_another_run_counts_as_an_answer_does(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = make_tasks(held)
    monkeypatch.setattr("tidegate.airflow.operators.ask", lambda *_: None)
    held.arriving = [BAD]
    conf = {"decide": "release", "decide_run_id": "R1", "decide_reason": "looked at it"}
    decider = make_context("D1", params=conf)
    decider["dag_run"].conf = conf
    with listen(monkeypatch) as receive:
        for task in (tasks.ingest, tasks.audit):
            run_to_its_end(partial(task.execute, make_context("R1")))
        receive()
        for task in (tasks.ingest, tasks.audit, tasks.publish):
            assert run_to_its_end(partial(task.execute, decider)) is None
        told = read(receive())
        assert told[f"runs mode=incremental,outcome=published,pipeline={NAME}"] == 1
        assert told[f"rows.published mode=incremental,pipeline={NAME}"] == 3 and f"published.at pipeline={NAME}" in told
        # The opposite is refused: a run that has failed, and nothing of R1.
        other = make_context("D2", params={**conf, "decide": "discard"})
        assert isinstance(run_to_its_end(lambda: tasks.ingest.execute(other)), UsageError)
        told = read(receive())
    assert [key for key in told if key.startswith(("runs", "rows"))] == [
        f"runs mode=incremental,outcome=failed,pipeline={NAME}"
    ]


@pytest.mark.parametrize("ends_by", ["LEASE_LOST", "KILLED"])
def test_a_first_try_that_slept_says_nothing_of_what_the_second_has_done(
    held: Held, monkeypatch: pytest.MonkeyPatch, ends_by: str
) -> None:
    tasks, again = make_tasks(held), make_tasks(held)
    held.arriving = [GOOD]
    for task in (tasks.ingest, tasks.audit):
        run_to_its_end(partial(task.execute, make_context("R1")))

    def sleep(*_: object) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tidegate.runs.gate_steps.publish_run", publish_run)
            assert run_to_its_end(lambda: again.publish.execute(make_context("R1"))) is None
        assert read(receive())[f"runs mode=incremental,outcome=published,pipeline={NAME}"] == 1
        raise TryAgainError(ends_by, "lost")

    monkeypatch.setattr("tidegate.runs.gate_steps.publish_run", sleep)
    with listen(monkeypatch) as receive:
        assert isinstance(run_to_its_end(lambda: tasks.publish.execute(make_context("R1"))), TryAgainError)
        assert receive() == []
