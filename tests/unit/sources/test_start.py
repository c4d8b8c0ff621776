"""``start``: what the first look at a source passes over is never read, and nothing that comes after it is left out."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.model.world import NoThread
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tests.unit.inbox import SOURCE, Inbox, make_inbox
from tidegate.cli.commands import app
from tidegate.core.errors import DisagreementError, SourceLostError
from tidegate.runs import order as drive
from tidegate.runs.reports.report import load_report
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.steps import run_pipeline
from tidegate.sources.files.findings import check_starts_known, note_first_look
from tidegate.sources.files.ledger import open_ledger
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.pipeline import load_pipeline, read_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.views.outlook import plan_pipeline

NAME = "orders"


class Submitted(BaseException):
    """Spark would start here."""


def stop_at_spark(plan: SubmitPlan) -> int:
    raise Submitted


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    with make_inbox(tmp_path, start="now") as made:
        yield made


def first_look(inbox: Inbox, now: float | None = None) -> None:
    note_first_look(inbox.ledger, SOURCE, inbox.spec, inbox.scan(now))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(drive, "plan_submit", lambda project, **plan: SubmitPlan("", [], {}, "local[1]"))
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (tmp_path / "jobs" / NAME).mkdir(parents=True)
    (tmp_path / "data" / "inbox").mkdir(parents=True)
    write_spec(tmp_path, "now")
    return load_project(tmp_path)


def write_spec(root: Path, start: str, more: str = "") -> None:
    (root / "jobs" / NAME / "pipeline.yaml").write_text(
        f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
        f"  orders: {{type: files, path: data/inbox, format: csv, schema: id STRING, start: {start}{more}}}\n"
    )


def offer(project: Project, name: str, text: str = "1\n") -> Path:
    path = project.root / "data/inbox" / name
    path.write_text(text)
    return path


def owed(project: Project) -> list[str]:
    with open_ledger(project.paths(NAME), read_only=True) as ledger:
        return [Path(row.path).name for row in ledger.rows("orders", state="linked")]


def run(project: Project, run_id: str = "r") -> dict[str, Any] | None:
    """The report; None when Spark would have started."""
    try:
        return run_pipeline(project, NAME, run_id, submit=stop_at_spark)
    except Submitted:
        return None


# -- the source alone --


def test_what_is_there_counts_as_taken_and_what_comes_later_is_read(inbox: Inbox) -> None:
    inbox.write("old.json")
    inbox.write("half.json", '{"a"')
    inbox.write("empty.json", "")
    inbox.write("later.json.tmp")
    scan = inbox.scan()
    assert (scan.new, scan.began) == ((), None)
    assert sorted(one.path for one in scan.before_start) == ["inbox/half.json", "inbox/old.json"]
    first_look(inbox)
    inbox.write("new.json", "new\n")
    inbox.write("empty.json", "no more\n")
    (inbox.root / "inbox/later.json.tmp").rename(inbox.root / "inbox/later.json")
    scan, texts = inbox.run(0)
    assert sorted(texts) == [b"new\n", b"no more\n", b"{}\n"]
    assert (scan.changed, scan.before_start) == ((), ())


def test_a_time_divides_by_time_stamp_once(inbox: Inbox) -> None:
    inbox.keys["start"] = "2026-03-01T00:00:00+01:00"
    at = 1772319600
    for name, stamp in (("before", at - 0.001), ("at", at), ("after", at + 5)):
        os.utime(inbox.write(f"{name}.json", name + "\n"), (stamp, stamp))
    assert [one.path for one in inbox.scan().before_start] == ["inbox/before.json"]
    first_look(inbox)
    assert inbox.run(0)[1] == [b"after\n", b"at\n"]
    os.utime(inbox.write("copied.json", "older, and copied here later\n"), (0, 0))
    assert inbox.run(1)[1] == [b"older, and copied here later\n"]


def test_a_file_before_the_start_that_changes_follows_on_change(inbox: Inbox) -> None:
    path = inbox.write("old.json", "{}\n")
    first_look(inbox)
    inbox.write("old.json", "{}\n", append=True)
    scan, texts = inbox.run(0)
    assert texts == []
    (change,) = scan.changed
    assert (change["path"], change["how"], change["unread_bytes"]) == ("inbox/old.json", "grew", 3)
    path.unlink()
    assert inbox.run(1)[0].vanished == (), "nobody waits for it"


def test_lines_that_are_appended_to_it_are_read(inbox: Inbox) -> None:
    inbox.keys |= {"format": "text", "on_change": "reread_tail"}
    inbox.write("app.log", "old\nbegu")
    inbox.write("started.log", "begu")
    first_look(inbox)
    assert inbox.run(0)[1] == []
    inbox.write("app.log", "n\nnew\n", append=True)
    inbox.write("started.log", "n\n", append=True)
    assert sorted(inbox.run(1)[1]) == [b"begun\n", b"begun\nnew\n"]
    inbox.write("app.log", "more\n", append=True)
    scan, texts = inbox.run(2)
    assert (texts, scan.changed, scan.settling) == ([b"more\n"], (), ())


def test_the_first_look_stands_whatever_the_key_says_later(inbox: Inbox) -> None:
    inbox.write("old.json")
    first_look(inbox)
    inbox.keys["start"] = "all"
    first_look(inbox)
    assert inbox.run(0)[1] == []
    inbox.keys["start"] = "now"
    inbox.write("new.json", "new\n")
    first_look(inbox)
    assert inbox.run(1)[1] == [b"new\n"]


def test_a_source_that_has_read_files_has_begun(inbox: Inbox) -> None:
    inbox.keys["start"] = "all"
    inbox.write("one.json", "one\n")
    assert inbox.run(0)[1] == [b"one\n"]
    inbox.keys["start"] = "now"
    inbox.write("two.json", "two\n")
    first_look(inbox)
    assert inbox.run(1)[1] == [b"two\n"]


def test_it_is_not_read_again_by_a_repair(inbox: Inbox) -> None:
    inbox.write("old.json", "old\n")
    first_look(inbox)
    inbox.write("new.json", "new\n")
    inbox.run(0)
    inbox.ledger.return_to_linked({"q": -1})
    inbox.restore()
    links = [row.link for row in inbox.ledger.rows(SOURCE, state="linked")]
    assert [(inbox.intake / link).read_bytes() for link in links] == [b"new\n"]


def test_a_folder_that_cannot_be_listed_leaves_the_start_open(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox.write("day=1/old.json")
    real = os.scandir
    closed = str(inbox.root / "inbox/day=1")

    def scandir(path: Any) -> Any:
        if str(path) == closed:
            raise PermissionError(13, "Permission denied", closed)
        return real(path)

    with monkeypatch.context() as patch, pytest.raises(SourceLostError) as refused:
        patch.setattr(os, "scandir", scandir)
        inbox.scan()
    assert refused.value.code == "SOURCE_UNREADABLE" and closed in refused.value.message
    assert inbox.ledger.start_of(SOURCE) is None


# -- runs --


def test_the_report_and_plan_say_what_was_not_read(project: Project) -> None:
    offer(project, "a.csv")
    offer(project, "b.csv", "22\n")
    plan = plan_pipeline(project, NAME)
    earlier = {"start": "now", "at": None, "files": 2, "bytes": 5, "paths": ["data/inbox/a.csv", "data/inbox/b.csv"]}
    assert plan["sources"]["orders"]["before_start"] == earlier
    assert any("2 files (5 bytes) are there before that" in note for note in plan["notes"])
    assert plan["summary"] == "nothing new"
    report = run(project)
    assert report is not None and report["outcome"] == "nothing_new"
    told = report["sources"]["orders"]["before_start"]
    assert told | {"at": None} == earlier and told["at"]
    assert any("count as taken and were not read" in note for note in report["notes"])
    assert run(project) == report
    later = run(project, "later")
    assert later is not None and later["notes"] == []
    assert later["sources"]["orders"]["before_start"] == {key: told[key] for key in told if key != "paths"}
    offer(project, "c.csv")
    assert run(project, "third") is None
    assert owed(project) == ["c.csv"]


def test_killed_anywhere_before_the_first_batch(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call that changes the disk."""
    monkeypatch.setattr("tidegate.state.lease.threading", SimpleNamespace(**{**vars(threading), "Thread": NoThread}))
    monkeypatch.setattr("tidegate.state.lease.is_dead", lambda *holder: True)
    root, at, after_the_look = project.root, 0, 0
    while True:
        at += 1
        here = root / f"try{at}"
        here.mkdir()
        (here / "tidegate.yaml").write_text("version: 1\n")
        (here / "jobs" / NAME).mkdir(parents=True)
        (here / "data" / "inbox").mkdir(parents=True)
        write_spec(here, "now")
        one = load_project(here)
        offer(one, "old.csv")
        with monkeypatch.context() as patch:
            StorageCalls(patch, at, kill)
            try:
                run(one, "killed")
                killed = False
            except KilledHere:
                killed = True
        with open_ledger(one.paths(NAME), read_only=True) as ledger:
            looked = ledger.start_of("orders") is not None
        offer(one, "new.csv")
        report = run(one, "next")
        earlier = "old.csv" if looked else "new.csv old.csv"
        if looked:
            after_the_look += killed
            assert report is None and owed(one) == ["new.csv"]
        else:  # nobody had looked yet, and this look is named
            assert report is not None and report["sources"]["orders"]["before_start"]["files"] == 2
        with open_ledger(one.paths(NAME), read_only=True) as ledger:
            assert [Path(path).name for path in ledger.before_start("orders", 9)] == earlier.split()
        reports = [load_report(one.paths(NAME), name) for name in ("killed", "next")]
        told = [one.sources.get("orders", {}) for one in reports if one is not None]
        named = [one for one in told if "paths" in one.get("before_start", {})]
        assert named, "a report names what was not read, whoever was killed"
        if not killed:
            break
    assert after_the_look > 3


