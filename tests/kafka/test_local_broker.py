"""The local broker itself: what the other tests of Kafka stand on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.broker import Broker, find_broker, start_broker
from tools.console import ToolError
from tools.processes import wait_until


def test_a_killed_broker_comes_back_with_its_records_on_its_port(tmp_path: Path) -> None:
    broker = start_broker(tmp_path)
    try:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result()
        producer = Producer({"bootstrap.servers": servers})
        for number in range(3):
            producer.produce("kept", str(number))
        assert producer.flush(20) == 0
        found = find_broker(tmp_path)
        assert found is not None and found.pid == broker.pid
        with pytest.raises(ToolError, match=r"running in .* already"):
            start_broker(tmp_path)
        broker.kill()
        assert find_broker(tmp_path) is None
        broker.restart()
        assert broker.bootstrap_servers == servers
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "x"})
        assert consumer.get_watermark_offsets(TopicPartition("kept", 0), timeout=20) == (0, 3)
        consumer.close()
    finally:
        broker.stop()
    assert not broker.is_running()


def test_retention_takes_records_within_seconds(kafka_broker: Broker) -> None:
    servers = kafka_broker.bootstrap_servers
    topic = NewTopic("short_lived", 1, 1, config={"retention.ms": "500", "segment.ms": "200"})
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([topic])["short_lived"].result()
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("short_lived", "gone soon")
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "x"})
    place = TopicPartition("short_lived", 0)
    assert wait_until(lambda: consumer.get_watermark_offsets(place, timeout=20) == (1, 1), 20)
    consumer.close()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ToolError, match=f"port {port}, which the Kafka broker needs, is in use"):
            start_broker(tmp_path, port)


def test_a_setting_that_is_wrong_is_shown_from_the_log(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"(?s)log\.retention\.ms"):
        start_broker(tmp_path, overrides={"log.retention.ms": "soon"})
    assert find_broker(tmp_path) is None
