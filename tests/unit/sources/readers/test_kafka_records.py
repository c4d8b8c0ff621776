"""Ranges of a topic partition without a broker: faults that no broker gives at will, and how records become columns."""

from __future__ import annotations

import base64
import json
import pickle
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sources.bounds import CUT_CHARACTERS, LONGEST_RECORD_BYTES
from tidegate.sources.readers import kafka_records, kafka_worker
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.kafka_records import Records, read_range
from tidegate.sources.readers.kafka_worker import RangesReader
from tidegate.sources.readers.unreadable import SEAL, PartUnreadable, RangeFault, RangeProblem, TopicRange

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "hunter2"}
LIMIT = "the limit is 8,388,608 bytes, and only the topic has all of it"


class Message:
    """A record, or an error in its place."""

    def __init__(self, offset: int = 0, value: bytes | None = b"", error: int | None = None, **more: Any) -> None:
        self._offset, self._value, self._more = offset, value, more
        self._error = None if error is None else KafkaError(error, f"code {error}, hunter2")

    def __len__(self) -> int:
        return len(self._value or b"")

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str | None:
        return self._more.get("topic", "t")

    def key(self) -> bytes | None:
        return self._more.get("key")

    def timestamp(self) -> tuple[int, int]:
        return self._more.get("timestamp", (TIMESTAMP_CREATE_TIME, 1))

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        headers = self._more.get("headers")
        if isinstance(headers, UnicodeError):
            raise SystemError("returned a result with an exception set") from headers
        return headers


class Client:
    """A client whose broker gives ``script``, some messages at a time, and nothing behind it."""

    def __init__(
        self, script: list[list[Message]], partitions: tuple[int, ...] = (0,), bounds: tuple[int, int] = (0, 100)
    ) -> None:
        self.script, self.partitions, self.bounds = script, partitions, bounds
        self.complaints: list[KafkaError] = []
        self.consumer = self
        self.received: Iterator[int] = iter(())
        self.topic_id: str | Exception | None = "id"
        self.assigned: list[int] = []
        self.is_closed = False

    def assign(self, partitions: list[Any]) -> None:
        self.assigned.append(partitions[0].offset)

    def unassign(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def consume(self, at_most: int, timeout: float) -> list[Message]:
        if not self.script:
            time.sleep(0.001 if timeout else 0)
            return []
        taken, self.script[0] = self.script[0][:at_most], self.script[0][at_most:]
        if not self.script[0]:
            self.script.pop(0)
        return taken

    def list_topics(self, topic: str, timeout: float) -> Any:
        found = SimpleNamespace(error=None, partitions=self.partitions)
        return SimpleNamespace(topics={topic: found} if self.partitions else {})

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        return self.bounds

    def find_next_offset(self, topic: str, partition: int) -> int:
        return next(self.received, 0)

    def find_topic_id(self, topic: str) -> str | None:
        if isinstance(self.topic_id, Exception):
            raise self.topic_id
        return self.topic_id


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """The offsets that a client gives of a range of ``t-0``."""
    for name, seconds in (("PATIENCE", 0.1), ("_LOOK", 0.01), ("_SETTLE", 0.05), ("_PAUSE", 0.001)):
        monkeypatch.setattr(kafka_records, f"{name}_SECONDS", seconds)

    def run(client: Client, begin: int, end: int, topic_id: str | None = None) -> list[int]:
        monkeypatch.setattr(kafka_records, "_idle", {})
        monkeypatch.setattr(kafka_records, "_Client", lambda settings: client)
        batches = list(read_range(SETTINGS, TopicRange("t", 0, begin, end), topic_id))
        return [offset for batch in batches for offset in batch.offsets]

    return run


def eof(offset: int) -> Message:
    return Message(offset, error=KafkaError._PARTITION_EOF)


def test_a_range_ends_by_position(read: Callable[..., list[int]]) -> None:
    assert read(Client([[Message(2), Message(5)], [Message(9)], [Message(11)]]), 2, 10) == [2, 5, 9]
    assert read(Client([[Message(2)], [Message(5), eof(10)]]), 2, 10) == [2, 5]
    assert read(Client([[eof(4)], [Message(4), Message(7), eof(8)], [Message(9)]]), 2, 9) == [4, 7]
    assert read(Client([[Message(12)]]), 2, 10) == []
    assert read(Client([]), 7, 7) == []


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (KafkaError._BAD_MSG, RangeProblem.DAMAGED),
        (KafkaError._BAD_COMPRESSION, RangeProblem.DAMAGED),
        (KafkaError.INVALID_MSG, RangeProblem.DAMAGED),
        (KafkaError._LOG_TRUNCATION, RangeProblem.TRUNCATED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RangeProblem.FORBIDDEN),
        (KafkaError.SASL_AUTHENTICATION_FAILED, RangeProblem.LOGIN),
    ],
)
def test_errors_that_time_does_not_heal(read: Callable[..., list[int]], code: int, problem: str) -> None:
    client = Client([[Message(3), Message(4, error=code)], [Message(5)]])
    with pytest.raises(RangeFault) as caught:
        read(client, 3, 9)
    fault = caught.value
    assert (fault.problem, fault.where.topic, fault.where.partition, fault.where.end) == (problem, "t", 0, 9)
    assert fault.reason == f"code {code}, ***" and "hunter2" not in str(fault)
    assert client.is_closed


