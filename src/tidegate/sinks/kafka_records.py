"""Rows of the table as Kafka records: as JSON objects, or from the columns that Spark's Kafka sink takes.

JSON text has the conventions of Spark's ``to_json``, and nulls are kept: timestamps are ISO 8601 in UTC with
microseconds, dates ISO, decimals plain numbers, binary base64, NaN and the infinities text; keys of maps are text.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.sinks.feed import SinkFault
from tidegate.sinks.rows import Value, read_file
from tidegate.spec.models import KafkaSink
from tidegate.spec.sink_checks import WANTED, find_sink_mismatches
from tidegate.table.publish.delivery import Delivery
from tidegate.table.schema import fields_of, type_text

Encode = Callable[[Value], str]
Row = dict[str, Value]
"""A row of the table, with values as :func:`to_plain` returns them."""
ANY_PARTITION = -1
"""The partition follows from the key, or is chosen at random."""
_IN_PIPELINE = "sinks in pipeline.yaml"


def make_encoders(schema_json: str) -> dict[str, Encode]:
    """Return for each column a function from its value (as :func:`to_plain` returns it) to JSON text."""
    return {field["name"]: _or_null(field["type"]) for field in fields_of(schema_json)}


def encode_row(row: Row, encoders: dict[str, Encode]) -> str:
    """A row as a JSON object, its columns in the schema's order."""
    return "{" + ",".join(f"{_text(name)}:{encode(row[name])}" for name, encode in encoders.items()) + "}"


def to_plain(batch: pa.RecordBatch) -> list[Row]:
    """Convert an Arrow batch to Python rows, with times as microseconds and dates as days since 1970.

    Python's own types for them end in the year 9999."""
    columns = []
    for column in batch.columns:
        for target in (_retype(column.type, micros=False), _retype(column.type, micros=True)):
            column = column.cast(target) if column.type != target else column
        columns.append(column)
    rows: list[Row] = pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    return rows


def _retype(kind: pa.DataType, *, micros: bool) -> pa.DataType:
    """The type with every timestamp in microseconds (``micros``: as their number), and every date as its number."""
    if pa.types.is_timestamp(kind):
        return pa.int64() if micros else pa.timestamp("us", kind.tz)
    if pa.types.is_date32(kind):
        return pa.int32() if micros else kind
    if pa.types.is_list(kind):
        return pa.list_(_retype(kind.value_type, micros=micros))
    if pa.types.is_map(kind):
        return pa.map_(_retype(kind.key_type, micros=micros), _retype(kind.item_type, micros=micros))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _retype(field.type, micros=micros)) for field in kind])
    return kind


def _or_null(kind: pa.DataType) -> Encode:
    encode = _encoder(kind)
    return lambda value: "null" if value is None else encode(value)


def _encoder(kind: pa.DataType) -> Encode:
    if isinstance(kind, dict):
        if kind["type"] == "array":
            item = _or_null(kind["elementType"])
            return lambda value: "[" + ",".join(item(one) for one in value) + "]"
        if kind["type"] == "map":
            key, item = _encoder(kind["keyType"]), _or_null(kind["valueType"])
            return lambda value: "{" + ",".join(f"{_as_name(key(k))}:{item(v)}" for k, v in value) + "}"
        inner = {field["name"]: _or_null(field["type"]) for field in kind["fields"]}
        return lambda value: encode_row(value, inner)
    if str(kind).startswith("decimal"):
        return lambda value: format(Decimal(value), "f")
    return _PRIMITIVES.get(str(kind), lambda value: _text(str(value)))


def key_encoder(kind: pa.DataType) -> Callable[[Value], str | bytes]:
    """A value as the text of a key: as in JSON, without quotes. Binary stays as it is."""
    if kind == "string":
        return str
    if kind == "binary":
        return bytes
    encode = _encoder(kind)
    return lambda value: encode(value).strip('"') if isinstance(kind, str) else encode(value)


def _as_name(encoded: str) -> str:
    return encoded if encoded.startswith('"') else _text(encoded)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')


def _short_float(value: float) -> str:
    """A 32-bit float with the fewest digits that identify it: 0.1, not 0.10000000149011612."""
    return str(np.float32(value)) if math.isfinite(value) else _float(value)


def _timestamp(micros: int) -> str:
    return f'"{np.datetime64(micros, "us")}Z"'


def _date(days: int) -> str:
    return f'"{np.datetime64(days, "D")}"'


_PRIMITIVES: dict[str, Encode] = {
    "string": _text,
    "long": str,
    "integer": str,
    "short": str,
    "byte": str,
    "double": _float,
    "float": _short_float,
    "boolean": lambda value: "true" if value else "false",
    "binary": lambda value: f'"{base64.b64encode(value).decode()}"',
    "timestamp": _timestamp,
    "date": _date,
}


