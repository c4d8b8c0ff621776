"""What a power cut leaves of a table's log: every version of a publish is on disk before the publish is forgotten, and
a version that an earlier tidegate left torn is made again from its intent."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.keyed import Keyed
from tests.support.readers import read_agreed
from tests.support.staged import Stager, make_paths
from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_versions
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import intent_path, pending_intents, write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.table.publish.publish import finish_intent

TORN = [b"", b"\0" * 300, None]
"""What is left of a commit file: nothing, zeros, the first half of it."""


class Synced:
    """Notes the inode of whatever is synced, and whether it was before the first intent was removed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.inodes: set[int] = set()
        self.at_end: set[int] | None = None
        fsync, remove = os.fsync, storage.remove

        def note(handle: int) -> None:
            self.inodes.add(os.fstat(handle).st_ino)
            fsync(handle)

        def forget(path: Path) -> None:
            if path.parent.name == "intents" and self.at_end is None:
                self.at_end = set(self.inodes)
            remove(path)

        patch.setattr(os, "fsync", note)
        patch.setattr(storage, "remove", forget)

    def holds(self, path: Path) -> bool:
        """Whether ``path`` was on disk before the publish was forgotten."""
        assert self.at_end is not None, "no publish was finished"
        return path.stat().st_ino in self.at_end


def publish(stager: Stager, batch: int, rows: list[dict[str, Any]]) -> None:
    intent = plan_publish([stager.stage(batch, rows)], run_id="r", partition_by=[], app_version_before=batch - 1)
    finish_intent(stager.paths, write_intent(stager.paths, intent), is_current=lambda: True)


def test_a_new_tables_version_and_folders_are_on_disk_before_the_intent_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stager = Stager(make_paths(tmp_path), {"id": "long"}, [])
    synced = Synced(monkeypatch)
    publish(stager, 0, [{"id": 1}])
    table = stager.paths.table
    for path in (table / LOG_FOLDER / commit_name(0), table / LOG_FOLDER, table, table.parent):
        assert synced.holds(path), path


def test_the_version_that_adds_columns_is_on_disk_before_the_intent_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stager = Stager(make_paths(tmp_path), {"id": "long"}, [])
    publish(stager, 0, [{"id": 1}])
    stager.columns = {"id": "long", "city": "string"}
    synced = Synced(monkeypatch)
    publish(stager, 1, [{"id": 2, "city": "Oslo"}])
    assert list_versions(stager.paths.table) == [0, 1, 2]
    for version in (1, 2):
        assert synced.holds(stager.paths.table / LOG_FOLDER / commit_name(version)), version


def run_until_the_intent_would_go(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed when all is done but forgetting the intent."""
    remove = storage.remove

    def die(path: Path) -> None:
        if path.parent.name == "intents":
            raise KeyboardInterrupt
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "remove", die)
        with pytest.raises(KeyboardInterrupt):
            keyed.run()


def test_names_that_a_process_gave_before_it_was_killed_are_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = Keyed(tmp_path)
    keyed.stage([{"id": 1, "city": "Oslo", "n": 1}, {"id": 2, "city": "Rome", "n": 1}])
    keyed.run()
    keyed.stage([{"id": 1, "city": "Oslo", "n": 2}])
    run_until_the_intent_would_go(keyed, monkeypatch)
    synced = Synced(monkeypatch)
    keyed.run("the next")
    assert list_versions(keyed.paths.table) == [0, 1, 2]
    assert synced.holds(keyed.paths.table / LOG_FOLDER)  # the bytes were on disk before there was a name


def tear(path: Path, content: bytes | None) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if content is None else content)


@pytest.mark.parametrize("content", TORN, ids=["empty", "zeros", "half"])
@pytest.mark.parametrize("batches", [1, 2], ids=["the first", "the second"])
def test_a_torn_newest_version_is_made_again_from_its_intent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, batches: int
) -> None:
    keyed = Keyed(tmp_path, mode="append", keys=[])
    for number in range(batches - 1):
        keyed.stage([{"id": number, "city": "Oslo", "n": 0}])
        keyed.run()
    keyed.stage([{"id": 100, "city": "Rome", "n": 1}])
    run_until_the_intent_would_go(keyed, monkeypatch)
    assert pending_intents(keyed.paths)
    log = keyed.paths.table / LOG_FOLDER
    tear(log / commit_name(list_versions(keyed.paths.table)[-1]), content)
    keyed.run("after the cut")
    assert sorted(row["id"] for row in read_agreed(keyed.paths.table)) == [*range(batches - 1), 100]
    assert keyed.last_batch() == batches - 1
    assert keyed.leftovers() == []
    # An empty file is a version without actions to every reader; anything else is out of their sight.
    hidden = [path for path in log.iterdir() if path.name.endswith(".torn")]
    assert len(hidden) == (0 if content == b"" and batches > 1 else 1)


def test_a_torn_version_that_no_intent_continues_is_told_with_what_helps(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, mode="append", keys=[])
    for number in range(3):
        keyed.stage([{"id": number, "city": "Oslo", "n": 0}])
        keyed.run()
    log = keyed.paths.table / LOG_FOLDER
    tear(log / commit_name(2), None)
    keyed.stage([{"id": 3, "city": "Oslo", "n": 0}])
    with pytest.raises(DisagreementError, match="TABLE_LOG_UNREADABLE") as caught:
        keyed.run()
    assert commit_name(2) in caught.value.message
    fix = str(caught.value.fix)
    assert f"to {log / commit_name(2)}.torn" in fix
    assert "tidegate repair orders" in fix
    os.rename(log / commit_name(2), log / f"{commit_name(2)}.torn")  # as it says
    state = read_table_state(keyed.paths.table)
    assert state is not None
    assert state.version == 1
    tear(log / commit_name(0), None)  # one below the newest cannot be done without
    with pytest.raises(DisagreementError, match="TABLE_LOG_UNREADABLE") as caught:
        read_table_state(keyed.paths.table)
    assert "backup" in str(caught.value.fix)


def test_an_intent_of_another_batch_does_not_put_a_torn_version_aside(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, mode="append", keys=[])
    for number in range(2):
        (manifest,) = keyed.stage([{"id": number, "city": "Oslo", "n": 0}])
        keyed.run()
    intent = plan_publish([manifest], run_id="r", partition_by=[], app_version_before=0)
    write_intent(keyed.paths, dataclasses.replace(intent, app_version_before=5, app_version=6))
    assert intent_path(keyed.paths, pending_intents(keyed.paths)[0]).exists()
    torn = keyed.paths.table / LOG_FOLDER / commit_name(1)
    tear(torn, None)
    with pytest.raises(DisagreementError, match="TABLE_LOG_UNREADABLE"):
        keyed.run("next")
    assert torn.exists()


def test_a_replaced_file_is_gone_from_its_folder_on_disk_before_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = Keyed(tmp_path, partition_by=["city"])
    keyed.stage([{"id": 1, "city": "A", "n": 1}])
    keyed.run()
    keyed.stage([{"id": 1, "city": "B", "n": 2}])  # nothing new comes into the folder that it leaves
    seen: list[list[str]] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        fsync(handle)
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.name == "city=A":
            seen.append([name for name in os.listdir(path) if not name.startswith(".")])

    monkeypatch.setattr(os, "fsync", note)
    keyed.run()
    assert seen[-1] == []