def test_a_login_is_not_tried_for_long(read: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client([])
    client.complaints = _Lasting([KafkaError(KafkaError._AUTHENTICATION, "no: hunter2")])
    monkeypatch.setattr(kafka_records, "PATIENCE_SECONDS", 60.0)
    with pytest.raises(RangeFault) as caught:
        read(client, 0, 1)
    assert (caught.value.problem, caught.value.reason) == (RangeProblem.LOGIN, "no: ***")


class _Lasting(list[KafkaError]):
    """Complaints that come anew in each range."""

    def clear(self) -> None:
        pass


def test_errors_that_pass(read: Callable[..., list[int]]) -> None:
    passing = [
        Message(0, error=KafkaError._TRANSPORT),
        Message(0, error=KafkaError.NOT_LEADER_FOR_PARTITION),
        Message(0, error=KafkaError.GROUP_AUTHORIZATION_FAILED, topic=None),
    ]
    assert read(Client([[Message(0)], passing, [Message(1)]]), 0, 2) == [0, 1]


def test_silence_has_the_last_reason(read: Callable[..., list[int]]) -> None:
    client = Client([[Message(0, error=KafkaError._TRANSPORT)]])
    with pytest.raises(RangeFault) as caught:
        read(client, 0, 1)
    assert (caught.value.problem, caught.value.reason) == (RangeProblem.SILENT, "code -195, ***")
    client = Client([])
    client.complaints = _Lasting([KafkaError(KafkaError._TRANSPORT, "connection refused")])
    with pytest.raises(RangeFault, match="connection refused"):
        read(client, 0, 1)


def test_many_aborted_records_are_no_silence(read: Callable[..., list[int]]) -> None:
    client = Client([])

    def receive() -> Iterator[int]:
        yield from range(1, 21)  # 0.01 s each: twice the patience
        client.script.append([Message(50)])
        yield 21

    client.received = receive()
    began = time.monotonic()
    assert read(client, 0, 51) == [50]
    assert time.monotonic() - began > 2 * kafka_records.PATIENCE_SECONDS


def test_a_partition_that_is_gone(read: Callable[..., list[int]]) -> None:
    for partitions in ((), (1, 2)):
        with pytest.raises(RangeFault) as caught:
            read(Client([[Message(0)]], partitions), 0, 5)
        assert (caught.value.problem, caught.value.where.begin) == (RangeProblem.TOPIC_GONE, 1)


def test_offsets_that_the_broker_does_not_have(read: Callable[..., list[int]]) -> None:
    gone = [Message(5, error=KafkaError._AUTO_OFFSET_RESET)]
    for bounds, problem, begin, end in (
        ((8, 20), RangeProblem.LOST, 5, 8),
        ((15, 20), RangeProblem.LOST, 5, 9),
        ((0, 3), RangeProblem.TRUNCATED, 3, 9),
    ):
        client = Client([[Message(4)], [*gone]], bounds=bounds)
        with pytest.raises(RangeFault) as caught:
            read(client, 4, 9)
        assert (caught.value.problem, caught.value.where.begin, caught.value.where.end) == (problem, begin, end)
    client = Client([[Message(4)], [*gone], [Message(5), Message(8)]])
    assert read(client, 4, 9) == [4, 5, 8] and client.assigned == [4, 5]
    client = Client([[*gone]])
    client.topic_id = "other"
    with pytest.raises(RangeFault, match="TOPIC_RECREATED"):
        read(client, 5, 9, "id")


def test_a_log_that_ends_before_the_range(read: Callable[..., list[int]]) -> None:
    with pytest.raises(RangeFault) as caught:
        read(Client([[Message(0), eof(3)]], bounds=(0, 3)), 0, 9)
    assert (caught.value.problem, caught.value.where.begin, caught.value.where.end) == (RangeProblem.TRUNCATED, 3, 9)
    with pytest.raises(RangeFault) as caught:  # the records are there, and do not come
        read(Client([[Message(0), eof(3)]], bounds=(0, 9)), 0, 9)
    assert caught.value.problem == RangeProblem.SILENT


def test_another_topic_of_the_name(read: Callable[..., list[int]]) -> None:
    for topic_id in ("id", None, kafka_records._NO_ID):  # one that is gone has given its records
        client = Client([[Message(0)]])
        client.topic_id = topic_id
        assert read(client, 0, 1, "id") == [0]
    client = Client([[Message(0)]])
    client.topic_id = "other"
    with pytest.raises(RangeFault) as caught:
        read(client, 0, 1, "id")
    assert caught.value.problem == RangeProblem.TOPIC_RECREATED
    client = Client([[Message(0)]])
    client.topic_id = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    with pytest.raises(RangeFault, match="SILENT"):
        read(client, 0, 1, "id")


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, count, most in ((10, 25_000, 10_000), (1 << 20, 1000, 5)):
        value = b"x" * size
        client = Client([[Message(n, value) for n in range(count)]])
        monkeypatch.setattr(kafka_records, "_idle", {})
        monkeypatch.setattr(kafka_records, "_Client", lambda settings, client=client: client)
        first, *others = [len(batch.values) for batch in read_range(SETTINGS, TopicRange("t", 0, 0, count))]
        assert first + sum(others) == count and max(others) <= most
        assert first <= max(most, 100)  # how large records are is not known yet


def test_a_client_is_used_again_unless_it_met_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Client] = []

    def make(settings: object) -> Client:
        made.append(Client([[Message(n)] for n in range(9)]))
        return made[-1]

    monkeypatch.setattr(kafka_records, "_idle", {})
    monkeypatch.setattr(kafka_records, "_Client", make)
    monkeypatch.setattr(kafka_records, "_RECORDS_AT_MOST", 1)
    assert len(list(read_range(SETTINGS, TopicRange("t", 0, 0, 2)))) == 2
    first, second = read_range(SETTINGS, TopicRange("t", 0, 2, 9)), read_range(SETTINGS, TopicRange("t", 0, 0, 9))
    assert (next(first).offsets, next(second).offsets) == ([2], [0])  # both at once: each has its own
    assert len(made) == 2
    first.close()
    second.close()
    assert len(list(read_range(SETTINGS, TopicRange("t", 0, 1, 2)))) == 1
    assert len(made) == 2 and not any(client.is_closed for client in made)
    next(read_range({**SETTINGS, "client.id": "b"}, TopicRange("t", 0, 0, 1)))
    assert len(made) == 3
    monkeypatch.setattr(kafka_records.os, "getpid", lambda: -1)  # the child of a fork
    next(read_range(SETTINGS, TopicRange("t", 0, 0, 1)))
    assert len(made) == 4


