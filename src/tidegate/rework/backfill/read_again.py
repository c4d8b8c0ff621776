"""Read the records of an interval again, in a side job, and check that they are those that were chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.rework import errors
from tidegate.rework.backfill.choose import Choice, Scope
from tidegate.rework.backfill.examine import Finding, several_rows_error
from tidegate.rework.backfill.excluded import find_excluded
from tidegate.rework.backfill.hand_over import closes_all
from tidegate.rework.backfill.lineage import describe_partition
from tidegate.rework.backfill.losses import LEFT_OUT
from tidegate.rework.backfill.older import starts_of_topics
from tidegate.rework.backfill.side_job import Reading, build_rows
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.restart.new_query import settings_at_birth
from tidegate.runs.rework import note_begun
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.intake import restore_links, source_path
from tidegate.sources.files.ledger import LedgerRow, LinkedFile, open_ledger, shown_path
from tidegate.sources.files.unreadable import kept_file, unreadable_record
from tidegate.sources.port import Chosen, Cut
from tidegate.spark.driver.order import Bounds
from tidegate.spec.project import Project
from tidegate.state.birth import new_birth
from tidegate.state.manifest import BatchManifest
from tidegate.table.log.snapshot import Partition, partition_of


def read_records(
    context: RunContext, job: RunContext, scope: Scope, finding: Finding, folder: str, submit: Submit
) -> list[BatchManifest]:
    """Let Spark read the chosen records into the job's own staging; return the manifests."""
    project, spec, side, choice = context.project, context.spec, job.paths, finding.choice
    starts = starts_of_topics(scope, choice)
    if finding.excluded.total:
        find_excluded(side.quarantine, choice, side.state / LEFT_OUT)
    links = _link_files(job, choice, context.paths)
    sources = {name: starts.get(name, {}) for name in spec.streams}
    birth = new_birth(side, spec, sources, settings_at_birth(project, spec))
    facts = context.facts
    assert facts is not None
    if facts.birth is not None and not finding.interval.is_whole_table:  # the query has to keep the state of the runs'
        runs = facts.birth
        birth = replace(birth, state=runs.state, transform=runs.transform, state_spark=runs.state_spark)
    is_one = spec.trigger == "once" or (scope.closes_at_ms is not None and not scope.hands_over)
    reading = Reading(
        birth=birth,
        chosen={
            name: Chosen(
                links.get(name, {}),
                sources[name],
                None if scope.hands_over else choice.ranges.get(name, []),
                choice.excluded_ranges.get(name, []),
            )
            for name in spec.streams
        },
        links=links,
        replaces_schema=finding.interval.replaces_all,
        cut=Cut.NOWHERE if is_one else Cut.BY_OPTIONS,
        # Runs will continue the checkpoint: it may read further in topics than runs have, and must not skip a record.
        bounds=Bounds(within={}, closes_all=closes_all(context.paths, spec, facts))
        if scope.hands_over
        else Bounds(
            within=finding.interval.within,
            left_out=LEFT_OUT if finding.excluded.total else "",
            closes_at_ms=scope.closes_at_ms,
            days=[day.within for day in finding.interval.joined],
        ),
    )
    note_begun(context)
    try:
        return build_rows(context, job, folder, reading, submit)
    except TidegateError as error:
        if error.code != "STATE_CHANGED":
            raise
        raise errors.BACKFILL_STATE_CHANGED(
            where=f"pipeline {spec.name}", change=error.message, name=spec.name
        ) from error


def _link_files(job: RunContext, choice: Choice, pipeline: PipelinePaths) -> dict[str, dict[str, LinkedFile]]:
    """Link the files into the job's intake; return {source: {link: file}} as in an order. Raises SourceLostError
    BACKFILL_GONE when one was removed or changed since it was examined."""
    links: dict[str, dict[str, LinkedFile]] = {}
    if not job.spec.file_streams:
        return links
    with open_ledger(job.paths, create=True, lease=job.lease) as ledger:
        for rows in choice.files.values():
            ledger.take_again(_as_read(job.project, row) for row in rows)
        for name, source in job.spec.file_streams.items():
            job.paths.intake(name).mkdir(parents=True, exist_ok=True)
            for row in choice.files.get(name, ()):
                if (kept := kept_file(pipeline.unreadable, row.link)) is not None:  # the kept file is what was read
                    storage.make_folder((job.paths.intake(name) / row.link).parent)
                    storage.link(kept, job.paths.intake(name) / row.link)
            restored = restore_links(job.project, job.paths, name, source, ledger)
            lost = [f"{shown_path(path)} is gone" for path in restored.lost]
            # A file that was copied back has another time stamp, and may have the same content.
            changed = [row for row in choice.files.get(name, ()) if row.path in restored.changed]
            lost += _find_changed(job, changed)
            _refuse_gone(job.name, "the interval", lost)
            links[name] = {row.link: row.linked_file for row in ledger.waiting(name)}
    return links


