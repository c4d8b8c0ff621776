"""Find what a backfill would read and replace, and what prevents it: without a JVM, before anything changes.

Quarantined records are excluded from what is read again: they stay in quarantine, where a replay finds them. A record
is identified by its position and text (:mod:`tidegate.spark.ingest.read`). The job must meet as many as were
counted, so a changed text is noticed.

``refresh --keep-older`` keeps the older part of a table whose records are no longer all in the sources: the oldest
publishes, up to the last one with a lost record, and rows that no run has read. It is extended until no file of the
table or of quarantine has rows of both parts. So each record is either in the part that stays or in the part that is
read again.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import outputs, storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.rework import errors
from tidegate.rework.backfill.choose import (
    Choice,
    Scope,
    choose,
    choose_records,
    ranges_of,
)
from tidegate.rework.backfill.hand_over import refuse_pending
from tidegate.rework.backfill.lineage import Increment, Lineage, describe_partition, read_lineage
from tidegate.rework.backfill.span import Interval, Wanted, check_known, find_span, join_intervals, list_days
from tidegate.rework.backfill.stateful import check_kept, closing_watermark, why_not_exact
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.facts import Facts, query_keeps_state
from tidegate.sources.files.differences import find_differences, find_differing
from tidegate.sources.files.ledger import shown_path
from tidegate.sources.files.unreadable import is_in_quarantine
from tidegate.sources.registry import open_sources
from tidegate.spark import errors as spark_errors
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import Start, read_birth
from tidegate.state.open_state import text_of_ms
from tidegate.state.topics import OffsetRanges, Offsets, TopicPartition, join_ranges, offsets_from_json
from tidegate.table.log.files import list_versions
from tidegate.table.log.state import DataFile, TableState, list_data_files, read_table_state
from tidegate.table.publish.origins import FOREIGN, Batch, read_origins
from tidegate.table.quarantined import QuarantineRow

_RECORDS_AT_ONCE = 4096
_COLUMNS = ["source", "position", "raw", "reason"]
_POSSIBLE = "(see below)"
"""Placeholder in an error of one interval, until all are examined: the intervals that can be rebuilt."""


def missing_offsets(scope: Scope, choice: Choice) -> list[str]:
    """Describe the offsets of ``choice`` that the brokers no longer have."""
    if not any(choice.ranges.values()):
        return []
    sources = open_sources(scope.project, scope.paths, scope.spec)
    gone = []
    for name, start in starts_of_topics(scope, choice).items():
        ends = {partition: one.end for partition, one in join_ranges(choice.ranges.get(name, [])).items()}
        gone += sources[name].find_gone(start, ends)
    return gone


def starts_of_topics(scope: Scope, choice: Choice) -> dict[str, Start]:
    """The offsets at which a side job starts: the first one that it reads of a partition, and for other partitions
    those that live runs have reached."""
    sources = open_sources(scope.project, scope.paths, scope.spec)
    birth = read_birth(scope.paths)
    reached: dict[str, Offsets] = {}
    for increment in scope.lineage.increments:
        for name, ends in increment.ends.items():
            reached[name] = {**reached.get(name, {}), **ends}
    starts = {}
    for name, source in sources.items():
        if source.keeps_start:
            joined = join_ranges(choice.ranges.get(name, []))
            born = birth.sources.get(name) if birth is not None else None
            first = offsets_from_json(born["offsets"]) if born else {}
            begins = {**first, **reached.get(name, {}), **{partition: one.begin for partition, one in joined.items()}}
            starts[name] = source.start_at(begins, born)
    return starts


@dataclass
class Excluded:
    """How many of the records that are read again are in quarantine, by source; ``unplaced``: rows of these runs in
    quarantine whose records are unknown."""

    records: dict[str, int] = field(default_factory=dict)
    unplaced: int = 0
    rejected: int = 0
    """How many of these are rows that a rule rejected: other rows of the same record may be in the table."""

    @property
    def total(self) -> int:
        """The number of excluded records."""
        return sum(self.records.values())


def find_excluded(quarantine: Path, choice: Choice, target: Path | None = None) -> Excluded:
    """Count the quarantined records of ``choice``. With ``target``, list them durably in that new parquet file (source,
    position, digest). Holds some thousands of records at a time."""
    found = Excluded()
    schema = pa.schema([(name, pa.string()) for name in ("source", "position", "digest")])
    writer = None
    try:
        for keys in _find(quarantine, choice, found):
            if target is not None and keys:
                if writer is None:
                    storage.make_folder(target.parent)
                    writer = pq.ParquetWriter(storage.address(target), schema)
                writer.write_table(pa.Table.from_pylist(keys, schema))
    finally:
        if writer is not None:
            writer.close()
    if writer is not None and target is not None:
        storage.sync_file(target)
    return found


def quarantined_before(quarantine: Path, choice: Choice) -> tuple[list[DataFile], int]:
    """Return the quarantine files whose records are all read again, which a rebuild of the whole table removes, and the
    number of rows in files whose records are read again in part, or of which this is unknown."""
    batches = choice.batches
    files = list_data_files(quarantine)
    origins = read_origins(quarantine, [file.path for file in files])
    whole, mixed = [], 0
    for file in files:
        of = origins.get(file.path, frozenset())
        if of and of <= batches:
            whole.append(file)
        elif not of or of & batches:
            mixed += file.rows
    return whole, mixed


def find_missing_versions(quarantine: Path, lineage: Lineage) -> list[int]:
    """The versions of quarantine whose commits are gone, where they are needed to know which records are in some files:
    the name of a file that a side job wrote does not contain its batch."""
    state = read_table_state(quarantine)
    gone = [] if state is None else sorted(set(range(state.version + 1)) - set(list_versions(quarantine)))
    if not gone:
        return []
    queries = {one.query_id[:8] for one in lineage.increments} | {FOREIGN[0]}
    paths = [file.path for file in list_data_files(quarantine)]
    origins = read_origins(quarantine, paths)
    is_known = all(path in origins and {query for query, _ in origins[path]} <= queries for path in paths)
    return [] if is_known else gone


def _find(quarantine: Path, choice: Choice, found: Excluded) -> Iterator[list[dict[str, str]]]:
    links: dict[tuple[str, str], list[str]] = {}
    for source, rows in choice.files.items():
        for row in rows:
            links.setdefault((source, shown_path(row.path)), []).append(row.link.rsplit("/", 1)[-1])
    batches = choice.batches
    files = list_data_files(quarantine)
    origins = read_origins(quarantine, [file.path for file in files])
    for file in files:
        is_ours = not batches.isdisjoint(origins.get(file.path, ()))
        with pq.ParquetFile(storage.address(quarantine / file.path)) as parquet:
            for piece in parquet.iter_batches(_RECORDS_AT_ONCE, columns=_COLUMNS, use_threads=False):
                keys: list[dict[str, str]] = []
                for record in piece.to_pylist():
                    places = _places(record, links, choice.ranges)
                    if places is None and choice.may_hold is not None:
                        found.unplaced += choice.may_hold(record["raw"])
                    elif places is None:
                        found.unplaced += is_ours
                    elif places:
                        found.rejected += record["reason"] not in ("malformed", "late")
                        name = str(record["source"])
                        found.records[name] = found.records.get(name, 0) + 1
                        keys += [{"source": name, "position": one, "digest": digest} for one, digest in places]
                yield keys


def _places(
    record: QuarantineRow,
    links: Mapping[tuple[str, str], Sequence[str]],
    ranges: Mapping[str, Sequence[OffsetRanges]],
) -> list[tuple[str, str]] | None:
    """Return each (position, digest) at which a job would read the record; [] where it does not read it, None where the
    record is unknown."""
    source, position = record["source"], record["position"]
    try:
        at = json.loads(position or "")
    except ValueError:
        return None
    if source is None or not isinstance(at, dict):
        return None
    if "offset" in at:
        partition = TopicPartition(at["topic"], at["partition"])
        is_read = any(
            partition in one and one[partition].begin <= at["offset"] < one[partition].end
            for one in ranges.get(source, ())
        )
        text = f'{{"topic":"{partition.topic}","partition":{partition.partition},"offset":{at["offset"]}}}'
        return [(text, "")] if is_read else []
    digest = hashlib.sha256((record["raw"] or "").encode("utf-8", "surrogatepass")).hexdigest()
    return [(name, digest) for name in links.get((source, str(at.get("file"))), ())]


@dataclass(frozen=True)
class Older:
    """The part that stays: the rows of the first publishes of the lineage, in the files ``stays``; ``lost`` has the
    reasons."""

    stays: list[DataFile]
    lost: list[str]
    until: str | None
    """The time of the last of these publishes."""
    choice: Choice
    """What the rest is rebuilt from."""

    @property
    def leaves_something(self) -> bool:
        """Return whether there is a remaining part to rebuild, or nothing is lost."""
        return not (self.lost and self.choice.is_empty)

    def to_json(self) -> outputs.BackfillOlder:
        """The older part as ``--dry-run`` prints it."""
        return {
            "files": len(self.stays),
            "rows": sum(file.rows for file in self.stays),
            "partitions": sorted({describe_partition([*one.partition.items()]) for one in self.stays if one.partition}),
            "until": self.until,
            "lost": self.lost,
        }


def describe_older(older: outputs.BackfillOlder) -> str:
    """Describe the part that stays, and why, in one sentence."""
    if not older["lost"]:
        return "no part of the table stays as it is: the sources hold all that it was made of"
    files = f"{count_of(older['rows'], 'row')} in {count_of(older['files'], 'file')}"
    partitions = f" of {list_first(older['partitions'])}" if older["partitions"] else ""
    until = f", published until {older['until']}" if older["until"] else ""
    lost = list_first(older["lost"])
    return f"the older part stays as it is: {files}{partitions}{until}; the reason: {lost}"


def find_older(scope: Scope) -> Older:
    """Find the older part of the table; it is empty where the sources have all records. No JVM."""
    lineage, quarantine = scope.lineage, scope.paths.quarantine
    every = choose(scope, Interval({}))
    origins = read_origins(scope.paths.table, [*(file.path for file in scope.files), *lineage.deleted])
    edge, lost = _find_lost(scope, every)
    if lineage.deleted:
        lost.append("another program has deleted rows of it, which would come back")
        deleted = frozenset().union(*(origins.get(path, ()) for path in lineage.deleted))
        edge = max(edge, *(place + 1 for batch, place in _batches_from(edge, lineage).items() if batch in deleted), 0)
    if not lost:
        return Older([], [], None, every)
    quarantined = [file.path for file in list_data_files(quarantine)]
    edge = _grow(edge, lineage, {*origins.values(), *read_origins(quarantine, quarantined).values()})
    newer = _batches_from(edge, lineage)
    # Replays of the older part are not read again.
    rest = replace(lineage, replays=[one for one in lineage.replays if not newer.keys().isdisjoint(one.batches)])
    return Older(
        [file for file in scope.files if newer.keys().isdisjoint(origins.get(file.path, ()))],
        lost,
        text_of_ms(lineage.increments[edge - 1].at_ms) if edge else None,
        choose(replace(scope, lineage=rest), Interval({}), older=edge),
    )


def _find_lost(scope: Scope, every: Choice) -> tuple[int, list[str]]:
    """Return the number of publishes up to the last one that cannot be read again, and the reasons."""
    lineage = scope.lineage
    places = {(one.query_id, batch): place for place, one in enumerate(lineage.increments) for batch in one.batch_ids}
    rows = [row for some in every.files.values() for row in some]
    differing = find_differing(scope.project, scope.paths, scope.spec.file_streams, rows)
    lost = [difference for _, difference in differing] + _describe_strange(every)
    gone = [row for row, _ in differing] + [row for row in rows if row.source in every.strange]
    edges = [places[str(row.query_id), int(row.batch_id or 0)] + 1 for row in gone]
    edges += [place + 1 for place, one in _counting(lineage) if not one.ends.keys().isdisjoint(every.strange)]
    if missing := missing_offsets(scope, every):
        lost += missing

        def is_there(edge: int) -> bool:
            rest = [one for place, one in _counting(lineage) if place >= edge]
            return not missing_offsets(scope, replace(every, ranges=ranges_of(scope, rest)))

        edges.append(bisect_left(range(len(lineage.increments)), True, key=is_there))
    if lineage.foreign:
        lost.append("it has rows that no run of the pipeline has read")
    return max(edges, default=0), lost


def _describe_strange(choice: Choice) -> list[str]:
    return [f"source {name} is not in the spec any more" for name in choice.strange]


def _grow(edge: int, lineage: Lineage, together: Collection[frozenset[Batch]]) -> int:
    """The first edge, from this one on, that does not split any of these sets of batches."""
    while True:
        newer = _batches_from(edge, lineage)
        inside = [[newer[batch] for batch in one if batch in newer] for one in together]
        mixed = [max(some) for some, one in zip(inside, together, strict=True) if 0 < len(some) < len(one)]
        if not mixed:
            return edge
        edge = max(mixed) + 1


def _batches_from(edge: int, lineage: Lineage) -> dict[Batch, int]:
    """The batches from ``edge`` on that can be read again, each with the index of its publish."""
    newer = [(place, one) for place, one in _counting(lineage) if place >= edge]
    return {one.batch(number): place for place, one in newer for number in one.batch_ids}


def _counting(lineage: Lineage) -> list[tuple[int, Increment]]:
    """The publishes whose records can be read again, each with its index."""
    return [(place, one) for place, one in enumerate(lineage.increments) if not one.is_excluded and not one.is_replaced]


@dataclass(frozen=True)
class Finding:
    """One interval: what is read, what stays in quarantine, the files it replaces, and the error that prevents it."""

    interval: Interval
    choice: Choice
    excluded: Excluded
    replaced: list[DataFile]
    error: TidegateError | None
    closes_at_ms: int | None = None
    """As in :class:`Scope`."""
    older: Older | None = None
    """The part of the table that stays, with ``--keep-older``."""


def survey(
    project: Project,
    paths: PipelinePaths,
    spec: PipelineSpec,
    facts: Facts,
    wanted: Wanted | None,
    *,
    keeps_older: bool = False,
) -> Scope:
    """Determine the scope of a backfill, or of a refresh where ``wanted`` is None.

    Raises DisagreementError when table, checkpoint and spec do not match, UsageError for a pipeline or a range that
    cannot be rebuilt, SourceLostError BACKFILL_NOT_KEPT.
    """
    name, keeps_state = spec.name, query_keeps_state(facts, spec)
    hands_over = wanted is None and keeps_state
    table = _check_pipeline(project, paths, spec, facts, is_refresh=wanted is None)
    if hands_over and keeps_older:
        raise errors.REFRESH_KEEPS_STATE(where=f"pipeline {name}", name=name)
    if keeps_state and wanted is not None:
        check_kept(facts, name)
    files = list_data_files(paths.table)
    intervals = [Interval({})]
    if wanted is not None:
        columns = table.partition_columns
        intervals = find_span(wanted, name, schema_json=table.schema_json, partition_by=columns, files=files)
    lineage = read_lineage(paths.table, table.version)
    missing = find_missing_versions(paths.quarantine, lineage) if wanted is None else []
    for path, versions in ((paths.table, lineage.unknown), (paths.quarantine, missing)):
        if versions:
            shown = list_first([str(one) for one in versions])
            raise errors.BACKFILL_LOG_CUT(where=str(path), versions=shown, name=name)
    closes_at_ms = None
    if wanted is not None:
        there = [file.partition for file in files]
        there += [dict(one) for increment in lineage.increments for given in increment.given.values() for one in given]
        check_known(join_intervals(intervals), there)  # also days that a backfill has emptied
        closes_at_ms = closing_watermark(paths, lineage, name) if keeps_state else None
    return Scope(
        project, paths, spec, table, files, lineage, intervals, closes_at_ms, hands_over, keeps_older=keeps_older
    )


def find_days(project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> tuple[str, str]:
    """The first and the last day with rows in the table. Raises as :func:`survey` where no day can be rebuilt."""
    table = _check_pipeline(project, paths, spec, facts, is_refresh=False)
    days = list_days(spec.name, table.schema_json, table.partition_columns, list_data_files(paths.table))
    if not days:
        raise errors.BACKFILL_NO_TABLE(where=f"pipeline {spec.name}", name=spec.name)
    return days[0], days[-1]


def _check_pipeline(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, *, is_refresh: bool
) -> TableState:
    """Return the pipeline's table. Raises where nothing of it can be rebuilt."""
    name, where = spec.name, f"pipeline {spec.name}"
    if facts.table is None:
        raise errors.BACKFILL_NO_TABLE(where=where, name=name)
    check_agreement(facts, name)
    keeps_state = query_keeps_state(facts, spec)
    hands_over = is_refresh and keeps_state
    if spec.output_mode != "append" and not hands_over:
        if is_refresh:
            raise errors.REFRESH_NOT_POSSIBLE(where=where, output_mode=spec.output_mode, name=name)
        why = f"with output_mode {spec.output_mode} its rows replace one another, whenever they arrived"
        way = f"refresh {name}" if keeps_state else f"repair {name} --rebuild"
        raise errors.BACKFILL_ONLY_WHOLE(where=where, why=why, way=way)
    if hands_over:
        refuse_pending(paths, facts, name)
    gone = [one for one, source in open_sources(project, paths, spec).items() if not source.is_replayable]
    if gone:
        raise errors.BACKFILL_NOT_KEPT(where=where, sources=", ".join(gone))
    return facts.table


