"""A publish that cannot be finished and is taken back, while the process that began it, or the one that takes it back,
is frozen at any of its storage calls: what it still does when it wakes changes nothing that a reader sees."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.keyed import Keyed
from tests.support.merge_scenes import AFTER, BEFORE, Scenes, count_calls
from tests.support.readers import canonical, read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.storage_calls import KilledHere, Sleeper, StorageCalls, fail, kill, split_devices, watch
from tests.support.sweep import choose, sweep
from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.table.log.commit import commit_files
from tidegate.table.log.files import list_versions
from tidegate.table.publish import publish
from tidegate.table.publish.intent import pending_intents

Fails = Literal["first move", "last move", "commit"]


def fail_to_publish(keyed: Keyed, run_id: str, fails: Fails, holds: Callable[[], bool] = lambda: True) -> None:
    """A run that cannot finish the publish: the disk answers this thread with an error at one of its steps."""
    rename, put, place, moves = os.rename, storage.put_if_absent, storage.place, set[str]()
    thread = threading.get_ident()

    def count(target: Path) -> None:
        if threading.get_ident() == thread and fails != "commit":
            moves.add(target.name)
            if fails == "first move" or len(moves) > 4:
                fail("rename")

    def move(source: Any, target: Any, **more: Any) -> None:
        name = Path(target).name
        if Path(target).is_relative_to(keyed.paths.table) and name.startswith("part-"):
            count(Path(target))
        rename(source, target, **more)

    def place_object(source: Path, target: Path, check: Callable[[str], None], **more: Any) -> bool:
        if storage.is_object(target):
            count(target)
        return place(source, target, check, **more)

    def put_if_absent(path: Path, data: bytes) -> bool:
        is_mine = threading.get_ident() == thread and b"tidegate.run_id" in data
        if is_mine and fails == "commit" and path.parent.name == "_delta_log":
            fail("link")
        return put(path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", move)
        patch.setattr(storage, "put_if_absent", put_if_absent)
        patch.setattr(storage, "place", place_object)
        with contextlib.suppress(TidegateError, OSError):
            keyed.run(run_id, holds)


def see(keyed: Keyed) -> tuple[Any, Any]:
    table = keyed.paths.table
    return canonical(read_with_duckdb(table)), canonical(read_with_deltalake(table))


@pytest.mark.parametrize(
    ("fails", "devices"),
    [("first move", 1), ("last move", 1), ("commit", 1), ("commit", 0)],
    ids=["first move", "last move", "commit", "commit, stored"],
)
def test_frozen_at_every_call_while_another_takes_it_back(tmp_path: Path, fails: Fails, lake: Path | None) -> None:
    scenes = Scenes(tmp_path, "update", lake)
    for at in sweep(len(count_calls(scenes)[0]), 15):
        keyed = scenes.make(str(at))

        def run(sleeper: Sleeper, keyed: Keyed = keyed) -> None:
            keyed.run("second", holds=lambda: not sleeper.is_overtaken)

        sleeper = Sleeper(at, run, (TidegateError, OSError))
        sleeper.is_overtaken = True
        fail_to_publish(keyed, "third", fails)
        before = see(keyed)
        allowed = (canonical(BEFORE), canonical(AFTER["update"]))
        assert all(rows in allowed for rows in before), f"frozen at {at}"
        sleeper.wake()
        assert see(keyed) == before, f"frozen at {at}"
        keyed.run("fourth")
        assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER["update"]), f"frozen at {at}"
        assert keyed.leftovers() == [], f"frozen at {at}"


def calls_that_take_back(scenes: Scenes, fails: Fails) -> list[int]:
    """The numbers of the storage calls and looks at the lease with which a run takes back a publish that fails; no
    syncs, which the next call stands for."""
    keyed = scenes.make("taken back")
    real, begin = publish.show_again, list[int]()
    with pytest.MonkeyPatch.context() as patch:
        calls = StorageCalls(patch, -1, watch)
        patch.setattr(publish, "show_again", lambda *given: [begin.append(calls.count + 1), real(*given)])
        fail_to_publish(keyed, "second", fails, calls.look)
    assert see(keyed)[0] == canonical(BEFORE)
    return [at for at in range(begin[0], calls.count + 1) if calls.names[at - 1] != "os.fsync"]


def kill_behind_commit(keyed: Keyed, run_id: str) -> None:
    """A run that is killed when its publish is in the log: nothing was cleaned up."""

    def commit(*given: Any, **more: Any) -> None:
        commit_files(*given, **more)
        kill("commit")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
        patch.setattr(publish, "commit_files", commit)
        keyed.run(run_id)


Other = Literal["ends", "is killed"]


@pytest.mark.parametrize(
    ("fails", "devices", "other"),
    [
        ("first move", 1, "ends"),
        ("first move", 0, "ends"),
        ("last move", 1, "ends"),
        ("last move", 1, "is killed"),
        ("commit", 1, "is killed"),
    ],
    ids=lambda one: {0: "stored", 1: "on a disk"}.get(one, one),
)
def test_frozen_while_it_takes_back(tmp_path: Path, fails: Fails, lake: Path | None, other: Other) -> None:
    scenes = Scenes(tmp_path, "update", lake)
    calls = calls_that_take_back(scenes, fails)
    for at in choose(calls, 8):
        keyed = scenes.make(str(at))

        def run(sleeper: Sleeper, keyed: Keyed = keyed) -> None:
            fail_to_publish(keyed, "second", fails, sleeper.holds)

        sleeper = Sleeper(at, run, (TidegateError, OSError))
        where = f"frozen at {at} ({sleeper.call})"
        assert not sleeper.has_ended
        sleeper.is_overtaken = True
        if other == "ends":
            keyed.run("third")
        else:
            kill_behind_commit(keyed, "third")
        expected = canonical(AFTER["update"])
        assert see(keyed) == (expected, expected), where
        versions = list_versions(keyed.paths.table)
        sleeper.wake()
        assert see(keyed) == (expected, expected), where
        keyed.run("fourth")
        assert canonical(read_agreed(keyed.paths.table)) == expected, where
        assert list_versions(keyed.paths.table) == versions, where
        assert keyed.leftovers() == [], where
        assert storage.list_tree(keyed.paths.table, f"*{storage.COPY_SUFFIX}") == [], where


@pytest.mark.parametrize("fails", ["last move", "commit"])
def test_frozen_while_it_resumes_what_was_taken_back(tmp_path: Path, fails: Fails) -> None:
    scenes, expected = Scenes(tmp_path, "update"), canonical(AFTER["update"])
    whole = scenes.make("whole")
    fail_to_publish(whole, "second", fails)
    with pytest.MonkeyPatch.context() as patch:
        calls = StorageCalls(patch, -1, watch)
        whole.run("third", calls.look)
    for at in sweep(calls.count, 8):
        keyed = scenes.make(str(at))
        fail_to_publish(keyed, "second", fails)
        sleeper = Sleeper(at, lambda sleeper, keyed=keyed: keyed.run("third", sleeper.holds), (TidegateError, OSError))
        where = f"frozen at {at} ({sleeper.call})"
        assert not sleeper.has_ended
        sleeper.is_overtaken = True
        keyed.run("fourth")
        assert see(keyed) == (expected, expected), where
        sleeper.wake()
        assert see(keyed) == (expected, expected), where
        keyed.run("fifth")
        assert canonical(read_agreed(keyed.paths.table)) == expected, where
        assert keyed.leftovers() == [], where


@pytest.mark.parametrize("devices", [0, 2], ids=["on a store", "on another device"])
def test_a_new_file_stays(tmp_path: Path, lake: Path | None, devices: int) -> None:
    """A process that is suspended while it takes one away would delete it after another has published it."""
    keyed = Scenes(tmp_path, "update", lake).make("stays")
    with pytest.MonkeyPatch.context() as patch:
        if devices == 2:
            split_devices(patch, keyed.paths.state)
        fail_to_publish(keyed, "second", "last move")
    [intent] = pending_intents(keyed.paths)
    placed = [file for file in intent.files_to_add if storage.exists(keyed.paths.table / file.path)]
    assert 0 < len(placed) < len(intent.files_to_add)
    assert sum(file.rows for file in placed) == len(read_with_duckdb(keyed.paths.table))
    assert "plain readers" in publish.describe_missed(keyed.paths)[0]
    keyed.run("third")
    assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER["update"])
    assert keyed.leftovers() == []
