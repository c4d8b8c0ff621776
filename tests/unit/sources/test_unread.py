"""What a person has to change before it can be read is not "nothing new": a run names it, and fails if that is all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.no_rights import without_privileges
from tests.unit.inbox import SOURCE, Inbox, make_inbox
from tests.unit.settled_projects import make_project, make_settled
from tidegate.core.errors import SourceLostError, TidegateError, TryAgainError, UsageError
from tidegate.core.outputs import RunReport, SourceReport
from tidegate.runs import order
from tidegate.runs.reports.report import load_report, new_report, read_newest, save_report
from tidegate.runs.steps import ingest_run, run_pipeline
from tidegate.sources.files.pinned import list_static
from tidegate.spark.driver.progress import describe_report
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.views.outlook import plan_pipeline
from tidegate.views.pages.pipelines import look_at
from tidegate.views.status import needs_a_person, project_status
from tidegate.views.stream import stream_pipeline

NAME = "orders"
CLOSED = "data/inbox/closed.csv"


class Submitted(BaseException):
    """Spark would start here."""


def stop_at_spark(plan: SubmitPlan) -> int:
    raise Submitted


def no_spark(plan: SubmitPlan) -> int:
    raise AssertionError("Spark was started")


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    with make_inbox(tmp_path, settle="0 seconds") as made, without_privileges():
        yield made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A pipeline whose only file may not be read."""
    monkeypatch.setattr(order, "plan_submit", lambda project, **plan: SubmitPlan("", [], {}, "local[1]"))
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (tmp_path / "jobs" / NAME).mkdir(parents=True)
    (tmp_path / "jobs" / NAME / "pipeline.yaml").write_text(
        f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
        "  orders: {type: files, path: data/inbox, format: csv, schema: id STRING, settle: 0 seconds}\n"
    )
    (tmp_path / "data/inbox").mkdir(parents=True)
    (tmp_path / CLOSED).write_text("1\n")
    (tmp_path / CLOSED).chmod(0)
    with without_privileges():
        yield load_project(tmp_path)


def offer_what_a_person_can_change(inbox: Inbox) -> set[str]:
    root = inbox.root
    inbox.write("mode.json").chmod(0)
    inbox.write("day=1/a.json").parent.chmod(0)
    inbox.write("day=2/no-search.json").parent.chmod(0o600)
    (root / "inbox/dangling.json").symlink_to(root / "nowhere.json")
    (root / "outside.json").write_text("{}\n")
    (root / "inbox/outside.json").symlink_to(root / "outside.json")
    os.mkfifo(root / "inbox/pipe.json")
    named = ("mode.json", "day=1", "day=2/no-search.json", "dangling.json", "outside.json", "pipe.json")
    return {f"inbox/{name}" for name in named}


def offer_what_a_rule_leaves(inbox: Inbox) -> set[str]:
    inbox.write("_hidden.json")
    inbox.write("a.json.tmp")
    inbox.write("old/a.json")
    inbox.write("empty.json", "")
    return {f"inbox/{name}" for name in ("_hidden.json", "a.json.tmp", "old", "empty.json")}


def test_what_a_person_can_change_says_how(inbox: Inbox) -> None:
    wanted, others = offer_what_a_person_can_change(inbox), offer_what_a_rule_leaves(inbox)
    scan = inbox.scan()
    (inbox.root / "inbox/day=1").chmod(0o700)
    (inbox.root / "inbox/day=2").chmod(0o700)
    assert {one["path"] for one in scan.skipped if one.get("fix")} == wanted
    assert {one["path"] for one in scan.skipped if "fix" not in one} == others
    assert not scan.new


def test_a_file_in_a_folder_of_another_type_of_partition_says_how(inbox: Inbox) -> None:
    inbox.write("day=2026-01-01/a.json")
    inbox.write("day=soon/a.json")
    inbox.keys["schema"] = "id INT, day DATE"
    scan = inbox.scan()
    assert [entry.path for entry in scan.new] == ["inbox/day=2026-01-01/a.json"]
    assert [(one["path"], "fix" in one) for one in scan.skipped] == [("inbox/day=soon/a.json", True)]


