"""VACUUM of another engine beside a publish: it takes files that are old and that the log does not name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.held import BAD, GOOD, Held, commands
from tests.support.kept import Kept
from tests.support.readers import read_agreed, read_with_duckdb
from tidegate.core.errors import DisagreementError
from tidegate.table.publish import publish, replace
from tidegate.table.publish.intent import pending_intents
from tidegate.table.publish.replace import bring_back, list_set_aside

WEEK_HOURS = 168


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """A pipeline that has published four rows."""
    made = Held(tmp_path)
    with commands(lambda: made):
        made.run("R1", GOOD)
        yield made


def vacuum(table: Path, hours: int = WEEK_HOURS) -> None:
    """As Spark's VACUUM does: every file of the folder that the log does not name, unless it is young."""
    DeltaTable(str(table)).vacuum(hours, enforce_retention_duration=False, dry_run=False, full=True)


def age(folder: Path, days: float = 8) -> None:
    then = time.time() - days * 86_400
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def before_each_commit(monkeypatch: pytest.MonkeyPatch, do: Any) -> None:
    real = publish.commit_files

    def commit_files(*arguments: Any, **more: Any) -> Any:
        do()
        return real(*arguments, **more)

    monkeypatch.setattr(publish, "commit_files", commit_files)


def test_an_increment_that_was_held_for_longer_than_files_are_kept(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="INCREMENT_HELD"):
        held.run("R2", BAD)
    age(held.paths.state / "staging")
    before_each_commit(monkeypatch, lambda: vacuum(held.paths.table))
    held.decide("release", "R2")
    assert held.rows() == [1, 2, 3, 4, 5, 6, 7]


def test_files_that_come_back_from_their_hidden_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path)
    kept.publish([{"id": n, "city": "x", "n": n} for n in range(4)])
    kept.publish([{"id": 9, "city": "x", "n": 9}])
    table = kept.paths.table

    def stop(*arguments: Any, **more: Any) -> None:
        raise OSError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(publish, "_move_files", stop)
        with pytest.raises(OSError, match="stopped"):
            kept.maintain()
    assert list_set_aside(table)
    age(table)
    real = replace.rename_files

    def rename_files(*arguments: Any, **more: Any) -> None:
        vacuum(table)
        real(*arguments, **more)

    monkeypatch.setattr(replace, "rename_files", rename_files)
    bring_back(table, app_id="undo", check_lease=lambda: None)
    assert sorted(row["n"] for row in read_agreed(table)) == [0, 1, 2, 3, 9]


def test_a_version_that_names_a_file_which_is_gone_does_not_end_well(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_commit(monkeypatch, lambda: vacuum(held.paths.table, hours=0))
    with pytest.raises(DisagreementError) as refused:
        held.run("R2", [{"id": 10, "n": 10}])
    error = refused.value
    assert (error.code, error.exit_code) == ("PUBLISHED_FILES_GONE", 78)
    assert "run R2 is published" in error.message and "part-" in error.message
    assert sorted(row["n"] for row in read_with_duckdb(held.paths.table)) == [4, 5, 6, 7]
    assert pending_intents(held.paths) == []  # said once: it does not keep what mends it from running


def test_a_publish_that_was_killed_behind_its_commit_is_looked_at_by_whoever_finishes_it(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publish, "_result", stop)
        with pytest.raises(KeyboardInterrupt):
            held.run("R2", [{"id": 10, "n": 10}])
    [intent] = pending_intents(held.paths)
    (held.paths.table / intent.files_to_add[0].path).unlink()
    with pytest.raises(DisagreementError, match="1 of its files"):
        held.run("R3")
    assert pending_intents(held.paths) == []