def test_settings_that_the_client_refuses() -> None:
    with pytest.raises(RangeFault) as caught:
        list(
            read_range(
                {**SETTINGS, "ssl.ca.location": "/nowhere", "security.protocol": "SSL"}, TopicRange("t", 0, 0, 1)
            )
        )
    assert caught.value.problem == RangeProblem.SETTINGS and "ssl.ca.location" in caught.value.reason
    with pytest.raises(RangeFault) as caught:
        list(read_range({**SETTINGS, "security.protocol": "hunter2"}, TopicRange("t", 0, 0, 1)))
    assert caught.value.problem == RangeProblem.SETTINGS and "hunter2" not in str(caught.value)
    reader = RangesReader(Form("text", "value STRING"), SETTINGS)
    assert "hunter2" not in repr(reader) and pickle.loads(pickle.dumps(reader)) == reader


@given(st.sampled_from(RangeProblem), st.text(), st.integers(), st.text())
def test_a_fault_survives_as_text(problem: RangeProblem, topic: str, offset: int, reason: str) -> None:
    fault = RangeFault(problem, TopicRange(topic, 3, offset, offset + 1), reason)
    raised = f"{RangeFault.__module__}.RangeFault: {fault}"
    for found in (
        RangeFault.find(f"An exception was thrown:\n{raised}\n\tat Spark"),
        pickle.loads(pickle.dumps(fault)),
    ):
        assert found is not None and type(found.problem) is RangeProblem
        assert (found.problem, found.where, found.reason) == (problem, (topic, 3, offset, offset + 1), reason)
    assert PartUnreadable.find(raised) is None and RangeFault.find(f"printed {raised}") is None
    assert RangeFault.find(raised.replace(SEAL, "0" * len(SEAL))) is None


