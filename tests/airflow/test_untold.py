"""What became of a run is told at least once, whenever its task is killed, and by no second process as well."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.endings import listen, make_context, make_tasks, run_to_its_end, run_without_spark, write_notifiers
from tests.support.held import BAD, GOOD, NAME, Held, commands
from tests.support.storage_calls import StorageCalls
from tidegate.airflow import alerts
from tidegate.airflow.errors import TASK_KILLED
from tidegate.airflow.requested_work import decide_held
from tidegate.core import storage
from tidegate.core.errors import TryAgainError
from tidegate.core.outputs import RunReport
from tidegate.runs.gate_steps import publish_run
from tidegate.runs.reports.report import load_report, save_report
from tidegate.views.pages.ahead import AheadPage

_PUBLISHED = f"airflow.tidegate.runs,pipeline={NAME},mode=incremental,outcome=published:1|c"
_ROWS = f"airflow.tidegate.rows.published,pipeline={NAME},mode=incremental:4|c"
_KILLED = 9


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Half of what its runs read is quarantined, and an alert is due of that."""
    run_without_spark(monkeypatch)
    monkeypatch.setattr("tidegate.airflow.metrics.look_at_ahead", lambda *_: AheadPage(NAME))
    pipeline = Held(tmp_path / "project", malformed=4)
    module = "pager_of_untold"
    file = write_notifiers(pipeline.root, monkeypatch, module)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with (pipeline.root / "tidegate.yaml").open("a") as settings:
        notifier = f"{{notifier: {module}.Pager, arguments: {{file: {file}}}}}"
        settings.write(f"alerts: {{notify: [{notifier}], quarantine_share: 0.3}}\n")
    with commands(lambda: pipeline):
        yield pipeline


def stage(held: Held, run_id: str) -> None:
    """A run whose last task is still to come."""
    tasks = make_tasks(held)
    held.arriving = [GOOD]
    for task in (tasks.ingest, tasks.audit):
        assert run_to_its_end(lambda task=task: task.execute(make_context(run_id))) is None  # type: ignore[misc]


def publish(held: Held, run_id: str) -> None:
    """The last task of a run."""
    assert run_to_its_end(lambda: make_tasks(held).publish.execute(make_context(run_id))) is None