def examine(scope: Scope) -> list[Finding]:
    """Examine every interval; the error of one names the intervals that can be rebuilt."""
    findings = [_examine(scope, interval) for interval in scope.intervals]
    possible = [one.interval.label for one in findings if one.error is None]
    shown = list_first(possible)
    for one in findings:
        if one.error is not None and one.error.fix is not None:
            one.error.fix = one.error.fix.replace(_POSSIBLE, shown or "none")
    return findings


def check_possible(findings: Sequence[Finding]) -> None:
    """Raise the error of the first interval that has one."""
    error = next((one.error for one in findings if one.error is not None), None)
    if error is not None:
        raise error


def _examine(scope: Scope, interval: Interval) -> Finding:
    older = find_older(scope) if scope.keeps_older else None
    if older is not None and older.leaves_something:
        interval, choice = replace(interval, but_older=bool(older.lost)), older.choice
    else:
        older, choice = None, choose_records(scope, interval)
    if interval.is_whole_table:
        excluded = Excluded(unplaced=quarantined_before(scope.paths.quarantine, choice)[1])
    else:
        excluded = find_excluded(scope.paths.quarantine, choice)
    stays = set() if older is None else {file.path for file in older.stays}
    replaced = [file for file in scope.files if interval.holds(file.partition) and file.path not in stays]
    error = _find_hindrance(scope, interval, choice, excluded)
    return Finding(interval, choice, excluded, replaced, error, scope.closes_at_ms, older)


