"""The records of a range of offsets of a topic partition, by a consumer that belongs to no group.

A range ends by the position of the consumer, never by a count: the markers of transactions, aborted records and those
that compaction took leave gaps, also at its end.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from tidegate.sources.readers.unreadable import RangeFault, RangeProblem, TopicRange

Setting = str | int | float | bool
PATIENCE_SECONDS = 30.0
"""Timeout without records from a broker."""
_LOOK_SECONDS = 2.0
"""After so long without a record the broker is asked why."""
_SETTLE_SECONDS = 6.0
"""How long the log may end before the range: a new leader learns the high watermark late."""
_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
_RECORDS_AT_MOST = 10_000
_BYTES_AT_MOST = 4 << 20

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of a topic whose broker keeps none."""
_SECRETS = ("sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem")
_TUNING: Mapping[str, Setting] = {
    "fetch.message.max.bytes": 2 << 20,
    "fetch.wait.max.ms": 50,  # a broker keeps a request back at the end of the log
    "fetch.queue.backoff.ms": 10,  # or a full queue stops the requests for a second
    "queued.max.messages.kbytes": 8 << 10,
    "queued.min.messages": 20_000,
    "reconnect.backoff.max.ms": 1000,
}
"""What a user's own settings may replace."""
_FIXED: Mapping[str, Setting] = {
    "group.id": "tidegate",  # the client demands a name, and joins no group
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "receive.message.max.bytes": (1 << 31) - 1,  # a record is as large as the broker let it be
    "statistics.interval.ms": 5000,
    "log_level": 0,
}
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_PROBLEMS = {
    KafkaError._AUTHENTICATION: RangeProblem.LOGIN,
    KafkaError.SASL_AUTHENTICATION_FAILED: RangeProblem.LOGIN,
    KafkaError._SSL: RangeProblem.LOGIN,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: RangeProblem.FORBIDDEN,
    KafkaError._BAD_MSG: RangeProblem.DAMAGED,
    KafkaError._BAD_COMPRESSION: RangeProblem.DAMAGED,
    KafkaError.INVALID_MSG: RangeProblem.DAMAGED,
    KafkaError._LOG_TRUNCATION: RangeProblem.TRUNCATED,
}
"""Permanent errors. The client retries after other errors, until the timeout."""

Header = tuple[str, bytes | None]


