"""A record with 75 columns, with structs, arrays of structs and five levels of nesting, through a whole run.

Without what tests/spark/test_wide_schemas.py counts the first run here would not end.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.streaming import Streaming, make_streaming, source

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_MIXED: list[tuple[str, Any, Any]] = [
    ("STRING", "a", "a"),
    ("BIGINT", 5, 5),
    ("DOUBLE", 0.5, 0.5),
    ("TIMESTAMP", "2026-03-01T10:00:00Z", dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC)),
    ("DECIMAL(12,2)", 1.25, Decimal("1.25")),
    ("BOOLEAN", True, True),
    ("DATE", "2026-03-01", dt.date(2026, 3, 1)),
    ("FLOAT", 0.25, 0.25),
]
"""Types, with a value in JSON and in the table."""

_DEEP = {"b": [{"c": {"d": [{"e": 1.5, "at": "2026-03-01T10:00:00Z"}]}}]}
_COLUMNS = {
    "id": "STRING",
    **{f"d{number:02}": "DOUBLE" for number in range(20)},
    **{f"m{number:02}": _MIXED[number % len(_MIXED)][0] for number in range(50)},
    "place": "STRUCT<lat: DOUBLE, lon: DOUBLE, name: STRING>",
    "lines": "ARRAY<STRUCT<sku: STRING, price: DECIMAL(8,2), seen: TIMESTAMP>>",
    "tags": "MAP<STRING, DOUBLE>",
    "a": "STRUCT<b: ARRAY<STRUCT<c: STRUCT<d: ARRAY<STRUCT<e: DOUBLE, at: TIMESTAMP>>>>>>",
}


def _record(id: str, **other: Any) -> dict[str, Any]:
    return {
        "id": id,
        **{f"d{number:02}": number + 0.5 for number in range(20)},
        **{f"m{number:02}": _MIXED[number % len(_MIXED)][1] for number in range(50)},
        "place": {"lat": 1.5, "lon": 2.5, "name": "x"},
        "lines": [{"sku": "s", "price": 1.25, "seen": "2026-03-01T10:00:00Z"}, {"sku": "t"}],
        "tags": {"k": 1.5},
        "a": _DEEP,
        **other,
    }


@pytest.fixture
def flow(tmp_path: Path, spark: SparkSession) -> Streaming:
    schema = ", ".join(f"{name} {type_}" for name, type_ in _COLUMNS.items())
    return make_streaming(tmp_path, spark, f"sources:\n{source('wide', schema)}")


def test_every_value_arrives_and_every_fault_is_named(flow: Streaming) -> None:
    faults = {
        "d07": "much",
        "m43": "yesterday",
        "place": {"lat": "north"},
        "lines": [{"price": "free"}],
        "a": {"b": [{"c": {"d": [{"e": "deep"}]}}]},
    }
    flow.offer("wide", _record("one"), *(_record(name, **{name: value}) for name, value in faults.items()), {"id": "2"})
    report = flow.run()
    assert (report["rows"]["read"], report["rows"]["malformed"], report["rows"]["published"]) == (7, 5, 2)
    assert sorted(record["id"] for record in flow.aside("malformed")) == sorted(faults)
    values = {f"m{number:02}": _MIXED[number % len(_MIXED)][2] for number in range(50)}
    values |= {f"d{number:02}": number + 0.5 for number in range(20)}
    flow.expect("id " + " ".join(values), [("one", *values.values()), ("2", *(None for _ in values))])
    nested = {row[0]: row[1:] for row in flow.rows("id", "place", "a")}
    assert str(nested["one"]).count("1.5") == 2 and nested["2"] == (None, None)
