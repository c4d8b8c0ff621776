"""Staging one micro-batch: rows and quarantine written once into a fresh attempt folder, then the manifest.

Nothing in an attempt folder exists for anybody until the manifest names it, so a killed or frozen attempt leaves
nothing but files to sweep. The first manifest for (query id, batch id) wins.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidegate import storage
from tidegate.audit.row_rules import RowRule
from tidegate.errors import DefectError
from tidegate.ingest.batch_checks import BatchChecks, Ranges
from tidegate.ingest.capture import Captured, batch_metrics, quarantine_row, unknown_places
from tidegate.ingest.executors import Executors
from tidegate.ingest.late import describe_watermark
from tidegate.ingest.look import BatchLook
from tidegate.ingest.order import IngestOrder, emit
from tidegate.ingest.plan import CAPTURED_AT_MOST, SHORT_CHARACTERS, staged_rows
from tidegate.ingest.positions import PositionFinder
from tidegate.ingest.progress_log import ProgressLog
from tidegate.ingest.second_look import broken_rows, late_rows
from tidegate.ingest.state import read_batch_state, read_open
from tidegate.ingest.topics import TopicWatch
from tidegate.ingest.unreadable import unreadable_record
from tidegate.lease import check_token
from tidegate.project import PipelinePaths
from tidegate.quarantine.rows import write_quarantine_rows
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.staging.checkpoint import files_between, read_offsets, read_start
from tidegate.staging.files import list_staged_files
from tidegate.staging.manifest import UNKNOWN_NAMES_AT_MOST, BatchManifest, SourceRange, write_manifest
from tidegate.staging.open_state import note_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ReadAgain(Exception):
    """A file changed while Spark read it: the batch must be read afresh, in a new query."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(", ".join(paths))
        self.paths = list(paths)


