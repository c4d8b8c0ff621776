"""Avro files: every type as it was written, by any codec; what Spark would take in silence is refused by the header."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support import avro_files
from tests.support.readers import read_agreed
from tests.support.streaming import make_streaming, source
from tidegate.sources.readers.avro_file import read_header

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "id BIGINT, b BOOLEAN, i INT, f FLOAT, d DOUBLE, s STRING, raw BINARY, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, "
    "price DECIMAL(20,4), kind STRING, tags ARRAY<STRING>, by MAP<STRING, BIGINT>, place STRUCT<x: DOUBLE, y: DOUBLE>, "
    "u STRUCT<member0: INT, member1: STRING>, w BIGINT"
)
FIELDS: dict[str, Any] = {
    "id": "long",
    "b": ["null", "boolean"],
    "i": ["int", "null"],
    "f": "float",
    "d": ["null", "float", "double"],
    "s": ["null", "string"],
    "raw": {"type": "fixed", "name": "four", "size": 4},
    "day": {"type": "int", "logicalType": "date"},
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "wall": {"type": "long", "logicalType": "local-timestamp-micros"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "kind": {"type": "enum", "name": "kinds", "symbols": ["A", "B"]},
    "tags": {"type": "array", "items": ["null", "string"]},
    "by": {"type": "map", "values": "int"},
    "place": ["null", avro_files.record({"x": "double", "Y": "int", "z": "int"}, "point")],
    "u": ["int", "string"],
    "w": ["int", "long", "null"],
}
ROWS: list[dict[str, Any]] = [
    {
        "id": -(2**63),
        "b": (1, True),
        "i": (0, -(2**31)),
        "f": 1.5,
        "d": (2, 0.1),
        "s": (1, "é\n007"),
        "raw": b"\x00\xff\x01\x02",
        "day": 20000,
        "at": 1700000000123,
        "wall": 1700000000123456,
        "price": (-12345).to_bytes(3, "big", signed=True),
        "kind": "B",
        "tags": [(1, "a"), (0, None)],
        "by": {"k": 7},
        "place": (1, {"x": -0.5, "Y": 3, "z": 4}),
        "u": (1, "one"),
        "w": (1, 2**62),
    },
    {
        "id": 2**63 - 1,
        "b": (0, None),
        "i": (1, None),
        "f": -0.0,
        "d": (1, 0.25),
        "s": (0, None),
        "raw": b"abcd",
        "day": -1,
        "at": -1,
        "wall": 0,
        "price": b"\x00",
        "kind": "A",
        "tags": [],
        "by": {},
        "place": (0, None),
        "u": (0, 5),
        "w": (2, None),
    },
]
_EPOCH = datetime(1970, 1, 1)
READ = [
    (
        -(2**63),
        True,
        -(2**31),
        1.5,
        0.1,
        "é\n007",
        b"\x00\xff\x01\x02",
        date(1970, 1, 1) + timedelta(days=20000),
        _EPOCH.replace(tzinfo=UTC) + timedelta(milliseconds=1700000000123),
        (_EPOCH + timedelta(microseconds=1700000000123456)).replace(tzinfo=UTC),
        Decimal("-123.4500"),
        "B",
        ["a", None],
        [("k", 7)],
        {"x": -0.5, "y": 3.0},
        {"member0": None, "member1": "one"},
        2**62,
    ),
    (
        2**63 - 1,
        None,
        None,
        -0.0,
        0.25,
        None,
        b"abcd",
        date(1969, 12, 31),
        datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
        _EPOCH.replace(tzinfo=UTC),
        Decimal("0.0000"),
        "A",
        [],
        [],
        None,
        {"member0": 5, "member1": None},
        None,
    ),
]


def test_each_value_as_it_was_written_and_each_bad_file_kept(spark: SparkSession, tmp_path: Path) -> None:
    transform = 'def transform(docs):\n    return docs.withColumn("wall", docs.wall.cast("timestamp"))\n'
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("docs", SCHEMA, format="avro"), transform)
    folder = tmp_path / "data/in/docs"
    folder.mkdir(parents=True)
    schema = avro_files.record(FIELDS)
    good = list(avro_files.PACK)
    for codec in good:
        (folder / f"{codec}.avro").write_bytes(avro_files.pack(schema, ROWS, codec, rows_in_block=1))
    (folder / "no_suffix").write_bytes(avro_files.pack(schema, ROWS))
    (folder / "no_rows.avro").write_bytes(avro_files.header(schema))
    packed = {codec: _write_by_spark(spark, tmp_path / codec, codec) for codec in ("snappy", "zstandard")}
    for codec, content in packed.items():
        (folder / f"{codec}.avro").write_bytes(content)
        assert read_header(folder / f"{codec}.avro").codec == codec
    whole = avro_files.pack(schema, ROWS * 50)
    as_number = avro_files.record({"id": {"type": "long", "logicalType": "timestamp-micros"}})
    longs = avro_files.pack(avro_files.record({"id": "long"}), [{"id": 7}] * 200, rows_in_block=100)
    first = len(avro_files.pack(avro_files.record({"id": "long"}), [{"id": 7}] * 100, rows_in_block=100))
    empty = avro_files.number(0) * 2 + avro_files.SYNC
    bad = {
        "count.avro": (longs[: first + 1], "it is cut off within a number"),
        "torn.avro": (whole[:-9], "cut off or damaged in the block at byte"),
        "garbage.avro": (b"nothing", "it does not begin"),
        "time.avro": (avro_files.pack(as_number, [{"id": 5}]), "id is timestamp[us, tz=UTC], the schema wants BIGINT"),
        "text.avro": (avro_files.pack(avro_files.record({"raw": "long"}), []), "raw is int64, the schema wants BINARY"),
        "large.avro": (
            avro_files.pack(avro_files.record({"s": "string"}), [{"s": "x" * (9 << 20)}], "deflate"),
            "s: has 9,437,184 bytes",
        ),
    }
    for name, (content, _) in bad.items():
        (folder / name).write_bytes(content)
    # Spark takes two empty blocks for the end of a file.
    (folder / "gaps.avro").write_bytes(longs[:first] + empty * 2 + longs[first:])
    (folder / "empty.avro").touch()  # not looked at before it has something in it, as in every format
    rows = flow.run()["rows"]
    count = len(ROWS) * (len(good) + 1) + 2 * len(packed) + 200
    assert (rows["read"], rows["malformed"], rows["published"]) == (count + len(bad), len(bad), count)
    columns = [*FIELDS]
    found = [tuple(_plain(value) for value in row) for row in flow.rows(*columns)]
    expected = READ * (len(good) + 1) + [(n, *[None] * 16) for n in [*(0, 1) * len(packed), *[7] * 200]]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    aside = read_agreed(tmp_path / "data/quarantine/flow", spark)
    told = {Path(json.loads(row["position"])["file"]).name: row["detail"] for row in aside}
    assert told.keys() == bad.keys()
    for name, (_, why) in bad.items():
        assert told[name].startswith(why), told[name]
    assert flow.run()["outcome"] == "nothing_new"


def _write_by_spark(spark: SparkSession, folder: Path, codec: str) -> bytes:
    """Two ids, packed by a codec that Python's library lacks."""
    spark.range(2).coalesce(1).write.format("org.apache.spark.sql.avro.AvroFileFormat").option(
        "compression", codec
    ).save(str(folder))
    [file] = folder.glob("*.avro")
    return file.read_bytes()


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value.asDict() if hasattr(value, "asDict") else value