class Records:
    """Some records, in the order of their offsets."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    @property
    def values(self) -> list[bytes | None]:
        """None is a tombstone."""
        return [message.value() for message in self._messages]

    @property
    def keys(self) -> list[bytes | None]:
        """None where a record has none."""
        return [message.key() for message in self._messages]

    @property
    def offsets(self) -> list[int]:
        """Ascending, with gaps."""
        return [_offset_of(message) for message in self._messages]

    @property
    def timestamps(self) -> list[int | None]:
        """Milliseconds since 1970, as the producer or the broker has set them; None where a record has none."""
        return [stamp if kind else None for kind, stamp in (message.timestamp() for message in self._messages)]

    @functools.cached_property
    def headers(self) -> list[list[Header] | UnicodeError | None]:
        """None where a record has none, an error where a name is not UTF-8."""
        return [_read_headers(message) for message in self._messages]


def _read_headers(message: Any) -> list[Header] | UnicodeError | None:
    try:
        headers: list[Header] | None = message.headers()
    except UnicodeError as error:
        return error
    except SystemError as error:  # the client raises the other one and returns headers: not to be asked for twice
        if isinstance(error.__cause__, UnicodeError):
            return error.__cause__
        raise
    return headers


def _offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a consumer's messages have one"
    return offset


def read_range(
    settings: Mapping[str, Setting],
    where: TopicRange,
    topic_id: str | None = None,
    patience_seconds: float | None = None,
) -> Iterator[Records]:
    """The committed records of a range, in batches. Raises RangeFault, perhaps behind some of the records.

    ``settings`` are those of librdkafka; a broker may give nothing for ``patience_seconds`` (None:
    :data:`PATIENCE_SECONDS`). ``topic_id`` is that of the topic which is meant: another topic of the same
    name is a fault. It is asked for behind the last record.
    """
    if where.begin >= where.end:
        return
    patience = PATIENCE_SECONDS if patience_seconds is None else patience_seconds
    reader = _RangeReader(settings, where, topic_id, patience)
    with reader.borrow_client():
        yield from reader.read()


class _Client:
    """A consumer, and what it said of itself."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self.complaints: list[KafkaError] = []
        self._settings = settings
        self._admin: AdminClient | None = None
        self._statistics = "{}"
        callbacks: dict[str, object] = {"error_cb": self.complaints.append, "stats_cb": self._note_statistics}
        self.consumer = Consumer({**_TUNING, **settings, **_FIXED, **callbacks})

    def _note_statistics(self, text: str) -> None:
        self._statistics = text

    def find_next_offset(self, topic: str, partition: int) -> int:
        """Up to where the client has received records, also those that it passes over; -1 where that is not known."""
        of_topic = json.loads(self._statistics).get("topics", {}).get(topic, {})
        return int(of_topic.get("partitions", {}).get(str(partition), {}).get("next_offset", -1))

    def find_topic_id(self, topic: str) -> str | None:
        """The id of the topic that has the name now; None where there is no such topic. Raises KafkaException."""
        if self._admin is None:
            quiet: dict[str, Any] = {**self._settings, "log_level": 0, "error_cb": self.complaints.append}
            self._admin = AdminClient(quiet)
        wanted = TopicCollection([topic])
        [found] = self._admin.describe_topics(wanted, request_timeout=_ANSWER_SECONDS).values()
        try:
            return str(found.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() in _GONE:
                return None
            raise

    def close(self) -> None:
        """Close the connections."""
        self.consumer.close()


_idle: dict[tuple[int, frozenset[tuple[str, Setting]]], list[_Client]] = {}
"""Clients that nobody uses, by process and settings: to connect takes longer than to read a small range."""


@atexit.register
def _close_idle() -> None:
    for (process, _), clients in _idle.items():
        for client in clients:
            if process == os.getpid():
                client.close()
    _idle.clear()


class _RangeReader:
    """Reads one range."""

    def __init__(
        self, settings: Mapping[str, Setting], where: TopicRange, topic_id: str | None, patience_seconds: float
    ) -> None:
        self._settings = settings
        self._topic, self._partition, self._at, self._end = where
        self._topic_id, self._patience_seconds = topic_id, patience_seconds
        self._log_end: int | None = None
        self._received = where.begin
        self._was_gone = False
        self._said = ""
        self._moved_at = self._looked_at = time.monotonic()

    @contextlib.contextmanager
    def borrow_client(self) -> Iterator[None]:
        """A client for the time of the range; one that met a fault is not used again."""
        key = os.getpid(), frozenset(self._settings.items())
        clients = _idle.setdefault(key, [])
        try:
            self._client = clients.pop() if clients else _Client(self._settings)
        except KafkaException as error:
            raise self._fault(RangeProblem.SETTINGS, error.args[0].str()) from None
        is_sound = False
        try:
            yield
            is_sound = True
        except GeneratorExit:  # the caller needs no more records
            is_sound = True
            raise
        finally:
            if is_sound:
                self._client.consumer.unassign()
                clients.append(self._client)
            else:
                self._client.close()

    def read(self) -> Iterator[Records]:
        """The records, and at last a look whether the topic is the one that is meant."""
        self._client.complaints.clear()
        self._assign()
        some: list[Message] = []
        size, average = 0, _BYTES_AT_MOST >> 6  # until it is known
        while self._at < self._end:
            taken = self._take(min(_RECORDS_AT_MOST - len(some), 1 + (_BYTES_AT_MOST - size) // average))
            if taken:
                more = sum(map(len, taken))
                some += taken
                size, average = size + more, 1 + more // len(taken)
            if some and (len(some) >= _RECORDS_AT_MOST or size >= _BYTES_AT_MOST or self._at >= self._end):
                yield Records(some)
                some, size = [], 0
                self._moved_at = time.monotonic()  # what is done with records is not the broker's time
        if self._find_other_topic():
            raise self._fault(RangeProblem.TOPIC_RECREATED)

    def _assign(self) -> None:
        self._client.consumer.assign([TopicPartition(self._topic, self._partition, self._at)])

    def _take(self, at_most: int) -> list[Message]:
        """The records that have come, at most so many; the position is behind them."""
        consumer, before = self._client.consumer, self._at
        # What is there is taken at once: a consumer that waits for many large records holds them all.
        messages = consumer.consume(1, 0.5)
        if messages and at_most > 1:
            messages += consumer.consume(at_most - 1, 0)
        if any(message.error() is not None for message in messages):
            messages = [message for message in messages if self._is_record(message)]
        if messages:
            self._at = max(self._at, _offset_of(messages[-1]) + 1)
            if self._at > self._end:
                messages = [message for message in messages if _offset_of(message) < self._end]
        if self._at > before:
            self._moved_at, self._was_gone = time.monotonic(), False
        elif self._at < self._end:
            self._look_for_faults()
        return messages

    def _is_record(self, message: Message) -> bool:
        """Return whether it is one, or else what the client says in its place."""
        error = message.error()
        if error is None:
            return True
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._log_end = _offset_of(message)
            self._at = max(self._at, self._log_end)
        elif code in _PROBLEMS:
            raise self._fault(_PROBLEMS[code], error.str())
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._explain_offset(_offset_of(message), error.str())
        elif message.topic() is not None:  # else it is about the group, which does not matter
            self._said = error.str()
        return False

    def _explain_offset(self, offset: int, said: str) -> None:
        """Raise what is wrong with an offset that the broker does not have; where it has it now, try again."""
        self._said = said
        if self._find_other_topic():
            raise self._fault(RangeProblem.TOPIC_RECREATED)
        bounds = self._ask_bounds()
        if bounds is not None and offset < bounds[0]:
            raise self._fault(RangeProblem.LOST, said, offset, min(bounds[0], self._end))
        if bounds is not None and offset > bounds[1]:
            raise self._fault(RangeProblem.TRUNCATED, said, bounds[1])
        time.sleep(_PAUSE_SECONDS)
        self._at = offset
        self._assign()

    def _look_for_faults(self) -> None:
        """Raise why nothing comes, once that is clear."""
        client, now = self._client, time.monotonic()
        for complaint in client.complaints:
            if complaint.code() in _PROBLEMS:
                raise self._fault(_PROBLEMS[complaint.code()], complaint.str())
        quiet = now - self._moved_at
        if quiet < _LOOK_SECONDS or now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        if (received := client.find_next_offset(self._topic, self._partition)) > self._received:
            self._received, self._moved_at = received, now  # records that were aborted, many of them
            return
        if self._is_gone():
            raise self._fault(RangeProblem.TOPIC_GONE)
        if self._log_end == self._at and quiet >= _SETTLE_SECONDS:
            bounds = self._ask_bounds()
            if bounds is not None and bounds[1] < self._end:
                problem = RangeProblem.TOPIC_RECREATED if self._find_other_topic() else RangeProblem.TRUNCATED
                raise self._fault(problem)
        if quiet >= self._patience_seconds:
            complaints = [one for one in client.complaints if one.code() == KafkaError._TRANSPORT]
            reason = complaints[-1].str() if complaints else self._said
            raise self._fault(RangeProblem.SILENT, reason or "it answers, and gives no records")

    def _is_gone(self) -> bool:
        """Return whether there was no such topic or partition twice: a broker that has just begun knows some later."""
        try:
            found = self._client.consumer.list_topics(self._topic, timeout=_ANSWER_SECONDS).topics.get(self._topic)
        except KafkaException as failed:
            self._said = failed.args[0].str()
            return False
        error = None if found is None else found.error
        if error is not None and error.code() in _PROBLEMS:
            raise self._fault(_PROBLEMS[error.code()], error.str())
        was_gone, self._was_gone = self._was_gone, found is None or self._partition not in found.partitions
        return was_gone and self._was_gone

    def _ask_bounds(self) -> tuple[int, int] | None:
        """(the first offset that the broker has, the one behind its last); None where it does not answer."""
        try:
            where = TopicPartition(self._topic, self._partition)
            first, behind = self._client.consumer.get_watermark_offsets(where, timeout=_ANSWER_SECONDS)
            return first, behind
        except KafkaException as error:
            self._said = error.args[0].str()
            return None

    def _find_other_topic(self) -> bool:
        """Return whether another topic has the name now. One that is gone gave its records before."""
        if self._topic_id is None:
            return False
        try:
            found = self._client.find_topic_id(self._topic)
        except KafkaException as error:
            raise self._fault(_PROBLEMS.get(error.args[0].code(), RangeProblem.SILENT), error.args[0].str()) from None
        return found not in (None, _NO_ID, self._topic_id)

    def _fault(
        self, problem: RangeProblem, reason: str = "", begin: int | None = None, end: int | None = None
    ) -> RangeFault:
        """A fault of the rest of the range, or of another part of it."""
        for name in _SECRETS:
            if secret := self._settings.get(name):
                reason = reason.replace(str(secret), "***")
        begin, end = self._at if begin is None else begin, self._end if end is None else end
        address = str(self._settings.get("bootstrap.servers", ""))
        return RangeFault(problem, (self._topic, self._partition, begin, end), reason, address)
