"""A broker that dies between two batches: said in a minute, and the next run goes on where the last batch ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.planned import stream_topics
from tidegate.core.errors import TryAgainError
from tidegate.sources.kafka.offsets import plan_kafka, resolve_birth
from tidegate.spark.driver.failures import explain
from tidegate.spec.models import KafkaSource, ProjectKafkaSpec
from tidegate.state.batch_files import BatchFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_broker_that_dies_mid_run(tmp_path: Path, spark: SparkSession) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    from tools.broker import start_broker

    broker, checkpoint = start_broker(tmp_path / "broker"), tmp_path / "checkpoint"
    try:
        kafka = ProjectKafkaSpec(bootstrap_servers=broker.bootstrap_servers)
        quiet: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        admin = AdminClient(quiet)
        admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])["t"].result()
        producer = Producer(quiet)
        for number in range(10):
            producer.produce("t", str(number))
        assert producer.flush(10) == 0
        # One record a fetch, so that what comes later was not read ahead before the broker died.
        options: dict[str, str | int | float | bool] = {
            "maxOffsetsPerTrigger": 5,
            "kafka.max.poll.records": 1,
            "kafka.max.partition.fetch.bytes": 1,
            "kafkaConsumer.pollTimeoutMs": 5000,
            "kafka.request.timeout.ms": 4000,
            "kafka.default.api.timeout.ms": 5000,
        }
        spec = KafkaSource(type="kafka", format="text", topics=["t"], options=options)
        birth = resolve_birth(kafka, spec)
        rows: list[str] = []
        failures: list[Exception] = []

        def drain(*, kill: bool) -> None:
            def take(batch: Any, number: int) -> None:
                try:
                    rows.extend(row.value for row in batch.collect())
                except Exception as error:  # as the driver keeps it: the query hands on its text alone
                    failures.append(error)
                    raise
                if kill:
                    broker.kill()

            writer = stream_topics(spark, kafka, spec, birth, checkpoint).writeStream.foreachBatch(take)
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            writer.start().awaitTermination()

        started = time.monotonic()
        with pytest.raises(Exception) as caught:
            drain(kill=True)
        assert time.monotonic() - started < 60
        error = explain(failures[-1] if failures else caught.value, "orders", tmp_path, tmp_path)
        assert isinstance(error, TryAgainError) and error.code == "BROKER_AWAY", error
        assert rows == ["0", "1", "2", "3", "4"]
        with pytest.raises(TryAgainError, match="no answer from the Kafka brokers"):
            plan_kafka(kafka, spec, birth, {})
        broker.restart()
        drain(kill=False)
        assert rows == [str(number) for number in range(10)]
        assert not plan_kafka(kafka, spec, birth, BatchFiles(checkpoint, "s").read_position()).ranges
    finally:
        broker.stop()
