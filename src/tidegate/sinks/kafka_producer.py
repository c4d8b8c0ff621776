"""Records of a sink's topics in transactions, each of which also contains a note of its content; errors of the client.

The note is an offset with metadata that the sink commits, inside the transaction, for its own consumer group. Records
and note are committed together or not at all, so after a crash the next process reads the sink's progress from the
broker. Initializing the transactional id fences any other process that uses it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tidegate.core.words import list_first
from tidegate.sinks.feed import SinkFault
from tidegate.sinks.kafka_records import Record
from tidegate.sources.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    from confluent_kafka import Message


_Result = TypeVar("_Result")
_RECORD_SECONDS = 30
"""How long one record may wait for its acknowledgement."""
_STEP_SECONDS = 60.0
"""How long the brokers may take to begin, commit or end a transaction."""
_SLICE_SECONDS = 0.5
"""Signals do not interrupt the client's calls, so they are made in slices."""
_PAUSE_SECONDS = 0.05
_ABORT_SECONDS = 2.0
_QUEUE_KBYTES = 16_384


def name_topics(topics: Iterable[str]) -> str:
    """The topics, as the beginning of a ``where``."""
    names = list(topics)
    if not names:
        return ""
    return f"topic{'s' * (len(names) > 1)} {list_first(names)}, "


@dataclass
class KafkaFaults:
    """Makes the faults of one sink.

    ``topics`` are those that it feeds; ``name`` is its transactional id and its consumer group: ``prefix``, for which
    people grant rights, and the project's id. ``complaints`` are errors that the client reported in the background,
    which often name the cause."""

    topics: tuple[str, ...]
    name: str
    settings: KafkaSettings = field(repr=False)
    transaction_seconds: float
    prefix: str
    complaints: list[str] = field(default_factory=list)

    def fault(self, message: str, fix: str = "correct the row, or the topic's settings") -> SinkFault:
        """A fault of this topic."""
        where = f"{name_topics(self.topics)}kafka brokers {self.settings.address}"
        return SinkFault(self.settings.scrub(message), where=where, fix=fix)

    def explain(self, error: KafkaError, attempt: str, topic: str | None = None) -> SinkFault:
        """The fault for ``error``, raised while the sink tried to ``attempt``; ``topic`` is that of the record."""
        code, said = error.code(), error.str()
        if code in (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ):
            return self.fault(f"the broker does not allow this user to {attempt}: {said}", self._grant())
        if code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            return self.fault(
                f"the broker ended this sink's transaction, and nothing of it is seen: another process feeds the topic "
                f"as {self.name}, or the transaction took longer than {self.transaction_seconds:.0f} s ({said})",
                "nothing, if another run has taken over; else look for a copy of this project that was made with its "
                "state folder, and remove .project.json there",
            )
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            needed = round(self.transaction_seconds * 1000)
            return self.fault(
                f"the brokers allow only shorter transactions than {self.transaction_seconds:.0f} s: {said}",
                f"set transaction.max.timeout.ms={needed} (the default) or more in the brokers' server.properties",
            )
        if code in (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION):
            return self.fault(f"the brokers know no transactions: {said}", "feed a topic of brokers that have them")
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return self.fault(
                f"the sink could not {attempt}: {said}",
                f"correct the row, or: kafka-configs.sh --bootstrap-server {self.settings.address} --alter "
                f"--entity-type topics --entity-name {topic or '<topic>'} --add-config max.message.bytes=<bytes>",
            )
        causes = "; ".join(dict.fromkeys([said, *self.complaints[-1:]]))
        return self.fault(f"the sink could not {attempt}: {causes}", "look at the brokers and the topic")

    def _grant(self) -> str:
        add = f"kafka-acls.sh --bootstrap-server {self.settings.address} --add --allow-principal User:<name>"
        topics = " ".join(f"--topic {topic}" for topic in self.topics or ("<topic>",))
        return (
            f"{add} --operation Read --operation Write {topics}; "
            f"{add} --operation Write --resource-pattern-type prefixed --transactional-id {self.prefix}.; "
            f"{add} --operation Read --resource-pattern-type prefixed --group {self.prefix}."
        )


