"""``tidegate new NAME --from kafka:TOPIC`` against a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.cli.scaffold.write import new_topic_pipeline
from tidegate.core.errors import SourceLostError, TryAgainError, UsageError
from tidegate.spec.models import KafkaSource
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.views.validate import validate_pipelines

if TYPE_CHECKING:
    from tests.support.topics import Topics


@pytest.fixture
def project(topics: Topics, tmp_path: Path) -> Project:
    return _project(tmp_path, topics.address)


def _project(root: Path, address: str) -> Project:
    (root / "tidegate.yaml").write_text(json.dumps({"version": 1, "kafka": {"bootstrap_servers": address}}))
    return load_project(root, {})


def test_the_columns_of_the_newest_records(topics: Topics, project: Project) -> None:
    topic = topics.create(partitions=3)
    old = json.dumps({"id": "too old to be seen"})
    topics.send(topic, [old, *(json.dumps({"id": n}) for n in range(400))])
    topics.send(topic, ['{"id": 1,\n "at": "2026-03-09T18:00:00Z", "lines": [{"n": 1.5}]}', None, "torn"], partition=1)
    topics.send_in_transaction(topic, ['{"id": 2, "kept": true}'], commit=True, partition=2)
    topics.send_in_transaction(topic, ['{"id": 2, "aborted": true}'], commit=False, partition=2)
    written = new_topic_pipeline(project, "mine", topic)
    source = load_pipeline(project, "mine").sources["mine"]
    assert isinstance(source, KafkaSource)
    assert (source.topics, source.format) == ([topic], "json")
    assert source.schema == "id BIGINT, at TIMESTAMP, lines ARRAY<STRUCT<n: DOUBLE>>, kept BOOLEAN"
    assert written.columns == source.schema
    assert written.inferred_from == "the newest 335 records; 1 others are not JSON objects"
    assert validate_pipelines(project, ["mine"], with_spark=False) == []
    assert sorted(written.files) == ["dags/mine.py", "jobs/mine/pipeline.yaml"]


def test_a_topic_that_tells_nothing_writes_nothing(topics: Topics, project: Project) -> None:
    with pytest.raises(SourceLostError, match="does not exist"):
        new_topic_pipeline(project, "mine", "nosuch")
    topic = topics.create()
    with pytest.raises(UsageError, match="none of 0 records is a JSON object"):
        new_topic_pipeline(project, "mine", topic)
    topics.send(topic, ["17", "text"])
    with pytest.raises(UsageError, match="none of 2 records"):
        new_topic_pipeline(project, "mine", topic)
    assert list_pipelines(project) == []


def test_without_a_broker(tmp_path: Path) -> None:
    with pytest.raises(TryAgainError) as caught:
        new_topic_pipeline(_project(tmp_path, "127.0.0.1:9"), "mine", "orders")
    assert caught.value.code == "BROKER_AWAY"


def test_a_topic_whose_records_do_not_come(topics: Topics, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.sources.kafka.records._SAMPLE_SECONDS", 0.0)
    topic = topics.create()
    topics.send(topic, ["{}"])
    with pytest.raises(TryAgainError, match=f"BROKER_AWAY: the records of topic {topic} cannot be read: nothing came"):
        new_topic_pipeline(project, "mine", topic)
