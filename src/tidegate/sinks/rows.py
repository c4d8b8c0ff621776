"""The rows of a delivery without a JVM, a few at a time, as the table's schema has them; and what they replace."""

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
from tidegate.table.log.state import DataFile
from tidegate.table.publish.delivery import Delivery

BATCH_ROWS = 1000


@dataclass(frozen=True)
class Replaces:
    """What a version replaces, as code of users gets it: all older rows of ``partitions``, each {column: value}, where
    {} is all rows that there are; or, of each row, the older one with the same values in the columns ``keys``."""

    partitions: list[dict[str, Any]]
    keys: list[str]


def find_replaces(delivery: Delivery, schema_json: str) -> Replaces:
    """What a delivery replaces, with values as the rows have them."""
    kinds = {field["name"]: field["type"] for field in json.loads(schema_json)["fields"]}
    typed = [{name: _typed(text, kinds[name]) for name, text in one.items()} for one in delivery.partitions]
    return Replaces(typed, list(delivery.keys))


def read_file(table_path: Path, file: DataFile, schema_json: str) -> Iterator[pa.RecordBatch]:
    """Arrow batches of one file with every column of the schema in its order: partition columns get the value of
    their folder, columns that the file does not have are null. Other columns of the file are not read."""
    fields = json.loads(schema_json)["fields"]
    names = [field["name"] for field in fields]
    try:
        parquet = pq.ParquetFile(storage.address(table_path / file.path), pre_buffer=False)
    except FileNotFoundError:
        raise SinkFault(
            f"its file {file.path} is no longer in the table",
            where=str(table_path / file.path),
            fix="bring the file back (it was compacted or removed before the sink had it)",
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


def _typed(text: str | None, kind: pa.DataType) -> object:
    """A partition value, which the log keeps as text, as its column's type has it."""
    if text is None or text == "":
        return None
    if kind in ("long", "integer", "short", "byte"):
        return int(text)
    return date.fromisoformat(text) if kind == "date" else text
