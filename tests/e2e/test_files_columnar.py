"""Parquet, orc and avro files: other columns than declared, types that do not fit, and files that are broken."""

from __future__ import annotations

import datetime
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.e2e.conftest import MakePipeline, Pipeline
from tests.support import avro_files

SCHEMA = "id STRING NOT NULL, amount INT, price DOUBLE, seen TIMESTAMP"
_SEEN = datetime.datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=datetime.UTC)


def _pack(kind: str, table: pa.Table, **options: Any) -> bytes:
    if kind == "avro":
        return _pack_avro(table)
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink, **options)
    else:
        orc.write_table(table, sink)
    return sink.getvalue()


def _pack_avro(table: pa.Table) -> bytes:
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    kinds: dict[pa.DataType, Any] = {
        pa.string(): "string",
        pa.int32(): "int",
        pa.int64(): "long",
        pa.float64(): "double",
        pa.list_(pa.int64()): {"type": "array", "items": "long"},
        pa.timestamp("us", "UTC"): micros,
    }
    schema = avro_files.record({field.name: ["null", kinds[field.type]] for field in table.schema})
    seen = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    numbers = table.cast(pa.schema([(one.name, pa.int64() if one.name in seen else one.type) for one in table.schema]))
    pairs = [{key: (value is not None, value) for key, value in row.items()} for row in numbers.to_pylist()]
    return avro_files.pack(schema, pairs, "deflate")


def _table(keys: list[str], **more: Any) -> pa.Table:
    columns = {
        "id": pa.array(keys, pa.string()),
        "amount": pa.array(range(len(keys)), pa.int32()),
        "price": pa.array([0.5] * len(keys), pa.float64()),
        "seen": pa.array([_SEEN] * len(keys), pa.timestamp("us", "UTC")),
    }
    return pa.table(columns | more)


def _rows(keys: list[str], **other: Any) -> list[dict[str, Any]]:
    return [{"id": key, "amount": number, "price": 0.5, "seen": _SEEN} | other for number, key in enumerate(keys)]


def _offer_sound(pipeline: Pipeline, kind: str) -> None:
    """Files that fit, each in its own way."""

    def offer(name: str, table: pa.Table, rows: list[dict[str, Any]], **options: Any) -> None:
        pipeline.put(f"{name}.{kind}", _pack(kind, table, **options))
        pipeline.expect_rows(rows)

    plain = _table(["p1", "p2"])
    offer("plain", plain, _rows(["p1", "p2"]))
    offer("other order", _table(["o1"]).select(["seen", "price", "amount", "id"]), _rows(["o1"]))
    offer("missing", _table(["m1"]).drop_columns(["price", "seen"]), _rows(["m1"], price=None, seen=None))
    offer("extra", _table(["x1"], more=pa.array([1]), others=pa.array([[1]])), _rows(["x1"]))
    offer("no_rows", _table([]), [])
    offer("upper", _table(["u1"]).rename_columns(["ID", "Amount", "price", "seen"]), _rows(["u1"]))
    offer("null", _table(["n1"], amount=pa.array([None], pa.int32())), _rows(["n1"], amount=None))


def _flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


def _offer_broken(pipeline: Pipeline, kind: str) -> dict[str, str]:
    """Files that do not; {path: the start of what quarantine says}."""
    good = _pack(kind, _table([f"never{number}" for number in range(40)]), write_page_checksum=True)
    wrong = _table(["w1", "w2"], amount=pa.array(["one", "two"]))
    files = {
        "cut off": good[: len(good) // 2],
        "flipped": _flip(good, 100),
        "no such file": b"neither parquet nor orc",
        "wrong type": _pack(kind, wrong),
        "wrong type again": _pack(kind, wrong),
    }
    if kind != "parquet":
        del files["flipped"]  # they keep no checksums: what can still be decoded cannot be told from what was written
    told = {}
    for name, content in files.items():
        path = pipeline.put(f"{name}.{kind}", content)
        pipeline.expect_aside(path, None, None)
        told[path] = "amount is string, the schema wants INT; the file" if name.startswith("wrong") else ""
    return told


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_columns_types_and_broken_files(make_pipeline: MakePipeline, kind: str) -> None:
    pipeline = make_pipeline(f"path: data/inbox\nformat: {kind}\nschema: '{SCHEMA}'")
    _offer_sound(pipeline, kind)
    told = _offer_broken(pipeline, kind)
    missing = pipeline.put(f"lacks_id.{kind}", _pack(kind, _table(["y1"]).drop_columns(["id"])))
    raw = '{"id":null,"amount":0,"price":0.5,"seen":"2026-01-31T12:00:00.123456Z"}'
    pipeline.expect_aside(missing, 1, raw, unit="row")
    far = _table(["f1"], seen=pa.array([253402300800000000 + 5], pa.timestamp("us", "UTC")))
    late = pipeline.put(f"year_10000.{kind}", _pack(kind, far))
    raw = '{"id":"f1","amount":0,"price":0.5,"seen":"10000-01-01T00:00:00.000005Z"}'
    pipeline.expect_aside(late, 1, raw, unit="row")

    report = pipeline.run()
    aside = pipeline.check()
    import json

    for row in aside:
        path = json.loads(row["position"])["file"]
        if path in told:
            assert row["detail"].startswith(told[path]), row["detail"]
            assert "; the file is kept as unreadable/" in row["detail"]
            kept = pipeline.state / "unreadable" / row["detail"].rsplit("/", 1)[-1]
            assert kept.read_bytes() == (pipeline.root / path).read_bytes()
    details = {json.loads(row["position"])["file"]: row["detail"] for row in aside}
    assert details[missing] == "id: missing or null, but NOT NULL"
    assert details[late] == "seen: TIMESTAMP outside the years 1 to 9999"
    extra = f"data/inbox/extra.{kind}"
    assert report["sources"]["orders"]["unknown_fields"] == {"more": extra, "others": extra}
    assert report["rows"]["read"] == len(pipeline.rows) + pipeline.aside.total()
    assert pipeline.run()["outcome"] == "nothing_new"