def _find_hindrance(scope: Scope, interval: Interval, choice: Choice, excluded: Excluded) -> TidegateError | None:
    where, label, name = f"pipeline {scope.spec.name}", interval.label, scope.spec.name
    foreign = [] if interval.but_older else scope.lineage.foreign
    if any(interval.holds(dict(partition)) for partition in foreign):
        lost_rows = "rows that no run has read (the table was adopted, or another program wrote to it) would be lost"
        possible = _alternatives(scope, interval)
        return errors.BACKFILL_FOREIGN_ROWS(where=where, label=label, why=lost_rows, possible=possible, name=name)
    deleted = {} if interval.but_older else scope.lineage.deleted
    if any(interval.holds(dict(partition)) for partition in deleted.values()):
        back = "another program has deleted rows, which would come back"
        return errors.BACKFILL_FOREIGN_ROWS(where=where, label=label, why=back, possible=_POSSIBLE, name=name)
    if (replays := _describe_replays(scope.lineage, choice)) is not None:
        return errors.BACKFILL_REPLAYED(where=where, label=label, replays=replays, possible=_POSSIBLE)
    if scope.closes_at_ms is not None and (why := why_not_exact(scope.lineage, excluded.rejected)) is not None:
        return spark_errors.BACKFILL_STATE(where=where, label=label, why=why, possible=_POSSIBLE, name=name)
    if lost := _find_gone(scope, interval, choice):
        shown = list_first(lost, between="; ")
        possible = _alternatives(scope, interval)
        return errors.BACKFILL_GONE(where=where, label=label, lost=shown, possible=possible, name=name)
    if excluded.unplaced:
        unplaced = (
            f"the source record of {count_of(excluded.unplaced, 'row')} in quarantine is unknown, because the "
            "transform does not keep it"
        )
        return errors.BACKFILL_NOT_EXACT(where=where, label=label, why=unplaced, name=name)
    if excluded.rejected and any(one.gives_several for one in choice.increments):
        return several_rows_error(scope.spec.name, label, excluded)
    return None


