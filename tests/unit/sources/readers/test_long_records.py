"""A record of five times the largest size between two others: it alone is refused, and it is never held whole."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.support.parts import lines_of
from tidegate.sources.bounds import LONGEST_RECORD_BYTES, TOO_LARGE
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.worker import PartsReader

SIZE = 5 * LONGEST_RECORD_BYTES


@pytest.mark.parametrize(
    ("form", "before", "behind", "suffix"),
    [
        (Form("json", "id INT"), b'{"id": 1}\n', b'\n{"id": 3}\n', ""),
        (Form("json", "id INT"), b'{"id": 1}\n', b'\n{"id": 3}\n', ".gz"),
        (Form("json", "id INT", options={"lineSep": "||"}), b'{"id": 1}||', b'||{"id": 3}||', ""),
        (Form("json", "id INT", options={"multiLine": "true"}), b'[{"id": 1},\n{"x": "', b'"},\n{"id": 3}]', ""),
        (Form("text", "id STRING"), b"1\n", b"\n3\n", ""),
        (Form("csv", "id INT"), b"1\n", b"\n3\n", ".gz"),
        (Form("csv", "id INT", options={"multiLine": "true"}), b"1\n", b"\n3\n", ""),
        (Form("xml", "_id INT", options={"rowTag": "o"}), b"<a><o id='1'/>\n<o>", b"</o>\n<o id='3'/></a>", ""),
    ],
)
def test_a_long_record_between_two_others(
    tmp_path: Path, form: Form, before: bytes, behind: bytes, suffix: str
) -> None:
    path = tmp_path / f"a.{form.format}{suffix}"
    path.write_bytes(gzip.compress(before + behind) if suffix else before + behind)
    _read(path, form)  # what it imports is not counted
    with gzip.open(path, "wb", compresslevel=1) if suffix else open(path, "wb") as out:
        out.write(before + b"x" * SIZE + behind)
    tracemalloc.start()
    try:
        rows = _read(path, form)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [row["_malformed"] for row in rows] == [False, True, False]
    assert [str(row[form.root.fields[0][0]]) for row in rows] == ["1", "None", "3"]
    told = re.fullmatch(rf"a (?:line|record) of ([0-9,]+) bytes; {TOO_LARGE}", rows[1]["_detail"])
    assert told is not None and SIZE <= int(told[1].replace(",", "")) <= SIZE + 20
    assert rows[1]["_raw"].endswith("x") and 900 < len(rows[1]["_raw"]) <= 1000
    assert [int(row["_position"].rpartition("#0+")[2]) for row in rows] == [1, 2, 3]
    assert peak < SIZE


def _read(path: Path, form: Form) -> list[dict[str, Any]]:
    return [row for batch in PartsReader(form)(iter([lines_of(path, 0, None)])) for row in batch.to_pylist()]
