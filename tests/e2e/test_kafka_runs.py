"""A Kafka pipeline through the command line and a real broker: each record once, through losses and repairs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import in_session
from tests.support.readers import read_agreed
from tests.support.scene import Scene, kill_when
from tidegate.runs.steps import run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.topics import Topics
    from tools.broker import Broker

NAME = "events"
TOPIC = "e2e-events"


class KafkaScene(Scene):
    """A project with one Kafka pipeline; ids of what was produced are written down here."""

    def __init__(self, root: Path, broker: Broker) -> None:
        super().__init__(root, name=NAME)
        self.broker = broker
        self.offered: dict[str, str] = {}
        self.lost: set[str] = set()

    def produce(self, tag: str, count: int = 30) -> None:
        """``count`` records over the partitions, every tenth of them torn; one transaction is aborted in between."""
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0}
        aborted = Producer({**settings, "transactional.id": f"tx-{tag}"})
        aborted.init_transactions(30)
        aborted.begin_transaction()
        for number in range(5):
            aborted.produce(TOPIC, value=json.dumps({"id": f"aborted-{tag}-{number}"}), partition=number % 2)
        aborted.flush(30)
        aborted.abort_transaction(30)
        producer = Producer(settings)
        for number in range(count):
            key = f"{tag}-{number}"
            torn = number % 10 == 0
            value = f'{{"id": "{key}", "amount"' if torn else json.dumps({"id": key, "amount": number})
            self.offered[key] = "malformed" if torn else "good"
            producer.produce(TOPIC, value=value, partition=number % 2)
        assert producer.flush(30) == 0

    def check(self) -> None:
        """Each offered record once: good ones in the table, torn ones in quarantine; no aborted one anywhere."""
        expected = {key: kind for key, kind in self.offered.items() if key not in self.lost}
        rows = Counter(row["id"] for row in read_agreed(self.table))
        assert rows == Counter(key for key, kind in expected.items() if kind == "good")
        aside = read_agreed(self.quarantine)
        torn = Counter(row["raw"].split('"')[3] for row in aside)
        assert torn == Counter(key for key, kind in expected.items() if kind == "malformed")
        assert all(json.loads(row["position"])["topic"] == TOPIC for row in aside)


@pytest.fixture
def scene(tmp_path: Path, kafka_broker: Broker, topics: Topics) -> Any:
    topics.create(TOPIC, 2)
    scene = KafkaScene(tmp_path / "project", kafka_broker)
    kafka = f'kafka: {{bootstrap_servers: "{kafka_broker.bootstrap_servers}"}}'
    scene.create(f"{kafka}\nlease: {{expires_after: 5 seconds}}\n")
    (scene.root / "jobs" / NAME / "pipeline.yaml").write_text(
        f"version: 1\nname: {NAME}\nschedule: null\nsources:\n  events:\n    type: kafka\n    topics: [{TOPIC}]\n"
        "    format: json\n    schema: id STRING, amount INT\n"
    )
    yield scene
    topics.delete(TOPIC)


def test_runs_kills_losses_and_repairs(scene: KafkaScene, topics: Topics, spark: SparkSession) -> None:
    # Two deliveries, the second one's run killed when its manifest appears.
    scene.produce("a")
    assert scene.run(submit=in_session(spark))["rows"] == {
        "read": 30, "malformed": 3, "entered": 27, "late": 0, "transformed": 27, "rejected": 0, "staged": 27,
        "published": 27, "superseded": 0, "duplicates": 0,
    }  # fmt: skip
    assert scene.run(submit=in_session(spark))["outcome"] == "nothing_new"
    scene.produce("b")
    manifests = scene.state / "manifests"
    process = scene.start("run", NAME)
    assert kill_when(scene, process, lambda: any(manifests.glob("*/*1.json")))
    report = scene.run(submit=in_session(spark))
    assert report["outcome"] == "published" and report["rows"]["published"] == 27
    scene.check()

    # The checkpoint is lost: the next run begins a new one, exactly where the table's log ends.
    shutil.rmtree(scene.state / "checkpoint")
    scene.produce("c")
    report = scene.run(submit=in_session(spark))
    assert report["rows"]["read"] == 30 and "(CHECKPOINT_TORN: " in report["notes"][0]
    scene.check()

    # Retention takes records that were not read yet: named exactly, accepted by a person, on record.
    scene.produce("d")
    ends = {number: admin_end(scene.broker, number) for number in (0, 1)}
    taken = {key for key in scene.offered if key.startswith("d-") and int(key.split("-")[1]) % 2 == 0}
    topics.cut(TOPIC, 0, ends[0])
    scene.lost = taken
    refused = scene.report("run", NAME, expect=66)
    assert refused["error"]["code"] == "KAFKA_LOSS" and "partition 0" in refused["error"]["message"]
    accepted = scene.report("run", NAME, "--accept-loss", "retention was too short")
    assert accepted["outcome"] == "published" and accepted["accepted_loss"]["reason"] == "retention was too short"
    assert json.loads((scene.state / "accepted_losses.jsonl").read_text())["sources"]["events"]["ranges"]
    scene.check()

    # The topic is deleted and created again, and grows past the old offsets: still found, by its id.
    topics.delete(TOPIC)
    topics.create(TOPIC, 2)
    scene.produce("e", 400)
    assert scene.report("run", NAME, expect=66)["error"]["code"] == "KAFKA_LOSS"
    run_pipeline(scene.project, NAME, "again", submit=in_session(spark), accept_loss="created again")
    scene.check()
    assert scene.run(submit=in_session(spark))["outcome"] == "nothing_new"


def test_a_broker_that_is_away_is_tried_again(scene: KafkaScene, spark: SparkSession) -> None:
    text = (scene.root / "tidegate.yaml").read_text()
    (scene.root / "tidegate.yaml").write_text(text.replace(scene.broker.bootstrap_servers, "127.0.0.1:9"))
    report = scene.report("run", NAME, expect=75)
    assert report["error"]["code"] == "BROKER_AWAY" and report["error"]["fix"]
    (scene.root / "tidegate.yaml").write_text(text)
    scene.produce("f", 10)
    assert scene.run(submit=in_session(spark))["rows"]["published"] == 9


def admin_end(broker: Broker, partition: int) -> int:
    """The end offset of a partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "e2e", "log_level": 0})
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)[1]
        return end
    finally:
        consumer.close()