def test_a_transaction_that_is_cut_off_is_no_look(inbox: Inbox) -> None:
    for number in range(5):
        inbox.write(f"{number}.json")
    scan = inbox.scan()

    def cut_off() -> Iterator[Any]:
        yield from scan.before_start[:3]
        raise KilledHere

    class Torn(tuple[Any, ...]):
        def __iter__(self) -> Iterator[Any]:
            return cut_off()

    with pytest.raises(KilledHere):
        inbox.ledger.note_start(SOURCE, "now", Torn(scan.before_start))
    assert inbox.ledger.start_of(SOURCE) is None and inbox.ledger.rows() == []


def test_a_changed_start_is_said_and_does_nothing(project: Project) -> None:
    offer(project, "old.csv")
    run(project)
    write_spec(project.root, "all")
    (note,) = plan_pipeline(project, NAME)["notes"]
    assert "start is all, and was now" in note and "the change has no effect on what is read" in note
    shown = CliRunner().invoke(app, ["--project", str(project.root), "validate"])
    assert shown.exit_code == 0 and "start is all, and was now" in shown.stderr
    report = run(project, "again")
    assert report is not None and report["outcome"] == "nothing_new" and owed(project) == []
    write_spec(project.root, "now")
    assert plan_pipeline(project, NAME)["notes"] == []
    assert CliRunner().invoke(app, ["--project", str(project.root), "validate"]).stderr == ""


