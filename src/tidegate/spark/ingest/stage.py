"""Staging one micro-batch: rows and quarantine written once into a fresh attempt folder, then the manifest.

Nothing in an attempt folder exists for anybody until the manifest names it, so a killed or frozen attempt leaves
nothing but files to sweep. The first manifest for (query id, batch id) wins.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.quality.row_rules import RowRule
from tidegate.sources.bounds import TOO_LARGE
from tidegate.sources.files.unreadable import count_kept_rows, describe_kept, keep_file, record_of_stand_in
from tidegate.sources.kafka.offsets import TopicWatch
from tidegate.sources.port import Source
from tidegate.spark import errors
from tidegate.spark.catalyst.late import describe_watermark
from tidegate.spark.catalyst.private_api import Metric, Metrics, read_observed_metrics
from tidegate.spark.catalyst.state import read_batch_state, read_open
from tidegate.spark.driver.order import IngestOrder, emit
from tidegate.spark.ingest.batch_checks import BatchChecks, InputStates, Ranges, describe_imbalance
from tidegate.spark.ingest.capture import Captured, PositionFinder, link_name_of, quarantine_row, unknown_places
from tidegate.spark.ingest.look import BatchLook, kept_files, late_rows
from tidegate.spark.ingest.pace import ReadingProgress
from tidegate.spark.ingest.plan import (
    CAPTURED_AT_MOST,
    SHORT_CHARACTERS,
    count_file,
    entered_metric,
    mark_texts,
    read_counts,
    rejected_rows,
    staged_rows,
)
from tidegate.spark.ingest.progress_log import ProgressLog
from tidegate.spark.ingest.read import excluded_metric
from tidegate.spark.ingest.write import write_rows
from tidegate.spark.session.executors import Executors
from tidegate.spec.models import PipelineSpec
from tidegate.state.birth import name_query
from tidegate.state.checkpoint import read_checkpoint
from tidegate.state.durable import CheckpointSync
from tidegate.state.files import drop_swept, is_swept, list_staged_files
from tidegate.state.lease import check_token
from tidegate.state.manifest import (
    BatchManifest,
    SourceRange,
    StagedFile,
    TakenFile,
    WholeFile,
    files_within,
    manifest_from_json,
    refuse_tombstone,
    write_manifest,
)
from tidegate.state.open_state import note_batch
from tidegate.table.log.state import holds_batch
from tidegate.table.quarantined import CapturedRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def _count_input(ranges: Ranges) -> dict[str, int]:
    """The files and offsets of a batch, as far as it has any."""
    files = sum(len(taken.links) for taken in ranges.values())
    offsets = sum(one.count for taken in ranges.values() for one in (taken.offsets or {}).values())
    return {name: count for name, count in (("files", files), ("offsets", offsets)) if count}


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
    reading: ReadingProgress
    keeps_state: bool
    topics: TopicWatch
    sources: Mapping[str, Source]
    rows_of: Callable[[Ranges], DataFrame] | None = None
    """The query's rows of a batch, in batch mode: where executors do not see the batch files that its stream reads."""
    partitioned: Mapping[str, str] = field(default_factory=dict)
    started_at: float = field(default_factory=time.monotonic)
    rows_so_far: int = 0
    links_so_far: int = 0
    batches: int = 0
    duplicates: int = 0
    """Rows that a deduplication dropped."""
    failure: BaseException | None = None
    inputs: InputStates = field(default_factory=InputStates)

    @cached_property
    def checkpoint_sync(self) -> CheckpointSync:
        """Syncs the checkpoint's files."""
        return CheckpointSync(self.paths.checkpoint)

    @cached_property
    def checks(self) -> BatchChecks:
        """The checks that refuse a batch."""
        return BatchChecks(self.spec, self.paths, self.order)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Stage one micro-batch; keeps the exception, because Spark passes on only its text."""
        try:
            self._stage(frame, batch_id)
        finally:
            self.failure = sys.exception()  # the job raises it again

    def check_lease(self) -> None:
        """Raise TryAgainError LEASE_LOST unless this run still has the lease."""
        check_token(self.paths, self.order.token)

    def note_inputs(self) -> None:
        """Note the states of all pending files; to be called before Spark lists them."""
        self.inputs.note(self.paths.intake(name) / link for name, links in self.order.links.items() for link in links)

    def sync_checkpoint(self) -> None:
        """Sync the query's last files in its checkpoint: the last commit comes after the last batch."""
        last = read_checkpoint(self.paths.checkpoint).last_offset
        if last is not None:
            self.checkpoint_sync.sync_batch(last)

    def _stage(self, frame: DataFrame, batch_id: int) -> None:
        query = self.spark.streams.active[0]
        query_id = str(query.id)
        ranges = self._ranges(batch_id)
        manifest_path = self.paths.manifest(query_id, batch_id)
        refuse_tombstone(manifest_path)
        is_settled = batch_id <= self.order.settled.get(query_id, -1)
        if is_settled or (storage.exists(manifest_path) and not self._drop_swept(manifest_path)):
            self._replay(frame, batch_id, ranges, manifest_path, query)
            return
        self.checks.check_pending(batch_id, ranges)
        self.executors.check_storage()
        attempt = secrets.token_hex(6)
        emit("progress", batch=batch_id, attempt=attempt, **_count_input(ranges))
        folder = self.paths.attempts(query_id, batch_id) / attempt
        frame = frame if self.rows_of is None else self.rows_of(ranges)
        with self._computed_once(frame):
            manifest, metrics = self._write_batch(frame, batch_id, ranges, query, folder)
        self._check_balance(manifest, folder)
        self._write_manifest(manifest, manifest_path, ranges, metrics)
        self.batches += 1
        self.rows_so_far += manifest.read
        self.duplicates += manifest.duplicates
        self.links_so_far += sum(len(r.links) for r in ranges.values())
        self._report_progress(batch_id, manifest)

    def _replay(
        self, frame: DataFrame, batch_id: int, ranges: Ranges, manifest_path: Path, query: StreamingQuery
    ) -> None:
        """Replay a batch that was staged, perhaps published, when Spark was killed before it committed it."""
        if storage.exists(manifest_path):
            self.checks.check_same_ranges(manifest_path, ranges)
        if self.keeps_state:
            self.checks.check_present(batch_id, ranges)
            # Its state is written by computing it; a batch without state need not be computed again.
            frame.write.format("noop").mode("overwrite").save()
            self.executors.check_computed_once(str(query.runId))
            self.executors.check_state(self.paths.checkpoint, read_batch_state(query).stores)
            self.checks.check_same_rows(manifest_path, read_observed_metrics(query)["rules"])
            self.topics.check(batch_id)
            self.checkpoint_sync.sync_batch(batch_id)
        emit("progress", batch=batch_id, replayed=True)

    @contextmanager
    def _computed_once(self, frame: DataFrame) -> Iterator[None]:
        """Within it, the rows of a query with state and rules are kept: a second look cannot compute the rejected ones
        again, that would be another step of the state."""
        if not (self.keeps_state and self.rules):
            yield
            return
        frame.persist()
        try:
            yield
        finally:
            frame.unpersist()

    def _write_batch(
        self, frame: DataFrame, batch_id: int, ranges: Ranges, query: StreamingQuery, folder: Path
    ) -> tuple[BatchManifest, Metrics]:
        """Write the batch's rows and what it quarantines into ``folder``; its manifest, and the metrics of the pass."""
        rows = staged_rows(frame) if self.keeps_state and self.rules else frame
        partition_by = self.spec.table.partition_by
        written = write_rows(mark_texts(rows, partition_by), folder / "rows", partition_by, self.executors.unseen)
        self._check_unchanged(ranges)
        self.executors.check_computed_once(str(query.runId))
        metrics = read_observed_metrics(query) if written is None else written
        self.checks.check_statics(metrics)
        state = read_batch_state(query) if self.keeps_state else None
        if state is not None:
            self.executors.check_state(self.paths.checkpoint, state.stores)
        sources, captured = self._source_ranges(ranges, metrics)
        late_frames: list[DataFrame] = []
        if state is not None and state.dropped and state.late_before_ms is not None:
            sources, late_frames = self._count_late(ranges, sources, captured, state.late_before_ms)
        rules = metrics["rules"]
        quarantine_files = self._quarantine(folder / "quarantine", ranges, captured, rules, frame, late_frames)
        files = list_staged_files(folder / "rows", self.paths.state)
        manifest = BatchManifest(
            pipeline=self.spec.name,
            run_id=self.order.run_id,
            query_id=str(query.id),
            batch_id=batch_id,
            attempt=folder.name,
            sources=sources,
            transformed=int(rules["transformed"]),
            rejected=int(rules["rejected"]),
            staged=sum(file.rows for file in files),
            files=files,
            quarantine_files=quarantine_files,
            quarantined=sum(file.rows for file in quarantine_files),
            schema_json=self.schema_json,
            rejected_by_rule={rule.rule: int(rules[f"rule_{number}"]) for number, rule in enumerate(self.rules)},
            watermark_ms=state.watermark_ms if state is not None else None,
            state=state.operators if state is not None else [],
            dropped_updates=state.dropped if state is not None else 0,
            staged_at=datetime.now(UTC).isoformat(),
            partitioned=dict(self.partitioned),
            rejected_by_day=read_counts(rules.get("by_day", ())),
        )
        return manifest, metrics

    def _check_balance(self, manifest: BatchManifest, folder: Path) -> None:
        wrong = describe_imbalance(manifest)
        if not wrong:
            return
        self.executors.check_storage(again=True)  # rows may lie on an executor's own disk
        raise errors.BATCH_UNBALANCED(
            where=str(folder), batch_id=manifest.batch_id, faults="; ".join(wrong), pipeline=self.spec.name
        )

    def _write_manifest(
        self, manifest: BatchManifest, path: Path, ranges: Ranges, metrics: dict[str, dict[str, object]]
    ) -> None:
        """Store the manifest, when all that it refers to is on disk and the lease is still held."""
        self.topics.check(manifest.batch_id)
        if self.keeps_state:
            storage.sync_files(self._paths_of(ranges))  # its state may have to be computed from them again
        self.checkpoint_sync.sync_batch(manifest.batch_id)
        self.check_lease()
        # Else a checkpoint that is exchanged before the run ends is not noticed.
        name_query(self.paths, manifest.query_id)
        if self.keeps_state:
            until, windows = read_open(metrics)
            note_batch(self.paths, manifest, open_until_ms=until, windows=windows, now_ms=time.time_ns() // 1_000_000)
        self.progress.note_staged(manifest)
        if not write_manifest(path, manifest):
            refuse_tombstone(path)
            self.checks.check_same_ranges(path, ranges)
            if self._drop_swept(path) and write_manifest(path, manifest):
                return
            if manifest_from_json(storage.read(path)).attempt != manifest.attempt:
                storage.remove_tree(self.paths.attempts(manifest.query_id, manifest.batch_id) / manifest.attempt)
        # A process that was suspended before the manifest must not commit: its files may have been swept meanwhile.
        self.check_lease()

    def _drop_swept(self, path: Path) -> bool:
        """Remove the manifest of an attempt that was swept before it had one; False for any other manifest."""
        manifest = manifest_from_json(storage.read(path))
        quarantined = holds_batch(self.paths.quarantine, manifest.query_id, manifest.batch_id)
        if not is_swept(self.paths, manifest, quarantined=quarantined):
            return False
        self.check_lease()
        is_dropped = drop_swept(self.paths, manifest)
        self.check_lease()
        return is_dropped

    def _paths_of(self, ranges: Ranges) -> list[Path]:
        return [self.paths.intake(name) / link for name, taken in ranges.items() for link in taken.links]

    def _report_progress(self, batch_id: int, manifest: BatchManifest) -> None:
        seconds = max(time.monotonic() - self.started_at, 1e-6)
        left: dict[str, int] = {}
        files = sum(len(links) for links in self.order.links.values())
        if files:
            left["files_left"] = max(files - self.links_so_far, 0)
        pending = sum(int(p.get("offsets", 0)) for p in self.order.pending.values())
        if pending:
            left["offsets_left"] = max(pending - self.rows_so_far, 0)
        emit(
            "progress",
            batch=batch_id,
            rows=manifest.read,
            staged=sum(file.rows for file in files_within(manifest.files, self.order.within or {})),
            quarantined=manifest.quarantined,
            rows_so_far=self.rows_so_far,
            rows_per_second=round(self.rows_so_far / seconds),
            **left,
        )

    def planned(self) -> Ranges:
        """The input of the batch that Spark planned last, which is the failed one, even if it failed before it came to
        be staged, as on the side of a join that Spark broadcasts first."""
        last = read_checkpoint(self.paths.checkpoint).last_offset
        return {} if last is None else self._ranges(last)

    def _ranges(self, batch_id: int) -> Ranges:
        """The input of this batch from each source, by the checkpoint."""
        ranges: Ranges = {}
        for name, source in self.sources.items():
            try:
                ranges[name] = source.range_of(batch_id)
            except ValueError as torn:  # changed from outside since the run looked at it
                raise source.torn_error(torn) from torn
        return ranges

    def _count_late(
        self,
        ranges: Ranges,
        sources: dict[str, SourceRange],
        captured: Captured,
        late_before_ms: int,
    ) -> tuple[dict[str, SourceRange], list[DataFrame]]:
        """``sources`` with their late records counted; frames of those that are too many to be captured."""
        counted, frames = dict(sources), []
        for name in self.spec.watermarks:
            found = self.look.late(ranges, name, late_before_ms)
            if found.whole is None:
                counted[name] = replace(sources[name], late_untold=found.is_unknown)
                continue
            detail = describe_watermark(late_before_ms)
            short = found.whole.where(F.coalesce(F.length("raw"), F.lit(0)) <= SHORT_CHARACTERS)
            few = short.limit(CAPTURED_AT_MOST + 1).collect()
            count = found.whole.count()
            if count == len(few):
                captured.others += [
                    CapturedRecord(
                        source=row["source"], position=row["position"], raw=row["raw"], reason="late", detail=detail
                    )
                    for row in few
                ]
            else:
                frames.append(late_rows(found.whole, detail))
            counted[name] = replace(sources[name], late=count, partly_late=found.partly)
        return counted, frames

    def _check_unchanged(self, ranges: Ranges) -> None:
        """Raise ReadAgain with the files of the batch that have changed since they were listed."""
        if changed := self.inputs.changed(self._paths_of(ranges)):
            names = {self.paths.intake(name) / link: link for name, taken in ranges.items() for link in taken.links}
            raise ReadAgain([self.order.original(names[path]) for path in changed])

    def _source_ranges(
        self,
        ranges: Ranges,
        metrics: Metrics,
    ) -> tuple[dict[str, SourceRange], Captured]:
        """The manifest's source entries, and the malformed records (with whole files that could not be read)."""
        sources: dict[str, SourceRange] = {}
        captured = Captured()
        for name, taken in ranges.items():
            metric = metrics[f"source:{name}"]
            captured.add(metric, "malformed")
            files, size = None, None
            by_file = read_counts(metric["by_file"]) if "by_file" in metric else None
            unknown = self._unknown_fields(metric)
            unreadable = 0
            whole_files: list[WholeFile] = []
            if taken.offsets is None:
                files = list[TakenFile]()
                for link in taken.links:
                    record = record_of_stand_in(self.paths.unreadable, self.paths.intake(name), link, self.check_lease)
                    known = record or self.inputs.states[self.paths.intake(name) / link]._asdict()
                    file = self.order.taken_as(link, known["size"], known["mtime_ns"])
                    files.append(file)
                    if by_file is not None:
                        file["records"], file["malformed"] = count_file(by_file, link, int(record is not None))
                    if record is not None:
                        unreadable += 1
                        captured.add_unreadable(name, self.order.original(link), record)
                        if record["kept"]:
                            rows = count_kept_rows(self.paths.unreadable / record["kept"], self.spec.streams[name])
                            whole_files.append({"size": known["size"], "rows": rows})
                            if by_file is not None:
                                file["whole"] = whole_files[-1]
                size = sum(file["size"] for file in files)
            sources[name] = SourceRange(
                rows=int(metric["read"]) + unreadable,
                malformed=int(metric["malformed"]) + unreadable,
                bytes=size,
                files=files,
                offsets=taken.offsets,
                unknown_fields=unknown,
                unknown_records=int(metric.get("with_unknown") or 0),
                max_event_time_ms=(metrics.get(f"time:{name}") or {}).get("max_ms"),
                min_event_time_ms=(metrics.get(f"time:{name}") or {}).get("min_ms"),
                entered=int(metrics[entered_metric(self.spec, name)]["entered"]),
                whole_files=whole_files,
                left_out=int((metrics.get(excluded_metric(name)) or {}).get("left_out") or 0),
            )
        return sources, captured

    def _unknown_fields(self, metric: dict[str, object]) -> dict[str, str]:
        return {name: self._readable_position(position) for name, position in unknown_places(metric).items()}

    def _readable_position(self, position: str) -> str:
        if position.startswith("{"):
            return position
        return self.finder().original(position)

    def finder(self) -> PositionFinder:
        """The finder of the user's file and line for an intake link."""
        return PositionFinder(self.order.links, self.paths, self.spec.file_streams)

    def _quarantine(
        self,
        target: Path,
        ranges: Ranges,
        captured: Captured,
        rules: Metric,
        frame: DataFrame,
        late_frames: Sequence[DataFrame],
    ) -> list[StagedFile]:
        """Write the batch's quarantined records, and the files that are quarantined whole."""
        captured.add(rules, "rejected")
        finder = self.finder()
        for number, late_frame in enumerate(late_frames):
            self.look.write(late_frame, target / f"late-{number}", finder)
        if not captured.is_complete:
            rejected = rejected_rows(frame, self.rules) if self.keeps_state else self.look.rejected(ranges)
            self.look.write(self.look.malformed(ranges).unionByName(rejected), target / "many", finder)
        if late_frames or not captured.is_complete:
            self._check_unchanged(ranges)  # files were read a second time
        records = list(captured.others)
        if captured.is_complete:
            self._keep_large(ranges, captured.from_metrics)
            records += captured.from_metrics
        else:
            self._keep_files(ranges, kept_files(target / "many"))
        if records:
            from tidegate.table.quarantine.read import write_quarantine_rows  # pyarrow, which few batches need

            rows = [quarantine_row(self.spec.name, self.order.run_id, one) for one in finder.locate(records)]
            write_quarantine_rows(target / "part-captured.parquet", rows)
        return list_staged_files(target, self.paths.state)

    def _keep_large(self, ranges: Ranges, records: Sequence[CapturedRecord]) -> None:
        """Keep the files of records of which quarantine has only the beginning, and note that in the records."""
        names = set()
        for record in records:
            name = link_name_of(record["position"] or "")
            if name is not None and TOO_LARGE in (record["detail"] or ""):
                record["detail"] = f"{record['detail']}{describe_kept(name)}"
                names.add(name)
        self._keep_files(ranges, names)

    def _keep_files(self, ranges: Ranges, names: Collection[str]) -> None:
        for path in self._paths_of(ranges) if names else ():
            if path.name in names:
                self.check_lease()
                keep_file(self.paths.unreadable, path)
