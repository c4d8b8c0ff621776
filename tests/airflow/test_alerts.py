"""``alerts:`` run by the tasks, with a notifier that the project brings in its plugins folder."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.airflow.endings import make_context, make_tasks, run_to_its_end, run_without_spark, write_notifiers
from tests.support.held import BAD, GOOD, NAME, Held, commands
from tidegate.airflow.alerts import alert_on_failure, tell_behind
from tidegate.airflow.form import read_form
from tidegate.core.errors import HeldError, TryAgainError, UsageError

_ALERTS = """
alerts:
  notify:
    - {{notifier: {module}.Broken}}
    - {{notifier: {module}.Pager, arguments: {{file: {file}}}}}
    - {{notifier: not_there.At_all}}
  behind: 1 hour
  quarantine_share: 0.3
"""


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    run_without_spark(monkeypatch)
    monkeypatch.setattr("tidegate.airflow.operators.ask", lambda *_: None)
    pipeline = Held(tmp_path / "project", malformed=1)
    module = "pager_of_this_test"
    file = write_notifiers(pipeline.root, monkeypatch, module)
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org/af/")
    with (pipeline.root / "tidegate.yaml").open("a") as settings:
        settings.write(_ALERTS.format(module=module, file=file))
    with commands(lambda: pipeline):
        yield pipeline


def read(held: Held) -> list[tuple[str, str, str]]:
    """The alerts that were sent since the last look: kind, title, text."""
    file = held.root / "alerts.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return [tuple(json.loads(line)) for line in lines]


def run(held: Held, run_id: str, *batches: list[dict[str, Any]]) -> list[BaseException | None]:
    """The tasks of a run, up to the first that ends otherwise."""
    tasks, context, ended = make_tasks(held), make_context(run_id), []
    held.arriving = list(batches)
    for task in (tasks.ingest, tasks.audit, tasks.publish):
        # By the name of the argument, as Airflow calls it.
        ended.append(run_to_its_end(lambda task=task: task.execute(context=context)))  # type: ignore[misc]
        if ended[-1] is not None:
            break
    return ended


def test_a_held_run_is_told_with_the_commands_and_a_notifier_that_fails_keeps_no_other_away(held: Held) -> None:
    assert isinstance(run(held, "R1", BAD)[-1], HeldError)
    ((kind, title, text),) = read(held)
    assert (kind, title) == ("held", "orders is held: its run R1 waits for a decision")
    assert "what: INCREMENT_HELD: " in text and 'tidegate release orders R1 --reason "' in text
    assert text.splitlines()[-1] == "page: https://airflow.example.org/af/dags/orders/runs/R1/plugin/tidegate-run"
    assert isinstance(run(held, "R2")[-1], HeldError)
    assert [title for _, title, _ in read(held)] == ["orders is still held: run R2 could not begin"]
    assert isinstance(run(held, "R3")[-1], HeldError)
    assert read(held) == []
    held.decide("discard")
    run(held, "R4", BAD)
    assert [kind for kind, _, _ in read(held)] == ["held"]


def test_an_answer_that_is_refused_asks_again_and_tells_nobody_twice(held: Held) -> None:
    run(held, "R1", BAD)
    read(held)
    audit = make_tasks(held).audit
    ended = run_to_its_end(lambda: audit.execute_decision(make_context("R1"), {"chosen_options": ["Hm"]}))
    assert isinstance(ended, HeldError) and read(held) == []


def test_data_of_an_alert_is_not_read_as_a_template(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.airflow.alerts import send
    from tidegate.spec.pipeline import load_pipeline
    from tidegate.views.signals.alerts import Alert

    alert = Alert("held", NAME, "R1", "t", "{{ 7 * 7 }} {% raw %}", "w", "n", "c")
    send(alert, load_pipeline(held.project, NAME).alerts.notify, make_context("R1"), SimpleNamespace(**_NO_LOG))
    [(_, _, text)] = read(held)
    assert text.startswith("t\nwhat: {{ 7 * 7 }} {% raw %}\nwhere: w\nnext: n\nfix: c\npage: ")


_NO_LOG: dict[str, Any] = {name: lambda *_: None for name in ("info", "warning", "error")}


def test_a_published_run_with_much_in_quarantine(held: Held) -> None:
    assert run(held, "R1", GOOD) == [None] * 3  # 1 of 5
    assert read(held) == []
    assert run(held, "R2", GOOD[:1]) == [None] * 3  # 1 of 2
    ((kind, title, text),) = read(held)
    assert kind == "quarantine_share" and "50.0% of run R2" in title and "tidegate quarantine list orders" in text


def test_failing_is_what_airflow_calls_back_for(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_tasks(held).ingest
    error = UsageError(
        "BAD_SUITE", "no such rule", where="line 3", next_run="fails again", fix="tidegate validate orders"
    )
    alert_on_failure(make_context("R1", task=task, exception=error))
    ((kind, title, text),) = read(held)
    assert (kind, title) == ("failing", "orders is failing: BAD_SUITE") and "fix: tidegate validate orders" in text
    alert_on_failure(make_context("R2", task=task, exception=HeldError("INCREMENT_HELD", "held")))
    assert read(held) == []  # told as that
    with pytest.raises(UsageError) as refused:
        read_form({}, {"no_such_key": 1})
    alert_on_failure(make_context("R2", task=task, exception=refused.value))
    assert read(held) == []  # the run did nothing, and the pipeline is as it was
    alert_on_failure(make_context("R3", task=task))  # its process was killed
    assert "ended from outside" in read(held)[0][2]
    alert_on_failure(make_context("R4", task=task, exception=MemoryError("no room")))
    assert "what: MemoryError: no room" in read(held)[0][2]


def test_behind_is_told_by_the_triggerer(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    context = {"dag_run": {"dag_run_id": "R2"}, "deadline": {"id": "x"}}
    call = {"pipeline": NAME, "project_root": str(held.root), "context": context}
    asyncio.run(tell_behind(**call))  # type: ignore[arg-type]
    ((kind, title, _),) = read(held)
    assert (kind, title) == ("behind", "orders is behind: no run has succeeded yet")
    # Work beside the runs takes nothing in, however long it waits or is at work.
    for more in ({"conf": {"replay": "all"}}, {"conf": {"backfill_from": "2026-01-01"}}, {"run_type": "backfill"}):
        asyncio.run(tell_behind(NAME, str(held.root), {"dag_run": {"dag_run_id": "R3", **more}}))
        assert read(held) == [], more
    asyncio.run(tell_behind(NAME, str(held.root), {"dag_run": {"dag_run_id": "R3", "conf": {"replay": None}}}))
    assert len(read(held)) == 1
    run(held, "R1", GOOD)
    asyncio.run(tell_behind(**call))  # type: ignore[arg-type]
    assert read(held) == []


_READ_DAG = """
import sys
sys.path.insert(0, sys.argv[1])
from tidegate.airflow import build_dag
from airflow.serialization.serialized_objects import DagSerialization

