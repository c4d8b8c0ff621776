"""Rows of the table as Kafka records: as JSON objects, or from the columns that Spark's Kafka sink takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tidegate.sinks.fault import SinkFault
from tidegate.sinks.json_text import encode_row, key_encoder, make_encoders
from tidegate.sinks.rows import read_file
from tidegate.spec.models import KafkaSink
from tidegate.spec.sink_columns import WANTED, find_sink_mismatches
from tidegate.table.publish.delivery import Delivery
from tidegate.table.schema import type_text

ANY_PARTITION = -1
"""The partition follows from the key, or is chosen at random."""

_IN_PIPELINE = "sinks in pipeline.yaml"


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

    def make(self, row: dict[str, Any]) -> Record:
        """The record of ``row``, as :func:`tidegate.sinks.json_text.to_plain` returns it."""
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
        fields = json.loads(schema_json)["fields"]
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

    def make(self, row: dict[str, Any]) -> Record:
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

    def _get(self, row: dict[str, Any], column: str) -> Any:
        return row[self._fields[column]["name"]] if column in self._fields else None

    def _look_at(self, row: dict[str, Any], place: str, targets: Targets) -> None:
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
    fields = json.loads(schema_json)["fields"]
    for one in fields:
        if one["name"].lower() == key.lower():
            return one["name"], key_encoder(one["type"])
    names = ", ".join(one["name"] for one in fields)
    raise SinkFault(
        f"its key {key!r} is not a column of the table; the columns are: {names}",
        where=_IN_PIPELINE,
        fix="correct the key",
    )