def several_rows_error(name: str, label: str, excluded: Excluded) -> TidegateError:
    """The error where other rows of records with a rejected row may be in the table."""
    why = (
        f"the transform may make several rows from one record, and a rule has rejected "
        f"{count_of(excluded.rejected, 'row')} of them: which other rows of these records are in the table is unknown"
    )
    return errors.BACKFILL_NOT_EXACT(where=f"pipeline {name}", label=label, why=why, name=name)


def _find_gone(scope: Scope, interval: Interval, choice: Choice) -> list[str]:
    """What was read and can no longer be read: files, sources, offsets."""
    rows = [row for some in choice.files.values() for row in some]
    lost = find_differences(scope.project, scope.paths, scope.spec.file_streams, rows)
    lost += [
        f"{shown_path(row.path)} is in quarantine as a whole, but for rows that could be read"
        for row in rows
        if not interval.is_whole_table and is_in_quarantine(scope.paths.unreadable, row.link)
    ]
    return lost + _describe_strange(choice) + missing_offsets(scope, choice)


def _alternatives(scope: Scope, interval: Interval) -> str:
    """Name what can be rebuilt where this interval cannot."""
    if interval.within:
        return _POSSIBLE
    if scope.hands_over or not find_older(scope).leaves_something:
        return "nothing"
    return f"all but the older part, with `tidegate refresh {scope.spec.name} --keep-older`"


def _describe_replays(lineage: Lineage, choice: Choice) -> str | None:
    """Describe the replays whose rows cannot be made by reading the source again; None when there is none."""
    readable = {batch for batch, one in lineage.by_batch.items() if not one.is_excluded}
    found = []
    for replay in choice.replays:
        if replay.edited:
            found.append(f"{replay.run_id} ({count_of(replay.edited, 'record')} edited by hand)")
        elif not replay.batches <= readable:
            found.append(f"{replay.run_id} (records of an increment that was discarded, or is not in the log)")
    return list_first(found, between="; ") or None
