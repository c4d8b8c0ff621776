"""From where a record was read back to the user's file, and to the number of its line or row there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.parts import read
from tests.support.sweep import examples
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files import batch_plan
from tidegate.sources.readers import lines
from tidegate.spark.ingest.capture import PositionFinder, file_position, link_name_of
from tidegate.spec.models import FilesSource, ProjectSpec
from tidegate.spec.project import Project

LINK = "day=1/0000000001-0123abcd.text"
TEXT = FilesSource(type="files", path="in", format="text")


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    found = Project(tmp_path, ProjectSpec()).paths("orders")
    (found.intake("in") / LINK).parent.mkdir(parents=True)
    return found


def _finder(paths: PipelinePaths, **more: Any) -> PositionFinder:
    entry: Any = {"path": "in/a.txt", "size": 1, "mtime_ns": 1, **more}
    return PositionFinder({"in": {LINK: entry}}, paths, {"in": TEXT})


def _located(finder: PositionFinder, *found: str | None) -> list[Any]:
    records: Any = [{"position": one, "raw": None} for one in found]
    shown = [record["position"] for record in finder.locate(records)]
    assert [record["position"] for record in records] == list(found)
    return [one and json.loads(one) for one in shown]


def test_rows_lines_and_neither(paths: PipelinePaths) -> None:
    uri = (paths.intake("in") / LINK).as_uri()
    topic = '{"topic": "t", "partition": 0, "offset": 1}'
    places = (f"{uri}#row+12", f"{uri}#0+3", uri, topic, None)
    assert _located(_finder(paths), *places) == [
        {"file": "in/a.txt", "row": 12},
        {"file": "in/a.txt", "line": 3},
        {"file": "in/a.txt"},
        json.loads(topic),
        None,
    ]
    piece = _finder(paths, file="in/whole.txt", piece={"line_offset": 100})
    assert _located(piece, f"{uri}#0+3") == [{"file": "in/whole.txt", "line": 103}]
    assert [link_name_of(one) for one in (f"{uri}#row+1", f"{uri}#0+1", topic)] == [LINK.rpartition("/")[2]] * 2 + [
        None
    ]


def test_a_name_that_is_not_unicode_is_escaped() -> None:
    assert file_position("a\udce9", 1) == '{"file": "a\\udce9", "line": 1}'
    assert file_position("é", 2, "row") == '{"file": "é", "row": 2}'


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\xc3\xa9", b"dddd", b"x" * 25]), max_size=40),
    size=st.integers(1, 20),
    offset=st.sampled_from([0, 7]),
)
def test_each_line_of_a_file_in_parts(paths: PipelinePaths, text: list[bytes], size: int, offset: int) -> None:
    """Parts and blocks end anywhere, also within a line end, and a line may be too long."""
    path, whole = paths.intake("in") / LINK, b"".join(text)
    path.write_bytes(whole)
    wanted = re.split(b"\r\n|\r|\n", whole)
    wanted = wanted if wanted[-1] else wanted[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", 5)
        patch.setattr(lines, "LONGEST_RECORD_BYTES", 20)
        patch.setattr(batch_plan, "PART_BYTES", size)
        rows = read(path, "value STRING", range(size, len(whole), size))
        finder = _finder(paths, piece={"line_offset": offset}) if offset else _finder(paths)
        located = _located(finder, *(row["_position"] for row in rows))
        before = {begin: count for _, begin, _, count in finder.list_places()}
    assert located == [{"file": "in/a.txt", "line": offset + n} for n in range(1, len(wanted) + 1)]
    assert [row["value"] for row in rows] == [None if len(line) > 20 else line.decode() for line in wanted]
    for row, found in zip(rows, located, strict=True):
        begin, number = map(int, row["_position"].rpartition("#")[2].split("+"))
        assert before[begin] + number == found["line"]
