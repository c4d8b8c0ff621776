"""A consumer by the example of the docs has exactly the table's rows, however these were replaced."""

from __future__ import annotations

import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kafka.topic_reader import Record, read_topic
from tests.model.conftest import folder, new_world
from tests.model.world import Make
from tests.support.mirrors import NAMES, feed, make_table_anew, read_table, replace_rows_in_every_way
from tests.support.page_code import SINKS, read_code
from tests.support.topics import Topics
from tidegate.sinks.kafka import KafkaFeeder
from tidegate.spec.models import KafkaSink, ProjectKafkaSpec

__all__ = ["folder", "new_world"]


def consume(records: list[Record]) -> Counter[tuple[Any, ...]]:
    """What the example makes of all records of a topic: (id, kind, day) of its rows."""
    made: dict[str, Any] = {}
    exec(read_code(SINKS, "def apply").replace("price REAL", "kind TEXT").replace('"price"', '"kind"'), made)
    database = sqlite3.connect(":memory:")
    for one in records:
        message = SimpleNamespace(
            headers=lambda one=one: one.headers, value=lambda one=one: one.value, key=lambda one=one: one.key
        )
        made["apply"](database, message)
    return Counter(database.execute(f"SELECT {NAMES} FROM prices").fetchall())


@pytest.mark.parametrize("scene", [replace_rows_in_every_way, make_table_anew])
def test_a_consumer_in_any_order_of_partitions(
    new_world: Make, topics: Topics, kafka: ProjectKafkaSpec, tmp_path: Path, scene: Any
) -> None:
    world = new_world("files")
    sink = KafkaSink(type="kafka", topic=topics.create(partitions=2), key="id")
    make = partial(KafkaFeeder, sink, world.paths)
    numbers: list[int] = []

    def check(what: str) -> None:
        feed(world, sink, lambda schema: make(schema, kafka))
        records = read_topic(topics, str(sink.topic))
        for found in (records, sorted(records, key=lambda one: -one.partition)):
            assert consume(found) == read_table(world), f"after {what}"
        numbers.append(
            max(int(value or 0) for one in records for name, value in one.headers if name == "table_version")
        )
        assert numbers == sorted(numbers), f"after {what}"
        assert all(
            one.value is not None or dict(one.headers).keys() == {"run_id", "table_version", "replaces"}
            for one in records
        )

    feed(world, sink, lambda schema: make(schema, kafka))  # as the first run does
    scene(world, check)
