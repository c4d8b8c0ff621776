"""Files that were read go into the archive or away, and no later look takes them for lost or reads them again."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.kept import Kept, list_everything
from tests.support.staged import QUERY
from tests.support.storage_calls import KilledHere
from tests.unit.inbox import SOURCE, Inbox
from tests.unit.manifests import manifest
from tidegate.rework.backfill.held import keep_held
from tidegate.rework.backfill.span import Interval
from tidegate.rework.maintain.sources import find_chores, find_recent_batches, overlap
from tidegate.runs.reports.report import new_report
from tidegate.runs.reports.verdicts import StoredVerdict, WaitingIncrement, save_waiting
from tidegate.sources.files import differences
from tidegate.sources.files.consumed import Consumed, clear_consumed, find_consumed, finish_clearing
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.ledger import FileState, open_ledger
from tidegate.sources.files.listing import ARCHIVE_FOLDER
from tidegate.sources.files.source import FilesStream
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import load_project
from tidegate.table.log.files import LOG_FOLDER, commit_name
from tidegate.table.publish.intent import PublishIntent


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    inbox = Inbox(tmp_path, open_ledger(Inbox(tmp_path, None).paths, create=True))  # type: ignore[arg-type]
    yield inbox
    inbox.ledger.close()


def look(inbox: Inbox, recent: dict[str, int] | None = None) -> Consumed:
    return find_consumed(FilesStream(inbox.project, inbox.paths, SOURCE, inbox.spec, inbox.ledger), recent or {})


def clear(inbox: Inbox, how: Any = "archive", consumed: Consumed | None = None) -> list[str]:
    found = look(inbox) if consumed is None else consumed
    done, faults = clear_consumed(inbox.ledger, SOURCE, found, how, lambda: None)
    assert not faults
    return [file.path for file in done]


def quiet(inbox: Inbox) -> None:
    """The next look at the folder has nothing to say."""
    scan, read = inbox.run(9)
    assert (scan.new, scan.vanished, scan.changed, scan.skipped, scan.settling, read) == ((), (), (), (), (), [])


def present(inbox: Inbox) -> dict[str, bytes]:
    folder = inbox.root / "inbox"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fill(inbox: Inbox) -> dict[str, bytes]:
    """Three files, one in a folder, read and published."""
    inbox.keys["schema"] = "id BIGINT"  # so that day=1 is just a folder
    for name in ("a.json", "day=1/b.json", "c d.json"):
        inbox.write(name, f'{{"name": "{name}"}}\n')
    _, read = inbox.run(0)
    assert len(read) == 3
    return present(inbox)


def test_the_archive_keeps_names_and_folders_and_the_next_look_is_quiet(inbox: Inbox) -> None:
    before = fill(inbox)
    assert sorted(clear(inbox)) == ["inbox/a.json", "inbox/c d.json", "inbox/day=1/b.json"]
    assert present(inbox) == {f"{ARCHIVE_FOLDER}/{name}": data for name, data in before.items()}
    quiet(inbox)
    inbox.write("d.json")
    scan, read = inbox.run(1)
    assert [entry.path for entry in scan.new] == ["inbox/d.json"] and len(read) == 1


def test_deleted_files_leave_nothing_behind(inbox: Inbox) -> None:
    fill(inbox)
    assert len(clear(inbox, "delete")) == 3
    assert present(inbox) == {} and not (inbox.root / "inbox" / ARCHIVE_FOLDER).exists()
    quiet(inbox)


def test_a_file_that_is_put_back_is_known_and_goes_again_under_another_name(inbox: Inbox) -> None:
    before = fill(inbox)
    clear(inbox)
    archived = inbox.root / "inbox" / ARCHIVE_FOLDER / "a.json"
    os.rename(archived, inbox.root / "inbox" / "a.json")
    quiet(inbox)
    archived.write_text("another one of that name")
    assert clear(inbox) == ["inbox/a.json"]
    assert (archived.parent / "a.json.1").read_bytes() == before["a.json"]


@pytest.mark.parametrize("path", ["inbox", "inbox/*", "inbox/**/*.json", "inbox/**"])
def test_neither_a_folder_nor_a_pattern_finds_the_archive(inbox: Inbox, path: str) -> None:
    inbox.keys["path"] = path
    inbox.write("a.json", "{}\n")
    inbox.run(0)
    inbox.keys["options"] = {"recursiveFileLookup": True}
    assert clear(inbox) == ["inbox/a.json"]
    quiet(inbox)


def test_what_is_not_published_stays(inbox: Inbox) -> None:
    inbox.write("a.json", "{}\n")
    inbox.admit()
    assert look(inbox).files == ()
    row = inbox.ledger.rows(SOURCE)[0]
    taken = {"path": row.path, "size": row.size, "mtime_ns": row.mtime_ns, "link": row.link}
    inbox.ledger.mark_staged(SOURCE, "q", 0, [taken])  # type: ignore[list-item]
    assert look(inbox).files == ()  # as in a held increment
    inbox.ledger.mark_published("q", 0)
    assert len(look(inbox).files) == 1
    assert look(inbox, {"q": 0}).files == ()
    assert len(look(inbox, {"q": 1, "other": 0}).files) == 1


def test_what_changed_since_it_was_read_stays_acknowledged_or_not(inbox: Inbox) -> None:
    fill(inbox)
    path = inbox.write("a.json", "more\n", append=True)
    assert [file.path for file in look(inbox).files] == ["inbox/c d.json", "inbox/day=1/b.json"]
    inbox.run(1)  # reports it
    assert [file.path for file in look(inbox).files] == ["inbox/c d.json", "inbox/day=1/b.json"]
    found = path.stat()
    now = FileState(found.st_size, found.st_mtime_ns, found.st_ctime_ns, None)
    inbox.ledger.acknowledge(SOURCE, [("inbox/a.json", now, "grew", 5)], who="me", reason="known")
    assert [file.path for file in look(inbox).files] == ["inbox/c d.json", "inbox/day=1/b.json"]


def test_a_touched_file_is_what_was_read(inbox: Inbox) -> None:
    fill(inbox)
    os.utime(inbox.root / "inbox" / "a.json")
    assert len(look(inbox).files) == 3


def test_pieces_and_what_links_lead_to_stay(inbox: Inbox) -> None:
    inbox.keys |= {"on_change": "reread_tail", "follow_links": ["elsewhere"]}
    (inbox.root / "elsewhere").mkdir()
    (inbox.root / "elsewhere" / "x.json").write_text("{}\n")
    inbox.write("a.json", "{}\n")
    os.symlink(inbox.root / "elsewhere" / "x.json", inbox.root / "inbox" / "x.json")
    inbox.run(0, time.time() + 60)
    assert look(inbox).files == ()
    inbox.keys["on_change"] = "report"
    assert look(inbox).files == ()  # its lines were copied: whoever wrote them may append some


def test_files_from_before_the_start_stay(inbox: Inbox) -> None:
    from tidegate.sources.files.findings import note_first_look

    inbox.keys["start"] = "now"
    inbox.write("old.json", "{}\n")
    os.utime(inbox.root / "inbox" / "old.json", (1, 1))
    note_first_look(inbox.ledger, SOURCE, inbox.spec, inbox.scan())
    assert look(inbox).files == ()


def test_one_that_was_replaced_at_this_moment_is_put_back(inbox: Inbox) -> None:
    fill(inbox)
    found = look(inbox)
    path = inbox.root / "inbox" / "a.json"
    os.replace(inbox.write("new", "another\n"), path)
    assert clear(inbox, "delete", found) == ["inbox/c d.json", "inbox/day=1/b.json"]
    assert path.read_text() == "another\n" and path.stat().st_nlink == 1
    assert present(inbox) == {"a.json": b"another\n"}
    scan, read = inbox.run(1)
    assert [one["path"] for one in scan.changed] == ["inbox/a.json"] and not scan.vanished and not read


def test_files_that_may_not_be_moved_are_named(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(inbox)

    def refuse(source: str, target: str) -> None:
        raise PermissionError(13, "Permission denied", source)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        done, faults = clear_consumed(inbox.ledger, SOURCE, look(inbox), "archive", lambda: None)
    assert not done and "inbox/a.json: Permission denied" in faults
    quiet(inbox)
    assert len(clear(inbox)) == 3


def kill_at(patch: pytest.MonkeyPatch, ledger: Any, at: int) -> list[int]:
    """From now on the ``at``-th call that changes folder or ledger is never made; how many there were."""
    calls = [0]

    def count(real: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] == at:
                raise KilledHere
            return real(*given, **more)

        return call

    for name in ("rename", "unlink", "mkdir", "link", "rmdir"):
        patch.setattr(os, name, count(getattr(os, name)))
    patch.setattr(ledger, "note_place", count(ledger.note_place))
    return calls


def every_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, between: Any = None) -> Iterator[Any]:
    """(inbox, what was in it) after a clean-up was killed at each of its steps; ``between`` is what somebody else does
    between the look at the folder and the clean-up."""
    for at in range(1, 60):
        root = tmp_path / f"{how}{at}"
        root.mkdir()
        inbox = Inbox(root, open_ledger(Inbox(root, None).paths, create=True))  # type: ignore[arg-type]
        inbox.clears = how
        before = fill(inbox)
        found = look(inbox)
        if between is not None:
            between(inbox)
        with monkeypatch.context() as patch:
            calls = kill_at(patch, inbox.ledger, at)
            with contextlib.suppress(KilledHere):
                clear(inbox, how, found)
        yield inbox, before
        inbox.ledger.close()
        if calls[0] < at:
            break
    assert at > 9


@pytest.mark.parametrize("how", ["archive", "delete"])
def test_a_kill_at_any_call_loses_nothing_and_reads_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for inbox, before in every_kill(tmp_path, monkeypatch, how):
        quiet(inbox)
        clear(inbox, how)
        quiet(inbox)
        left = present(inbox)
        assert left == ({f"{ARCHIVE_FOLDER}/{name}": data for name, data in before.items()} if how == "archive" else {})
        assert not inbox.ledger.leaving(SOURCE)


@pytest.mark.parametrize("how", ["archive", "delete"])
def test_a_new_file_under_a_used_name_is_read_once_wherever_the_clean_up_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for inbox, before in every_kill(tmp_path, monkeypatch, how):
        inbox.restore()
        path = inbox.root / "inbox/a.json"
        was_there = path.exists()
        os.replace(inbox.write("new", "another one\n"), path)
        scan, read = inbox.run(1)
        if was_there:  # replaced before it was cleared away, as without maintenance
            assert [one["path"] for one in scan.changed] == ["inbox/a.json"] and not read
        else:
            assert read == [b"another one\n"] and not scan.changed
        quiet(inbox)
        clear(inbox, how)
        quiet(inbox)
        if was_there:
            assert path.read_text() == "another one\n"
        elif how == "archive":
            old, new = (
                inbox.root / "inbox" / ARCHIVE_FOLDER / "a.json",
                inbox.root / "inbox" / ARCHIVE_FOLDER / "a.json.1",
            )
            assert (old.read_bytes(), new.read_text()) == (before["a.json"], "another one\n")


@pytest.mark.parametrize("how", ["archive", "delete"])
def test_one_that_was_replaced_comes_back_wherever_the_clean_up_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Also when it was exchanged between the last look and the move, so that the unread file was on its way."""

    def exchange(inbox: Inbox) -> None:
        path = inbox.root / "inbox" / "a.json"
        real = os.lstat(path)
        os.replace(inbox.write("new", "unread\n"), path)
        lstat = os.lstat
        patch.setattr(os, "lstat", lambda one: real if str(one) == str(path) else lstat(one))

    patch = monkeypatch
    for inbox, _ in every_kill(tmp_path, monkeypatch, how, exchange):
        monkeypatch.undo()
        finish_clearing(inbox.project, inbox.ledger, inbox.pipeline, lambda: None)
        assert (inbox.root / "inbox" / "a.json").read_text() == "unread\n"
        assert (inbox.root / "inbox" / "a.json").stat().st_nlink == 1
        scan, read = inbox.run(1)
        assert ([one["path"] for one in scan.changed], scan.vanished, read) == (["inbox/a.json"], (), [])


