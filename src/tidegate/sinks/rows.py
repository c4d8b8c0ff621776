"""The rows of a delivery, read without a JVM in batches with the table's schema; and what they replace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.sinks.fault import SinkFault
from tidegate.table.log.state import DataFile, read_table_state
from tidegate.table.publish.delivery import Delivery, delivered_rows

BATCH_ROWS = 1000


@dataclass(frozen=True)
class Replaces:
    """What a version replaces, as users' code gets it.

    Either all older rows of ``partitions``, each {column: value}, where {} means all rows; or, for each row, the older
    one with the same values in the columns ``keys``."""

    partitions: list[dict[str, Any]]
    keys: list[str]


def find_replaces(delivery: Delivery, schema_json: str) -> Replaces:
    """What a delivery replaces, with partition values in the types of their columns."""
    kinds = {field["name"]: field["type"] for field in json.loads(schema_json)["fields"]}
    typed = [{name: _typed(text, kinds[name]) for name, text in one.items()} for one in delivery.partitions]
    return Replaces(typed, list(delivery.keys))


def read_file(table_path: Path, file: DataFile, schema_json: str) -> Iterator[pa.RecordBatch]:
    """Read one file as Arrow batches with the columns of the schema, in its order.

    Partition columns get the value of their folder; columns that the file lacks are null."""
    fields = json.loads(schema_json)["fields"]
    names = [field["name"] for field in fields]
    try:
        parquet = pq.ParquetFile(storage.address(table_path / file.path), pre_buffer=False)
    except FileNotFoundError:
        raise SinkFault(
            f"its file {file.path} is no longer in the table",
            where=str(table_path / file.path),
            fix="restore the file (it was compacted or removed before the sink had it)",
        ) from None
    with parquet:
        wanted = [name for name in parquet.schema_arrow.names if name in names]
        for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
            inside = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns = []
            for field in fields:
                if field["name"] in inside:
                    columns.append(inside[field["name"]])
                elif field["name"] in file.partition:
                    value = _typed(file.partition[field["name"]], field["type"])
                    columns.append(pa.array([value] * len(batch)))
                else:
                    columns.append(pa.nulls(len(batch)))
            yield pa.RecordBatch.from_arrays(columns, names)


def read_versions(table_path: Path, first: int) -> Iterator[dict[str, Any]]:
    """Read the rows that the versions of a table from ``first`` on have published, version by version."""
    state = read_table_state(table_path)
    if state is None:
        return
    for version in range(first, state.version + 1):
        delivery = delivered_rows(table_path, version)
        for file in delivery.files if delivery is not None else ():
            for batch in read_file(table_path, file, state.schema_json):
                yield from batch.to_pylist()


def _typed(text: str | None, kind: pa.DataType) -> object:
    """Convert a partition value, which the log keeps as text, to the type of its column."""
    if text is None or text == "":
        return None
    if kind in ("long", "integer", "short", "byte"):
        return int(text)
    return date.fromisoformat(text) if kind == "date" else text