@pytest.mark.parametrize(("closed", "mode", "named"), [("b", 0, "b"), ("b/in", 0, "b/in"), ("b", 0o600, "b/in")])
def test_a_folder_within_a_pattern(inbox: Inbox, closed: str, mode: int, named: str) -> None:
    """Without the right to list it, or to search it: then its entries can be listed, and not looked at."""
    for name in ("a", "b"):
        inbox.write(f"{name}/in/x.json")
        inbox.write(f"{name}/note.txt")
    (inbox.root / "inbox" / closed).chmod(mode)
    for pattern in ("inbox/*/in/*.json", "inbox/**/*.json"):
        inbox.keys["path"] = pattern
        scan = inbox.scan()
        assert [entry.path for entry in scan.new] == ["inbox/a/in/x.json"]
        assert [one["path"] for one in scan.skipped if "fix" in one] == [f"inbox/{named}"], pattern
    (inbox.root / "inbox" / closed).chmod(0o700)


def test_what_several_parts_of_a_pattern_meet_is_named_once(inbox: Inbox) -> None:
    (inbox.root / "outside.json").write_text("{}\n")
    inbox.write("a/b.json")
    (inbox.root / "inbox/a/link.json").symlink_to(inbox.root / "outside.json")
    inbox.keys["path"] = "inbox/**/*.json"
    assert [one["path"] for one in inbox.scan().skipped] == ["inbox/a/link.json"]


@pytest.mark.parametrize("named", ["inbox/dangling.json", "inbox/day=1", "inbox/day=1/a.json"])
def test_a_static_source_that_cannot_be_read_whole_is_refused(inbox: Inbox, named: str) -> None:
    inbox.write("_hidden.json")
    inbox.write("day=1/a.json")
    assert [entry.path for entry in list_static(inbox.project, inbox.paths, SOURCE, inbox.spec)[0]]
    closed = inbox.root / named
    if closed.exists():
        closed.chmod(0)
    else:
        closed.symlink_to(inbox.root / "nowhere.json")
    with pytest.raises(UsageError) as refused:
        list_static(inbox.project, inbox.paths, SOURCE, inbox.spec)
    (inbox.root / "inbox/day=1").chmod(0o700)
    assert refused.value.code == "STATIC_UNREADABLE" and refused.value.message.startswith(f"{named} of")
    way = "restore what it leads to" if named == "inbox/dangling.json" else "the right to"
    assert way in str(refused.value.fix)


def archive_with_a_link(inbox: Inbox) -> Path:
    """A file was read, and then moved out of the source; a link to it is left."""
    path, archived = inbox.write("a.json"), inbox.root / "a.json"
    assert inbox.run(0)[1] == [b"{}\n"]
    shutil.move(path, archived)
    path.symlink_to(archived)
    return archived


def fixes(inbox: Inbox) -> list[tuple[str, bool]]:
    """What the scan names, and whether a person has to do something about it."""
    return [(one["path"], "fix" in one) for one in inbox.scan().skipped]


@pytest.mark.parametrize("on_change", ["report", "reread_tail"])
def test_a_link_to_a_file_that_was_read_needs_nothing(inbox: Inbox, on_change: str) -> None:
    inbox.keys["on_change"] = on_change
    archived = archive_with_a_link(inbox)
    assert fixes(inbox) == [("inbox/a.json", False)]
    archived.unlink()
    assert fixes(inbox) == [("inbox/a.json", False)]


@pytest.mark.parametrize("on_change", ["report", "reread_tail"])
def test_a_link_to_other_content_than_was_read_says_how(inbox: Inbox, on_change: str) -> None:
    inbox.keys["on_change"] = on_change
    archive_with_a_link(inbox).write_text("{}\n{}\n")
    assert fixes(inbox) == [("inbox/a.json", True)]


def test_a_link_in_place_of_a_file_that_was_cleared_away_says_how(inbox: Inbox) -> None:
    archive_with_a_link(inbox)
    inbox.ledger.note_place(SOURCE, ["inbox/a.json"], "cleared")
    assert fixes(inbox) == [("inbox/a.json", True)]


def test_a_file_that_was_read_may_be_closed(inbox: Inbox) -> None:
    inbox.write("a.json")
    inbox.run(0)
    (inbox.root / "inbox/a.json").chmod(0)
    assert fixes(inbox) == []


TRANSIENT = [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EMFILE]


