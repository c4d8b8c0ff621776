"""The types, the wholeness and the size of Avro files, by their bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support import avro_files
from tidegate.cli.scaffold.infer_columns import infer_columns
from tidegate.sources.files.forms import find_fault, form_of
from tidegate.sources.files.unreadable import count_kept_rows
from tidegate.sources.readers import avro_file
from tidegate.sources.readers.avro_file import read_schema
from tidegate.sources.readers.columnar import RowsParts
from tidegate.sources.readers.rows import open_rows
from tidegate.sources.readers.unreadable import DamagedFile
from tidegate.spec.models import FilesSource

ROW = avro_files.record({"id": "long", "name": ["null", "string"]})
ROWS = [{"id": n, "name": (n % 2, None if n % 2 == 0 else "x" * n)} for n in range(5)]
SYNC = avro_files.SYNC


def _spec(schema: str) -> FilesSource:
    return FilesSource.read({"type": "files", "path": "in", "format": "avro", "schema": schema})


def _columns(schema: Any) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in read_schema(schema).arrow}


@pytest.mark.parametrize("codec", avro_files.PACK)
def test_a_whole_file(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(avro_files.pack(ROW, ROWS, codec))
    header = avro_file.read_header(path)
    assert (header.schema, header.codec, header.sync) == (ROW, codec, SYNC)
    assert count_kept_rows(path, _spec("id BIGINT")) == 5
    assert find_fault(path, _spec("id BIGINT"), is_read=True) is None


def test_a_header_may_leave_out_the_codec_and_come_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(avro_files.header(ROW, None))
    assert avro_file.read_header(path).codec == "null"
    one = avro_files.header(ROW)[4:]
    at = one.index(b"\x14avro.codec")
    sized = avro_files.number(-1) + avro_files.number(at - 1) + one[1:at] + avro_files.number(1) + one[at:]
    path.write_bytes(b"Obj\x01" + sized)
    assert avro_file.read_header(path).schema == ROW


def test_cut_off_anywhere_but_behind_a_block_is_seen(tmp_path: Path) -> None:
    path, whole = tmp_path / "a", avro_files.pack(ROW, ROWS)
    ends = {len(avro_files.pack(ROW, ROWS[:count])) for count in (0, 2, 4, 5)}
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        assert (find_fault(path, _spec("id BIGINT"), is_read=True) is None) == (length in ends), length


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "does not begin as an Avro"),
        (b"nothing", "does not begin as an Avro"),
        (avro_files.pack(ROW, ROWS) + b"xyz", "cut off or damaged in the block at byte"),
        (avro_files.pack(ROW, ROWS) * 2, "cut off or damaged in the block"),
        (avro_files.header(ROW) + b"\x02\x02a" + b"?" * 16, "does not end with the file's sync marker"),
        (avro_files.header(ROW, "lz4"), "codec 'lz4' is not one of"),
        (b"Obj\x01\x00" + SYNC, "no schema"),
        (b"Obj\x01\x02\x16avro.schema\x02{\x00" + SYNC, "no schema"),
        (b"Obj\x01" + b"\xff" * 12, "too long"),
    ],
)
def test_what_is_no_whole_file_is_said(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    told = find_fault(path, _spec("id BIGINT"), is_read=True)
    assert told is not None and why in told, told


def test_a_file_may_end_within_a_count_and_go_on_behind_empty_blocks(tmp_path: Path) -> None:
    """Spark takes the one for the end of a whole file, and the others too."""
    long = avro_files.record({"id": "long"})
    rows = [{"id": n} for n in range(200)]
    first = len(avro_files.pack(long, rows[:100], rows_in_block=100))
    whole = avro_files.pack(long, rows, rows_in_block=100)
    assert whole[first] >= 0x80, "the count takes two bytes"
    empty = avro_files.number(0) * 2 + SYNC
    head, tail = whole[:first], whole[first:]
    for content, why in (
        (whole[: first + 1], "cut off within a number"),
        (head + empty * 2 + tail, None),
        (head + empty + tail, None),
        (whole, None),
    ):
        (tmp_path / "a").write_bytes(content)
        found = find_fault(tmp_path / "a", _spec("id BIGINT"), is_read=True)
        assert (why in str(found)) if why else found is None, found


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "row", "fields": ["x"]},
        avro_files.record({"x": {"type": "fixed", "name": "f", "size": 2**40}}),
        avro_files.record({"x": {"type": "bytes", "logicalType": "decimal", "precision": 10**30}}),
        avro_files.record({"\ud800": "long"}),
    ],
)
def test_a_header_with_nonsense_is_a_fault_of_its_file(tmp_path: Path, schema: Any) -> None:
    (tmp_path / "a").write_bytes(avro_files.header(schema))
    assert find_fault(tmp_path / "a", _spec("id BIGINT")) is not None


def test_types() -> None:
    point = avro_files.record({"x": "double"}, "geo.point")
    enum = {"type": "enum", "name": "kind", "symbols": ["A"]}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    found = _columns(
        {
            **avro_files.record(
                {
                    "a": ["null", "int"],
                    "b": ["int", "null", "long"],
                    "c": ["float", "double"],
                    "d": ["int", "string"],
                    "e": enum,
                    "f": ["null", "kind"],
                    "g": point,
                    "h": {"type": "array", "items": "geo.point"},
                    "i": {"type": "map", "values": decimal},
                    "j": {"type": "fixed", "name": "id", "size": 16},
                    "k": {"type": {"type": "long", "logicalType": "timestamp-millis"}},
                    "l": {"type": "long", "logicalType": "local-timestamp-micros"},
                    "m": {"type": "int", "logicalType": "date"},
                    "n": {"type": "long", "logicalType": "timestamp-nanos"},
                    "o": "null",
                }
            ),
            "namespace": "shop",
        }
    )
    number = pa.decimal256(12, 2)
    assert found == {
        "a": pa.int32(),
        "b": pa.int64(),
        "c": pa.float64(),
        "d": pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
        "e": pa.string(),
        "f": pa.string(),
        "g": pa.struct([("x", pa.float64())]),
        "h": pa.list_(pa.struct([("x", pa.float64())])),
        "i": pa.map_(pa.string(), number),
        "j": pa.binary(16),
        "k": pa.timestamp("ms", "UTC"),
        "l": pa.timestamp("us"),
        "m": pa.date32(),
        "n": pa.int64(),
        "o": pa.null(),
    }


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("string", "not a record"),
        (avro_files.record({"next": ["null", "row"]}), "contains itself"),
        (avro_files.record({"x": "colour"}), "unknown type 'colour'"),
        (avro_files.record({"x": {"type": "array"}}), "no type"),
        ({"type": "record", "name": "row"}, "no fields"),
    ],
)
def test_schemas_that_spark_cannot_read(schema: Any, why: str) -> None:
    with pytest.raises(DamagedFile, match=why):
        _columns(schema)


@pytest.mark.parametrize(
    ("kind", "declared", "fits"),
    [
        ("int", "BIGINT", True),
        ("int", "DOUBLE", True),
        ("float", "DOUBLE", True),
        ("null", "STRING", True),
        ("long", "INT", True),
        ("long", "STRING", False),
        ("int", "DECIMAL(12,2)", True),
        ("string", "BINARY", True),
        ("bytes", "STRING", True),
        ("long", "TIMESTAMP", False),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP", True),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP_NTZ", False),
        ({"type": "long", "logicalType": "timestamp-micros"}, "BIGINT", False),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP", True),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "BIGINT", True),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, "DECIMAL(20,4)", True),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, "DECIMAL(4,1)", True),
        ({"type": "array", "items": "long"}, "ARRAY<INT>", True),
        ({"type": "array", "items": "int"}, "ARRAY<BIGINT>", True),
    ],
)
def test_what_does_not_fit_the_schema_is_found_in_the_header(
    tmp_path: Path, kind: Any, declared: str, fits: bool
) -> None:
    (tmp_path / "a").write_bytes(avro_files.header(avro_files.record({"x": kind})))
    found = find_fault(tmp_path / "a", _spec(f"x {declared}"))
    assert (found is None) == fits, found
    assert fits or str(found).startswith("x"), found


def test_unknown_fields_inside_are_named(tmp_path: Path) -> None:
    inner = avro_files.record({"b": "int", "c": "int"}, "inner")
    (tmp_path / "a").write_bytes(
        avro_files.header(avro_files.record({"x": {"type": "array", "items": inner}, "y": "int"}))
    )
    form = form_of(_spec("x ARRAY<STRUCT<b: INT>>"))
    with open_rows(str(tmp_path / "a"), form) as rows:
        assert set(RowsParts(form).look(rows).unknown) == {"x[].c", "y"}


def test_columns_are_inferred(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    when = {"type": "long", "logicalType": "local-timestamp-micros"}
    path.write_bytes(
        avro_files.header(avro_files.record({"id": "long", "at": when, "tags": {"type": "array", "items": "string"}}))
    )
    assert infer_columns(path, "avro").columns == "id BIGINT, at TIMESTAMP_NTZ, tags ARRAY<STRING>"
