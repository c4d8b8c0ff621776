"""The Kafka sink without a broker: pieces of a large version, and what an error of the client means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.sink_bench import Bench
from tests.support.sweep import examples
from tidegate.sinks import kafka
from tidegate.sinks.kafka import KafkaFeeder
from tidegate.sinks.kafka_producer import KafkaFaults
from tidegate.sinks.kafka_records import Record
from tidegate.sources.kafka.brokers import TopicState
from tidegate.sources.kafka.settings import settings_of
from tidegate.spec.models import KafkaSink, ProjectKafkaSpec
from tidegate.table.log.state import DataFile
from tidegate.table.publish.delivery import Delivery, delivered_rows
from tidegate.table.publish.replace import hidden_name


class Broker:
    """What a topic and its group hold; ``dies`` counts down to the step at which the process ends."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.note: str | None = None
        self.dies = 0

    def step(self) -> None:
        """One step of the process."""
        self.dies -= 1
        if self.dies == 0:
            raise KeyboardInterrupt


class Producer:
    """A producer of that broker: nothing is there before its transaction is committed."""

    seconds = 1.0

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.open: list[int] = []

    def read_note(self, home: str) -> str | None:
        return self.broker.note

    def begin(self) -> None:
        self.open = []

    def check(self) -> None: ...

    def send(self, record: Record, headers: dict[str, str]) -> None:
        self.broker.step()
        self.open.append(int(headers["row"]))

    def commit(self, home: str, note: str, number: int) -> None:
        self.broker.step()
        self.broker.committed += self.open
        self.broker.note = note
        self.broker.step()

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("bench"))
    bench.publish(12)
    bench.publish(3)
    return bench


def make_feeder(bench: Bench, broker: Broker, patch: pytest.MonkeyPatch) -> KafkaFeeder:
    table = bench.table()
    assert table is not None
    there = {"t": TopicState(None, (0,), False)}
    patch.setattr(kafka, "Brokers", lambda settings: type("There", (), {"describe": lambda self, topics: there})())
    patch.setattr(kafka, "TransactionalProducer", lambda faults: Producer(broker))
    return KafkaFeeder(KafkaSink(type="kafka", topic="t"), bench.paths, table.schema_json, ProjectKafkaSpec())


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deaths=st.lists(st.integers(1, 20), max_size=6), pieces=st.booleans())
def test_killed_at_any_step_each_row_comes_once_and_in_order(bench: Bench, deaths: list[int], pieces: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.sinks.rows.BATCH_ROWS", 4)
        patch.setattr(kafka, "_PIECE_SECONDS", 0.0 if pieces else 60.0)
        broker = Broker()
        delivery = delivered_rows(bench.paths.table, 0)
        assert delivery is not None
        for dies in [*deaths, 0]:
            broker.dies = dies
            try:
                make_feeder(bench, broker, patch)(delivery, lambda: None)
            except KeyboardInterrupt:
                assert pieces or broker.committed in ([], list(range(12)))
        assert broker.committed == list(range(12))


def test_the_note_of_another_delivery_says_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    for version in (0, 1, 0):
        delivery = delivered_rows(bench.paths.table, version)
        assert delivery is not None
        make_feeder(bench, broker, monkeypatch)(delivery, lambda: None)
    assert broker.committed == [*range(12), *range(3), *range(12)]
    assert broker.note is not None and len(broker.note) < 1000  # a broker takes 4,096 bytes


def test_a_delivery_is_known_by_its_run_and_files() -> None:
    file = DataFile("day=1/a.parquet", 3, 100, {})
    one = Delivery(4, "run-1", (file,))
    other = DataFile("day=1/b.parquet", 3, 100, {})
    marks = {kafka._mark(each) for each in (one, Delivery(5, "run-1", (file,)), Delivery(4, "r", (file,)))}
    assert len(marks | {kafka._mark(Delivery(4, "run-1", (other,)))}) == 4
    assert kafka._mark(Delivery(4, "run-1", (file,))) == kafka._mark(one)
    replaced = DataFile(hidden_name(file.path), 3, 100, {})  # as it is called after a compaction
    assert kafka._mark(Delivery(4, "run-1", (replaced,))) == kafka._mark(one)
    assert kafka._mark(Delivery(4, "run-1", (DataFile("a\udc80", 1, 1, {}),)))


@pytest.mark.parametrize(
    ("code", "message", "fix"),
    [
        (KafkaError._FENCED, "another process feeds the topic as tidegate.p.t.1f", "remove .project.json"),
        (KafkaError.INVALID_PRODUCER_EPOCH, "took longer than 900 s", "a copy of this project"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "only shorter transactions", "transaction.max.timeout.ms=900000"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "does not allow this user to",
            "--resource-pattern-type prefixed --transactional-id tidegate.p.t.;",
        ),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "does not allow this user to", "prefixed --group tidegate.p.t."),
        (KafkaError.MSG_SIZE_TOO_LARGE, "could not try", "max.message.bytes"),
        (KafkaError._UNSUPPORTED_FEATURE, "know no transactions", "brokers that have them"),
        (KafkaError._TRANSPORT, "Broker transport failure; no route to ***", "look at the brokers"),
    ],
)
def test_what_an_error_means(code: int, message: str, fix: str) -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    told = settings_of(ProjectKafkaSpec(bootstrap_servers="b:9092", options=options | {"sasl.password": "canary-7a1"}))
    faults = KafkaFaults(("t",), "tidegate.p.t.1f", told, 900.0, "tidegate.p.t", ["no route to canary-7a1"])
    fault = faults.explain(KafkaError(code), "try")
    assert message in fault.message and fix in fault.fix
    assert "canary-7a1" not in json.dumps(fault.to_dict()) and "canary" not in repr(faults.settings)


def test_the_note_names_no_path(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    delivery = delivered_rows(bench.paths.table, 0)
    assert delivery is not None
    make_feeder(bench, broker, monkeypatch)(delivery, lambda: None)
    note = json.loads(broker.note or "{}")
    assert (note["version"], note["rows"], note["whole"]) == (0, 12, True)
    assert str(Path(delivery.files[0].path)) not in str(note)