@contextmanager
def listing_fails(number: int) -> Iterator[None]:
    """The folder ``day=1`` cannot be listed."""
    real = os.scandir

    def scandir(folder: str) -> Any:
        if str(folder).endswith("/day=1"):
            raise OSError(number, os.strerror(number), folder)
        return real(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        yield


@pytest.mark.parametrize("number", TRANSIENT)
def test_a_run_is_retried_where_only_the_storage_failed(project: Project, number: int) -> None:
    (project.root / "data/inbox/day=1").mkdir()
    with listing_fails(number):
        with pytest.raises(SourceLostError, match="FILES_UNREAD"):
            run_pipeline(project, NAME, "R1", submit=no_spark)
        (project.root / CLOSED).unlink()
        with pytest.raises(TryAgainError) as failed:
            run_pipeline(project, NAME, "R1", submit=no_spark)
        assert plan_pipeline(project, NAME)["exit_code"] == 75
    assert failed.value.exit_code == 75 and "data/inbox/day=1 (cannot be listed: " in failed.value.message
    assert run_pipeline(project, NAME, "R1", submit=no_spark)["outcome"] == "nothing_new"


@pytest.mark.parametrize("number", TRANSIENT)
def test_a_file_on_failed_storage_is_retried(inbox: Inbox, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Where the file cannot be looked at, and where it cannot be opened: the last line is looked for."""
    inbox.keys["settle"] = "10 seconds"
    inbox.keys["on_change"] = "reread_tail"
    path = inbox.write("a.json")
    os.utime(path, (0, 0))

    def fail(*args: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    for name in ("opened", "find_unreadable"):
        monkeypatch.setattr(f"tidegate.sources.files.scan.{name}", fail if name == "opened" else lambda *_: None)
    (one,) = inbox.scan(now=path.stat().st_ctime + 60).skipped
    assert one["retry"] and "mounted" in one["fix"]


@contextmanager
def opening_fails(number: int) -> Iterator[None]:
    """The file ``CLOSED`` cannot be opened, and access says no, as for a missing right."""
    real_open, real_access = os.open, os.access

    def open_(path: Any, *args: Any, **more: Any) -> int:
        if str(path).endswith(CLOSED):
            raise OSError(number, os.strerror(number), path)
        return real_open(path, *args, **more)

    def access(path: Any, *args: Any, **more: Any) -> bool:
        return not str(path).endswith(CLOSED) and real_access(path, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", open_)
        patch.setattr(os, "access", access)
        yield


@pytest.mark.parametrize("number", TRANSIENT)
def test_a_storage_that_fails_is_no_missing_right(project: Project, number: int) -> None:
    with opening_fails(number):
        with pytest.raises(TryAgainError, match="STORAGE_FAILED") as failed:
            run_pipeline(project, NAME, "R1", submit=no_spark)
        assert plan_pipeline(project, NAME)["exit_code"] == 75
        paths, files = project.paths(NAME), load_pipeline(project, NAME).file_streams["orders"]
        with pytest.raises(TryAgainError, match="STORAGE_FAILED"):
            list_static(project, paths, "orders", files)
    assert f"{CLOSED} (cannot be read: {os.strerror(number)}" in failed.value.message
    with opening_fails(errno.EACCES), pytest.raises(SourceLostError, match=r"no permission to read it"):
        run_pipeline(project, NAME, "R2", submit=no_spark)


@pytest.mark.parametrize("number", TRANSIENT)
def test_a_static_source_on_failed_storage_is_retried(inbox: Inbox, number: int) -> None:
    inbox.write("day=1/a.json")
    with listing_fails(number), pytest.raises(TryAgainError, match=r"inbox/day=1 failed: cannot be listed"):
        list_static(inbox.project, inbox.paths, SOURCE, inbox.spec)


@pytest.mark.parametrize("run", [run_pipeline, ingest_run])
def test_a_run_that_can_read_nothing_fails_without_spark_and_a_retry_reads_it(project: Project, run: Any) -> None:
    with pytest.raises(SourceLostError) as refused:
        run(project, NAME, "R1", submit=no_spark)
    error = refused.value
    assert (error.code, error.exit_code, error.retry) == ("FILES_UNREAD", 66, False)
    assert f"{CLOSED} (no permission to read it)" in error.message
    report = load_report(project.paths(NAME), "R1")
    assert report is not None and report.outcome == "failed"
    assert [one["path"] for one in report.sources["orders"]["skipped"] if "fix" in one] == [CLOSED]
    (project.root / CLOSED).chmod(0o600)
    with pytest.raises(Submitted):
        run(project, NAME, "R1", submit=stop_at_spark)
    report = load_report(project.paths(NAME), "R1")
    assert report is not None and "skipped" not in report.sources["orders"]


def test_a_run_that_has_something_to_read_reads_it(project: Project) -> None:
    (project.root / "data/inbox/open.csv").write_text("1\n")
    with pytest.raises(Submitted):
        run_pipeline(project, NAME, "R1", submit=stop_at_spark)


def test_what_a_rule_leaves_is_nothing_new(project: Project) -> None:
    (project.root / CLOSED).rename(project.root / "data/inbox/_closed.csv")
    assert run_pipeline(project, NAME, "R1", submit=no_spark)["outcome"] == "nothing_new"


def test_plan_names_it_until_it_can_be_read(project: Project) -> None:
    def notes() -> list[str]:
        return [note for note in plan_pipeline(project, NAME)["notes"] if "cannot be read" in note]

    plan = plan_pipeline(project, NAME)
    assert (plan["summary"], plan["exit_code"]) == ("nothing that can be read: the next run fails", 66)
    (note,) = notes()
    assert note.startswith(f"source orders: 1 file or folder cannot be read: {CLOSED} (no permission to read it); to ")
    (project.root / CLOSED).chmod(0o600)
    assert notes() == [] and plan_pipeline(project, NAME)["exit_code"] == 0


def test_a_stream_says_it_once_and_goes_on(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    pauses = iter([lambda: None, lambda: None, lambda: (project.root / CLOSED).unlink(), lambda: None])

    def pause(seconds: float) -> None:
        try:
            next(pauses)()
        except StopIteration:
            raise TryAgainError("STOPPED", "stopped") from None

    monkeypatch.setattr("tidegate.views.stream.time.sleep", pause)

    def on_error(error: TidegateError) -> None:
        said.append(error.code)

    stream_pipeline(project, NAME, every_seconds=1, submit=no_spark, on_report=print, on_error=on_error)
    assert said == ["FILES_UNREAD"]
    kept = [report.outcome for report in read_newest(project.paths(NAME), 9)[0]]
    assert kept == ["nothing_new", "failed"], "of the same outcomes in a row one is kept"


def report_unread(project: Project, name: str, runs: int) -> None:
    """The newest of the runs that published have found it so."""
    source: SourceReport = {"rows": 1, "skipped": [{"path": f"inbox/{name}/new.txt", "why": "w", "fix": "f"}]}
    for report in read_newest(project.paths(name), runs)[0]:
        report.sources = {"s": source}
        save_report(project.paths(name), report)


@pytest.mark.parametrize("runs", [0, 1, 2, 3])
def test_status_needs_a_person_when_two_runs_have_found_it_so(tmp_path: Path, runs: int) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    unread = tmp_path / "inbox/flow/new.txt"
    unread.symlink_to(tmp_path / "nowhere.txt")
    report_unread(project, "flow", runs)
    for name in ("flow", None):
        (row,) = project_status(project, name)
        assert [(one["path"], one["runs"]) for one in row["unread"]] == [("inbox/flow/new.txt", runs)]
        assert any("inbox/flow/new.txt (symbolic link to nothing)" in note for note in row["notes"])
        first = "first inbox/flow/new.txt (symbolic link to nothing)"
        said = f"flow: 1 file or folder could not be read by the last {runs} runs or more, {first}"
        assert needs_a_person([row]) == ([said] if runs >= 2 else [])
    save_report(project.paths("flow"), new_report("flow", "R9"))
    (row,) = project_status(project, "flow")
    assert row["unread"][0]["runs"] == runs, "a run that has not ended says nothing yet"
    (tmp_path / "nowhere.txt").write_text("y\n")
    unread.unlink()
    (row,) = project_status(project, None)
    assert (row["unread"], row["trouble"]) == ([], []), "the warning goes with its cause"


def test_log_and_pages_name_it(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    make_settled(project, "flow")
    assert look_at(project, "flow").why == []
    report_unread(project, "flow", 1)
    said = "source s: 1 file or folder cannot be read: inbox/flow/new.txt (w); to have it read: f"
    row = look_at(project, "flow")
    assert (row.state, row.why) == ("up_to_date", [said])
    newest: RunReport = read_newest(project.paths("flow"), 1)[0][0].to_json()
    assert f" | warning: {said}" in describe_report(newest)
