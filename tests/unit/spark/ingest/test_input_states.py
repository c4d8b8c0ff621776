"""Files that change under Spark: found by what they were before Spark could have looked at them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.spark.ingest.batch_checks import InputStates


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.json"
    path.write_text('{"id": 1}\n')
    return path


def noted(file: Path) -> InputStates:
    states = InputStates()
    states.note([file])
    return states


def overwrite_in_place(file: Path) -> None:
    """As ``rsync --inplace --times`` may: same size, same time."""
    stat = file.stat()
    file.write_text('{"id": 2}\n')
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_file_that_stays_as_it_was(file: Path) -> None:
    assert noted(file).changed([file]) == []


def test_a_file_that_grows(file: Path) -> None:
    states = noted(file)
    with file.open("a") as handle:
        handle.write("more\n")
    assert states.changed([file]) == [file]


def test_a_file_that_was_not_there(file: Path, tmp_path: Path) -> None:
    states = noted(tmp_path / "later")
    assert states.changed([file]) == [file]


def test_a_file_that_is_gone(file: Path) -> None:
    states = noted(file)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        states.changed([file])


def test_a_file_written_over_with_its_time_put_back(file: Path) -> None:
    states = noted(file)
    overwrite_in_place(file)
    assert states.changed([file]) == [file]
    states.note([file])
    overwrite_in_place(file)
    assert states.changed([file]) == [], "the same bytes again"
    states.note([file])
    file.write_text('{"id": 3}\n')
    assert states.changed([file]) == [file]


def test_files_that_are_moved_away_while_they_are_read_are_read_again_once(tmp_path: Path) -> None:
    """Whoever archives what was taken changes nothing but its ctime, one file after the other."""
    files = []
    for number in range(3):
        original = tmp_path / f"{number}.json"
        original.write_text(str(number))
        files.append(tmp_path / f"link-{number}")
        os.link(original, files[-1])
    states = InputStates()
    states.note(files)
    (tmp_path / "0.json").rename(tmp_path / "archived-0")
    assert states.changed(files) == files[:1]
    for number in (1, 2):
        states.note(files)
        (tmp_path / f"{number}.json").unlink()
        assert states.changed(files) == []
