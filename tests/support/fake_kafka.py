"""A Kafka broker and a Spark driver in a few lines, for runs of Kafka pipelines without either.

The driver does with checkpoint and manifests what Spark and the ingest driver do: it plans a batch, or takes up the one
in flight, stages it, commits it. Its records are the offsets it took, so that a test can count them.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tidegate.driver.order import read_order, write_result
from tidegate.driver.submit import SubmitPlan
from tidegate.paths import PipelinePaths
from tidegate.project import Project, load_project
from tidegate.sources.kafka.brokers import TopicState
from tidegate.staging.birth import read_birth
from tidegate.staging.checkpoint import Given, read_checkpoint, read_given, read_offsets, read_start, topic_offsets
from tidegate.staging.manifest import BatchManifest, SourceRange, write_manifest
from tidegate.staging.topics import OffsetRange, Offsets, TopicPartition, offsets_from_json, offsets_to_json

NAME = "clicks"
SCHEMA = '{"type":"struct","fields":[{"name":"value","type":"string","nullable":true,"metadata":{}}]}'
_CONF = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"4"},"sourceMetadataInfo":{}}'
)


@dataclass
class FakeBroker:
    """What a broker retains: ``begin`` and ``end`` by topic and partition, ids of its topics."""

    begin: dict[str, dict[int, int]]
    end: dict[str, dict[int, int]]
    ids: dict[str, str] = field(default_factory=dict)
    cluster: str | None = "cluster-1"

    def __call__(self, settings: Any) -> FakeBroker:
        return self

    def list_names(self) -> list[str]:
        return sorted(self.end)

    def describe(self, topics: Iterable[str]) -> dict[str, TopicState]:
        there = [topic for topic in topics if topic in self.end]
        return {topic: TopicState(self.ids.get(topic, "id-" + topic), tuple(self.end[topic]), False) for topic in there}

    def begin_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {one: self.begin[one.topic][one.partition] for one in partitions}

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {one: self.end[one.topic][one.partition] for one in partitions}

    def offsets_at(self, partitions: Collection[TopicPartition], at: datetime) -> Offsets:
        raise AssertionError("its records have no time stamps: a test that starts at a time needs a real broker")

    def cluster_id(self) -> str | None:
        return self.cluster


@dataclass
class FakeSpark:
    """The driver. ``stops`` names where it is killed: "planned" (before the manifest), "staged" (before the commit)."""

    broker: FakeBroker
    stops: str = ""
    starts: int = 0
    staged: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    """Every record that a batch staged: (topic, partition, offset)."""
    keeps_state: bool = False
    source: str = "s"
    """The name of the Kafka source."""
    before_read: Callable[[], None] = lambda: None

    def __call__(self, plan: SubmitPlan) -> int:
        self.starts += 1
        order = read_order(Path(plan.application_args[-1]))
        paths = load_project(Path(order.project_root)).paths(order.pipeline)
        self.before_read()
        while self.run_batch(paths, order.run_id, order.links.get("f", {})):
            pass
        if not self.stops:
            write_result(paths.ingest_result(order.run_id), None, batches=1)
        return 1 if self.stops else 0

    def run_batch(self, paths: PipelinePaths, run_id: str, links_owed: Mapping[str, dict[str, Any]]) -> bool:
        """One batch, to where it ``stops``; False when there is none, or it stopped."""
        checkpoint = read_checkpoint(paths.checkpoint)
        if not checkpoint.exists:
            paths.checkpoint.mkdir(parents=True)
            (paths.checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
            for name in ("offsets", "commits"):
                (paths.checkpoint / name).mkdir()
            checkpoint = read_checkpoint(paths.checkpoint)
        has_files = paths.intake("f").is_dir()
        batch = checkpoint.in_flight
        if batch is None:
            batch = 0 if checkpoint.last_offset is None else checkpoint.last_offset + 1
            start = self._start(paths, batch)
            ends = {TopicPartition(t, n): end for t, numbers in self.broker.end.items() for n, end in numbers.items()}
            idle = all(start.get(partition, 0) >= end for partition, end in ends.items())
            if idle and not (has_files and self._new_links(paths)):
                return False
            if has_files and (links := self._new_links(paths)):
                write_files(paths.checkpoint, batch, links, paths.intake("f"))
            write_offsets(paths.checkpoint, batch, ends, self.source)
        if self.stops == "planned":
            return False
        start, ends = self._start(paths, batch), topic_offsets(read_offsets(paths.checkpoint, batch)[self.source])
        ranges = {partition: OffsetRange(start.get(partition, 0), end) for partition, end in ends.items()}
        for (topic, number), one in ranges.items():
            first, last = self.broker.begin[topic][number], self.broker.end[topic][number]
            assert one.count == 0 or first <= one.begin <= one.end <= last
        count = sum(one.count for one in ranges.values())
        query = str(checkpoint.query_id)
        sources = {self.source: SourceRange(count, 0, offsets=ranges)}
        if has_files:
            links = read_given(paths.checkpoint, batch).get("f", Given()).links
            foreign = [link for link in links if link not in links_owed]
            assert not foreign, f"Spark would read {foreign} again"
            sources["f"] = SourceRange(len(links), 0, files=[{**links_owed[link], "link": link} for link in links])
        value = BatchManifest(NAME, run_id, query, batch, "a", sources, 0, 0, 0, [], [], 0, SCHEMA)
        if self.keeps_state:
            from tidegate.staging.open_state import note_batch

            note_batch(paths, value, open_until_ms=None, windows=[], now_ms=0)
        if write_manifest(paths.manifest(query, batch), value):
            self.staged.update((t, n, at) for (t, n), one in ranges.items() for at in range(one.begin, one.end))
        if self.stops == "staged":
            return False
        commit(paths.checkpoint, batch)
        return True

    def _new_links(self, paths: PipelinePaths) -> list[str]:
        """What Spark finds in the intake and has not seen before."""
        logs = paths.checkpoint.glob("sources/f/[0-9]*")
        seen = {json.loads(line)["path"] for log in logs for line in log.read_text().splitlines()[1:]}
        return [link.name for link in sorted(paths.intake("f").iterdir()) if f"file://{link}" not in seen]

    def _start(self, paths: PipelinePaths, batch: int) -> Offsets:
        birth = read_birth(paths)
        assert birth is not None
        start = read_start(paths.checkpoint, batch, self.source)
        return offsets_from_json(birth.sources[self.source]["offsets"]) if start is None else topic_offsets(start)


def write_files(checkpoint: Path, batch: int, links: Iterable[str], intake: Path) -> None:
    """The list of files of a batch, as Spark's file source keeps it."""
    log = checkpoint / "sources" / "f" / str(batch)
    log.parent.mkdir(parents=True, exist_ok=True)
    entries = [{"path": f"file://{intake / link}", "timestamp": 1, "batchId": batch} for link in links]
    log.write_text("\n".join(["v1", *map(json.dumps, entries)]))


