"""Numbered notes: the newest counts, whoever writes last."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.storage_calls import KilledHere, StorageCalls, kill
from tidegate import storage


def test_a_late_writer_of_an_older_note_changes_nothing(tmp_path: Path) -> None:
    notes = tmp_path / "published"
    assert storage.read_note(notes) is None
    for version in (8, 9, 10):
        storage.write_note(notes, version, {"version": version})
    assert storage.read_note(notes) == {"version": 10}
    # Frozen before it wrote, thawed after two more publishes.
    storage.write_note(notes, 8, {"version": 8})
    assert storage.read_note(notes) == {"version": 10}


def test_notes_do_not_pile_up(tmp_path: Path) -> None:
    for version in range(30):
        storage.write_note(tmp_path, version, {})
    storage.write_note(tmp_path, 12, {})
    storage.write_note(tmp_path, 30, {})
    assert [path.name for path in tmp_path.iterdir()] == ["30.json"]


def test_what_is_no_note_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".7.json.tmp").write_text("torn")
    (tmp_path / "README").write_text("mine")
    assert storage.read_note(tmp_path) is None
    storage.write_note(tmp_path, 3, {"version": 3})
    assert storage.read_note(tmp_path) == {"version": 3}


@pytest.mark.parametrize("number", [3, 9, 12])
def test_a_note_in_place_of_all_others_is_never_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Killed at each step, the old highest note counts, or the new one; the next try completes it."""
    for at in itertools.count(1):
        notes = tmp_path / f"killed at {at}"
        notes.mkdir()
        for version in (10, 8, 9):
            (notes / f"{version}.json").write_bytes(storage.dump_json({"version": version}))
        with monkeypatch.context() as patch:
            calls = StorageCalls(patch, at, kill)
            try:
                storage.write_note(notes, number, {"mine": number}, only=True)
            except KilledHere:
                assert storage.read_note(notes) in ({"version": 10}, {"mine": number}), calls.names
        storage.write_note(notes, number, {"mine": number}, only=True)
        assert [path.name for path in notes.iterdir() if not path.name.startswith(".")] == [f"{number}.json"]
        if calls.count < at:
            break
    assert at > 5
