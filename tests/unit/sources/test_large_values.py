"""Values too large for a record in parquet and orc files: named with row and column; others are passed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.files import large_values
from tidegate.sources.files.columns import read_footers
from tidegate.sources.files.large_values import why_too_large
from tidegate.spec.models import FilesSource

_ROWS = pa.list_(pa.struct([("name", pa.string()), ("n", pa.int64())]))
SCHEMA = "id STRING, numbers ARRAY<INT>, tags MAP<STRING, STRING>, rows ARRAY<STRUCT<name: STRING, n: BIGINT>>"
TYPES = [("id", pa.string()), ("numbers", pa.list_(pa.int32())), ("tags", pa.map_(pa.string(), pa.string()))]


def _row(**values: Any) -> dict[str, Any]:
    return {"id": "a", "numbers": [1, None], "tags": [("k", "v")], "rows": [{"name": "x", "n": 1}, None], **values}


def _write(path: Path, rows: list[dict[str, Any]], **how: Any) -> Path:
    table = pa.Table.from_pylist(rows, pa.schema([*TYPES, ("rows", _ROWS)]))
    if path.suffix == ".parquet":
        pq.write_table(table, path, **how)
    else:
        orc.write_table(table, str(path))
    return path


def _why(path: Path, schema: str = SCHEMA) -> str | None:
    return why_too_large(path, FilesSource(type="files", path="in", format=path.suffix[1:], schema=schema))


@pytest.mark.parametrize("kind", ["parquet", "orc"])
@pytest.mark.parametrize(
    ("column", "value", "size"),
    [
        ("id", "ä" * 500, 1000),
        ("numbers", [7] * 300, 1200),
        ("tags", [(str(n), "v" * 10) for n in range(10, 90)], 80 * (12 + 4)),
        ("rows", [{"name": "", "n": None}] * 100, 100 * (8 + 4)),
        ("rows", [{"name": "x" * 1000, "n": 1}], 1012),
    ],
)
def test_row_column_and_size(
    kind: str, column: str, value: Any, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_values, "LONGEST_RECORD_BYTES", 900)
    rows = [_row(), _row(id=None, numbers=None, tags=None, rows=None), _row(**{column: value}), _row()]
    more = {"row_group_size": 2} if kind == "parquet" else {}
    path = _write(tmp_path / f"a.{kind}", rows, **more)
    assert _why(path) == f"row 3: column {column} has {size:,} bytes; the limit is 900 bytes"
    assert _why(path, "absent INT") is None  # Spark reads no column that the schema lacks
    assert _why(_write(tmp_path / f"b.{kind}", [_row()] * 5000)) is None


def test_the_limit_itself_and_many_rows_beyond_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "LONGEST_RECORD_BYTES", 900)
    assert _why(_write(tmp_path / "a.parquet", [_row(id="x" * 900)] * 3)) is None
    why = _why(_write(tmp_path / "b.parquet", [_row(id="x" * 901)] * 12))
    assert why is not None and why.count("row ") == 10 and ", and 2 more are as large; the limit" in why


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_a_torn_file_is_left_to_its_reader(kind: str, tmp_path: Path) -> None:
    path = _write(tmp_path / f"a.{kind}", [_row()])
    path.write_bytes(path.read_bytes()[:-20])
    assert _why(path) is None


def test_a_column_that_is_too_large_on_average_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "_UNREAD_BYTES", 2 * LONGEST_RECORD_BYTES)
    monkeypatch.delattr(pq.ParquetFile, "iter_batches")
    count = LONGEST_RECORD_BYTES
    values = pa.ListArray.from_arrays(pa.array([0, 1, count], pa.int32()), pa.repeat(pa.scalar(7, pa.int32()), count))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["a", "b"], "numbers": values}), path)
    assert path.stat().st_size < 4000
    assert _why(path) == f"rows 1 to 2: column numbers has {4 * count:,} bytes; the limit is 8,388,608 bytes"


@pytest.mark.parametrize(
    ("declared", "kind", "values"),
    [
        ("STRING", pa.string_view(), ["x", None, "x" * 101]),
        ("BINARY", pa.binary_view(), [b"x", None, b"x" * 101]),
        ("ARRAY<STRING>", pa.list_(pa.string_view()), [["x"] * 10, None, ["x" * 97]]),
        ("ARRAY<INT>", pa.list_view(pa.int32()), [[1], None, [1] * 26]),
    ],
)
def test_types_of_other_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str, kind: Any, values: list[Any]
) -> None:
    """A file says which types of Arrow it was written from."""
    monkeypatch.setattr(large_values, "LONGEST_RECORD_BYTES", 100)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": pa.array(values, kind)}), path)
    source = FilesSource(type="files", path="in", format="parquet", schema=f"c {declared}")
    assert not [footer for footer in read_footers(tmp_path, [path.name], source).values() if footer.fault]
    assert (_why(path, f"c {declared}") or "").startswith("row 3: column c has 10")
    pq.write_table(pa.table({"c": pa.array(values[:2] * 30, kind)}), path)
    assert _why(path, f"c {declared}") is None