@pytest.mark.parametrize("how", ["archive", "delete"])
def test_of_three_files_that_come_while_one_is_moved_too(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    fill(inbox)
    path, rename = inbox.root / "inbox/a.json", os.rename

    def exchange(source: Any, target: Any) -> None:
        if str(source) == str(path):
            monkeypatch.setattr(os, "rename", rename)
            os.replace(inbox.write("new", "second, unread\n"), path)
            rename(source, target)
            inbox.write("a.json", "third\n")
        else:
            rename(source, target)

    monkeypatch.setattr(os, "rename", exchange)
    _, faults = clear_consumed(inbox.ledger, SOURCE, look(inbox), cast(Any, how), lambda: None)
    kept = inbox.root / "inbox" / ARCHIVE_FOLDER / "a.json"
    assert [fault for fault in faults if "replaced twice" in fault and str(kept) in fault]
    assert (kept.read_text(), path.read_text()) == ("second, unread\n", "third\n")


def test_of_three_files_of_one_name_the_unread_one_is_kept_and_named(inbox: Inbox) -> None:
    fill(inbox)
    (row,) = inbox.ledger.known(SOURCE, ["inbox/a.json"]).values()
    way = inbox.root / "inbox" / ARCHIVE_FOLDER / ".moving" / row.link
    way.parent.mkdir(parents=True)
    os.rename(inbox.root / "inbox/a.json", inbox.root / "elsewhere")
    way.write_text("second, unread\n")
    inbox.write("a.json", "third\n")
    inbox.ledger.note_place(SOURCE, [row.path], "leaving")
    (note,) = finish_clearing(inbox.project, inbox.ledger, inbox.pipeline, lambda: None)
    kept = inbox.root / "inbox" / ARCHIVE_FOLDER / "a.json"
    assert "was replaced twice" in note and str(kept) in note
    assert kept.read_text() == "second, unread\n"
    assert [one["path"] for one in inbox.run(1)[0].changed] == ["inbox/a.json"]


# -- names that are used again --


def test_each_new_file_under_a_used_name_is_read(inbox: Inbox) -> None:
    for number in range(4):
        text = f'{{"n": {number}}}\n' * (4 - number)  # shorter each time
        inbox.write("export.json", text)
        scan, read = inbox.run(number)
        assert (read, scan.changed, scan.skipped) == ([text.encode()], (), ())
        assert clear(inbox, "delete") == ["inbox/export.json"]
        quiet(inbox)
    assert len(inbox.ledger.rows(SOURCE)) == 4
    inbox.write("export.json", "fifth\n")
    assert [entry.path for entry in inbox.scan().new] == ["inbox/export.json"]


def test_a_new_file_of_the_same_size_and_time_is_read(inbox: Inbox) -> None:
    path = inbox.write("a.json", "one\n")
    stamp = path.stat()
    inbox.run(0)
    clear(inbox, "delete")
    inbox.write("a.json", "two\n")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert inbox.run(1)[1] == [b"two\n"]
    quiet(inbox)


def test_the_same_content_again_is_named_and_not_read(inbox: Inbox) -> None:
    """Nobody can say whether it was copied back or sent anew."""
    path = inbox.write("a.json", "one\n")
    inbox.run(0)
    clear(inbox, "delete")
    inbox.write("a.json", "one\n")
    os.utime(path, ns=(1, 1))
    for batch in (1, 2):
        scan, read = inbox.run(batch)
        assert not read and "rename it to have it read" in scan.skipped[0]["why"]
    assert look(inbox).files == ()
    os.rename(path, path.with_name("b.json"))
    assert inbox.run(3)[1] == [b"one\n"]


def test_one_that_is_put_back_and_appended_to_is_reported_and_not_read(inbox: Inbox) -> None:
    path = inbox.write("a.json", "one\n")
    inbox.run(0)
    clear(inbox)
    os.rename(inbox.root / "inbox" / ARCHIVE_FOLDER / "a.json", path)
    inbox.write("a.json", "two\n", append=True)
    scan, read = inbox.run(1)
    assert ([one["how"] for one in scan.changed], read) == (["grew"], [])
    quiet(inbox)
    assert look(inbox).files == ()


def test_one_that_is_put_back_and_then_taken_away_is_reported(inbox: Inbox) -> None:
    path = inbox.write("a.json", "one\n")
    inbox.run(0)
    clear(inbox)
    os.rename(inbox.root / "inbox" / ARCHIVE_FOLDER / "a.json", path)
    quiet(inbox)
    path.unlink()
    assert inbox.run(1)[0].vanished == ("inbox/a.json",)


def test_the_rows_before_are_gone_for_repair_and_backfill(inbox: Inbox) -> None:
    """The file that has the name now is not read in the place of the old one."""
    inbox.write("a.json", "one\n")
    inbox.run(0)
    clear(inbox, "delete")
    inbox.write("a.json", "two\n")
    inbox.run(1)
    old, new = inbox.ledger.rows(SOURCE)
    sources = {SOURCE: inbox.spec}
    assert find_differences(inbox.project, inbox.paths, sources, [old, new]) == ["inbox/a.json is gone"]
    inbox.ledger.return_to_linked({"q": -1})
    assert [row.path for row in inbox.ledger.rows(state="linked")] == [old.path, new.path]
    restored = inbox.restore()
    assert (restored.lost, len(restored.links)) == ((old.path,), 1)
    assert inbox.read(2) == [b"two\n"]


@pytest.mark.parametrize(("number", "is_raised"), [(errno.EIO, True), (errno.EACCES, False), (errno.ELOOP, False)])
def test_a_file_that_cannot_be_opened_differs_unless_the_file_system_failed(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, number: int, is_raised: bool
) -> None:
    path = inbox.write("a.json", "one\n")
    inbox.run(0)
    shutil.rmtree(inbox.paths.intake(SOURCE))

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(differences, "opened", fail)
    with pytest.raises(OSError, match=os.strerror(number)) if is_raised else contextlib.nullcontext():
        found = find_differences(inbox.project, inbox.paths, {SOURCE: inbox.spec}, inbox.ledger.rows(SOURCE))
        assert found == [f"inbox/a.json cannot be read: {os.strerror(number)}"]


# -- what may have changed --


def test_a_file_rewritten_in_its_middle_stays_and_is_named(inbox: Inbox) -> None:
    """Size, time stamp and both ends as they were: its ctime alone says otherwise, also after a run has seen it."""
    path = inbox.write("a.json", b"x" * 100_000 + b"\n")
    inbox.run(0)
    assert len(look(inbox).files) == 1
    stamp = path.stat()
    with open(path, "r+b") as handle:
        handle.seek(50_000)
        handle.write(b"y")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    for batch in (1, 2):
        found = look(inbox)
        assert (found.files, found.doubtful) == ((), ("inbox/a.json",))
        inbox.run(batch)
    chores = find_chores(*prepare(inbox, "maintenance: {source: delete, keep_versions: 0}\n"), time.time())
    assert "may have changed since they were read" in chores.notes[0] and "inbox/a.json" in chores.notes[0]


def test_a_small_file_with_another_ctime_goes_when_all_of_it_is_what_was_read(inbox: Inbox) -> None:
    path = inbox.write("a.json", b"x" * 30_000 + b"\n")
    inbox.run(0)
    path.chmod(0o600)
    assert (len(look(inbox).files), look(inbox).doubtful) == (1, ())
    stamp = path.stat()
    path.write_bytes(b"y" * 30_000 + b"\n")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert (look(inbox).files, look(inbox).doubtful) == ((), ())
    assert [one["path"] for one in inbox.run(1)[0].changed] == ["inbox/a.json"]


def test_one_that_is_rewritten_while_it_was_to_go_stays(inbox: Inbox) -> None:
    path = inbox.write("a.json", "one\n")
    inbox.run(0)
    found, stamp = look(inbox), path.stat()
    path.write_text("two\n")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert clear(inbox, "delete", found) == [] and path.read_text() == "two\n"
    assert [one["path"] for one in inbox.run(1)[0].changed] == ["inbox/a.json"]


def test_a_file_whose_move_failed_is_reported_when_it_vanishes(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    path = inbox.write("a.json", "one\n")
    inbox.run(0)

    def refuse(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        done, faults = clear_consumed(inbox.ledger, SOURCE, look(inbox), "delete", lambda: None)
    assert not done and list(faults) == ["inbox/a.json: Input/output error"]
    path.unlink()
    assert inbox.run(1)[0].vanished == ("inbox/a.json",)


def prepare(inbox: Inbox, settings: str, name: str = "orders") -> Any:
    (inbox.root / "tidegate.yaml").write_text(settings)
    write_pipeline(inbox.root, name, "type: files, path: inbox")
    project = load_project(inbox.root)
    return project, inbox.paths, load_pipeline(project, name)


def write_pipeline(root: Path, name: str, source: str, more: str = "") -> None:
    folder = root / "jobs" / name
    folder.mkdir(parents=True, exist_ok=True)
    spec = f"version: 1\nname: {name}\nsources:\n  {SOURCE}: {{{source}, format: json, schema: id BIGINT}}\n{more}"
    (folder / "pipeline.yaml").write_text(spec)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("type: files, path: inbox", "source trades of pipeline other reads the same folder"),
        ("type: files, path: inbox/day=1", "source trades of pipeline other reads the same folder"),
        ("type: files, path: inbox/*.json", "source trades of pipeline other reads the same folder"),
        ("type: nonsense", "pipeline other cannot be read"),
        ("type: files, path: elsewhere", None),
        (
            "type: files, path: elsewhere, follow_links: [inbox]",
            "source trades of pipeline other reads the same folder",
        ),
        ("type: files, path: elsewhere, follow_links: [beside, inbox/day=1]", "reads the same folder"),
        ("type: files, path: linked", "reads the same folder"),
        ("type: files, path: linked/day=1", "reads the same folder"),
        ("type: files, path: ., options: {recursiveFileLookup: true}", "reads the same folder"),
    ],
)
def test_a_folder_that_somebody_else_reads_is_left_alone(inbox: Inbox, other: str, why: str | None) -> None:
    fill(inbox)
    (inbox.root / "linked").symlink_to("inbox")
    (inbox.root / "tidegate.yaml").write_text("maintenance: {source: archive, keep_versions: 0}\n")
    write_pipeline(inbox.root, "orders", "type: files, path: inbox")
    write_pipeline(inbox.root, "other", other)
    project = load_project(inbox.root)
    chores = find_chores(project, inbox.paths, load_pipeline(project, "orders"), time.time())
    assert [len(one.files) for one in chores.consumed.values()] == ([3] if why is None else [])
    assert (why is None and not chores.notes) or (why is not None and why in chores.notes[0])


def test_a_folder_that_is_gone_is_named_and_everything_else_goes_on(inbox: Inbox) -> None:
    fill(inbox)
    (inbox.root / "tidegate.yaml").write_text("maintenance: {source: archive}\n")
    write_pipeline(inbox.root, "orders", "type: files, path: nowhere")
    project = load_project(inbox.root)
    chores = find_chores(project, inbox.paths, load_pipeline(project, "orders"), time.time())
    assert chores.notes == ["source trades: SOURCE_MISSING, so its files are kept"]


def test_while_a_backfill_is_held_files_stay(inbox: Inbox) -> None:
    fill(inbox)
    (inbox.root / "tidegate.yaml").write_text("maintenance: {source: archive, keep_versions: 0}\n")
    write_pipeline(inbox.root, "orders", "type: files, path: inbox")
    project = load_project(inbox.root)
    (inbox.paths.backfills / "stopped" / "token").mkdir(parents=True)
    assert find_chores(project, inbox.paths, load_pipeline(project, "orders"), time.time()).consumed
    intent = PublishIntent("orders", "B1", "table", "{}", [], "one", 0, -1)
    keep_held(inbox.paths.beside("backfills/one/token"), intent, Interval({}), new_report("p", "one"))
    chores = find_chores(project, inbox.paths, load_pipeline(project, "orders"), time.time())
    assert not chores.consumed and "a backfill is held" in chores.notes[0]


def test_the_command_archives_and_says_so(inbox: Inbox) -> None:
    from tidegate.rework.maintain.command import maintain_pipeline, preview_maintenance

    before = fill(inbox)
    inbox.ledger.close()
    (inbox.root / "tidegate.yaml").write_text("version: 1\n")
    write_pipeline(
        inbox.root, "orders", "type: files, path: inbox", "maintenance: {source: archive, keep_versions: 0}\n"
    )
    project = load_project(inbox.root)
    size = sum(map(len, before.values()))
    everything = list_everything(inbox.root)
    (item,) = preview_maintenance(project, "orders")["items"]
    assert item == {"work": "source", "of": SOURCE, "files": 3, "bytes": size, "rows": 0, "partitions": 0}
    assert list_everything(inbox.root) == everything
    report = maintain_pipeline(project, "orders", "M1")
    assert report["notes"] == [f"source {SOURCE}: archived 3 files that were read ({size} bytes)"]
    assert report["outcome"] == "published"
    assert maintain_pipeline(project, "orders", "M2")["notes"] == ["nothing to do"]
    inbox.ledger = open_ledger(inbox.paths)
    quiet(inbox)


def test_files_of_versions_that_can_still_be_rolled_back_to_stay(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for n in range(3):
        kept.publish([{"id": n, "city": "Oslo", "n": n}])
    now = int(time.time() * 1000)
    assert find_recent_batches(kept.paths, since_ms=now - 60_000) == {QUERY: 0}
    kept.age(8)
    kept.publish([{"id": 9, "city": "Oslo", "n": 9}])
    assert find_recent_batches(kept.paths, since_ms=now - 60_000) == {QUERY: 3}
    assert find_recent_batches(kept.paths, since_ms=now + 60_000) == {}


def edit_commit(kept: Kept, version: int, change: Any) -> None:
    path = kept.paths.table / LOG_FOLDER / commit_name(version)
    actions = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    path.write_text("\n".join(json.dumps(action) for action in change(actions)))


def without_time(actions: list[Any]) -> list[Any]:
    for action in actions:
        action.get("commitInfo", {}).pop("timestamp", None)
    return actions


def eight_days_behind(actions: list[Any]) -> list[Any]:
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] -= 8 * 86_400_000
    return actions


@pytest.mark.parametrize(
    "change",
    [without_time, eight_days_behind, lambda actions: [one for one in actions if "commitInfo" not in one]],
    ids=["no time stamp", "a clock that was behind", "no commitInfo"],
)
def test_one_commit_without_a_time_ends_no_search(tmp_path: Path, change: Any) -> None:
    kept = Kept(tmp_path)
    kept.publish([{"id": 0, "city": "Oslo", "n": 0}])
    kept.age(30)
    for n in range(1, 4):
        kept.publish([{"id": n, "city": "Oslo", "n": n}])
    edit_commit(kept, 3, change)
    since = int(time.time() * 1000) - 7 * 86_400_000
    assert find_recent_batches(kept.paths, since_ms=since) == {QUERY: 1}


def test_a_log_that_was_cut_says_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for n in range(3):
        kept.publish([{"id": n, "city": "Oslo", "n": n}])
    (kept.paths.table / LOG_FOLDER / commit_name(0)).unlink()
    since = int(time.time() * 1000) - 60_000
    assert find_recent_batches(kept.paths, since_ms=since) is None
    assert find_recent_batches(kept.paths, since_ms=since + 120_000) == {}


def test_a_release_counts_with_all_that_had_waited(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for n in range(4):
        kept.publish([{"id": n, "city": "Oslo", "n": n}])
    kept.age(30)
    kept.publish([{"id": 9, "city": "Oslo", "n": 9}])

    def release(actions: list[Any]) -> list[Any]:
        for action in actions:
            info = action.get("commitInfo", {})
            if info:
                del info["tidegate.query_id"]
                info["tidegate.waited"] = json.dumps([[QUERY, 2, 2]])
        return actions

    edit_commit(kept, 4, release)
    assert find_recent_batches(kept.paths, since_ms=int(time.time() * 1000) - 60_000) == {QUERY: 2}


def test_files_of_deferred_increments_stay(inbox: Inbox) -> None:
    fill(inbox)
    (row, *_) = inbox.ledger.rows(SOURCE)
    assert (row.query_id, row.batch_id) == ("q", 0)
    inbox.write("later.json", "{}\n")
    inbox.run(1)
    deferred = manifest(0, "q")
    verdict = StoredVerdict("R1", [deferred.key], {}, ["rule"])
    save_waiting(inbox.paths, WaitingIncrement(verdict, [deferred], "2026-01-01T00:00:00Z"))
    chores = find_chores(*prepare(inbox, "maintenance: {source: delete, keep_versions: 0}\n"), time.time())
    assert [file.path for file in chores.consumed[SOURCE].files] == ["inbox/later.json"]


def test_a_folder_under_another_name_is_the_same_folder(tmp_path: Path) -> None:
    for name in ("a/in/day=1", "b/in"):
        (tmp_path / name).mkdir(parents=True)
    ours, theirs = str(tmp_path / "a/in"), str(tmp_path / "b/in")
    assert not overlap(ours, theirs)
    if subprocess.run(["mount", "--bind", ours, theirs], capture_output=True).returncode:
        pytest.skip("no right to mount")
    try:
        assert overlap(ours, theirs) and overlap(ours, f"{theirs}/day=1") and overlap(f"{ours}/day=1", theirs)
    finally:
        subprocess.run(["umount", theirs], check=True)
