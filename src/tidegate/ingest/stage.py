"""Staging one micro-batch: rows and quarantine written once into a fresh attempt folder, then the manifest.

Nothing in an attempt folder exists for anybody until the manifest names it, so a killed or frozen attempt leaves
nothing but files to sweep. The first manifest for (query id, batch id) wins.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate import storage
from tidegate.audit.row_rules import RowRule
from tidegate.errors import DefectError, DisagreementError
from tidegate.ingest.capture import Captured, batch_metrics, quarantine_row
from tidegate.ingest.order import IngestOrder, emit
from tidegate.ingest.positions import PositionFinder
from tidegate.ingest.unreadable import unreadable_record
from tidegate.lease import check_token
from tidegate.project import PipelinePaths
from tidegate.quarantine.rows import write_quarantine_rows
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.staging.checkpoint import files_between, read_offsets
from tidegate.staging.files import list_staged_files
from tidegate.staging.manifest import BatchManifest, SourceRange, StagedFile, manifest_from_json, write_manifest

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
    rules: Sequence[RowRule]
    schema_json: str
    second_look: Callable[[dict[str, Any]], tuple[DataFrame, DataFrame]]
    """Malformed and rejected records of given source ranges, read in batch mode."""
    unknown_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns that the schema lacks, by link, of files whose columns their footers tell."""
    started_at: float = field(default_factory=time.monotonic)
    rows_so_far: int = 0
    links_so_far: int = 0
    batches: int = 0
    failure: BaseException | None = None
    current_links: list[str] = field(default_factory=list)

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
        if batch_id <= self.order.settled.get(query_id, -1):
            # Published, but Spark was killed before it committed the batch.
            emit("progress", batch=batch_id, replayed=True)
            return
        manifest_path = self.paths.manifest(query_id, batch_id)
        if manifest_path.exists():
            # Staged before a crash; a stateless batch need not be computed again to be committed.
            self._check_same_ranges(manifest_path, ranges)
            emit("progress", batch=batch_id, replayed=True)
            return
        self._refuse_files_not_owed(batch_id, ranges)
        attempt = secrets.token_hex(6)
        folder = self.paths.staging / query_id / f"{batch_id:012d}" / attempt
        before = self._file_states(ranges)
        emit("progress", batch=batch_id, attempt=attempt, files=sum(len(r.get("links", ())) for r in ranges.values()))

        frame.write.mode("error").partitionBy(*self.spec.table.partition_by).parquet(str(folder / "rows"))

        changed = [link for link, state in self._file_states(ranges).items() if before.get(link) != state]
        if changed:
            raise ReadAgain([self._original(link) for link in changed])
        metrics = batch_metrics(query)
        sources, malformed = self._source_ranges(ranges, metrics, before)
        rules = metrics["rules"]
        quarantine_files = self._write_quarantine(folder, ranges, malformed, rules)
        files = list_staged_files(folder / "rows", self.paths.state)
        staged = sum(file.rows for file in files)
        transformed, rejected = int(rules["transformed"]), int(rules["rejected"])
        quarantined = sum(file.rows for file in quarantine_files)
        all_malformed = sum(source.malformed for source in sources.values())
        if transformed != rejected + staged or quarantined != all_malformed + rejected:
            raise DefectError(
                "UNBALANCED",
                f"batch {batch_id}: transformed {transformed} != rejected {rejected} + staged {staged}, or quarantined "
                f"{quarantined} != malformed {all_malformed} + rejected {rejected}",
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
            staged_at=datetime.now(UTC).isoformat(),
        )
        check_token(self.paths, self.order.token)
        if not write_manifest(manifest_path, manifest):
            self._check_same_ranges(manifest_path, ranges)
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

    def _ranges(self, batch_id: int) -> dict[str, dict[str, Any]]:
        """What this batch takes from each source: {"links": [...]} or {"offsets": {topic: {partition: [from,
        until]}}}.
        """
        ends = read_offsets(self.paths.checkpoint, batch_id)
        starts = read_offsets(self.paths.checkpoint, batch_id - 1) if batch_id else [None] * len(ends)
        birth = json.loads(self.paths.birth.read_bytes())
        ranges: dict[str, dict[str, Any]] = {}
        for index, (name, source) in enumerate(self.spec.sources.items()):
            start, end = starts[index] if index < len(starts) else None, ends[index]
            if isinstance(source, FilesSource):
                after = -1 if start is None else int(start["logOffset"])
                until = after if end is None else int(end["logOffset"])
                intake = self.paths.intake(name)
                taken = files_between(self.paths.checkpoint, index, after, until)
                ranges[name] = {"links": [link_of(path, intake) for path in taken]}
                self.current_links = ranges[name]["links"]
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

    def _check_same_ranges(self, manifest_path: Path, ranges: dict[str, dict[str, Any]]) -> None:
        there = manifest_from_json(manifest_path.read_bytes())
        for name, taken in ranges.items():
            kept = there.sources[name]
            links = sorted(file["link"] for file in kept.files or [])
            if sorted(taken.get("links", [])) != links or taken.get("offsets") != kept.offsets:
                raise DisagreementError(
                    "CHECKPOINT_DIVERGED",
                    f"batch {there.batch_id} was staged with other records than the checkpoint now gives it",
                    where=str(manifest_path),
                    next_run="refuses in the same way",
                    fix=f"`tidegate repair {self.spec.name} --dry-run` shows the choices",
                )

    def _refuse_files_not_owed(self, batch_id: int, ranges: dict[str, dict[str, Any]]) -> None:
        """Spark gives a link that is not owed when the checkpoint was made for another place or another intake."""
        for name, taken in ranges.items():
            foreign = [link for link in taken.get("links", ()) if link not in self.order.links.get(name, {})]
            if foreign:
                raise DisagreementError(
                    "CHECKPOINT_DIVERGED",
                    f"batch {batch_id} of source {name} would read {len(foreign)} files again that were staged before, "
                    f"first {foreign[0]}: the checkpoint does not belong to this intake (was the project moved?)",
                    where=str(self.paths.checkpoint),
                    next_run="refuses in the same way; nothing was read",
                    fix=f"`tidegate repair {self.spec.name} --dry-run` shows the choices",
                )

    def _file_states(self, ranges: dict[str, dict[str, Any]]) -> dict[str, tuple[int, int]]:
        states = {}
        for name, taken in ranges.items():
            for link in taken.get("links", ()):
                stat = (self.paths.intake(name) / link).stat()
                states[link] = (stat.st_size, stat.st_mtime_ns)
        return states

    def _original(self, link: str) -> str:
        for links in self.order.links.values():
            if link in links:
                return str(links[link]["path"])
        return link

    def _source_ranges(
        self,
        ranges: dict[str, dict[str, Any]],
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
                    entry = {"path": self._original(link), "link": link}
                    files.append({**entry, "size": known["size"], "mtime_ns": known["mtime_ns"]})
                    if record is not None:
                        unreadable += 1
                        captured.add_unreadable(name, entry["path"], record)
                size = sum(file["size"] for file in files)
                for link in sound:
                    for column in self.unknown_columns.get(link, ()):
                        unknown.setdefault(column, self._original(link))
            sources[name] = SourceRange(
                rows=int(metric["read"]) + unreadable,
                malformed=int(metric["malformed"]) + unreadable,
                bytes=size,
                files=files,
                offsets=taken.get("offsets"),
                unknown_fields=unknown,
            )
        return sources, captured

    def _unknown_fields(self, metric: dict[str, Any]) -> dict[str, str]:
        places = {
            field: self._readable_position(place["_position"])
            for place in reversed(metric.get("unknown_places") or [])
            for field in place["_unknown"]
        }
        for names in metric.get("unknown") or []:
            for unknown in names:
                places.setdefault(unknown, "")
        return dict(sorted(places.items()))

    def _readable_position(self, position: str) -> str:
        if position.startswith("{"):
            return position
        return self._finder().original(position)

    def _finder(self) -> PositionFinder:
        separators = {
            name: str(source.options["lineSep"])
            for name, source in self.spec.sources.items()
            if isinstance(source, FilesSource) and "lineSep" in source.options
        }
        return PositionFinder(self.order.links, self.paths, separators)

    def _write_quarantine(
        self, folder: Path, ranges: dict[str, dict[str, Any]], captured: Captured, rules: dict[str, Any]
    ) -> list[StagedFile]:
        captured.add_rejected(rules)
        target = folder / "quarantine"
        if captured.complete:
            records = captured.records(self._finder())
            if records:
                rows = [quarantine_row(self.spec.name, self.order.run_id, record) for record in records]
                write_quarantine_rows(target / "part-captured.parquet", rows)
        else:
            malformed, rejected = self.second_look(ranges)
            malformed.unionByName(rejected).write.mode("error").parquet(str(target))
            whole_files = [quarantine_row(self.spec.name, self.order.run_id, r) for r in captured.unreadable]
            if whole_files:
                write_quarantine_rows(target / "part-files.parquet", whole_files)
        return list_staged_files(target, self.paths.state) if target.exists() else []


def link_of(path: str, intake: Path) -> str:
    """The link behind a path of Spark's log, relative to the intake; also when the project was moved since."""
    if path.startswith(f"{intake}/"):
        return path[len(f"{intake}/") :]
    return path.rpartition(f"/intake/{intake.name}/")[2]