@dataclass
class BatchStager:
    """The foreachBatch function of a pipeline's query."""

    spark: SparkSession
    spec: PipelineSpec
    paths: PipelinePaths
    order: IngestOrder
    executors: Executors
    rules: Sequence[RowRule]
    schema_json: str
    look: BatchLook
    progress: ProgressLog
    keeps_state: bool
    topics: TopicWatch
    unknown_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns that the schema lacks, by link, of files whose columns their footers tell."""
    started_at: float = field(default_factory=time.monotonic)
    rows_so_far: int = 0
    links_so_far: int = 0
    batches: int = 0
    failure: BaseException | None = None
    current_links: list[str] = field(default_factory=list)

    @cached_property
    def checks(self) -> BatchChecks:
        """What refuses a batch."""
        return BatchChecks(self.spec, self.paths, self.order)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Stage one micro-batch; keeps what failed, because Spark hands on only its text."""
        try:
            self._stage(frame, batch_id)
        except BaseException as error:
            self.failure = error
            raise

    def _stage(self, frame: DataFrame, batch_id: int) -> None:
        query = self.spark.streams.active[0]
        query_id = str(query.id)
        ranges = self._ranges(batch_id)
        manifest_path = self.paths.manifest(query_id, batch_id)
        if batch_id <= self.order.settled.get(query_id, -1) or manifest_path.exists():
            # Staged, perhaps published, but Spark was killed before it committed the batch.
            if manifest_path.exists():
                self.checks.check_same_ranges(manifest_path, ranges)
            if self.keeps_state:
                self.checks.check_present(batch_id, ranges)
                # Its state is written by computing it; a batch without state need not be computed again.
                frame.write.format("noop").mode("overwrite").save()
                self.executors.check_computed_once(str(query.runId))
                self.executors.check_state(self.paths.checkpoint, read_batch_state(query).stores)
                self.checks.check_same_rows(manifest_path, batch_metrics(query)["rules"])
                self.topics.check(batch_id)
            emit("progress", batch=batch_id, replayed=True)
            return
        self.checks.check_owed(batch_id, ranges)
        self.executors.check_storage()
        attempt = secrets.token_hex(6)
        folder = self.paths.staging / query_id / f"{batch_id:012d}" / attempt
        before = self._file_states(ranges)
        emit("progress", batch=batch_id, attempt=attempt, files=sum(len(r.get("links", ())) for r in ranges.values()))

        rows = frame
        if self.keeps_state and self.rules:
            # A second look cannot compute the rejected rows again: that would be another step of the state.
            rows = staged_rows(frame.persist())
        writer = rows.write.mode("error")
        writer.partitionBy(*self.spec.table.partition_by).parquet(str(folder / "rows"))

        changed = [link for link, state in self._file_states(ranges).items() if before.get(link) != state]
        if changed:
            raise ReadAgain([self.order.original(link) for link in changed])
        self.executors.check_computed_once(str(query.runId))
        metrics = batch_metrics(query)
        self.checks.check_statics(metrics)
        state = read_batch_state(query) if self.keeps_state else None
        if state is not None:
            self.executors.check_state(self.paths.checkpoint, state.stores)
        sources, captured = self._source_ranges(ranges, metrics, before)
        late_frames: list[DataFrame] = []
        if state is not None and state.dropped and state.late_before_ms is not None:
            sources, late_frames = self._tell_late(ranges, sources, captured, state.late_before_ms)
        rules = metrics["rules"]
        set_aside = self._write_quarantine(folder / "quarantine", ranges, captured, rules, frame)
        for number, late_frame in enumerate(late_frames):
            self.look.write(late_frame, folder / "quarantine" / f"late-{number}")
        if self.keeps_state and self.rules:
            frame.unpersist()
        quarantine_files = (
            list_staged_files(folder / "quarantine", self.paths.state) if set_aside or late_frames else []
        )
        files = list_staged_files(folder / "rows", self.paths.state)
        staged = sum(file.rows for file in files)
        transformed, rejected = int(rules["transformed"]), int(rules["rejected"])
        quarantined = sum(file.rows for file in quarantine_files)
        malformed = sum(source.malformed for source in sources.values())
        late = sum(source.late for source in sources.values())
        if transformed != rejected + staged or quarantined != malformed + late + rejected:
            self.executors.check_storage(again=True)  # rows may lie on an executor's own disk
            raise DefectError(
                "UNBALANCED",
                f"batch {batch_id}: transformed {transformed} != rejected {rejected} + staged {staged}, or quarantined "
                f"{quarantined} != malformed {malformed} + late {late} + rejected {rejected}",
                where=str(folder),
                next_run="reads the batch again",
                fix=f"run `tidegate run {self.spec.name}` again; if it stays, report it with the files of this batch",
            )
        manifest = BatchManifest(
            pipeline=self.spec.name,
            run_id=self.order.run_id,
            query_id=query_id,
            batch_id=batch_id,
            attempt=attempt,
            sources=sources,
            transformed=transformed,
            rejected=rejected,
            staged=staged,
            files=files,
            quarantine_files=quarantine_files,
            quarantined=quarantined,
            schema_json=self.schema_json,
            rejected_by_rule={rule.rule: int(rules[f"rule_{number}"]) for number, rule in enumerate(self.rules)},
            watermark_ms=state.watermark_ms if state is not None else None,
            state=state.operators if state is not None else [],
            dropped_updates=state.dropped if state is not None else 0,
            staged_at=datetime.now(UTC).isoformat(),
        )
        self.topics.check(batch_id)
        check_token(self.paths, self.order.token)
        if self.keeps_state:
            until, windows = read_open(metrics)
            note_batch(self.paths, manifest, open_until_ms=until, windows=windows, now_ms=time.time_ns() // 1_000_000)
        self.progress.note_staged(manifest)
        if not write_manifest(manifest_path, manifest):
            self.checks.check_same_ranges(manifest_path, ranges)
            storage.remove_tree(folder)
        self.batches += 1
        self.rows_so_far += manifest.read
        self.links_so_far += sum(len(r.get("links", ())) for r in ranges.values())
        self._report_progress(batch_id, manifest)

    def _report_progress(self, batch_id: int, manifest: BatchManifest) -> None:
        seconds = max(time.monotonic() - self.started_at, 1e-6)
        left: dict[str, Any] = {}
        owed = sum(len(links) for links in self.order.links.values())
        if owed:
            left["files_left"] = max(owed - self.links_so_far, 0)
        pending = sum(int(p.get("offsets", 0)) for p in self.order.pending.values())
        if pending:
            left["offsets_left"] = max(pending - self.rows_so_far, 0)
        emit(
            "progress",
            batch=batch_id,
            rows=manifest.read,
            staged=manifest.staged,
            quarantined=manifest.quarantined,
            rows_so_far=self.rows_so_far,
            rows_per_second=round(self.rows_so_far / seconds),
            **left,
        )

    def _ranges(self, batch_id: int) -> Ranges:
        """What this batch takes from each source, by the checkpoint."""
        ends = read_offsets(self.paths.checkpoint, batch_id)
        birth = json.loads(self.paths.birth.read_bytes())
        ranges: Ranges = {}
        self.current_links = []
        for name, source in self.spec.streams.items():
            start, end = read_start(self.paths.checkpoint, batch_id, name), ends.get(name)
            if isinstance(source, FilesSource):
                after = -1 if start is None else int(start["logOffset"])
                until = after if end is None else int(end["logOffset"])
                intake = self.paths.intake(name)
                taken = files_between(self.paths.checkpoint, name, after, until)
                ranges[name] = {"links": [link_of(path, intake) for path in taken]}
                self.current_links += ranges[name]["links"]
            else:
                begin = start if start is not None else birth["sources"][name]["offsets"]
                ranges[name] = {
                    "offsets": {
                        topic: {
                            partition: [int(begin.get(topic, {}).get(partition, 0)), int(until)]
                            for partition, until in partitions.items()
                        }
                        for topic, partitions in (end or {}).items()
                    }
                }
        return ranges

    def _tell_late(
        self,
        ranges: Ranges,
        sources: dict[str, SourceRange],
        captured: Captured,
        late_before_ms: int,
    ) -> tuple[dict[str, SourceRange], list[DataFrame]]:
        """``sources`` with their late records counted; frames of those that are too many to be captured."""
        told, frames = dict(sources), []
        for name in self.spec.watermarks:
            found = self.look.late(ranges, name, late_before_ms)
            if found.whole is None:
                told[name] = replace(sources[name], late_untold=found.untold)
                continue
            detail = describe_watermark(late_before_ms)
            short = found.whole.where(F.coalesce(F.length("raw"), F.lit(0)) <= SHORT_CHARACTERS)
            few = short.limit(CAPTURED_AT_MOST + 1).collect()
            count = found.whole.count()
            if count == len(few):
                captured.late += [{**row.asDict(), "reason": "late", "detail": detail} for row in few]
            else:
                frames.append(late_rows(found.whole, detail))
            told[name] = replace(sources[name], late=count, partly_late=found.partly)
        return told, frames

    def _file_states(self, ranges: Ranges) -> dict[str, tuple[int, int]]:
        states = {}
        for name, taken in ranges.items():
            for link in taken.get("links", ()):
                stat = (self.paths.intake(name) / link).stat()
                states[link] = (stat.st_size, stat.st_mtime_ns)
        return states

    def _source_ranges(
        self,
        ranges: Ranges,
        metrics: dict[str, dict[str, Any]],
        states: dict[str, tuple[int, int]],
    ) -> tuple[dict[str, SourceRange], Captured]:
        """The manifest's source entries, and the malformed records (with whole files that could not be read)."""
        sources: dict[str, SourceRange] = {}
        captured = Captured()
        for name, taken in ranges.items():
            metric = metrics[f"source:{name}"]
            captured.add_malformed(name, metric)
            files, size = None, None
            unknown = self._unknown_fields(metric)
            unreadable = 0
            if "links" in taken:
                files, sound = [], list[str]()
                for link in taken["links"]:
                    record = unreadable_record(self.paths.unreadable, link)
                    if record is None:
                        sound.append(link)
                    known = record or {"size": states[link][0], "mtime_ns": states[link][1]}
                    entry = {"path": self.order.original(link), "link": link}
                    files.append({**entry, "size": known["size"], "mtime_ns": known["mtime_ns"]})
                    if record is not None:
                        unreadable += 1
                        captured.add_unreadable(name, entry["path"], record)
                size = sum(file["size"] for file in files)
                for link in sound:
                    for column in self.unknown_columns.get(link, ()):
                        if len(unknown) < UNKNOWN_NAMES_AT_MOST:
                            unknown.setdefault(column, self.order.original(link))
            sources[name] = SourceRange(
                rows=int(metric["read"]) + unreadable,
                malformed=int(metric["malformed"]) + unreadable,
                bytes=size,
                files=files,
                offsets=taken.get("offsets"),
                unknown_fields=unknown,
                unknown_records=int(metric.get("with_unknown") or 0),
                max_event_time_ms=(metrics.get(f"time:{name}") or {}).get("max_ms"),
            )
        return sources, captured

    def _unknown_fields(self, metric: dict[str, Any]) -> dict[str, str]:
        return {name: self._readable_position(position) for name, position in unknown_places(metric).items()}

    def _readable_position(self, position: str) -> str:
        if position.startswith("{"):
            return position
        return self._finder().original(position)

    def _finder(self) -> PositionFinder:
        separators = {
            name: str(source.options["lineSep"])
            for name, source in self.spec.streams.items()
            if isinstance(source, FilesSource) and "lineSep" in source.options
        }
        return PositionFinder(self.order.links, self.paths, separators)

    def _write_quarantine(
        self,
        target: Path,
        ranges: Ranges,
        captured: Captured,
        rules: dict[str, Any],
        frame: DataFrame,
    ) -> bool:
        """Write what the batch sets aside; whether there was anything."""
        captured.add_rejected(rules)
        if captured.complete:
            records = captured.records(self._finder())
            if not records:
                return False
            rows = [quarantine_row(self.spec.name, self.order.run_id, record) for record in records]
            write_quarantine_rows(target / "part-captured.parquet", rows)
            return True
        rejected = broken_rows(frame, self.rules) if self.keeps_state else self.look.rejected(ranges)
        self.look.write(self.look.malformed(ranges).unionByName(rejected), target / "many")
        rest = captured.unreadable + self._finder().locate(captured.late)
        if rest:
            rows = [quarantine_row(self.spec.name, self.order.run_id, record) for record in rest]
            write_quarantine_rows(target / "part-files.parquet", rows)
        return True


def link_of(path: str, intake: Path) -> str:
    """The link behind a path of Spark's log, relative to the intake; also when the project was moved since."""
    if path.startswith(f"{intake}/"):
        return path[len(f"{intake}/") :]
    return path.rpartition(f"/intake/{intake.name}/")[2]