class TransactionalProducer:
    """The producer of ``faults.name``. Every method may raise SinkFault; after that only ``close`` may be called."""

    def __init__(self, faults: KafkaFaults) -> None:
        self._faults = faults
        self._failed: list[tuple[KafkaError, str | None]] = []
        """Errors of records, with the topic of each."""
        self._group: object = None
        self._is_open = False
        self._began = 0.0
        self._settings: dict[str, object] = {
            **faults.settings.client,
            "log_level": 0,
            "error_cb": lambda error: faults.complaints.append(error.str()),
            "logger": _silent(),  # fatal errors are logged whatever the level; they are reported as faults
        }
        self._producer = Producer(
            {
                **self._settings,
                "transactional.id": faults.name,
                "transaction.timeout.ms": round(faults.transaction_seconds * 1000),
                "allow.auto.create.topics": False,
                "partitioner": "murmur2_random",  # keys go where Java's client, and so Spark, sends them
                "delivery.timeout.ms": _RECORD_SECONDS * 1000,
                "queue.buffering.max.kbytes": _QUEUE_KBYTES,
                "linger.ms": 20,
            }
        )
        self._attempt("take up its transactions", self._producer.init_transactions)

    @property
    def seconds(self) -> float:
        """How long the transaction has been open."""
        return time.monotonic() - self._began

    def begin(self) -> None:
        """Open a transaction."""
        self._producer.begin_transaction()
        self._is_open = True
        self._began = time.monotonic()

    def send(self, record: Record, headers: Mapping[str, str]) -> None:
        """Queue one record, ``headers`` after its own; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=[*record.headers, *headers.items()],
                    on_delivery=self._note_delivery,
                )
                return
            except BufferError:  # the queue is full: wait until the broker has taken some
                self._listen(self._producer.poll, _SLICE_SECONDS)
                self.check()
            except KafkaException as error:
                cause = self._find_cause(error.args[0])
                raise self._faults.explain(cause, f"send row {headers.get('row', 'none')}", record.topic) from None

    def check(self) -> None:
        """Raise SinkFault when the broker has refused a record."""
        self._listen(self._producer.poll, 0)
        if self._failed:
            error, topic = self._failed[0]
            raise self._faults.explain(self._find_cause(error), "send a record", topic)

    def commit(self, home: str, note: str, number: int) -> None:
        """Commit the transaction, with the note (under 4,096 bytes) at the topic ``home``.

        ``number`` is shown as the note's offset. The note at ``home`` must have been read before."""
        while self._listen(self._producer.flush, _SLICE_SECONDS):
            self.check()
        self.check()
        offsets = [TopicPartition(home, 0, number, metadata=note)]
        self._attempt(
            "note what it sent",
            lambda seconds: self._producer.send_offsets_to_transaction(offsets, self._group, seconds),
        )
        self._attempt("commit its transaction", self._producer.commit_transaction)
        self._is_open = False

    def close(self) -> None:
        """Abort what was not committed, so that consumers need not wait for the transaction's timeout."""
        if self._is_open:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_SECONDS)
        self._producer.purge()
        with contextlib.suppress(KafkaException, SystemError):  # the transaction cannot be ended: the next feeder does
            self._producer.flush(1)
        del self._producer  # its threads end now, not when the last fault that refers to it is forgotten

    def read_note(self, home: str) -> str | None:
        """The text of the last committed note at the topic ``home``; None when there is none (any more)."""
        consumer = Consumer(
            {
                **self._settings,
                "group.id": self._faults.name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        try:
            self._group = consumer.consumer_group_metadata()
            place = TopicPartition(home, 0)

            def ask(seconds: float) -> TopicPartition:
                (found,) = consumer.committed([place], timeout=seconds)
                if found.error is not None:
                    raise KafkaException(found.error)
                return found

            found = self._attempt("read how far it is", ask)
            return str(found.metadata) if found.offset >= 0 and found.metadata else None
        finally:
            consumer.close()

    def _listen(self, call: Callable[[float], int], seconds: float) -> int:
        """Serve the client's callbacks; return the result of ``call``.

        A fatal error is raised meanwhile, as a SystemError when records fail with it: the library (confluent-kafka
        2.16) calls ``_note_delivery`` while an exception is already set. Then the producer is asked for the error.
        """
        try:
            return call(seconds)
        except KafkaException as error:
            raise self._faults.explain(error.args[0], "send its records") from None
        except SystemError as error:
            try:
                self._producer.begin_transaction()  # always refused: a transaction is open, or the error is fatal
            except KafkaException as failed:
                raise self._faults.explain(failed.args[0], "send its records") from error
            raise

    def _find_cause(self, error: KafkaError) -> KafkaError:
        """The cause of the error of a record that the client dropped or refused because the transaction has failed.

        The attempt to commit the transaction raises that cause."""
        if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE):
            try:
                self._producer.commit_transaction(_SLICE_SECONDS)
            except KafkaException as failed:
                return KafkaError(failed.args[0].code(), failed.args[0].str())
        return error

    def _attempt(self, what: str, call: Callable[[float], _Result]) -> _Result:
        # A broker that has just become the coordinator of a transaction or a group reports these for a moment.
        unsettled = (
            KafkaError._TIMED_OUT,
            KafkaError._WAIT_COORD,
            KafkaError.NOT_COORDINATOR,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.UNSTABLE_OFFSET_COMMIT,
        )
        deadline = time.monotonic() + _STEP_SECONDS
        while True:
            try:
                return call(_SLICE_SECONDS)
            except KafkaException as error:
                said = error.args[0]
                again = said.retriable() or said.code() in unsettled
                if not again or time.monotonic() > deadline:
                    raise self._faults.explain(said, what) from None
                time.sleep(_PAUSE_SECONDS)

    def _note_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append((error, message.topic()))


def _silent() -> logging.Logger:
    logger = logging.Logger("librdkafka")
    logger.addHandler(logging.NullHandler())
    return logger
