"""Many sources of one real broker, asked together: each gets what it would have been told alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.core.errors import SourceLostError, TryAgainError
from tidegate.sources.kafka import brokers as kafka_broker
from tidegate.sources.kafka.brokers import Brokers, survey_brokers
from tidegate.sources.kafka.offsets import plan_kafka, resolve_birth
from tidegate.spec.models import KafkaSource, PipelineSpec, ProjectKafkaSpec

if TYPE_CHECKING:
    from tests.support.topics import Topics


def source(**keys: Any) -> KafkaSource:
    return KafkaSource(type="kafka", **{"format": "text", **keys})


def reading(*sources: KafkaSource) -> PipelineSpec:
    return PipelineSpec.construct(sources={f"s{i}": one for i, one in enumerate(sources)})


def count_clients(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    make = Brokers.__init__

    def note_made(self: Brokers, settings: Any) -> None:
        made.append(settings.address)
        make(self, settings)

    monkeypatch.setattr(Brokers, "__init__", note_made)
    return made


def test_each_source_is_told_what_it_would_be_told_alone(
    topics: Topics, kafka: ProjectKafkaSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = topics.name("survey")
    names = [topics.create(f"{word}-{number}", partitions=2) for number in range(5)]
    for number, name in enumerate(names):
        topics.send(name, ["x"] * (number + 1), partition=1)
    topics.cut(names[4], 1, 2)
    sources = [
        *(source(topics=[name]) for name in names),
        source(topic_pattern=f"{word}-[01]"),
        source(assign={names[3]: [1]}),
        source(topics=[names[0]], starting_offsets="latest"),
        source(topics=[names[1]], starting_offsets="2020-01-01T00:00:00Z"),
    ]
    births = [resolve_birth(kafka, one) for one in sources]
    alone = [plan_kafka(kafka, one, birth, {}) for one, birth in zip(sources, births, strict=True)]

    made = count_clients(monkeypatch)
    brokers = survey_brokers(kafka, [(reading(*sources), {f"s{i}": birth.to_dict() for i, birth in enumerate(births)})])
    together = [plan_kafka(kafka, one, birth, {}, brokers) for one, birth in zip(sources, births, strict=True)]
    assert together == alone
    assert [plan.pending_offsets for plan in together] == [1, 2, 3, 4, 3, 3, 4, 0, 2]
    assert [resolve_birth(kafka, one, brokers) for one in sources] == births
    assert made == [kafka.bootstrap_servers]
    assert {birth.cluster_id for birth in births} == {topics.admin.describe_cluster().result().cluster_id}


def test_a_topic_that_is_gone_is_missed_by_its_own_source_alone(topics: Topics, kafka: ProjectKafkaSpec) -> None:
    here = topics.create()
    gone = source(topics=[topics.name("gone")])
    brokers = survey_brokers(kafka, [(reading(source(topics=[here]), gone, source(topic_pattern="[")), {})])
    assert resolve_birth(kafka, source(topics=[here]), brokers).offsets == {(here, 0): 0}
    with pytest.raises(SourceLostError, match=r"does not exist"):
        resolve_birth(kafka, gone, brokers)


def test_brokers_that_are_away_cost_one_timeout_in_all(
    topics: Topics, kafka: ProjectKafkaSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other settings are another client; all are asked at once, and the one that is there is not held up."""
    monkeypatch.setattr(kafka_broker, "_PATIENCE_SECONDS", 2.0)
    made = count_clients(monkeypatch)
    away = ProjectKafkaSpec(bootstrap_servers="127.0.0.1:9")
    sources = [source(topics=[f"t{number}"], options={"kafka.client.id": f"c{number // 2}"}) for number in range(8)]
    began = time.monotonic()
    brokers = survey_brokers(away, [(reading(*sources), {})])
    for number, one in enumerate(sources):
        with pytest.raises(TryAgainError, match=f"no answer from the Kafka brokers.* describe topic t{number}: "):
            resolve_birth(away, one, brokers)
    assert time.monotonic() - began < 2 * 2.0 + 1.0
    assert len(made) == 4
    pattern = source(topic_pattern="u.*")
    brokers = survey_brokers(away, [(reading(source(topics=["t0", "t1"])), {}), (reading(pattern), {})])
    with pytest.raises(TryAgainError, match="trying to list the topics: "):
        resolve_birth(away, pattern, brokers)
    with pytest.raises(TryAgainError, match="trying to describe topics t0, t1: "):
        resolve_birth(away, source(topics=["t0", "t1"]), brokers)
