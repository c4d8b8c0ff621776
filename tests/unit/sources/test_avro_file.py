"""The types, the wholeness and the size of Avro files, by their bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support import avro_files
from tidegate.scaffold.infer_columns import infer_columns
from tidegate.sources.files.columns import read_footers
from tidegate.sources.files.large_values import why_too_large
from tidegate.sources.files.unreadable import count_kept_rows, why_unreadable
from tidegate.sources.readers import avro_file
from tidegate.spec.models import FilesSource

ROW = avro_files.record({"id": "long", "name": ["null", "string"]})
ROWS = [{"id": n, "name": (n % 2, None if n % 2 == 0 else "x" * n)} for n in range(5)]
SYNC = avro_files.SYNC


def _spec(schema: str) -> FilesSource:
    return FilesSource.model_validate({"type": "files", "path": "in", "format": "avro", "schema": schema})


def _columns(schema: Any) -> dict[str, pa.DataType]:
    return avro_file.read_columns(avro_file.Header(schema, "null", SYNC))


@pytest.mark.parametrize("codec", avro_files.PACK)
def test_a_whole_file(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(avro_files.pack(ROW, ROWS, codec))
    header = avro_file.read_header(path)
    assert (header.schema, header.codec, header.sync) == (ROW, codec, SYNC)
    assert avro_file.count_records(path) == count_kept_rows(path, _spec("id BIGINT")) == 5
    assert why_unreadable(path, _spec("id BIGINT")) is None


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
        assert (why_unreadable(path, _spec("id BIGINT")) is None) == (length in ends), length


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "does not begin as an Avro"),
        (b"nothing", "does not begin as an Avro"),
        (avro_files.pack(ROW, ROWS) + b"xyz", "cut off or damaged in the block at byte"),
        (avro_files.pack(ROW, ROWS) * 2, "cut off or damaged in the block"),
        (avro_files.header(ROW) + b"\x02\x02a" + b"?" * 16, "does not end with the file's sync marker"),
        (avro_files.header(ROW, "lz4"), "codec 'lz4' is none of"),
        (b"Obj\x01\x00" + SYNC, "no schema"),
        (b"Obj\x01\x02\x16avro.schema\x02{\x00" + SYNC, "no schema"),
        (b"Obj\x01" + b"\xff" * 12, "too long"),
    ],
)
def test_what_is_no_whole_file_is_said(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    told = why_unreadable(path, _spec("id BIGINT"))
    assert told is not None and told.startswith("not a readable avro file: ") and why in told, told


def test_what_spark_takes_for_the_end_is_found_before_it_reads(tmp_path: Path) -> None:
    """Cut off within the count of a block, or behind two empty blocks, rows are missing and Spark does not fail."""
    long = avro_files.record({"id": "long"})
    rows = [{"id": n} for n in range(200)]
    first = len(avro_files.pack(long, rows[:100], rows_in_block=100))
    whole = avro_files.pack(long, rows, rows_in_block=100)
    assert whole[first] >= 0x80, "the count takes two bytes"
    empty = avro_files.number(0) * 2 + SYNC
    head, tail = whole[:first], whole[first:]
    for content, why in (
        (whole[: first + 1], "cut off within a number"),
        (head + empty * 2 + tail, "follows 2 empty ones"),
        (head + empty + tail, None),
        (whole, None),
    ):
        (tmp_path / "a").write_bytes(content)
        found = read_footers(tmp_path, ["a"], _spec("id BIGINT"))
        assert (why in str(found["a"].fault)) if why else found == {}, found


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
    [footer] = read_footers(tmp_path, ["a"], _spec("id BIGINT")).values()
    assert str(footer.fault).startswith("not a readable avro file: "), footer


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
        (avro_files.record({"next": ["null", "row"]}), "has itself inside"),
        (avro_files.record({"x": "colour"}), "unknown type 'colour'"),
        (avro_files.record({"x": {"type": "array"}}), "no type"),
        ({"type": "record", "name": "row"}, "no fields"),
    ],
)
def test_schemas_that_spark_cannot_read(schema: Any, why: str) -> None:
    with pytest.raises(avro_file.NotAvro, match=why):
        _columns(schema)


@pytest.mark.parametrize(
    ("kind", "declared", "fits"),
    [
        ("int", "BIGINT", True),
        ("int", "DOUBLE", True),
        ("float", "DOUBLE", True),
        ("null", "STRING", True),
        ("long", "INT", False),
        ("long", "STRING", False),
        ("int", "DECIMAL(12,2)", False),
        ("string", "BINARY", False),
        ("bytes", "STRING", False),
        ("long", "TIMESTAMP", False),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP", True),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP_NTZ", False),
        ({"type": "long", "logicalType": "timestamp-micros"}, "BIGINT", False),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP", False),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "BIGINT", True),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, "DECIMAL(20,4)", True),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, "DECIMAL(4,1)", False),
        ({"type": "array", "items": "long"}, "ARRAY<INT>", False),
        ({"type": "array", "items": "int"}, "ARRAY<BIGINT>", True),
    ],
)
def test_what_does_not_fit_the_schema_is_found_in_the_header(
    tmp_path: Path, kind: Any, declared: str, fits: bool
) -> None:
    (tmp_path / "a").write_bytes(avro_files.header(avro_files.record({"x": kind})))
    found = read_footers(tmp_path, ["a"], _spec(f"x {declared}"))
    assert (found == {}) == fits, found
    assert fits or str(found["a"].fault).startswith("x"), found


def test_unknown_fields_inside_are_named(tmp_path: Path) -> None:
    inner = avro_files.record({"b": "int", "c": "int"}, "inner")
    (tmp_path / "a").write_bytes(
        avro_files.header(avro_files.record({"x": {"type": "array", "items": inner}, "y": "int"}))
    )
    [footer] = read_footers(tmp_path, ["a"], _spec("x ARRAY<STRUCT<b: INT>>")).values()
    assert set(footer.unknown) == {"x[].c", "y"} and footer.fault is None


@pytest.mark.parametrize("codec", avro_files.PACK)
def test_a_record_that_is_too_large_is_found_by_its_block(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a"
    rows = [{"id": 1, "name": (0, None)}] * 3 + [{"id": 2, "name": (1, "x" * (9 << 20))}]
    path.write_bytes(avro_files.pack(ROW, rows, codec))
    told = why_too_large(path, _spec("id BIGINT, name STRING"))
    assert told == "one of the records 3 to 4: the block has more than 8,388,608 bytes; the limit is 8,388,608 bytes"
    path.write_bytes(avro_files.pack(ROW, rows[:3], codec))
    assert why_too_large(path, _spec("id BIGINT, name STRING")) is None


def test_columns_are_inferred(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    when = {"type": "long", "logicalType": "local-timestamp-micros"}
    path.write_bytes(
        avro_files.header(avro_files.record({"id": "long", "at": when, "tags": {"type": "array", "items": "string"}}))
    )
    assert infer_columns(path, "avro").columns == "id BIGINT, at TIMESTAMP_NTZ, tags ARRAY<STRING>"
