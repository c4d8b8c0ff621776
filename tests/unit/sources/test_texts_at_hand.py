"""Texts that are at hand, as a replay has them: read by the rules by which their file was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.parts import lines_of
from tidegate.sources.files.forms import form_of, form_of_texts
from tidegate.sources.readers.worker import PartsReader, TextsReader
from tidegate.spec.models import FilesSource


def _source(**options: object) -> FilesSource:
    return FilesSource(type="files", path="in", format="csv", schema="a INT, b STRING", options=options)


def _read_file(path: Path, text: str, source: FilesSource) -> list[dict[str, Any]]:
    path.write_text(text, newline="")
    return [row for batch in PartsReader(form_of(source))(iter([lines_of(path, 0, None)])) for row in batch.to_pylist()]


def _read_text(text: str, source: FilesSource) -> dict[str, Any]:
    texts = pa.RecordBatch.from_pydict({"_raw": [text], "_position": ["x"]})
    [row] = [row for batch in TextsReader(form_of_texts(source))(iter([texts])) for row in batch.to_pylist()]
    return row


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('q,"a"b\n', {"unescapedQuoteHandling": "STOP_AT_DELIMITER"}),
        ("q,x\ny|", {"lineSep": "|"}),
        ("q,x\r\r\n", {"lineSep": "\n"}),
        ("a,b,\nq,y,\n", {"header": True}),
        ('a,b,\nq,"y,",\n', {"header": True}),
    ],
    ids=["quotes", "bars", "returns", "separator at the end", "and quotes"],
)
def test_a_corrected_text_is_read_as_its_file(tmp_path: Path, text: str, options: dict[str, object]) -> None:
    source, path = _source(**options), tmp_path / "a.csv"
    [wrong] = _read_file(path, text, source)
    assert wrong["_detail"] == "a: not an INT"
    [wanted] = _read_file(path, text.replace("q", "5"), source)
    found = _read_text(wrong["_raw"].replace("q", "5"), source)
    assert (found["a"], found["b"], found["_malformed"]) == (5, wanted["b"], False) and not wanted["_malformed"]


def test_other_texts_have_another_number_of_columns() -> None:
    for text, options in {
        "5,y,": {},
        "5,y,z": {"header": True},
        "5,y,,": {"header": True},
        "5": {"header": True},
    }.items():
        assert _read_text(text, _source(**options))["_detail"] == "not 2 columns"


def test_a_separator_that_a_file_tells_is_told_of_its_malformed_records(tmp_path: Path) -> None:
    source = _source()
    [good, wrong] = _read_file(tmp_path / "a.csv", "sep=;\n5;x\nq;y\n", source)
    said = "; read with the separator ';', which the first line of the file sets"
    assert (good["a"], wrong["_detail"]) == (5, f"a: not an INT{said}")
    assert _read_text("5,y", source)["a"] == 5
