"""The foreach sink: a Python class with open, process and close, as in Spark, but without a JVM and in one process.

A partition is a file of the version, the epoch is the version. Each partition gets a new instance; when
``open(partition_id, epoch_id)`` returns False its rows are skipped, and ``close(error)`` is always called once ``open``
has returned. Unlike in Spark, ``begin_version(version, replaces)``, if defined, is called before the first row of a
version, also of one without rows that only replaces others.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Protocol

from pyspark.sql import Row

from tidegate.core.paths import PipelinePaths
from tidegate.sinks.feed import SinkFault
from tidegate.sinks.rows import Value, find_replaces, read_file
from tidegate.sinks.user_code import load_user_code
from tidegate.spec.models import ForeachSink
from tidegate.spec.sink_checks import ADDED_COLUMNS
from tidegate.table.log.state import DataFile
from tidegate.table.publish.delivery import Delivery
from tidegate.table.schema import fields_of


class Closing(Protocol):
    """A user's writer that has a method ``close``."""

    def close(self, error: BaseException | None) -> object:
        """Release what was opened."""


class ForeachFeeder:
    """Feeds the user's writer, and lets its exceptions through."""

    def __init__(self, sink: ForeachSink, paths: PipelinePaths, schema_json: str) -> None:
        self._paths = paths
        self._schema_json = schema_json
        self._fields = fields_of(schema_json)
        self._where = str(paths.job / sink.writer.partition(":")[0])
        check_added_columns(schema_json)
        with contextlib.redirect_stdout(sys.stderr):
            self._writer = load_user_code(paths.job, sink.writer)

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Feed a version, file by file."""
        with contextlib.redirect_stdout(sys.stderr):  # stdout is the command's result
            files: list[DataFile | None] = list(delivery.files)
            for partition_id, file in enumerate(files or [None]):
                if file is not None or hasattr(self._writer, "begin_version"):
                    check_lease()
                    self._feed_partition(partition_id, file, delivery)

    def close(self) -> None:
        """Do nothing: each partition's writer is closed with the partition."""

    def _feed_partition(self, partition_id: int, file: DataFile | None, delivery: Delivery) -> None:
        writer = self._writer()
        is_open = writer.open(partition_id, delivery.number) if hasattr(writer, "open") else True
        with contextlib.ExitStack() as stack:
            if hasattr(writer, "close"):
                stack.push(partial(_close, writer))
            if is_open is None:  # Spark would silently skip the rows
                raise SinkFault("open() returned None", where=self._where, fix="return True, or False to skip rows")
            if is_open and partition_id == 0 and hasattr(writer, "begin_version"):
                writer.begin_version(delivery.number, find_replaces(delivery, self._schema_json))
            if is_open and file is not None:
                for row in self._rows(file, delivery):
                    writer.process(row)

    def _rows(self, file: DataFile, delivery: Delivery) -> Iterator[Row]:
        make = Row(*(field["name"] for field in self._fields), *ADDED_COLUMNS)
        for batch in read_file(self._paths.table, file, self._schema_json):
            for row in batch.to_pylist():
                values = (_value(row[field["name"]], field["type"]) for field in self._fields)
                yield make(*values, delivery.run_id, delivery.number)


def _close(
    writer: Closing, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """Close a writer with the exception that ended its partition, or None. The exception is not suppressed."""
    writer.close(error)


def check_added_columns(schema_json: str) -> None:
    """Raise SinkFault when the table has a column with the name of one that the sink adds."""
    for field in fields_of(schema_json):
        if field["name"].lower() in ADDED_COLUMNS:
            raise SinkFault(
                f"the table has a column {field['name']}, and the sink adds one of this name",
                where="transform",
                fix="rename the column in the transform",
            )


def _value(value: Value, kind: object) -> Value:
    """Convert a value to what PySpark's rows hold: structs are rows, maps are dicts; times are aware, in UTC."""
    if value is None:
        return None
    if isinstance(kind, dict):
        if kind["type"] == "array":
            return [_value(one, kind["elementType"]) for one in value]
        if kind["type"] == "map":
            return {_value(key, kind["keyType"]): _value(one, kind["valueType"]) for key, one in value}
        names = [field["name"] for field in kind["fields"]]
        return Row(*names)(*(_value(value[field["name"]], field["type"]) for field in kind["fields"]))
    if kind == "timestamp" and isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return value
