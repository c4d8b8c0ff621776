"""The Kafka sink: each row a record, through an idempotent producer, without a JVM.

A version counts as fed when the broker has acknowledged every one of its records. When it is fed again, the records
come again with the same headers: run_id, table_version and row are the same for one row each time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidegate.errors import TidegateError
from tidegate.project import PipelinePaths
from tidegate.sink.fault import SinkFault
from tidegate.sink.json_text import encode_row, key_encoder, make_encoders, to_plain
from tidegate.sink.rows import read_file
from tidegate.source.kafka_broker import Brokers
from tidegate.source.kafka_options import map_settings
from tidegate.spec.models import KafkaSink, ProjectKafkaSpec
from tidegate.table.delivery import Delivery

if TYPE_CHECKING:
    from confluent_kafka import Message

_PATIENCE_MS = 30_000
"""How long one record may wait for its acknowledgement."""
_QUEUE_KBYTES = 16_384
_POLL_SECONDS = 0.2


class KafkaFeeder:
    """Feeds one topic. Raises SinkFault on construction when the topic is missing or the brokers are away."""

    def __init__(self, sink: KafkaSink, paths: PipelinePaths, schema_json: str, kafka: ProjectKafkaSpec) -> None:
        from confluent_kafka import Producer

        self._topic = sink.topic
        self._table = paths.table
        self._schema_json = schema_json
        self._encoders = make_encoders(schema_json)
        self._key = _find_key(sink.key, schema_json)
        self._where = f"topic {sink.topic}, kafka brokers {kafka.bootstrap_servers}"
        self._failed: list[str] = []
        self._complaints: list[str] = []
        try:
            settings = map_settings(kafka.bootstrap_servers, kafka.options, {}, ())
            if not Brokers(settings).describe([sink.topic]):
                raise self._fault(
                    f"there is no topic {sink.topic!r}",
                    f"kafka-topics.sh --bootstrap-server {kafka.bootstrap_servers} --create --topic {sink.topic}",
                )
        except TidegateError as error:
            raise self._fault(f"{error.code}: {error.message}", error.fix or "look at the brokers") from error
        self._scrub = settings.scrub
        self._producer = Producer(
            {
                **settings.client,
                "enable.idempotence": True,
                "allow.auto.create.topics": False,
                "delivery.timeout.ms": _PATIENCE_MS,
                "queue.buffering.max.kbytes": _QUEUE_KBYTES,
                "linger.ms": 20,
                "log_level": 0,
                "error_cb": lambda error: self._complaints.append(error.str()),
            }
        )

    def __call__(self, delivery: Delivery) -> None:
        """Send the rows of a version, and wait until the broker has them all."""
        headers = {"run_id": delivery.run_id, "table_version": str(delivery.version)}
        number = 0
        for file in delivery.files:
            for batch in read_file(self._table, file, self._schema_json):
                for row in to_plain(batch):
                    self._send(row, [*headers.items(), ("row", str(number))], number)
                    number += 1
                self._producer.poll(0)
                self._check()
        while self._producer.flush(_POLL_SECONDS):
            self._check()
        self._check()

    def close(self) -> None:
        """Drop what was not sent: a version that failed comes again from its beginning."""
        self._producer.purge()
        self._producer.flush(1)

    def _send(self, row: dict[str, Any], headers: list[tuple[str, str]], number: int) -> None:
        from confluent_kafka import KafkaException

        key = None
        if self._key is not None:
            name, encode = self._key
            key = None if row[name] is None else encode(row[name])
        value = encode_row(row, self._encoders)
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=key, headers=headers, on_delivery=self._note)
                return
            except BufferError:  # the queue is full: wait until the broker has taken some
                self._producer.poll(_POLL_SECONDS)
                self._check()
            except KafkaException as error:
                raise self._fault(f"row {number}: {self._scrub(error.args[0].str())}") from None

    def _note(self, error: Any, message: Message) -> None:
        if error is not None:
            self._failed.append(error.str())

    def _check(self) -> None:
        if self._failed:
            why = self._scrub("; ".join(dict.fromkeys([self._failed[0], *self._complaints[-1:]])))
            raise self._fault(f"the broker did not take a record: {why}", "look at the brokers and the topic")

    def _fault(self, message: str, fix: str = "correct the row, or the topic's settings") -> SinkFault:
        return SinkFault(message, where=self._where, fix=fix)


def _find_key(key: str | None, schema_json: str) -> tuple[str, Any] | None:
    if key is None:
        return None
    fields = json.loads(schema_json)["fields"]
    for field in fields:
        if field["name"].lower() == key.lower():
            return field["name"], key_encoder(field["type"])
    names = ", ".join(field["name"] for field in fields)
    raise SinkFault(
        f"its key {key!r} is no column of the table; the columns are: {names}",
        where="sinks in pipeline.yaml",
        fix="correct the key",
    )