def _as_read(project: Project, row: LedgerRow) -> LedgerRow:
    """Limit a file that has grown since, or has another time stamp, to the part that was read, if its mark shows that
    it still begins with that part."""
    try:
        there = storage.stat(Path(source_path(project, row.path)))
    except OSError:
        return row  # restoring its link says what is wrong
    is_same = (there.size_bytes, there.modified_ns) == (row.size, row.mtime_ns)
    if is_same or row.until is not None or row.mark is None or row.mark.size != row.size:
        return row
    return row._replace(until=row.size) if there.size_bytes > row.size or row.mark.is_whole else row


def _find_changed(job: RunContext, rows: Sequence[LedgerRow]) -> list[str]:
    """Describe those of ``rows``, files in the job's intake, whose content differs from what was read of them."""
    if not rows:
        return []
    with open_ledger(job.paths, read_only=True) as ledger:
        copied = {row.link for row in ledger.rows() if row.until is not None}
    rows = [row._replace(until=row.read_until) if row.link in copied else row for row in rows]
    found = find_differences(job.project, job.paths, job.spec.file_streams, rows)
    for row in rows:
        link = job.paths.intake(row.source) / row.link
        is_sound = row.until is None and unreadable_record(job.paths.unreadable, row.link) is None
        if is_sound and storage.exists(link) and (size := storage.stat(link).size_bytes) > row.size:
            found.append(f"{shown_path(row.path)} grew after it was read: {row.size:,} bytes then, {size:,} now")
    return found


def _refuse_gone(name: str, label: str, lost: Sequence[str]) -> None:
    if lost:
        shown = list_first(lost, between="; ")
        raise errors.BACKFILL_GONE(where=f"pipeline {name}", label=label, lost=shown, possible="none", name=name)


def check_files(job: RunContext, finding: Finding, manifests: Sequence[BatchManifest]) -> None:
    """Check that the job has read every chosen file, and that none has changed between the examination and Spark's
    read. Raises SourceLostError BACKFILL_GONE."""
    chosen = [row for rows in finding.choice.files.values() for row in rows]
    read = {file["link"] for one in manifests for source in one.sources.values() for file in source.files or ()}
    lost = [f"{shown_path(row.path)} was not read" for row in chosen if row.link not in read]
    _refuse_gone(job.name, finding.interval.label, lost + _find_changed(job, chosen))


def check_read(context: RunContext, finding: Finding, manifests: Sequence[BatchManifest]) -> None:
    """Check that the swap is safe: no quarantined record was read, no row may have moved, and no record that is
    malformed now may belong to another partition."""
    label, name, where = finding.interval.label, context.name, f"pipeline {context.name}"
    met = sum(source.left_out for one in manifests for source in one.sources.values())
    if met != finding.excluded.total:
        expected = count_of(finding.excluded.total, "record")
        raise errors.BACKFILL_OTHER_TEXTS(where=where, expected=expected, label=label, found=met, name=name)
    if finding.excluded.rejected and any("several" in one.partitioned for one in manifests):
        raise several_rows_error(name, label, finding.excluded)
    late = sum(one.late + one.dropped_updates for one in manifests)
    if finding.closes_at_ms is not None and late:
        why = f"{count_of(late, 'record')} would be late in any run: their event times are before 1970"
        raise errors.BACKFILL_NOT_EXACT(where=where, label=label, why=why, name=name)
    others = _check_moves(name, finding, manifests)
    malformed = sum(one.malformed for one in manifests)
    if malformed and others:
        example = describe_partition(next(iter(others)))
        why = (
            f"{count_of(malformed, 'record')} that were valid when first read are malformed now, and it is unknown to "
            f"which partition they belong: their files also have rows of others, such as {example}"
        )
        raise errors.BACKFILL_NOT_EXACT(where=where, label=label, why=why, name=name)


def _check_moves(name: str, finding: Finding, manifests: Sequence[BatchManifest]) -> set[Partition]:
    """Return the other partitions in which these records have rows. Raises UsageError BACKFILL_SPILLS where there are
    some and not all rows were partitioned by the same rule: then a row may now belong to another partition."""
    choice = finding.choice
    others = set(choice.outside)
    for manifest in manifests:
        for file in manifest.files:
            if not finding.interval.holds(file.partition):
                others.add(partition_of(file.partition))
    rules = choice.rules | {one.partitioned.get("rule", "") for one in manifests}
    own = {column for one in manifests for column in finding.interval.within if column in one.partitioned}
    has_other_folders = choice.by_folder and bool(manifests) and own != set(finding.interval.within)
    has_other_times = choice.margin is not None and choice.margin["is_known"] and len(rules) > 1
    if (others and (len(rules) > 1 or "" in rules)) or has_other_folders or has_other_times:
        spilled = [describe_partition(one) for one in sorted(others or {(("other folders", None),)}, key=str)]
        raise errors.BACKFILL_SPILLS(where=f"pipeline {name}", others=list_first(spilled), name=name)
    return others
