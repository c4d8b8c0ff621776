"""Steps of a run that end before Spark starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.held import GOOD, Held, commands
from tests.support.storage_calls import KilledHere, kill
from tests.support.texts import write_project
from tidegate.cli.show_runs import show_report
from tidegate.core.errors import SourceLostError, TryAgainError, UsageError
from tidegate.runs.decide import decide
from tidegate.runs.preflight.definition import describe_change, list_changes, list_edits
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Answer
from tidegate.runs.steps import ingest_run, run_pipeline
from tidegate.spark.driver.order import write_result
from tidegate.spark.driver.progress import describe_report
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.lease import acquire

NAME = "orders"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A files pipeline whose folder is empty."""
    spec = f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
    spec += "  orders: {type: files, path: data/inbox, format: csv, schema: id STRING}\n"
    (tmp_path / "data" / "inbox").mkdir(parents=True)
    return write_project(tmp_path, {f"jobs/{NAME}/pipeline.yaml": spec})


def no_spark(plan: SubmitPlan) -> int:
    raise AssertionError("Spark was started")


def test_nothing_new_needs_no_spark_and_a_repeated_run_id_says_the_same(project: Project) -> None:
    first = run_pipeline(project, NAME, "tick", submit=no_spark)
    assert first["outcome"] == "nothing_new"
    assert run_pipeline(project, NAME, "tick", submit=no_spark) == first


def test_a_decision_that_cannot_be_taken_leaves_the_report_as_it_was(project: Project) -> None:
    (project.root / "data" / "inbox").rmdir()
    with pytest.raises(SourceLostError):
        run_pipeline(project, NAME, "failed", submit=no_spark)
    before = load_report(project.paths(NAME), "failed")
    assert before is not None and before.error is not None and before.error["code"] == "SOURCE_MISSING"
    with pytest.raises(UsageError) as refused:
        decide(project, NAME, "failed", Answer("release", "looked at it"))
    assert refused.value.code == "NOT_HELD"
    assert load_report(project.paths(NAME), "failed") == before


@pytest.mark.parametrize("reason", ["  ", "..."])
def test_a_decision_needs_a_reason(project: Project, reason: str) -> None:
    """Also when a printed command is typed as it stands."""
    with pytest.raises(UsageError) as refused:
        decide(project, NAME, "some", Answer("discard", reason))
    assert refused.value.code == "REASON_MISSING"


def test_the_second_run_says_who_holds_the_lease(project: Project) -> None:
    paths = project.paths(NAME)
    with acquire(paths, run_id="first", command="run", expires_after_seconds=60), pytest.raises(TryAgainError) as busy:
        ingest_run(project, NAME, "second", submit=no_spark)
    assert busy.value.code == "LEASE_HELD" and "first" in busy.value.message
    assert load_report(paths, "second") is None


@pytest.mark.parametrize("run_id", ["", "a\nb", "x" * 300])
def test_a_run_id_that_cannot_be_one(project: Project, run_id: str) -> None:
    with pytest.raises(UsageError) as refused:
        run_pipeline(project, NAME, run_id, submit=no_spark)
    assert refused.value.code == "BAD_RUN_ID"


@pytest.mark.parametrize("rows", [GOOD, GOOD[:1]], ids=["rows", "a row"])
def test_who_finishes_a_publish_of_a_killed_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[dict[str, int]]
) -> None:
    held = Held(tmp_path)
    told = f"finished run R1: published {len(rows)} row{'s' if len(rows) > 1 else ''}"
    with commands(lambda: held):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
            patch.setattr("tidegate.runs.gate.increment.finish_work", lambda *a, **how: kill("the publish"))
            held.run("R1", rows)
        report = held.run("R2")
        assert (report["outcome"], report["notes"]) == ("nothing_new", [told])
        assert held.run("R2") == report
        assert held.run("R3")["notes"] == []
    show_report(report)
    assert f"  note: {told}\n" in capsys.readouterr().out
    assert describe_report(report).endswith(f" | note: {told}")


def test_who_carries_out_a_decision_on_another_run_says_so(tmp_path: Path) -> None:
    held = Held(tmp_path)
    with commands(lambda: held):
        held.hold("R1")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
            patch.setattr("tidegate.runs.gate.decisions.publish_increment", lambda *a: kill("the decision"))
            held.decide("discard")
        report = held.run("R2", GOOD)
    assert (report["outcome"], report["notes"]) == ("published", ["finished run R1: discarded 3 rows"])


def test_a_run_that_was_never_held_is_not_decided_on(project: Project) -> None:
    run_pipeline(project, NAME, "tick", submit=no_spark)
    with pytest.raises(UsageError, match=r"NOT_HELD: .* holds no increment: it is nothing new: 0 records read"):
        decide(project, NAME, "tick", Answer("release", "why not"), submit=no_spark)


def test_a_run_that_is_interrupted(project: Project) -> None:
    def interrupt(plan: SubmitPlan) -> int:
        raise KeyboardInterrupt

    (project.root / "data" / "inbox" / "a.csv").write_text("1\n")
    os.utime(project.root / "data" / "inbox" / "a.csv", (1, 1))
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(project, NAME, "stopped", submit=interrupt)
    report = load_report(project.paths(NAME), "stopped")
    assert report is not None and report.error is not None and report.error["code"] == "STOPPED"


def test_what_is_edited_while_the_driver_reads_was_read_by_no_run_yet(project: Project) -> None:
    paths = project.paths(NAME)
    spec, transform = paths.spec, paths.job / "transform.py"
    spec.write_text(spec.read_text() + "transform: transform.py\n")
    made = "def transform(orders):\n    return orders\n"

    def drive(run_id: str, *, then: str) -> None:
        def edit(plan: SubmitPlan) -> int:
            transform.write_text(then)
            write_result(paths.ingest_result(run_id), None)
            return 0

        arrived = project.root / "data" / "inbox" / f"{run_id}.csv"
        arrived.write_text("1\n")
        os.utime(arrived, (1, 1))
        ingest_run(project, NAME, run_id, submit=edit)

    transform.write_text(made)
    drive("R1", then=made + "# edited\n")
    assert list_edits(paths) == []
    since, changes = list_changes(project, load_pipeline(project, NAME), paths)
    assert since == "R1" and list(map(describe_change, changes)) == ["query transform.py was edited"]
    drive("R2", then=made)
    assert [edit["run_id"] for edit in list_edits(paths)] == ["R2"]
