"""Records of a real topic since a position, as a source of files asks for event notifications."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tidegate.core.errors import SourceLostError, TryAgainError
from tidegate.sources.kafka import records
from tidegate.sources.kafka.brokers import survey_brokers
from tidegate.sources.kafka.records import read_messages
from tidegate.sources.port import Messages
from tidegate.spec.models import FilesSource, PipelineSpec, ProjectKafkaSpec

if TYPE_CHECKING:
    from tests.support.topics import Topics


def read_since(kafka: ProjectKafkaSpec, topic: str, before: Messages) -> tuple[Messages, list[bytes]]:
    """What has come since ``before``, whose position has been in a file."""
    found = read_messages(kafka, topic, json.loads(json.dumps(before.position)))
    return found, sorted(body for _, body in found.bodies)


def test_each_committed_record_comes_once(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    topic = topics.create(partitions=2)
    topics.send(topic, ["old"])
    first = read_messages(kafka, topic, None)
    assert (list(first.bodies), first.missed) == ([], "")
    topics.send(topic, ["a", None], partition=1)
    topics.send_in_transaction(topic, ["aborted"], commit=False)
    topics.send_in_transaction(topic, ["b"], commit=True)
    second, found = read_since(kafka, topic, first)
    assert found == [b"a", b"b"]
    again, found = read_since(kafka, topic, second)
    assert (again.position, found) == (second.position, [])
    topics.grow(topic, 3)
    topics.send(topic, ["c"], partition=2)
    assert read_since(kafka, topic, second)[1] == [b"c"]
    assert [place for place, _ in read_messages(kafka, topic, second.position).bodies] == ["partition 2 offset 0"]


def test_what_is_missing_is_said(topics: Topics, kafka: ProjectKafkaSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topics.create()
    first = read_messages(kafka, topic, None)
    topics.send(topic, ["a", "b", "c"])
    with monkeypatch.context() as patch:
        patch.setattr(records, "_MESSAGES_AT_MOST", 2)
        found = read_messages(kafka, topic, first.position)
        assert found.missed == f"topic {topic} has more than 2 records since the last run"
    topics.cut(topic, 0, 1)
    lost = read_messages(kafka, topic, first.position)
    assert lost.missed == f"topic {topic} no longer has all records since the last run"
    topics.send(topic, ["d"])
    assert read_since(kafka, topic, lost)[1] == [b"d"]
    topics.delete(topic)
    with pytest.raises(SourceLostError) as caught:
        read_messages(kafka, topic, lost.position)
    assert caught.value.code == "TOPIC_MISSING"
    topics.create(topic)
    topics.send(topic, ["e"] * 9)
    assert read_messages(kafka, topic, lost.position).missed == f"topic {topic} was created again"


def test_brokers_that_are_away(kafka: ProjectKafkaSpec) -> None:
    with pytest.raises(TryAgainError) as caught:
        read_messages(ProjectKafkaSpec(bootstrap_servers="127.0.0.1:1"), "events", None)
    assert caught.value.code == "BROKER_AWAY"


def test_a_survey_asks_for_them_too(topics: Topics, kafka: ProjectKafkaSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topics.create()
    keys = {"type": "files", "path": "s3://bucket/in", "format": "json", "schema": "id BIGINT"}
    source = FilesSource.read({**keys, "list_all_every": "1 day", "notifications": {"topic": topic}})
    brokers = survey_brokers(kafka, [(PipelineSpec.construct(sources={"files": source}), {})])
    alone = read_messages(kafka, topic, None)
    monkeypatch.setattr("tidegate.sources.kafka.brokers.Brokers._gather", None)  # no further request is made
    assert read_messages(kafka, topic, None, brokers).position == alone.position
