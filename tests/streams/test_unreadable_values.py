"""Values that Spark reads and writes, and that other readers refuse: each is kept out of the table, and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from tests.support import avro_files
from tests.support.readers import read_agreed
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id INT, s STRING, st STRUCT<t: STRING, `odd.name`: DATE>, l ARRAY<STRUCT<x: STRING>>, m MAP<STRING, STRING>"
GOOD = b"caf\xc3\xa9"
BAD = b"caf\xe9"
FAR = 200_000_000  # days
TEXT = "not valid UTF-8"
FAULTS = {
    1: f"s: {TEXT}",
    2: f"st.t: {TEXT}",
    3: "st.odd.name: DATE outside the years 1 to 9999",
    4: f"l[].x: {TEXT}",
    5: f"m{{}}: {TEXT}",
    6: f"m{{}}: {TEXT}",
    7: f"s: {TEXT}; st.t: {TEXT}; m{{}}: {TEXT}",
}


def _row(number: int) -> dict[str, Any]:
    at = {place: BAD if number in rows else GOOD for place, rows in {"s": (1, 7), "t": (2, 7), "x": (4,)}.items()}
    return {
        "id": number,
        "s": at["s"],
        "st": {"t": at["t"], "odd.name": FAR if number == 3 else 0},
        "l": [{"x": GOOD}, {"x": at["x"]}],
        "m": {BAD if number in (5, 7) else GOOD: BAD if number == 6 else GOOD},
    }


ROWS = [*(_row(number) for number in range(9)), {"id": 9, "s": None, "st": None, "l": None, "m": None}]


def _as_text(values: pa.Array) -> pa.Array:
    """Bytes under the name of a text: no writer looks at them."""
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers())


def _table() -> pa.Table:
    def texts(values: list[Any]) -> pa.Array:
        return _as_text(pa.array(values, pa.binary()))

    def of(name: str) -> list[Any]:
        return [row[name] for row in ROWS]

    none = pa.array([value is None for value in of("st")])
    days = pa.array([value and value["odd.name"] for value in of("st")], pa.int32()).cast(pa.date32())
    st = pa.StructArray.from_arrays(
        [texts([value and value["t"] for value in of("st")]), days], ["t", "odd.name"], mask=none
    )
    ends = pa.array([*(2 * at for at in range(9)), None, 18], pa.int32())
    x = pa.StructArray.from_arrays([texts([one["x"] for value in of("l")[:9] for one in value])], ["x"])
    pairs = [pair for value in of("m")[:9] for pair in value.items()]
    keys, values = texts([key for key, _ in pairs]), texts([value for _, value in pairs])
    m = pa.MapArray.from_arrays(pa.array([*range(9), None, 9], pa.int32()), keys, values)
    ids = pa.array(of("id"), pa.int32())
    return pa.table({"id": ids, "s": texts(of("s")), "st": st, "l": pa.ListArray.from_arrays(ends, x), "m": m})


def _avro(path: Path) -> None:
    inner = avro_files.record({"t": "string", "odd_name": {"type": "int", "logicalType": "date"}}, "inner")
    kinds = {
        "id": "int",
        "s": ["null", "string"],
        "st": ["null", inner],
        "l": ["null", {"type": "array", "items": avro_files.record({"x": "string"}, "item")}],
        "m": ["null", {"type": "map", "values": "string"}],
    }
    rows = []
    for row in ROWS:
        day = row["st"] and {"t": row["st"]["t"], "odd_name": row["st"]["odd.name"]}
        unions = {"s": row["s"], "st": day, "l": row["l"], "m": row["m"]}
        rows.append({"id": row["id"], **{name: (int(value is not None), value) for name, value in unions.items()}})
    path.write_bytes(avro_files.pack(avro_files.record(kinds), rows))


WRITERS: dict[str, Callable[[Path], None]] = {
    "parquet": lambda path: parquet.write_table(_table(), path),
    "orc": lambda path: orc.write_table(_table(), path),
    "avro": _avro,
}


def _details(flow: Streaming) -> dict[int, str]:
    rows = read_agreed(flow.root / "data/quarantine/flow", flow.spark)
    assert {row["reason"] for row in rows} == {"malformed"}
    return {json.loads(row["raw"])["id"]: row["detail"] for row in rows}


@pytest.mark.parametrize("form", list(WRITERS))
def test_values_that_no_other_reader_shows(spark: SparkSession, tmp_path: Path, form: str) -> None:
    name = "odd_name" if form == "avro" else "odd.name"  # Avro's names are plain words
    schema = SCHEMA.replace("odd.name", name)
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("docs", schema, format=form))
    folder = tmp_path / "data/in/docs"
    folder.mkdir(parents=True)
    WRITERS[form](folder / f"a.{form}")
    flow.run()
    there = ("café", {"t": "café", name: date(1970, 1, 1)}, [{"x": "café"}] * 2, [("café", "café")])
    assert flow.rows("id", "s", "st", "l", "m") == [(0, *there), (8, *there), (9, None, None, None, None)]
    assert _details(flow) == {number: detail.replace("odd.name", name) for number, detail in FAULTS.items()}


def test_bytes_that_a_transform_calls_a_text(spark: SparkSession, tmp_path: Path) -> None:
    transform = 'def transform(docs):\n    return docs.selectExpr("id", "CAST(body AS STRING) AS body")\n'
    flow = make_streaming(
        tmp_path, spark, "sources:\n" + source("docs", "id INT, body BINARY", format="parquet"), transform
    )
    folder = tmp_path / "data/in/docs"
    folder.mkdir(parents=True)
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "body": pa.array([GOOD, BAD, None], pa.binary())})
    parquet.write_table(rows, folder / "a.parquet")
    with pytest.raises(UsageError) as failed:
        flow.run()
    assert failed.value.code == "TRANSFORM_FAILED" and "body: not valid UTF-8" in failed.value.message
    assert not flow.project.paths("flow").table.exists()
    spec = tmp_path / "jobs/flow/pipeline.yaml"
    spec.write_text(spec.read_text() + "on_row_error: quarantine\n")
    flow.run()
    flow.expect("id body", [(1, "café"), (3, None)])
    assert _details(flow) == {2: "the transform fails on it: body: not valid UTF-8"}