def shape(form: Form, messages: list[Message], monkeypatch: pytest.MonkeyPatch, metadata: bool = True) -> list[Any]:
    """Rows of ``topic-7``."""
    monkeypatch.setattr(kafka_worker, "read_range", lambda *asked: iter([Records(messages)]))
    lines = ['{"batch": 0}', '{"topic": "a.b", "partition": 7, "begin": 0, "end": 1}']
    [batch] = RangesReader(form, SETTINGS, metadata)(iter([pa.RecordBatch.from_pydict({"value": lines})]))
    return batch.to_pylist()


def test_values_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b'{"id": 1}', None, b"", b" ", b'{"id": "x"}', b"\xff", b'{"id":\n2, "more": 1}', b'{"id": 3}{"id": 4}']
    messages = [Message(2 * n, value) for n, value in enumerate(values)]
    rows = shape(Form("json", "id INT NOT NULL"), messages, monkeypatch, metadata=False)
    assert [row["id"] for row in rows if not row["_malformed"]] == [1, 2]
    assert [row["_detail"] for row in rows] == [
        *(None, "null value (tombstone)", "empty", "empty", "id: not an INT", "not valid UTF-8", None),
        "text after the JSON object",
    ]
    assert [row["_unknown"] for row in rows if row["_unknown"]] == [["more"]]
    assert [row["_position"] for row in rows] == [
        f'{{"topic":"a.b","partition":7,"offset":{2 * n}}}' for n in range(len(values))
    ]
    raws = [None if value is None else value for value in values]
    assert [row["_raw"] for row in rows] == [
        None if raw is None else "/w==" if raw == b"\xff" else raw.decode() for raw in raws
    ]
    assert json.loads(rows[3]["_position"]) == {"topic": "a.b", "partition": 7, "offset": 6}
    rows = shape(Form("text", "line STRING"), messages, monkeypatch)
    assert [row["line"] for row in rows if not row["_malformed"]] == [
        value.decode() for value in values if value not in (None, b"\xff")
    ]
    assert [row["_detail"] for row in rows if row["_malformed"]] == ["null value (tombstone)", "not valid UTF-8"]
    rows = shape(Form("raw", "value BINARY"), messages, monkeypatch)
    assert [row["value"] for row in rows] == values and not any(row["_malformed"] for row in rows)
    assert [row["_raw"] for row in rows] == [
        None if value is None else base64.b64encode(value).decode() for value in values
    ]
    rows = shape(Form("json", "id INT"), [Message(0, None)], monkeypatch)
    assert [(row["id"], row["_malformed"]) for row in rows] == [(None, True)]


