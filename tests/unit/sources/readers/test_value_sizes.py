"""Values that are too large for a record in files that describe themselves: each is refused alone, with its size."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.support import avro_files
from tests.support.parts import faults, read
from tidegate.sources.bounds import TOO_LARGE
from tidegate.sources.readers import avro_records, columnar
from tidegate.sources.readers.unreadable import PartUnreadable

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
    monkeypatch.setattr(columnar, "LONGEST_RECORD_BYTES", 900)
    written = [_row(), _row(id=None, numbers=None, tags=None, rows=None), _row(**{column: value}), _row()]
    more = {"row_group_size": 2} if kind == "parquet" else {}
    path = _write(tmp_path / f"a.{kind}", written, **more)
    rows = read(path, SCHEMA)
    assert faults(rows) == {3: f"{column}: has {size:,} bytes; {TOO_LARGE}"}
    assert [{name: row[name] for name in written[0]} for row in rows if not row["_malformed"]] == [
        *written[:2],
        written[3],
    ]
    raw = json.loads(rows[2]["_raw"])
    assert raw[column] is None and raw == {**_row(), "tags": {"k": "v"}, column: None}
    assert faults(read(path, "absent INT")) == {}, "a column that the schema lacks is not read"


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_the_limit_itself_and_many_rows(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is of each value; many together may be larger."""
    monkeypatch.setattr(columnar, "LONGEST_RECORD_BYTES", 900)
    path = _write(tmp_path / f"a.{kind}", [_row(id="x" * (900 + n % 2)) for n in range(12)] + [_row()] * 5000)
    rows = read(path, SCHEMA)
    assert faults(rows) == dict.fromkeys(range(2, 13, 2), f"id: has 901 bytes; {TOO_LARGE}")
    assert len(rows) == 5012 and rows[10]["id"] == "x" * 900


@pytest.mark.parametrize(
    ("declared", "kind", "values", "size"),
    [
        ("STRING", pa.string_view(), ["x", None, "x" * 101], 101),
        ("STRING", pa.dictionary(pa.int32(), pa.string()), ["x", None, "x" * 101], 101),
        ("BINARY", pa.binary_view(), [b"x", None, b"x" * 101], 101),
        ("ARRAY<STRING>", pa.list_(pa.string_view()), [["x"] * 10, None, ["x" * 97]], 101),
        ("ARRAY<INT>", pa.list_view(pa.int32()), [[1], None, [1] * 26], 104),
        ("ARRAY<INT>", pa.large_list(pa.int32()), [[1], None, [1] * 26], 104),
    ],
)
def test_types_of_other_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str, kind: Any, values: list[Any], size: int
) -> None:
    """A file says which types of Arrow it was written from."""
    monkeypatch.setattr(columnar, "LONGEST_RECORD_BYTES", 100)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": pa.array(values, kind)}), path)
    assert pq.read_schema(path).field("c").type == kind
    rows = read(path, f"c {declared}")
    assert faults(rows) == {3: f"c: has {size} bytes; {TOO_LARGE}"} and [row["c"] for row in rows[:2]] == values[:2]
    pq.write_table(pa.table({"c": pa.array(values[:2] * 30, kind)}), path)
    assert [row["c"] for row in read(path, f"c {declared}")] == values[:2] * 30


PACK: dict[str, Callable[[bytes], bytes]] = {
    **avro_files.PACK,
    "zstandard": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "snappy": lambda data: pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4),
}


@pytest.mark.parametrize("codec", PACK)
def test_a_block_of_avro_is_unpacked_to_its_limit(codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes can stand for gigabytes. Nothing of such a block is read, and the records before it are named."""
    monkeypatch.setattr(avro_records, "_LARGEST_BLOCK_BYTES", 1000)
    schema = avro_files.record({"t": "string"})

    def write(*texts: str) -> Path:
        blocks = []
        for some in ("a", *texts):
            content = PACK[codec](avro_files.datum(schema, {"t": some}))
            blocks.append(avro_files.number(1) + avro_files.number(len(content)) + content + avro_files.SYNC)
        (tmp_path / "a.avro").write_bytes(avro_files.header(schema, codec) + b"".join(blocks))
        return tmp_path / "a.avro"

    assert [row["t"] for row in read(write("x" * 998), "t STRING")] == ["a", "x" * 998]
    with pytest.raises(PartUnreadable, match="the block of records 2 to 2 has more than 1,000 bytes"):
        read(write("x" * 999), "t STRING")
