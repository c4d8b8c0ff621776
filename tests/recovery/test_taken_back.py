"""A publish that another process cannot finish, and takes back, while the one that began it is frozen at any of its
storage calls: what it still does when it wakes changes nothing that a reader sees."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.recovery.conftest import sweep
from tests.support.keyed import Keyed
from tests.support.merge_scenes import AFTER, BEFORE, Scenes, count_calls
from tests.support.readers import canonical, read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.storage_calls import Sleeper, fail
from tidegate.core import storage
from tidegate.core.errors import TidegateError

Fails = Literal["first move", "last move", "commit"]


def fail_to_publish(keyed: Keyed, run_id: str, fails: Fails) -> None:
    """A run that cannot finish the publish: the disk answers with an error at one of its steps."""
    rename, put, moves = os.rename, storage.put_if_absent, set[str]()

    def move(source: Any, target: Any, **more: Any) -> None:
        name = Path(target).name
        if Path(target).is_relative_to(keyed.paths.table) and name.startswith("part-") and fails != "commit":
            moves.add(name)
            if fails == "first move" or len(moves) > 4:
                fail("rename")
        rename(source, target, **more)

    def put_if_absent(path: Path, data: bytes) -> bool:
        if fails == "commit" and path.parent.name == "_delta_log" and b"tidegate.run_id" in data:
            fail("link")
        return put(path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", move)
        patch.setattr(storage, "put_if_absent", put_if_absent)
        with contextlib.suppress(TidegateError, OSError):
            keyed.run(run_id)


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
