"""A file of edited records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.core.errors import UsageError
from tidegate.rework.replay.command import read_edits


def line(**value: object) -> str:
    return json.dumps(value)


def test_other_keys_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "edited.jsonl"
    path.write_text("\ufeff" + line(id="a", raw="x\ny", reason="malformed") + "\n\n" + line(id="b", raw="é") + "\n")
    assert read_edits(path) == {"a": "x\ny", "b": "é"}


@pytest.mark.parametrize(
    "lines, place, told",
    [
        (["{torn"], 1, "it is not JSON"),
        ([line(id="a", raw="x"), "[1]"], 2, "it has no `id`"),
        ([line(id=1, raw="x")], 1, "it has no `id`"),
        ([line(id="a")], 1, "its `raw` is not a text"),
        ([line(id="a", raw={"b": 1})], 1, "a record of a JSON source is a text here"),
        ([line(id="a", raw=" ")], 1, "its `raw` is empty"),
        ([line(id="a", raw="x"), line(id="b", raw="y"), line(id="a", raw="x")], 3, "the id a is in line 1 too"),
        (['{"id": "a", "raw": "\\ud800"}'], 1, "half of a character"),
    ],
)
def test_a_line_that_is_no_edited_record(tmp_path: Path, lines: list[str], place: int, told: str) -> None:
    path = tmp_path / "edited.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError) as refused:
        read_edits(path)
    assert refused.value.code == "REPLAY_FILE" and refused.value.where == f"{path}:{place}"
    assert told in refused.value.message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_edits(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not UTF-8"):
        read_edits(tmp_path / "bytes")
