"""Files that were read go into the archive or away, and no later look takes them for lost or reads them again."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kept import Kept, list_everything
from tests.support.staged import QUERY
from tests.support.storage_calls import KilledHere
from tests.unit.inbox import SOURCE, Inbox
from tidegate.backfill.held import keep_held
from tidegate.backfill.span import Interval
from tidegate.maintain.sources import find_chores, find_recent_batches
from tidegate.pipeline import load_pipeline
from tidegate.project import load_project
from tidegate.reports.report import new_report
from tidegate.sources.files.consumed import Consumed, clear_consumed, find_consumed
from tidegate.sources.files.ledger import Acknowledged, open_ledger
from tidegate.sources.files.listing import ARCHIVE_FOLDER
from tidegate.table.publish.intent import PublishIntent


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    inbox = Inbox(tmp_path, open_ledger(Inbox(tmp_path, None).paths, create=True))  # type: ignore[arg-type]
    yield inbox
    inbox.ledger.close()


def look(inbox: Inbox, recent: dict[str, int] | None = None) -> Consumed:
    return find_consumed(inbox.project, inbox.paths, SOURCE, inbox.spec, inbox.ledger, recent or {})


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
    now = Acknowledged(found.st_size, found.st_mtime_ns, found.st_ctime_ns, None)
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
    from tidegate.sources.files.scan import note_first_look

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


@pytest.mark.parametrize("how", ["archive", "delete"])
def test_a_kill_at_any_call_loses_nothing_and_reads_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for at in range(1, 40):
        root = tmp_path / str(at)
        root.mkdir()
        inbox = Inbox(root, open_ledger(Inbox(root, None).paths, create=True))  # type: ignore[arg-type]
        before = fill(inbox)
        calls = [0]

        def count(real: Any, calls: list[int] = calls, at: int = at) -> Any:
            def call(*given: Any, **more: Any) -> Any:
                calls[0] += 1
                if calls[0] == at:
                    raise KilledHere
                return real(*given, **more)

            return call

        found = look(inbox)
        with monkeypatch.context() as patch:
            for name in ("rename", "unlink", "mkdir", "link", "rmdir"):
                patch.setattr(os, name, count(getattr(os, name)))
            with contextlib.suppress(KilledHere):
                clear(inbox, how, found)
        quiet(inbox)
        clear(inbox, how)
        quiet(inbox)
        left = present(inbox)
        if how == "archive":
            assert left == {f"{ARCHIVE_FOLDER}/{name}": data for name, data in before.items()}
        else:  # one that was on its way is in the archive still
            assert len(left) <= 1 and all(name.startswith(ARCHIVE_FOLDER) for name in left)
        inbox.ledger.close()
        if calls[0] < at:
            break
    assert at > 6


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
    ],
)
def test_a_folder_that_somebody_else_reads_is_left_alone(inbox: Inbox, other: str, why: str | None) -> None:
    fill(inbox)
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
    assert chores.notes == ["source trades: SOURCE_MISSING, so its files are left alone"]


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
    from tidegate.maintain.command import maintain_pipeline
    from tidegate.maintain.foresee import foresee_maintenance

    before = fill(inbox)
    inbox.ledger.close()
    (inbox.root / "tidegate.yaml").write_text("version: 1\n")
    write_pipeline(
        inbox.root, "orders", "type: files, path: inbox", "maintenance: {source: archive, keep_versions: 0}\n"
    )
    project = load_project(inbox.root)
    size = sum(map(len, before.values()))
    everything = list_everything(inbox.root)
    (item,) = foresee_maintenance(project, "orders")["items"]
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