def test_a_rebuild_reads_what_was_read_and_no_more(project: Project) -> None:
    offer(project, "old.csv")
    run(project)
    offer(project, "new.csv")
    assert run(project, "second") is None
    value = repair_pipeline(project, NAME, dry_run=False, rebuild=True)
    assert "reads 1 file that the table's log does not hold" in value["next_run"]
    assert run(project, "third") is None and owed(project) == ["new.csv"]


def test_a_rebuild_without_the_record_of_the_first_look_is_refused(project: Project) -> None:
    spec, paths = load_pipeline(project, NAME), project.paths(NAME)
    with pytest.raises(DisagreementError) as refused:
        check_starts_known(spec, paths)
    assert refused.value.code == "START_UNKNOWN" and "start: all" in (refused.value.fix or "")
    run(project)
    check_starts_known(spec, paths)


@pytest.mark.parametrize(
    ("start", "more", "wrong", "fix"),
    [
        ("nwo", "", "not a place to start", "write now"),
        ("earliest", "", "not a place to start", "write all, now, or an ISO time stamp"),
        ("'2026-03-01'", "", "no time zone", "write 2026-03-01T00:00:00Z for UTC"),
        ("now", ", static: true", "read whole in each run", "remove it"),
    ],
)
def test_a_start_that_cannot_be(project: Project, start: str, more: str, wrong: str, fix: str) -> None:
    write_spec(project.root, start, more)
    _, faults = read_pipeline(project, NAME)
    (fault,) = [fault for fault in faults if fault.key.endswith("start")]
    assert wrong in fault.message and fault.fix == fix and fault.line == 5


@pytest.mark.parametrize("start", ["2026-03-01T00:00:00Z", "'2026-03-01T00:00:00+01:00'", "all", "now"])
def test_a_start_that_can_be(project: Project, start: str) -> None:
    write_spec(project.root, start)
    assert read_pipeline(project, NAME)[1] == []
    assert json.loads(CliRunner().invoke(app, ["--project", str(project.root), "plan", NAME, "--json"]).stdout)