def write_offsets(checkpoint: Path, batch: int, ends: Offsets, source: str = "s") -> None:
    """Plan a batch as Spark does, for the Kafka source and the file source ``f``, where that has had files."""
    entries = [int(log.name) for log in checkpoint.glob("sources/f/[0-9]*")]
    text = f"v2\n{_CONF}\n" + (f'f:{{"logOffset":{max(entries)}}}\n' if entries else "")
    text += f"{source}:{json.dumps(offsets_to_json(ends), separators=(',', ':'))}"
    (checkpoint / "offsets" / str(batch)).write_text(text)


def commit(checkpoint: Path, batch: int) -> None:
    """Commit a batch as Spark does."""
    (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def make_project(root: Path, more: str = "") -> Project:
    """A project with a Kafka pipeline on topic ``t``."""
    (root / "jobs" / NAME).mkdir(parents=True)
    (root / "tidegate.yaml").write_text("version: 1\n")
    (root / "jobs" / "tidegate_job.py").touch()
    (root / ".tools" / "jars").mkdir(parents=True)
    (root / ".tools" / "jars" / "spark-sql-kafka.jar").touch()
    (root / "jobs" / NAME / "pipeline.yaml").write_text(
        f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
        f"  s: {{type: kafka, topics: [t], format: text, starting_offsets: earliest}}\n{more}"
    )
    return load_project(root)
