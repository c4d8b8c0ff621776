"""Records of a sink's topics in transactions, each of which also carries a note of what it holds.

The note is an offset with a text that the sink commits, inside the transaction, for a consumer group of its own. So
records and note are there together or not at all, and whoever comes after a crash reads from the broker how far the
sink is. Taking up the transactional id ends whatever another process began under it, for good.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tidegate.sinks.kafka_fault import KafkaFaults
from tidegate.sinks.kafka_records import Record

if TYPE_CHECKING:
    from confluent_kafka import Message

_RECORD_SECONDS = 30
"""How long one record may wait for its acknowledgement."""
_STEP_SECONDS = 60.0
"""How long the brokers may take to begin, commit or end a transaction."""
_SLICE_SECONDS = 0.5
"""The client's calls do not hear signals, so they are made in slices."""
_PAUSE_SECONDS = 0.05
_ABORT_SECONDS = 2.0
_QUEUE_KBYTES = 16_384


class TransactionalProducer:
    """The one producer of ``faults.name``. Raises SinkFault from every method; after that only ``close`` is left."""

    def __init__(self, faults: KafkaFaults) -> None:
        self._faults = faults
        self._failed: list[tuple[KafkaError, str | None]] = []
        """Errors of records, with the topic of each."""
        self._group: Any = None
        self._is_open = False
        self._began = 0.0
        self._settings: dict[str, Any] = {
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
        """For how long the transaction has been open."""
        return time.monotonic() - self._began

    def begin(self) -> None:
        """Open a transaction."""
        self._producer.begin_transaction()
        self._is_open = True
        self._began = time.monotonic()

    def send(self, record: Record, headers: Mapping[str, str]) -> None:
        """Hand over one record, ``headers`` behind its own; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=[*record.headers, *headers.items()],
                    on_delivery=self._hear,
                )
                return
            except BufferError:  # the queue is full: wait until the broker has taken some
                self._listen(self._producer.poll, _SLICE_SECONDS)
                self.check()
            except KafkaException as error:
                cause = self._find_cause(error.args[0])
                raise self._faults.explain(cause, f"send row {headers.get('row', 'none')}", record.topic) from None

    def check(self) -> None:
        """Raise when the broker did not take a record so far."""
        self._listen(self._producer.poll, 0)
        if self._failed:
            error, topic = self._failed[0]
            raise self._faults.explain(self._find_cause(error), "send a record", topic)

    def commit(self, home: str, note: str, number: int) -> None:
        """Let readers see the transaction, with the note (under 4,096 bytes) at the topic ``home``, whose note was read
        before; ``number`` is shown as its offset."""
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
        """Take back what was not committed: readers that wait for the transaction's end need not wait longer."""
        if self._is_open:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_SECONDS)
        self._producer.purge()
        with contextlib.suppress(KafkaException, SystemError):  # the transaction cannot be ended: the next feeder does
            self._producer.flush(1)
        del self._producer  # its threads end now, not when the last fault that refers to it is forgotten

    def read_note(self, home: str) -> str | None:
        """The text of the last committed transaction with a note at the topic ``home``; None when there is none (any
        more). Before the first one under this name it is that of the group that earlier versions had: whether it is
        ours, its text tells."""
        note = self._read_note_of(self._faults.name, home)
        return self._read_note_of(self._faults.former, home) if note is None else note

    def _read_note_of(self, group: str, home: str) -> str | None:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        is_former = group != self._faults.name
        try:
            if not is_former:
                self._group = consumer.consumer_group_metadata()
            place = TopicPartition(home, 0)

            def ask(seconds: float) -> Any:
                try:
                    (found,) = consumer.committed([place], timeout=seconds)
                except KafkaException as error:
                    if is_former and error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                        return place  # the rights were given to the new name alone: there was no note under it
                    raise
                if found.error is not None:
                    raise KafkaException(found.error)
                return found

            found = self._attempt("read how far it is", ask)
            return str(found.metadata) if found.offset >= 0 and found.metadata else None
        finally:
            consumer.close()

    def _listen(self, call: Callable[[float], int], seconds: float) -> int:
        """Let the client hear what the brokers say; what ``call`` returns.

        A fatal error is raised in the midst of that, and as one of Python's own when records fail with it: the client's
        library (confluent-kafka 2.16) calls ``_hear`` while the exception is already set. Then the producer is asked.
        """
        try:
            return call(seconds)
        except KafkaException as error:
            raise self._faults.explain(error.args[0], "send its records") from None
        except SystemError as error:
            try:
                self._producer.begin_transaction()  # refused in any case: one is open, or nothing works any more
            except KafkaException as failed:
                raise self._faults.explain(failed.args[0], "send its records") from error
            raise

    def _find_cause(self, error: KafkaError) -> KafkaError:
        """What is behind a record that the client dropped, or does not take, because the transaction has failed: it
        says so to whoever wants to commit that."""
        if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE):
            try:
                self._producer.commit_transaction(_SLICE_SECONDS)
            except KafkaException as failed:
                return KafkaError(failed.args[0].code(), failed.args[0].str())
        return error

    def _attempt(self, what: str, call: Callable[[float], Any]) -> Any:
        # A broker that has just begun to keep transactions or groups says so for a moment.
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

    def _hear(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append((error, message.topic()))


def _silent() -> logging.Logger:
    logger = logging.Logger("librdkafka")
    logger.addHandler(logging.NullHandler())
    return logger
