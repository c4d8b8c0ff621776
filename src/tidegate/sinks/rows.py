"""The rows of a delivery, read without a JVM in batches with the table's schema; what they replace; and the console."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import escape_controls, escape_line
from tidegate.sinks.feed import SinkFault
from tidegate.table.log.state import DataFile, read_table_state
from tidegate.table.publish.delivery import Delivery, delivered_rows
from tidegate.table.schema import DataType, fields_of

BATCH_ROWS = 1000

Value: TypeAlias = Any
"""The value of a column: its Python type depends on the column's type in the table."""


@dataclass(frozen=True)
class Replaces:
    """What a version replaces, as users' code gets it.

    Either all older rows of ``partitions``, each {column: value}, where {} means all rows; or, for each row, the older
    one with the same values in the columns ``keys``."""

    partitions: list[dict[str, object]]
    keys: list[str]


def find_replaces(delivery: Delivery, schema_json: str) -> Replaces:
    """What a delivery replaces, with partition values in the types of their columns."""
    kinds = {field["name"]: field["type"] for field in fields_of(schema_json)}
    typed = [{name: _typed(text, kinds[name]) for name, text in one.items()} for one in delivery.partitions]
    return Replaces(typed, list(delivery.keys))


def read_file(table_path: Path, file: DataFile, schema_json: str) -> Iterator[pa.RecordBatch]:
    """Read one file as Arrow batches with the columns of the schema, in its order.

    Partition columns get the value of their folder; columns, and fields inside of them, that the file lacks are
    null."""
    fields = fields_of(schema_json)
    names = [field["name"] for field in fields]
    try:
        parquet = pq.ParquetFile(storage.open_input(table_path / file.path), pre_buffer=False)
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
                    columns.append(_with_fields(inside[field["name"]], field["type"]))
                elif field["name"] in file.partition:
                    value = _typed(file.partition[field["name"]], field["type"])
                    columns.append(pa.array([value] * len(batch)))
                else:
                    columns.append(pa.nulls(len(batch)))
            yield pa.RecordBatch.from_arrays(columns, names)


def _with_fields(column: pa.Array, kind: DataType) -> pa.Array:
    wanted = _extended(column.type, kind)
    return column if column.type == wanted else column.cast(wanted)


def _extended(found: pa.DataType, kind: DataType) -> pa.DataType:
    """The type of a column in a file, with all fields that the table has inside of it."""
    if isinstance(kind, str):
        return found
    if kind["type"] == "struct":
        inside = {field.name: field.type for field in found}
        fields = [(one["name"], one["type"]) for one in kind["fields"]]
        return pa.struct([(name, _extended(inside[name], of) if name in inside else pa.null()) for name, of in fields])
    if kind["type"] == "array":
        return pa.list_(_extended(found.value_type, kind["elementType"]))
    if kind["type"] == "map":
        return pa.map_(_extended(found.key_type, kind["keyType"]), _extended(found.item_type, kind["valueType"]))
    return found


def read_versions(table_path: Path, first: int) -> Iterator[dict[str, object]]:
    """Read the rows that the versions of a table from ``first`` on have published, version by version."""
    state = read_table_state(table_path)
    if state is None:
        return
    for version in range(first, state.version + 1):
        delivery = delivered_rows(table_path, version)
        for file in delivery.files if delivery is not None else ():
            for batch in read_file(table_path, file, state.schema_json):
                yield from batch.to_pylist()


def _typed(text: str | None, kind: DataType) -> object:
    """Convert a partition value, which the log keeps as text, to the type of its column."""
    if text is None or text == "":
        return None
    if kind in ("long", "integer", "short", "byte"):
        return int(text)
    return date.fromisoformat(text) if kind == "date" else text


_ROWS = 20
_CELL = 20


class ConsoleFeeder:
    """Prints rows to stderr; under Airflow that is the task's log."""

    def __init__(self, paths: PipelinePaths, schema_json: str) -> None:
        self._paths = paths
        self._schema_json = schema_json

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Print the head of a version."""
        names: list[str] = []
        shown: list[list[str]] = []
        for file in delivery.files:
            for batch in read_file(self._paths.table, file, self._schema_json):
                names = batch.schema.names
                head = batch.slice(0, _ROWS - len(shown))
                shown += [[_cell(row[name]) for name in names] for row in head.to_pylist()]
                if len(shown) == _ROWS:
                    break
            if len(shown) == _ROWS:
                break
        print(f"{self._paths.name}, version {delivery.number}, run {delivery.run_id}", file=sys.stderr)
        for partition in delivery.partitions:
            replaced = ", ".join(f"{name}={value}" for name, value in partition.items()) or "the whole table"
            print(escape_controls(f"replaces {replaced}"), file=sys.stderr)
        if shown:
            print(_draw(names, shown), file=sys.stderr, flush=True)
        if delivery.rows > len(shown):
            print(f"only showing {len(shown)} of {delivery.rows:,} rows", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing was opened."""


def _cell(value: object) -> str:
    text = "NULL" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    text = escape_line(text)
    return text if len(text) <= _CELL else text[: _CELL - 3] + "..."


def _draw(names: list[str], rows: list[list[str]]) -> str:
    widths = [max(3, len(name), *(len(row[index]) for row in rows)) for index, name in enumerate(names)]
    line = "+" + "+".join("-" * width for width in widths) + "+"
    body = ["|" + "|".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + "|" for row in rows]
    head = "|" + "|".join(name.rjust(width) for name, width in zip(names, widths, strict=True)) + "|"
    return "\n".join([line, head, line, *body, line])