def publish_untold(held: Held, run_id: str) -> None:
    """A run whose last task is gone before it tells what became of it."""
    stage(held, run_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.airflow.task._Reporting._report", lambda *_: None)
        publish(held, run_id)


def make_old(held: Held, run_id: str) -> None:
    """A run that ended so long ago that its own task tells no more."""
    report = load_report(held.paths, run_id)
    assert report is not None
    report.ended_at = "2026-01-01T00:00:00.000+00:00"
    save_report(held.paths, report)


def tick(held: Held, run_id: str) -> None:
    """A run that finds nothing new."""
    run_to_its_end(lambda: make_tasks(held).ingest.execute(make_context(run_id)))


def run_all(held: Held, run_id: str) -> None:
    """The tasks of a run, up to the first that is skipped."""
    tasks = make_tasks(held)
    for task in (tasks.ingest, tasks.audit, tasks.publish):
        if run_to_its_end(lambda task=task: task.execute(make_context(run_id))) is not None:  # type: ignore[misc]
            break


def in_a_process(work: Callable[[], None]) -> int:
    """How a process of its own ends."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def read_alerts(held: Held) -> list[str]:
    """The titles of the alerts that were sent."""
    file = held.root / "alerts.jsonl"
    return [json.loads(line)[1] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("by", ["another try", "the next run"])
def test_wherever_its_task_is_killed_the_end_of_a_run_is_told(
    held: Held, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str
) -> None:
    """A process is killed at a call of the storage. What it has told right before that is told again."""
    monkeypatch.setattr("tidegate.views.signals.unsent._SENDING", timedelta())
    stage(held, "R1")
    trial = held.copy(tmp_path / "trial")
    with pytest.MonkeyPatch.context() as patch, commands(lambda: trial):
        calls = StorageCalls(patch, 0, lambda _: None)
        publish(trial, "R1")
    total = calls.count

    def kill_and_go_on(one: Held, at: int) -> None:
        def die(_: str) -> None:
            os._exit(_KILLED)

        def work() -> None:
            with pytest.MonkeyPatch.context() as patch:
                StorageCalls(patch, at, die)
                publish(one, "R1")

        with commands(lambda: one):
            assert in_a_process(work) == _KILLED
            if by == "another try":
                publish(one, "R1")
            else:
                run_all(one, "R2")
            run_all(one, "R3")

    told = []
    with listen(monkeypatch) as receive:
        for at in (*range(1, total - 10, 12), *range(total - 10, total + 1)):
            one = held.copy(tmp_path / f"killed at {at}")
            kill_and_go_on(one, at)
            lines = receive()
            assert _PUBLISHED in lines and storage.list_folder(one.paths.untold, "[!.]*") == [], at
            told.append(lines.count(_ROWS))
    assert set(told) == {1, 2} and told[0] == 1 and told.count(2) <= 2, told


def test_what_a_killed_run_left_is_told_once_by_a_later_run_and_not_while_it_may_be_telling(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen(monkeypatch) as receive:
        publish_untold(held, "R1")
        receive()
        tick(held, "R2")
        assert _PUBLISHED not in receive() and read_alerts(held) == [], "its task may be about to tell"
        make_old(held, "R1")
        for run_id in ("R3", "R4"):
            tick(held, run_id)
        lines = receive()
        assert lines.count(_PUBLISHED) == lines.count(_ROWS) == 1
        assert sum(line.startswith("airflow.tidegate.published.at,") for line in lines) == 1
    assert read_alerts(held) == [f"{NAME} quarantined 50.0% of run R1"]


def test_gauges_of_a_run_that_a_later_one_has_overtaken_are_not_set_back(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1's task is killed before it tells, R2 publishes and tells, and R3, which has nothing new, tells of R1."""
    publish_untold(held, "R1")
    make_old(held, "R1")
    with listen(monkeypatch) as receive:
        with monkeypatch.context() as patch:
            patch.setattr("tidegate.airflow.task._report_left", lambda *_: None)
            stage(held, "R2")
            publish(held, "R2")
        receive()
        tick(held, "R3")
        lines = receive()
    assert _PUBLISHED in lines and _ROWS in lines
    assert not [line for line in lines if line.startswith(("airflow.tidegate.published.at", "airflow.tidegate.quar"))]


def test_a_decision_that_begins_while_its_run_is_told_is_told_too(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another DAG run decides on what is held, and begins while the task that found it held waits for a notifier."""
    tasks = make_tasks(held)
    held.arriving = [BAD]
    assert run_to_its_end(lambda: tasks.ingest.execute(make_context("R1"))) is None
    monkeypatch.setattr("tidegate.airflow.operators.ask", lambda *_: None)
    is_telling, may_end, tell = threading.Event(), threading.Event(), alerts.send_due_alerts

    def tell_slowly(project: Any, report: RunReport, *given: Any) -> None:
        tell(project, report, *given)
        if report["outcome"] == "held":
            is_telling.set()
            assert may_end.wait(30)

    monkeypatch.setattr(alerts, "send_due_alerts", tell_slowly)
    held_by = threading.Thread(target=lambda: run_to_its_end(lambda: tasks.audit.execute(make_context("R1"))))

    def decide_late(*given: Any) -> RunReport | None:
        may_end.set()
        held_by.join()
        return decide_held(*given)

    monkeypatch.setattr("tidegate.airflow.operators.decide_held", decide_late)
    conf = {"decide": "release", "decide_run_id": "R1", "decide_reason": "known"}
    context = make_context("R2", params=conf)
    context["dag_run"].conf = conf
    with listen(monkeypatch) as receive:
        held_by.start()
        assert is_telling.wait(30)
        assert run_to_its_end(lambda: make_tasks(held).ingest.execute(context)) is None
        lines = receive()
    assert lines.count(_PUBLISHED) == lines.count(_PUBLISHED.replace("published", "held")) == 1
    assert storage.list_names(held.paths.untold) == []


def test_what_waits_alone_and_was_not_told_is_told_by_a_later_run(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.views.signals.unsent._SENDING", timedelta())
    with (held.root / f"jobs/{NAME}/pipeline.yaml").open("a") as spec:
        spec.write("quality: {on_critical: continue}\n")
    tasks = make_tasks(held)
    held.arriving = [BAD]
    assert run_to_its_end(lambda: tasks.ingest.execute(make_context("R1"))) is None
    monkeypatch.setattr("tidegate.airflow.operators.ask", lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.airflow.task._Reporting._report", lambda *_: None)  # the process is gone by then
        run_to_its_end(lambda: tasks.audit.execute(make_context("R1")))
    with listen(monkeypatch) as receive:
        for run_id in ("R2", "R3"):
            tick(held, run_id)
        assert receive().count(_PUBLISHED.replace("published", "held")) == 1
    assert read_alerts(held) == [f"{NAME} is held: its run R1 waits for a decision"]


def test_tasks_of_several_runs_tell_once_what_was_left(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second task begins while the first one is telling."""
    monkeypatch.setattr("tidegate.views.signals.unsent._SENDING", timedelta(seconds=5))
    publish_untold(held, "R1")
    make_old(held, "R1")
    tell = alerts.send_due_alerts

    def tell_and_be_met(project: Any, told: RunReport, *given: Any) -> None:
        if told["run_id"] == "R1":
            monkeypatch.setattr(alerts, "send_due_alerts", tell)
            tick(held, "R3")
        tell(project, told, *given)

    monkeypatch.setattr(alerts, "send_due_alerts", tell_and_be_met)
    with listen(monkeypatch) as receive:
        tick(held, "R2")
        assert receive().count(_PUBLISHED) == 1
    assert len(read_alerts(held)) == 1


def test_a_notifier_that_hangs_keeps_no_task_for_all_that_was_left(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.views.signals.unsent._SENDING", timedelta())
    monkeypatch.setattr("tidegate.airflow.task._LEFT_SECONDS", 0.2)
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.airflow.task._Reporting._report", lambda *_: None)
        for run_id in ("R1", "R2", "R3"):
            run_all(held, run_id)
    told: list[str] = []

    def hang(_: Any, report: RunReport, *given: Any) -> None:
        told.append(report["run_id"])
        time.sleep(0.3)

    monkeypatch.setattr(alerts, "send_due_alerts", hang)
    for run_id in ("R4", "R5", "R6"):
        tick(held, run_id)
    assert told == ["R1", "R4", "R2", "R5", "R3", "R6"]


def test_a_try_that_slept_after_its_step_tells_nothing_again(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(held, "R1")
    tasks = make_tasks(held)

    def sleep(*given: object) -> object:
        monkeypatch.setattr("tidegate.runs.gate_steps.publish_run", publish_run)
        report = publish_run(*given)  # type: ignore[arg-type]
        publish(held, "R1")
        return report

    monkeypatch.setattr("tidegate.runs.gate_steps.publish_run", sleep)
    with listen(monkeypatch) as receive:
        assert run_to_its_end(lambda: tasks.publish.execute(make_context("R1"))) is None
        assert receive().count(_PUBLISHED) == 1
    assert len(read_alerts(held)) == 1


@pytest.mark.parametrize("is_tried_again", [True, False])
def test_a_task_that_is_stopped_after_its_publish_leaves_it_to_another(
    held: Held, monkeypatch: pytest.MonkeyPatch, is_tried_again: bool
) -> None:
    stage(held, "R1")

    def stop(*given: object) -> object:
        publish_run(*given)  # type: ignore[arg-type]
        raise TASK_KILLED(driver="")

    with listen(monkeypatch) as receive:
        with monkeypatch.context() as patch:
            patch.setattr("tidegate.runs.gate_steps.publish_run", stop)
            error = run_to_its_end(lambda: make_tasks(held).publish.execute(make_context("R1")))
        assert isinstance(error, TryAgainError) and error.code == TASK_KILLED.code
        assert _PUBLISHED not in receive() and read_alerts(held) == []
        make_old(held, "R1")
        if is_tried_again:
            publish(held, "R1")
        tick(held, "R2")
        lines = receive()
        assert lines.count(_PUBLISHED) == lines.count(_ROWS) == 1
    assert len(read_alerts(held)) == 1


def test_a_disk_that_takes_no_note_costs_no_task_and_no_metric(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    held.paths.untold.write_text("a file in the place of the folder")
    with listen(monkeypatch) as receive:
        stage(held, "R1")
        publish(held, "R1")
        assert receive().count(_PUBLISHED) == 1


def test_a_run_that_ends_as_it_should_leaves_nothing_to_tell(held: Held) -> None:
    stage(held, "R1")
    assert storage.list_names(held.paths.untold) == ["R1.json"]
    publish(held, "R1")
    tick(held, "R2")
    assert storage.list_names(held.paths.untold) == []