def mine(context):
    pass

dag = build_dag("orders", project_dir=sys.argv[1], default_args={"on_failure_callback": mine})
DagSerialization.to_dict(dag)
(deadline,) = dag.deadline
print(deadline.interval.total_seconds(), deadline.callback.path, deadline.callback.kwargs["pipeline"])
print([one.__name__ for one in dag.get_task("audit").on_failure_callback])
"""


def test_the_dag_watches_its_deadline_and_calls_back_behind_what_is_there(held: Held) -> None:
    (held.root / "read_dag.py").write_text(_READ_DAG)
    command = [sys.executable, str(held.root / "read_dag.py"), str(held.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = done.stdout.splitlines()[-2:]
    assert first == "3600.0 tidegate.airflow.alerts.tell_behind orders" and second == "['mine', 'alert_on_failure']"


def test_a_task_that_is_put_off_tells_nothing(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object, **__: object) -> None:
        raise TryAgainError("LEASE_HELD", "busy")

    monkeypatch.setattr("tidegate.runs.steps.ingest_run", busy)
    task = make_tasks(held).ingest
    task.takes_turns = True
    assert type(run_to_its_end(lambda: task.execute(make_context("R1")))).__name__ == "AirflowRescheduleException"
    assert read(held) == []


def test_nobody_waits_for_a_notifier_that_hangs(
    held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import pager_of_this_test as pager

    go = threading.Event()
    monkeypatch.setattr("tidegate.airflow.alerts._NOTIFY_SECONDS", 0.1)
    monkeypatch.setattr(pager.Broken, "notify", lambda *_: go.wait(60))
    try:
        run(held, "R1", BAD)
        assert [kind for kind, _, _ in read(held)] == ["held"], "the others are told"
    finally:
        go.set()


def test_what_a_killed_try_has_found_held_is_told_by_the_next(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.airflow.task._Reporting._report", lambda *_, **__: None)  # the process is gone by then
        run(held, "R1", BAD)
    assert read(held) == []
    context, audit = make_context("R1"), make_tasks(held).audit
    assert isinstance(run_to_its_end(lambda: audit.execute(context)), HeldError)
    assert [kind for kind, _, _ in read(held)] == ["held"]
    run_to_its_end(lambda: audit.execute_decision(context, {"chosen_options": ["Hm"]}))
    assert read(held) == [], "an answer that is refused tells nobody again"
