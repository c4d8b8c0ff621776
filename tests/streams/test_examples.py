"""The example pipelines with memory, run by run through tidegate, against what plain Python says of each delivery."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.examples import REPOSITORY, SILENT_TOPICS, TABLE_TYPES, copy_example, has_types
from tests.support.streaming import Streaming
from tidegate.examples import make_ad_clicks
from tidegate.examples.kafka import create_topic, send_records
from tidegate.examples.outcome import EPOCH, Outcome, Row, show_time
from tools.deliveries import COLUMNS, STATEFUL, TOPICS, list_rows, make_delivery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = itertools.count(1)


class Example:
    """One example pipeline in a project of its own, with all that its runs must have come to."""

    def __init__(self, root: Path, spark: SparkSession, name: str, bootstrap_servers: str) -> None:
        number = next(_NUMBERS)
        self.topics = {topic: f"{topic}-{number}" for topic in TOPICS.get(name, ())}
        self.bootstrap_servers = bootstrap_servers
        self.flow = Streaming(root, spark, name=name)
        self.flow.write(
            "tidegate.yaml",
            f'version: 1\nspark: {{master: "local[2]"}}\nkafka: {{bootstrap_servers: "{bootstrap_servers}"}}\n',
        )
        copy_example(root, name, self.topics)
        shutil.copy(REPOSITORY / "jobs/tidegate_job.py", root / "jobs")
        self.outcomes: list[Outcome] = []
        self.aside: Counter[tuple[str, str]] = Counter()

    def deliver(self, delivery: int, rows: int, faults: float) -> Outcome:
        """Delivery number ``delivery`` from the example's maker."""
        return make_delivery(
            self.flow.name, self.flow.root, self.bootstrap_servers, delivery, rows, faults, self.topics
        )

    def check_run(self, outcome: Outcome) -> dict[str, Any]:
        """A run must come to ``outcome``: table, quarantine and report; its report."""
        report = self.flow.run()
        self.outcomes.append(outcome)
        self.flow.expect(" ".join(COLUMNS[self.flow.name]), list_rows(self.flow.name, self.outcomes))

        for reason, texts in (("malformed", outcome.malformed), ("late", outcome.late)):
            self.aside.update((reason, _plain(text)) for text in texts)
        for rule, rejected in outcome.rejected.items():
            self.aside.update((rule, self._show(row)) for row in rejected)
        found = Counter((reason, _plain(text)) for reason, texts in self.flow.quarantined().items() for text in texts)
        assert found == self.aside

        counts = {
            "read": outcome.offered,
            "malformed": len(outcome.malformed),
            "entered": outcome.offered - len(outcome.malformed),
            "late": len(outcome.late),
            "transformed": len(outcome.transformed),
            "rejected": len(outcome.transformed) - len(outcome.rows),
            "staged": len(outcome.rows),
            "published": len(outcome.rows),
            "superseded": 0,
            "duplicates": 0,
        }
        assert report["rows"] == counts
        partly = sum(source.get("partly_late", 0) for source in report["sources"].values())
        assert (report["outcome"], report["quality"]["verdict"], partly) == (
            "published",
            "passed",
            len(outcome.partly_late),
        )
        return report

    def _show(self, row: Row) -> str:
        """A rejected row as quarantine has it: as the record it came from, or, where it came from many, as JSON."""
        if self.flow.name == "students":
            return ",".join(str(value) for value in row[:3])
        values = dict(zip(COLUMNS[self.flow.name], row, strict=True))
        return json.dumps({k: show_time(v) if isinstance(v, datetime) else v for k, v in values.items()})


def _plain(text: str | None) -> str:
    """A text of quarantine as the outcomes spell it: no record is empty, times go to the millisecond."""
    text = "" if text is None else text
    if not text.startswith('{"'):
        return text
    try:
        return json.dumps(json.loads(re.sub(r"(\.\d{3})000Z", r"\1Z", text)))
    except ValueError:
        return text


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Example]:
    def make(name: str) -> Example:
        needs_kafka = name in TOPICS
        servers = request.getfixturevalue("kafka_broker").bootstrap_servers if needs_kafka else "localhost:1"
        return Example(tmp_path, spark, name, servers)

    return make


SIZES = {"bitcoin_prices": 120, "word_count": 40, "students": 40, "ad_clicks": 120, "device_sessions": 80}
DELIVERIES = dict.fromkeys(STATEFUL, 3) | {"ad_clicks": 4}  # the stragglers begin with the third
FAULTS = dict.fromkeys(STATEFUL, 0.05) | {"students": 0.15}


@pytest.mark.parametrize("name", STATEFUL)
def test_run_by_run(start: Callable[[str], Example], name: str) -> None:
    example = start(name)
    for delivery in range(1, DELIVERIES[name] + 1):
        outcome = example.deliver(delivery, SIZES[name], FAULTS[name])
        report = example.check_run(outcome)
        if outcome.watermark is not None:
            assert report["watermark"] == show_time(outcome.watermark).replace("Z", "+00:00")
    outcomes = example.outcomes
    assert all(any(getattr(outcome, way) for outcome in outcomes) for way in ("rows", "rejected", "malformed"))
    assert any(outcome.late for outcome in outcomes) == (outcomes[0].watermark is not None)
    assert example.flow.run()["outcome"] == "nothing_new"
    assert has_types(example.flow.project.paths(name).table, TABLE_TYPES[name]), "README.md shows them"


def test_a_silent_topic_does_not_hold_the_watermark_back(start: Callable[[str], Example]) -> None:
    """Plain Spark's would be stuck: tests/spark/test_streaming_examples.py."""
    example = start("ad_clicks")
    for topic in example.topics.values():
        create_topic(example.bootstrap_servers, topic, 1)
    for delivery, outcome in zip(SILENT_TOPICS, make_ad_clicks.list_outcomes(SILENT_TOPICS), strict=True):
        for topic, records in zip(example.topics.values(), (delivery.impressions, delivery.clicks), strict=True):
            send_records(example.bootstrap_servers, topic, [(None, text) for text, _ in records], partitions=1)
        report = example.check_run(outcome)
        stands = None if outcome.watermark == EPOCH else show_time(outcome.watermark).replace("Z", "+00:00")
        assert report["watermark"] == stands
