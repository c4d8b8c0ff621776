"""Work that fails, and is not killed, finishes or takes itself back: each storage call fails once, or with all
later ones of its kind, or with all later ones.

Afterwards a plain glob and deltalake have every row once. Where that is not possible, the error and ``status`` say what
plain readers miss, and the next run ends as if nothing had happened.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.held import Leases
from tests.support.kept import Kept
from tests.support.merge_scenes import AFTER, BEFORE, Scenes, figures_of
from tests.support.readers import canonical, read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.storage_calls import KilledHere, StorageCalls, fail, kill
from tests.support.sweep import sweep
from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.table.publish.intent import pending_intents
from tidegate.table.publish.publish import describe_missed, finish_intent
from tidegate.table.publish.replace import show_again
from tidegate.views.status import needs_a_person, project_status


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    leases = Leases()
    monkeypatch.setattr("tidegate.runs.opening.acquire", leases.acquire)
    return leases


Again = Literal["never", "same", "any"]
AGAIN = pytest.mark.parametrize("again", ["never", "same", "any"])


def fail_at(at: int, work: Callable[[], Any], *, again: Again) -> tuple[StorageCalls, BaseException | None]:
    """Do the work with the ``at``-th storage call failing; the calls, and the error that the work ended with."""
    with pytest.MonkeyPatch.context() as patch:
        calls = StorageCalls(patch, at, fail, again=again)
        try:
            work()
        except (TidegateError, OSError) as error:
            return calls, error
    return calls, None


def check(table: Path, paths: Any, error: BaseException | None, *, allowed: list[Counter[str]], again: Again) -> bool:
    """Whether readers have every row once; else the error and the status say what they miss."""
    plain, delta = canonical(read_with_duckdb(table)), canonical(read_with_deltalake(table))
    assert delta in allowed, "Delta readers see another table"
    missed = describe_missed(paths)
    if plain in allowed:
        assert missed == []
        return True
    assert again != "never", f"one failed call leaves plain readers without {allowed[0] - plain}"
    assert any(not plain - one for one in allowed), "rows of two versions, or a row twice"
    assert isinstance(error, TidegateError) and error.code == "ROWS_OUT_OF_SIGHT" and error.exit_code == 75
    assert len(missed) == 1 and missed[0] in error.message
    return False


@pytest.mark.parametrize(
    ("times", "links", "code", "plain"),
    [
        (1, True, None, AFTER["update"]),  # tried again
        (99, True, "OSError", BEFORE),  # taken back
        (99, False, "ROWS_OUT_OF_SIGHT", []),
    ],
    ids=["once", "for good", "links too"],
)
def test_the_second_move_into_the_table_fails(
    tmp_path: Path, times: int, links: bool, code: str | None, plain: list[dict[str, Any]]
) -> None:
    keyed = Scenes(tmp_path, "update").make("scene")
    real, real_link, moves = os.rename, os.link, list[Path]()

    def rename(source: Any, target: Any, **more: Any) -> None:
        if Path(target).is_relative_to(keyed.paths.table):
            moves.append(Path(target))
            if 1 < len(moves) <= 1 + times:
                fail("rename")
        real(source, target, **more)

    def link(source: Any, target: Any, **more: Any) -> None:
        if Path(target).is_relative_to(keyed.paths.table) and moves and not links:
            fail("link")
        real_link(source, target, **more)

    found = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", rename)
        patch.setattr(os, "link", link)
        try:
            keyed.run("second")
        except (OSError, TidegateError) as error:
            found = error.code if isinstance(error, TidegateError) else type(error).__name__
    assert (found, canonical(read_with_duckdb(keyed.paths.table))) == (code, canonical(plain))
    assert canonical(read_with_deltalake(keyed.paths.table)) == canonical(AFTER["update"] if code is None else BEFORE)
    assert bool(describe_missed(keyed.paths)) == (code == "ROWS_OUT_OF_SIGHT")
    keyed.run("second")
    assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER["update"])
    assert keyed.leftovers() == []


@AGAIN
@pytest.mark.parametrize("mode", ["update", "complete"])
def test_publish_that_replaces(tmp_path: Path, mode: str, again: Again) -> None:
    scenes = Scenes(tmp_path, mode)
    whole = scenes.make("whole")
    calls, _ = fail_at(-1, lambda: whole.run("second"), again="never")
    expected, seen = figures_of(whole, "second"), Counter[bool]()
    for at in sweep(calls.count, 12 if mode == "update" else 4):
        keyed = scenes.make(str(at))
        failed, error = fail_at(at, lambda keyed=keyed: keyed.run("second"), again=again)
        where = f"failed at {at} ({failed.names[at - 1]})"
        allowed = [canonical(BEFORE), canonical(AFTER[mode])]
        seen[check(keyed.paths.table, keyed.paths, error, allowed=allowed, again=again)] += 1
        keyed.run("second")
        assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER[mode]), where
        assert figures_of(keyed, "second") == expected, where
        assert keyed.leftovers() == [] and describe_missed(keyed.paths) == [], where
        shutil.rmtree(keyed.root)
    assert seen[True] > seen[False]


@AGAIN
def test_maintain(tmp_path: Path, leases: Leases, again: Again) -> None:
    def make(name: str) -> Kept:
        shutil.copytree(tmp_path / "original", tmp_path / name)
        return Kept(tmp_path / name, partition_by=["city"])

    original = Kept(tmp_path / "original", partition_by=["city"])
    for run in range(2):
        original.publish(
            [{"id": run * 10 + n, "city": ["Oslo", "Rome", None][n % 3], "n": n} for n in range(6)], files=2
        )
    truth = read_agreed(original.paths.table)
    whole = make("whole")
    calls, _ = fail_at(-1, whole.maintain, again="never")
    for at in sweep(calls.count, 12):
        kept = make(str(at))
        failed, error = fail_at(at, kept.maintain, again=again)
        check(kept.paths.table, kept.paths, error, allowed=[canonical(truth)], again=again)
        kept.maintain("M2")
        assert canonical(read_agreed(kept.paths.table)) == canonical(truth), f"failed at {at} ({failed.names[at - 1]})"
        assert (len(kept.files), kept.leftovers()) == (3, [])
        shutil.rmtree(kept.root)


def test_status_of_a_process_that_was_killed_says_what_plain_readers_miss(
    tmp_path: Path, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be taken back then: the status says what is missed, and ``--check`` exits with 1."""
    kept = Kept(tmp_path)
    for run in range(3):
        kept.publish([{"id": run, "city": "Oslo", "n": 1}])
    removed = storage.remove

    def remove(path: Path) -> None:
        removed(path)
        if path.parent == kept.paths.table:
            kill("unlink")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "remove", remove)
        with pytest.raises(KilledHere):
            kept.maintain()
    monkeypatch.setattr("tidegate.views.status._look_at_sources", lambda *_: None)  # there is no broker
    (row,) = project_status(kept.project, "orders")
    assert row["missed"] == [
        f"plain readers of {kept.paths.table} miss 1 file with 1 row: run M1 was replacing them and did not finish; "
        "0 of 1 new file are in place"
    ]
    assert f"orders: {row['missed'][0]}; the next run finishes it" in needs_a_person([row])
    assert len(read_with_duckdb(kept.paths.table)) == 2
    kept.maintain()
    assert len(read_agreed(kept.paths.table)) == 3


def test_a_sleeper_that_commits_after_the_publish_was_taken_back(tmp_path: Path) -> None:
    """Its version is in the log and the files are where they were before: the next run puts them in their places."""
    keyed = Scenes(tmp_path, "update").make("late")
    real, taken_back = storage.put_if_absent, []

    def put_if_absent(path: Path, data: bytes) -> bool:
        if b"tidegate.run_id" in data and path.parent.name == "_delta_log":
            (intent,) = pending_intents(keyed.paths)
            show_again(keyed.paths, intent, lambda: None)
            taken_back.append(intent)
            assert canonical(read_with_duckdb(keyed.paths.table)) == canonical(BEFORE)
            real(path, data)
            raise KilledHere
        return real(path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "put_if_absent", put_if_absent)
        with pytest.raises(KilledHere):
            keyed.run("second")
    assert canonical(read_with_duckdb(keyed.paths.table)) == canonical(BEFORE)
    keyed.run("second")
    assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER["update"])
    (intent,) = taken_back
    assert finish_intent(keyed.paths, intent, is_current=lambda: True).already
    assert canonical(read_agreed(keyed.paths.table)) == canonical(AFTER["update"])