def test_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = [("a", b"\xff"), ("a", None), ("", b"")]
    messages = [
        Message(5, b"x", key=b"\x00", timestamp=(TIMESTAMP_CREATE_TIME, -1), headers=headers),
        Message(6, b"y", timestamp=(TIMESTAMP_NOT_AVAILABLE, -1), headers=None),
        Message(7, b"z", key=b"", timestamp=(TIMESTAMP_CREATE_TIME, 1 << 62)),
        Message(8, b"z", headers=UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")),
    ]
    rows = shape(Form("text", "value STRING"), messages, monkeypatch)
    names = ("value", "_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
    assert tuple(rows[0]) == (*names, "_raw", "_position", "_malformed", "_detail", "_unknown")
    assert [row["_key"] for row in rows] == [b"\x00", None, b"", None]
    assert [row["_headers"] for row in rows] == [
        *([{"key": name, "value": value} for name, value in headers], None, None, None),
    ]
    assert rows[0]["_timestamp"].isoformat() == "1969-12-31T23:59:59.999000+00:00"
    assert rows[1]["_timestamp"] is None and {(row["_topic"], row["_partition"]) for row in rows} == {("a.b", 7)}
    assert [(None if row["_malformed"] else row["value"], row["_detail"]) for row in rows] == [
        ("x", None),
        ("y", None),
        (None, "_timestamp: TIMESTAMP outside the years 1 to 9999"),
        (None, "headers: a name that is not valid UTF-8"),
    ]
    assert [row["_raw"] for row in rows] == ["x", "y", "z", "z"]


@pytest.mark.parametrize("format_", ["json", "raw"])
def test_what_is_too_large(format_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head, tail = '{"name": "' + "ä" * CUT_CHARACTERS, '"}'
    fits = f"{head}{'x' * (LONGEST_RECORD_BYTES - len(head.encode()) - len(tail))}{tail}".encode()
    half = b"x" * (LONGEST_RECORD_BYTES // 2)
    messages = [
        Message(0, fits),
        Message(1, fits + b" "),
        Message(2, b"{}", key=fits + b" "),
        Message(3, b"{}", headers=[("a", half[1:]), ("b", half[1:])]),
        Message(4, b"{}", headers=[("a", half), ("none", None), ("b", half)]),
        Message(5, None, key=fits + b" "),
        Message(6, b"\xff" + fits),
    ]
    rows = shape(Form(format_, "name STRING" if format_ == "json" else "value BINARY"), messages, monkeypatch)
    unit = "characters" if format_ == "json" else "bytes"
    assert [row["_detail"] for row in rows] == [
        None,
        f"value of 8,388,609 bytes; {LIMIT}; raw has its first 1,000 {unit}",
        f"key of 8,388,609 bytes; {LIMIT}",
        None,
        f"headers of 8,388,614 bytes; {LIMIT}",
        f"key of 8,388,609 bytes; {LIMIT}",
        f"value of 8,388,609 bytes; {LIMIT}; raw has its first 1,000 {unit}",
    ]
    assert [row["_malformed"] for row in rows] == [row["_detail"] is not None for row in rows]
    assert [len(row["_key"] or b"") for row in rows] == [0, 0, CUT_CHARACTERS, 0, 0, CUT_CHARACTERS, 0]
    assert [None if row["_headers"] is None else len(row["_headers"]) for row in rows] == [
        None,
        None,
        None,
        2,
        0,
        None,
        None,
    ]
    begin = base64.b64encode((b"\xff" + fits)[:CUT_CHARACTERS]).decode()
    if format_ == "raw":
        assert base64.b64decode(rows[1]["_raw"]) == fits[:CUT_CHARACTERS] == rows[1]["value"]
        assert [row["_raw"] for row in rows[2:]] == ["e30=", "e30=", "e30=", None, begin]
    else:
        assert len(rows[0]["name"]) > LONGEST_RECORD_BYTES - 2 * CUT_CHARACTERS
        assert rows[1]["_raw"] == fits.decode()[:CUT_CHARACTERS]
        assert [row["_raw"] for row in rows[2:]] == ["{}", "{}", "{}", None, begin]


@given(st.text(alphabet="aä€😀", min_size=1), st.integers(0, 3))
def test_no_character_is_cut_in_two(piece: str, shift: int) -> None:
    text = "x" * shift + piece * (CUT_CHARACTERS // len(piece) + 1)
    value = text.encode() + b" " * LONGEST_RECORD_BYTES
    shaper = kafka_worker._Shaper(Form("json", "a INT"), False)
    assert shaper._text_of(value) == text[:CUT_CHARACTERS].encode()
