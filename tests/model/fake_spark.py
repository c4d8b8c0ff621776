"""Spark's part of a run, in plain Python and in Spark's own order: plan a batch in the checkpoint, compute it, hand it
to ``foreachBatch``, commit it. The function that ``foreachBatch`` calls is the real one (:class:`BatchStager`), over
a frame, a query and executors that are not Spark's.

As Spark does, nothing of this is synced to disk, and every file of the checkpoint is written beside its place and
renamed into it. Every rename is a point at which the process can be stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.model.fake_kafka import FakeKafka, Row, SparkError
from tests.support.staged import make_schema
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.unreadable import has_stand_in, quarantine_whole
from tidegate.sources.kafka.offsets import watch_topics
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.sources.registry import open_sources
from tidegate.spark.driver.failures import explain
from tidegate.spark.driver.order import IngestOrder, read_order, write_result
from tidegate.spark.ingest.pace import Amount, ReadingProgress
from tidegate.spark.ingest.progress_log import ProgressLog
from tidegate.spark.ingest.stage import BatchStager
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN, as_texts
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import KeptState, keep_state
from tidegate.state.lease import check_token
from tidegate.state.topics import FilePart

SCHEMA_JSON = make_schema(id="string", kind="string", day="date")
STATE: list[KeptState] = []
"""The operators of the transform that keep state; a test may say that there are some."""
_ARROW = pa.schema([("id", pa.string()), ("kind", pa.string())])


def day_of(row: Row) -> str:
    """The partition of a row: its id tells."""
    return f"2026-01-0{1 + int(row['id'][-1]) % 2}"


@dataclass
class FakeQuery:
    """What the stager asks of the running query; ``metrics`` stands for what was observed in the batch."""

    id: str
    runId: str = field(default_factory=lambda: str(uuid.uuid4()))
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class FakeExecutors:
    """Local executors, which always see the storage."""

    unseen: None = None

    def check_storage(self, *, again: bool = False) -> None: ...

    def check_computed_once(self, run_id: str) -> None: ...


@dataclass
class FakeFrame:
    """The rows of a batch as a DataFrame that can only be written. They are read when they are written."""

    compute: Callable[[], list[Row]]
    schema: tuple[()] = ()
    """No text of a partition's column needs a mark, so nobody has to know any."""

    @property
    def write(self) -> FakeFrame:
        return self

    def mode(self, mode: str) -> FakeFrame:
        return self

    def partitionBy(self, *columns: str) -> FakeFrame:
        return self

    def parquet(self, folder: str) -> None:
        rows = self.compute()
        target = Path(folder)
        target.mkdir(parents=True)
        for day in sorted({day_of(row) for row in rows}):
            folder = target / f"day={day}"
            folder.mkdir()
            mine = [row for row in rows if day_of(row) == day]
            for part, some in enumerate([mine[::2], mine[1::2]]):
                if some:
                    pq.write_table(pa.Table.from_pylist(some, _ARROW), folder / f"part-{part:05d}-c000.snappy.parquet")


@dataclass
class Driver:
    """The spark-submit application of one pipeline. ``on_read(rows)`` is told of what was read from the sources."""

    project: Project
    spec: PipelineSpec
    kafka: FakeKafka
    on_read: Callable[[list[Row]], None] = lambda rows: None
    cannot_read: Callable[[str], bool] = lambda text: False
    """Whether a file with this content goes to quarantine whole."""
    parse: Callable[[Row], Row] = lambda row: row
    """A record as the schema and the transform of now make a row of it."""
    read_text: Callable[[str], Row] = lambda text: {"id": text, "kind": "malformed"}
    """The record that a text in quarantine, or what a person has made of it, is."""

    def submit(self, plan: Any) -> int:
        """Carry out the order in ``plan``; the exit code."""
        order = read_order(Path(plan.application_args[0]))
        paths = self.project.paths(order.pipeline)
        paths = replace(paths, generation=order.generation)
        if order.beside:
            paths = paths.beside(order.beside)
        try:
            check_token(paths, order.token)
            spec = as_texts(self.spec) if order.of_texts else self.spec
            keep_state(paths, spec, list(STATE), "4.2.0")
            figures = _Query(self, paths, order, spec).drain()
        except Exception as error:
            known = explain(error, order.pipeline, paths.job, paths.state)
            write_result(paths.ingest_result(order.run_id), known)
            if not isinstance(error, TidegateError) and known.exit_code == 70:
                raise
            return known.exit_code
        write_result(paths.ingest_result(order.run_id), None, **figures)
        return 0


