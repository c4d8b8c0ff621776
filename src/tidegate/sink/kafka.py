"""The Kafka sink: each row a record, each version a transaction, without a JVM.

Who reads committed records only sees a version whole, or not at all. The transaction's note says which delivery it
holds; so a crash between the commit and our own note repeats nothing: the next feeder passes over what the broker has.
A version comes again when both notes are lost (the state folder put back; the broker forgets a group that was silent
for a week). Its records then have the same headers: run_id, table_version and row are the same for one row each time.

A version that cannot be sent in ``_PIECE_SECONDS`` comes in several transactions, in order, and goes on where the last
one ended: brokers limit how long a transaction may take.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from tidegate.errors import TidegateError
from tidegate.project import PipelinePaths
from tidegate.sink.fault import SinkFault
from tidegate.sink.json_text import encode_row, key_encoder, make_encoders, to_plain
from tidegate.sink.kafka_fault import KafkaFaults
from tidegate.sink.kafka_producer import TransactionalProducer
from tidegate.sink.rows import read_file
from tidegate.source.kafka_broker import Brokers
from tidegate.source.kafka_options import map_settings
from tidegate.spec.models import KafkaSink, ProjectKafkaSpec
from tidegate.table.delivery import Delivery

_TRANSACTION_SECONDS = 900.0
"""What a broker allows by default, and the longest that readers wait for a process that died."""
_PIECE_SECONDS = 600.0


class KafkaFeeder:
    """Feeds one topic. Raises SinkFault on construction when the topic is missing, the brokers are away, or they do not
    allow it."""

    def __init__(self, sink: KafkaSink, paths: PipelinePaths, schema_json: str, kafka: ProjectKafkaSpec) -> None:
        self._table = paths.table
        self._schema_json = schema_json
        self._encoders = make_encoders(schema_json)
        self._key = _find_key(sink.key, schema_json)
        try:
            settings = map_settings(kafka.bootstrap_servers, kafka.options, {}, ())
            there = Brokers(settings).describe([sink.topic])
        except TidegateError as error:
            where = f"topic {sink.topic}, kafka brokers {kafka.bootstrap_servers}"
            fix = error.fix or "look at the brokers"
            raise SinkFault(f"{error.code}: {error.message}", where=where, fix=fix) from error
        faults = KafkaFaults(sink.topic, f"tidegate.{paths.name}.{sink.topic}", settings, _TRANSACTION_SECONDS)
        if not there:
            raise faults.fault(
                f"there is no topic {sink.topic!r}",
                f"kafka-topics.sh --bootstrap-server {kafka.bootstrap_servers} --create --topic {sink.topic}",
            )
        self._producer = TransactionalProducer(faults)

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Send the rows of a version that the topic does not have yet, and wait until readers can see them."""
        done = self._find_done(delivery)
        if done is None:
            return
        headers = {"run_id": delivery.run_id, "table_version": str(delivery.version)}
        number = 0
        self._producer.begin()
        for file in delivery.files:
            check_lease()
            for batch in read_file(self._table, file, self._schema_json):
                for row in to_plain(batch):
                    if number >= done:
                        self._send(row, {**headers, "row": str(number)})
                    number += 1
                self._producer.check()
                if number > done and self._producer.seconds > _PIECE_SECONDS:
                    check_lease()
                    self._commit(delivery, number, whole=False)
                    self._producer.begin()
        check_lease()
        self._commit(delivery, number, whole=True)

    def close(self) -> None:
        """Take back what was not committed."""
        self._producer.close()

    def _find_done(self, delivery: Delivery) -> int | None:
        """How many rows of the version the topic has; None: all of them."""
        note = {} if self._producer.note is None else json.loads(self._producer.note)
        if note.get("delivery") != _mark(delivery):
            return 0
        return None if note["whole"] else int(note["rows"])

    def _commit(self, delivery: Delivery, rows: int, *, whole: bool) -> None:
        note = {"delivery": _mark(delivery), "version": delivery.version, "rows": rows, "whole": whole}
        self._producer.commit(json.dumps(note), delivery.version)

    def _send(self, row: dict[str, Any], headers: dict[str, str]) -> None:
        key = None
        if self._key is not None:
            name, encode = self._key
            key = None if row[name] is None else encode(row[name])
        self._producer.send(encode_row(row, self._encoders), key, headers)


def _mark(delivery: Delivery) -> str:
    """What no other delivery has: a table that was put back has other rows under a version's number."""
    parts = [delivery.version, delivery.run_id, [str(file.path) for file in delivery.files]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _find_key(key: str | None, schema_json: str) -> tuple[str, Any] | None:
    if key is None:
        return None
    fields = json.loads(schema_json)["fields"]
    for field in fields:
        if field["name"].lower() == key.lower():
            return field["name"], key_encoder(field["type"])
    names = ", ".join(field["name"] for field in fields)
    raise SinkFault(
        f"its key {key!r} is not a column of the table; the columns are: {names}",
        where="sinks in pipeline.yaml",
        fix="correct the key",
    )
