"""A Kafka broker and a Spark driver in a few lines, for runs of Kafka pipelines without either.

The driver does with checkpoint and manifests what Spark and the ingest driver do: it plans a batch, or takes up the one
in flight, stages it, commits it. Its records are the offsets it took, so that a test can count them.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tidegate.core.paths import PipelinePaths
from tidegate.sources.kafka.brokers import TopicState
from tidegate.spark.driver.order import read_order, write_result
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.models import KafkaSource
from tidegate.spec.project import Project, load_project
from tidegate.state.batch_files import BatchFiles, Given, read_given
from tidegate.state.birth import KeptState, read_birth, replace_birth
from tidegate.state.checkpoint import read_checkpoint
from tidegate.state.manifest import BatchManifest, SourceRange, write_manifest
from tidegate.state.topics import Offsets, TopicPartition

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

    def add(self, source: KafkaSource, known_topics: Iterable[str]) -> None:
        """As of a survey, which this one needs no requests for."""

    def ask(self) -> None: ...

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
        birth = read_birth(paths)
        if birth is not None and birth.state is None:
            kept: list[KeptState] = [{"operator": "Aggregate", "keys": [], "values": []}] if self.keeps_state else []
            replace_birth(paths, replace(birth, state=kept))
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
        files = BatchFiles(paths.checkpoint, self.source)
        batch = checkpoint.in_flight
        if batch is None:
            batch = 0 if checkpoint.last_offset is None else checkpoint.last_offset + 1
            for name in ("f", self.source):
                if new := new_files(paths.checkpoint, name, files.folder.with_name(name))[:1]:
                    write_list(paths.checkpoint, name, new)
            if not write_offsets(paths.checkpoint, batch):
                return False
        if self.stops == "planned":
            return False
        planned = files.describe_batch(batch)
        ranges = {} if planned is None else planned.ranges
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
            from tidegate.state.open_state import note_batch

            note_batch(paths, value, open_until_ms=None, windows=[], now_ms=0)
        if write_manifest(paths.manifest(query, batch), value):
            self.staged.update((t, n, at) for (t, n), one in ranges.items() for at in range(one.begin, one.end))
        if self.stops == "staged":
            return False
        commit(paths.checkpoint, batch)
        return True


def write_list(checkpoint: Path, source: str, files: Iterable[Path]) -> None:
    """The next list of files of a source, as Spark's file source keeps it."""
    folder = checkpoint / "sources" / source
    folder.mkdir(parents=True, exist_ok=True)
    number = newest_list(folder) + 1
    entries = [{"path": f"file://{path}", "timestamp": 1, "batchId": number} for path in files]
    (folder / str(number)).write_text("\n".join(["v1", *map(json.dumps, entries)]))


def newest_list(folder: Path) -> int:
    """The number of the newest list of a source; -1 for none."""
    return max((int(log.name) for log in folder.glob("[0-9]*")), default=-1)


def new_files(checkpoint: Path, source: str, folder: Path) -> list[Path]:
    """What Spark finds in a folder and has not seen before."""
    logs = (checkpoint / "sources" / source).glob("[0-9]*")
    seen = {json.loads(line)["path"] for log in logs for line in log.read_text().splitlines()[1:]}
    there = (path for path in sorted(folder.glob("*")) if not path.name.startswith("."))
    return [path for path in there if f"file://{path}" not in seen]


def write_offsets(checkpoint: Path, batch: int) -> bool:
    """Plan a batch as Spark does, of each source up to its newest list; whether one of them has anything new."""
    logs = {folder.name: newest_list(folder) for folder in sorted(checkpoint.glob("sources/*"))}
    lines = [f'{name}:{{"logOffset":{number}}}' for name, number in logs.items()]
    before = checkpoint / "offsets" / str(batch - 1)
    if not lines or (before.exists() and before.read_text().splitlines()[2:] == lines):
        return False
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v2", _CONF, *lines]))
    return True


def commit(checkpoint: Path, batch: int) -> None:
    """Commit a batch as Spark does."""
    (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def make_project(root: Path, more: str = "") -> Project:
    """A project with a Kafka pipeline on topic ``t``."""
    (root / "jobs" / NAME).mkdir(parents=True)
    (root / "tidegate.yaml").write_text("version: 1\n")
    (root / "jobs" / "tidegate_job.py").touch()
    (root / "jobs" / NAME / "pipeline.yaml").write_text(
        f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
        f"  s: {{type: kafka, topics: [t], format: text, starting_offsets: earliest}}\n{more}"
    )
    return load_project(root)