class Record(NamedTuple):
    """The record of a row. ``headers`` are those that the row contains."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None
    partition: int = ANY_PARTITION
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class Targets:
    """Where the rows of a version are sent: each topic with its first row, and with the greatest partition that a row
    names for it and that row."""

    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, tuple[int, str]] = field(default_factory=dict)


class JsonRecords:
    """Makes a JSON object of all columns of a row; the key is one of the columns, as text."""

    def __init__(self, sink: KafkaSink, schema_json: str) -> None:
        assert sink.topic is not None, "the spec's checks require one"
        self.schema_json = schema_json
        self._topic = sink.topic
        self._encoders = make_encoders(schema_json)
        self._key = _find_key(sink.key, schema_json)

    def find_targets(self, table: Path, delivery: Delivery) -> Targets:
        """The sink's topic."""
        return Targets({self._topic: ""})

    def make(self, row: Row) -> Record:
        """The record of ``row``, as :func:`tidegate.sinks.kafka_records.to_plain` returns it."""
        key = None
        if self._key is not None:
            name, encode = self._key
            key = None if row[name] is None else encode(row[name])
        return Record(self._topic, encode_row(row, self._encoders), key)


class ColumnRecords:
    """Makes a record of the columns key, value, topic, partition and headers of a row; other columns are not sent.

    As in Spark's sink, a topic of the sink overrides the column. ``explain_topic`` returns why a topic cannot be fed,
    and what to do, or None. ``skip_hint`` says how to have the sink skip its pending versions. Raises SinkFault when
    the columns do not fit.
    """

    def __init__(
        self,
        sink: KafkaSink,
        schema_json: str,
        explain_topic: Callable[[str], tuple[str, str] | None],
        skip_hint: str,
    ) -> None:
        fields = fields_of(schema_json)
        for mismatch in find_sink_mismatches(sink, {one["name"]: type_text(one["type"]) for one in fields}):
            raise SinkFault(mismatch.message, where=_IN_PIPELINE, fix=mismatch.fix)
        sent = [column for column in WANTED if sink.topic is None or column != "topic"]
        fields = [one for one in fields if one["name"].lower() in sent]
        self.schema_json = json.dumps({"type": "struct", "fields": fields})
        self._fields = {one["name"].lower(): one for one in fields}
        self._topic = sink.topic
        self._explain_topic = explain_topic
        self._skip_hint = skip_hint

    def find_targets(self, table: Path, delivery: Delivery) -> Targets:
        """Where the rows of a version are sent. Raises SinkFault, naming the row, for one that cannot be sent."""
        wanted = [self._fields[column] for column in ("topic", "partition", "headers") if column in self._fields]
        if not wanted:
            assert self._topic is not None
            return Targets({self._topic: ""})
        schema_json = json.dumps({"type": "struct", "fields": wanted})
        targets = Targets({} if self._topic is None else {self._topic: ""})
        number = 0
        for file in delivery.files:
            in_file = 0
            for batch in read_file(table, file, schema_json):
                for row in batch.to_pylist():
                    self._look_at(row, f"row {number} of the version (row {in_file} of {file.path})", targets)
                    number, in_file = number + 1, in_file + 1
        return targets

    def make(self, row: Row) -> Record:
        """The record of ``row``."""
        topic, partition = self._get(row, "topic"), self._get(row, "partition")
        headers = tuple((one["key"], one["value"]) for one in self._get(row, "headers") or ())
        return Record(
            topic or "" if self._topic is None else self._topic,
            self._get(row, "value"),
            self._get(row, "key"),
            ANY_PARTITION if partition is None else partition,
            headers,
        )

    def refuse(self, place: str, what: str, fix: str) -> SinkFault:
        """The fault of a row that cannot be sent. The row is in the table: correcting the transform is not enough."""
        return SinkFault(f"{place} {what}; nothing of the version was sent", fix=f"{fix}; {self._skip_hint}")

    def _get(self, row: Row, column: str) -> Value:
        return row[self._fields[column]["name"]] if column in self._fields else None

    def _look_at(self, row: Row, place: str, targets: Targets) -> None:
        topic = self._get(row, "topic") if self._topic is None else self._topic
        if topic is None:
            what = "has no topic: its column topic is NULL, and the sink names none"
            raise self.refuse(place, what, "have the transform give each row a topic")
        if topic not in targets.topics:
            if (refused := self._explain_topic(topic)) is not None:
                raise self.refuse(place, f"cannot be sent: {refused[0]}", refused[1])
            targets.topics[topic] = place
        partition = self._get(row, "partition")
        if partition is not None:
            if partition < 0:
                raise self.refuse(place, f"names the partition {partition}", "write a partition from 0, or NULL")
            if topic not in targets.partitions or partition > targets.partitions[topic][0]:
                targets.partitions[topic] = (partition, place)
        for one in self._get(row, "headers") or ():
            if one is None or one["key"] is None:
                raise self.refuse(place, "has a header without a key", "have the transform give each header its key")


def _find_key(key: str | None, schema_json: str) -> tuple[str, Callable[[object], str | bytes]] | None:
    if key is None:
        return None
    fields = fields_of(schema_json)
    for one in fields:
        if one["name"].lower() == key.lower():
            return one["name"], key_encoder(one["type"])
    names = ", ".join(one["name"] for one in fields)
    raise SinkFault(
        f"its key {key!r} is not a column of the table; the columns are: {names}",
        where=_IN_PIPELINE,
        fix="correct the key",
    )