@dataclass
class _Query:
    driver: Driver
    paths: PipelinePaths
    order: IngestOrder
    spec: PipelineSpec

    def __post_init__(self) -> None:
        self.checkpoint = self.paths.checkpoint
        metadata = self.checkpoint / "metadata"
        if not metadata.exists():
            self._write(metadata, json.dumps({"id": str(uuid.uuid4())}))
        self.query = FakeQuery(json.loads(metadata.read_text())["id"])
        spark: Any = SimpleNamespace(streams=SimpleNamespace(active=[self.query]))
        untouched: Any = None  # for second looks, which no batch here needs
        executors: Any = FakeExecutors()
        self.stager = BatchStager(
            spark=spark,
            spec=self.spec,
            paths=self.paths,
            order=self.order,
            executors=executors,
            rules=[],
            schema_json=SCHEMA_JSON,
            look=untouched,
            progress=ProgressLog(self.paths.progress(self.order.run_id)),
            reading=ReadingProgress(Amount(0, 0), None, ()),
            keeps_state=False,
            topics=watch_topics(self.driver.project, self.paths, self.spec),
            sources=open_sources(self.driver.project, self.paths, self.spec),
            partitioned={"rule": f"{day_of.__qualname__} {id(day_of)}"},
        )

    def drain(self) -> dict[str, Any]:
        """All batches that are owed, up to what is there now (AvailableNow)."""
        self._quarantine_whole_files()
        self.stager.note_inputs()
        offsets, commits = self._numbers("offsets"), self._numbers("commits")
        if offsets and (not commits or offsets[-1] > commits[-1]):
            self._run(offsets[-1])
        number = (self._numbers("offsets") or [-1])[-1] + 1
        while (ends := self._plan(number)) is not None:
            metadata = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
            lines = [f"{name}:{json.dumps(end, separators=(',', ':'))}" for name, end in sorted(ends.items())]
            self._write(self.checkpoint / "offsets" / str(number), "\n".join(["v2", metadata, *lines]))
            self._run(number)
            number += 1
        return self._figures()

    def _figures(self) -> dict[str, Any]:
        self.stager.sync_checkpoint()
        return {"batches": self.stager.batches, "rows": self.stager.rows_so_far}

    def _stays(self, name: str, row: Row, position: str) -> bool:
        """Of a job beside the runs: whether the record is to stay in quarantine."""
        bounds = self.order.bounds
        if bounds is None:
            return False
        if position.startswith("{"):
            key = (json.dumps(json.loads(position), separators=(",", ":")), "")
        else:
            key = (position.rpartition("/")[2], hashlib.sha256(row["id"].encode()).hexdigest())
        listed = pq.read_table(self.paths.state / bounds.left_out).to_pylist() if bounds.left_out else []
        return (name, *key) in {(one["source"], one["position"], one["digest"]) for one in listed}

    def _quarantine_whole_files(self) -> None:
        for name, source in self.spec.streams.items():
            owed, intake, folder = self.order.links.get(name, {}), self.paths.intake(name), self.paths.unreadable
            if isinstance(source, FilesSource):
                whole = [link for link in owed if not has_stand_in(folder, intake, link)]
                found = {link: "broken" for link in whole if self.driver.cannot_read((intake / link).read_text())}
                quarantine_whole(folder, intake, found, source, owed, self.stager.check_lease)

    def _run(self, number: int) -> None:
        starts, ends = self._starts(number), self._ends(number)
        frame: Any = FakeFrame(lambda: self._compute(starts, ends))
        self.stager(frame, number)
        self._write(self.checkpoint / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')

    def _compute(self, starts: dict[str, Any], ends: dict[str, Any]) -> list[Row]:
        good: list[Row] = []
        transformed = 0
        for name, source in self.spec.streams.items():
            is_kafka = isinstance(source, KafkaSource)
            found = self._read_kafka(name, starts, ends) if is_kafka else self._read_files(name, starts, ends)
            read = [(self.driver.parse(row), position) for row, position in found]
            told = [(*one, self._stays(name, *one)) for one in read]
            read = [(row, position) for row, position, stays in told if not stays]
            self.query.metrics[f"left_out:{name}"] = {"left_out": sum(stays for *_, stays in told)}
            self.driver.on_read([row for row, _ in read])
            bad = [(row, position) for row, position in read if row["kind"] == "malformed"]
            captured = [
                {
                    "source": name,
                    "position": position,
                    "raw": row.get("raw", row["id"]),
                    "reason": "malformed",
                    "detail": "malformed",
                }
                for row, position in bad
            ]
            good += [row for row, _ in read if row["kind"] != "malformed"]
            self.query.metrics[f"source:{name}"] = {
                "read": len(read),
                "malformed": len(bad),
                "captured": captured,
            }
            if self.order.days and not is_kafka:
                links = Counter(
                    ("bad:" if row["kind"] == "malformed" else "good:") + position.rpartition("/")[2]
                    for row, position in read
                )
                by_file = [{"item": link, "count": count} for link, count in links.items()]
                self.query.metrics[f"source:{name}"]["by_file"] = by_file
            self.query.metrics[f"entered:{name}"] = {"entered": len(read) - len(bad)}
        transformed = len(good)
        self.query.metrics["rules"] = {"transformed": transformed, "rejected": 0, "captured": []}
        return good

    # -- Kafka --

    def _read_kafka(self, name: str, starts: dict[str, Any], ends: dict[str, Any]) -> list[tuple[Row, str]]:
        found = []
        for path in self._listed(name, starts, ends):
            for line in path.read_text().splitlines()[1:]:
                part = json.loads(line)
                rows = self.driver.kafka.read(part["partition"], part["begin"], part["end"], part["topic_id"])
                for offset, row in enumerate(rows, part["begin"]):
                    position = {"topic": part["topic"], "partition": part["partition"], "offset": offset}
                    found.append((row, json.dumps(position)))
        return found

    # -- files --

    def _read_files(self, name: str, starts: dict[str, Any], ends: dict[str, Any]) -> list[tuple[Row, str]]:
        found = []
        for path in self._listed(name, starts, ends):
            for line in path.read_text().splitlines()[1:]:
                found += self._read_part(self.paths.intake(name), FilePart(**json.loads(line)))
        return found

    def _read_part(self, intake: Path, part: FilePart) -> list[tuple[Row, str]]:
        """The whole file: none here is large."""
        path = intake / part.link
        assert (part.begin, part.end) == (0, None)
        if self.order.of_texts:
            texts = pq.read_table(path, partitioning=None).to_pylist()
            return [(self.driver.read_text(one[TEXT_COLUMN]), one[PLACE_COLUMN]) for one in texts]
        try:
            text = path.read_text()
        except FileNotFoundError as error:
            fault = PartUnreadable(str(path), error.strerror, error.errno)
            raised = f"{PartUnreadable.__module__}.PartUnreadable: {fault}"
            raise RuntimeError(f"a task failed\n{raised}") from error
        rows = [dict(zip(("id", "kind"), line.split(","), strict=True)) for line in text.split()]
        return [(row, f"file://{quote(str(path))}") for row in rows]

    def _listed(self, name: str, starts: dict[str, Any], ends: dict[str, Any]) -> list[Path]:
        """The files, or batch files, between two ends of a source."""
        after, until = (-1 if end.get(name) is None else int(end[name]["logOffset"]) for end in (starts, ends))
        lists = self._lists(name)
        uris = [uri for entry in range(after + 1, until + 1) for uri in lists[entry]]
        return [Path(unquote(uri.removeprefix("file://"))) for uri in uris]

    def _lists(self, name: str) -> dict[int, list[str]]:
        """What each entry of the lists of a source names: the newest compacted file, and the files behind it."""
        folder = self.checkpoint / "sources" / name
        compacted = max((int(log.stem) for log in folder.glob("*.compact")), default=-1)
        logs = [folder / str(number) for number in self._numbers(f"sources/{name}") if number > compacted]
        found: dict[int, list[str]] = {}
        for log in [*([folder / f"{compacted}.compact"] if compacted >= 0 else []), *logs]:
            for line in log.read_text().splitlines()[1:]:
                one = json.loads(line)
                found.setdefault(one["batchId"], []).append(one["path"])
        return found

    def _plan_files(self, name: str, start: dict[str, Any] | None) -> dict[str, Any] | None:
        log = self.checkpoint / "sources" / name
        lists = self._lists(name)
        entries, seen = sorted(lists), {uri for uris in lists.values() for uri in uris}
        folder = self.paths.batches / name
        there = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
        links = sorted(there, key=lambda path: path.stat().st_mtime_ns)
        new = [uri for uri in (f"file://{quote(str(path))}" for path in links) if uri not in seen]
        if new:
            number = (entries or [-1])[-1] + 1
            line = json.dumps({"path": new[0], "timestamp": 1, "batchId": number})
            self._write(log / str(number), f"v1\n{line}")
            return {"logOffset": number}
        return {"logOffset": entries[-1]} if entries else start

    # -- the checkpoint --

    def _plan(self, number: int) -> dict[str, Any] | None:
        """The ends of the next batch, or None when nothing is new."""
        starts = self._starts(number)
        planned = {name: self._plan_files(name, starts.get(name)) for name in self.spec.streams}
        ends = {name: end for name, end in planned.items() if end is not None}
        return None if ends == {name: end for name, end in starts.items() if name in ends} else ends

    def _starts(self, number: int) -> dict[str, Any]:
        """Where each source stands before a batch: Spark looks back over two."""
        return {**self._ends(number - 2), **self._ends(number - 1)}

    def _ends(self, number: int) -> dict[str, Any]:
        path = self.checkpoint / "offsets" / str(number)
        if number < 0 or not path.exists():
            return {}
        return {
            name: json.loads(end) for name, _, end in (line.partition(":") for line in path.read_text().split("\n")[2:])
        }

    def _numbers(self, folder: str) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self.checkpoint / folder) if name.isdigit())
        except FileNotFoundError:
            return []

    def _write(self, path: Path, text: str) -> None:
        """As Hadoop's local file system does it: look whether the name is taken, then rename, which takes any name."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        beside.write_text(text)
        if path.exists():
            raise SparkError("CONCURRENT_STREAM_LOG_UPDATE", f"Concurrent update to the log: {path.name}")
        os.rename(beside, path)
