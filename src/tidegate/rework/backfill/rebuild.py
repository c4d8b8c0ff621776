"""Rebuild one interval: a side job reads its records again, the same gate judges them, and one version swaps them in.

The side job has its own state folder (:meth:`tidegate.core.paths.PipelinePaths.beside`), so runs do not see what it
stages. Nothing counts before its one intent is written, which replaces the rows and adds newly quarantined records to
quarantine. A job that was stopped before that starts from the beginning.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.rework import errors
from tidegate.rework.backfill.build import Reading, build_rows, read_built
from tidegate.rework.backfill.choose import Choice
from tidegate.rework.backfill.examine import Finding, Scope
from tidegate.rework.backfill.excluded import find_excluded
from tidegate.rework.backfill.hand_over import closes_all, prepare_checkpoint, refuse_pending, within_pipeline
from tidegate.rework.backfill.held import keep_held, remove_held_figures, report_held
from tidegate.rework.backfill.lineage import describe_partition
from tidegate.rework.backfill.offsets import starts_of_topics
from tidegate.rework.backfill.span import Interval
from tidegate.rework.backfill.swap import Built, plan_swap, report_after, swap_interval
from tidegate.runs.drive import Load
from tidegate.runs.gate.increment import judge_side_job
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.pinned import settings_at_birth
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.verdicts import quote_word
from tidegate.runs.rework import note_begun
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.intake import restore_links, source_path
from tidegate.sources.files.ledger import LedgerRow, LinkedFile, open_ledger, shown_path
from tidegate.sources.files.unreadable import kept_file, unreadable_record
from tidegate.sources.port import Chosen, Cut
from tidegate.spark.driver.order import Bounds
from tidegate.spec.project import Project
from tidegate.state.birth import Birth, new_birth, read_birth
from tidegate.state.manifest import BatchManifest, files_within
from tidegate.table.publish.origins import Partition
from tidegate.table.publish.rework import Rework
from tidegate.table.upsert.folded import fold_unpublished

_EXCLUDED = "left_out.parquet"
_NAMED_AT_MOST = 5


class Spilled(Exception):
    """Rows of the same records may move to, or from, partitions that are not rebuilt."""

    def __init__(self, others: Collection[Partition]) -> None:
        super().__init__(str(others))
        self.others = sorted(others, key=str)


def rebuild_interval(context: RunContext, scope: Scope, finding: Finding, *, is_last: bool, submit: Submit) -> None:
    """Read, judge and swap one interval, and add it to the report.

    Raises :class:`Spilled` when rows would move to partitions that are not rebuilt, HeldError BACKFILL_HELD, and what
    a run's ingest raises.
    """
    paths = context.paths
    work = Rework(context.name, context.report.mode, context.report.run_id)
    folder = f"backfills/{work.app_id}/{secrets.token_hex(4)}"
    remove_held_figures(context)
    _clear_attempts(context, work)
    side = paths.beside(folder)
    storage.make_folder(side.state)
    storage.sync_names_above([side.state], paths.state)
    job = replace(context, paths=side, facts=None)
    manifests: list[BatchManifest] = []
    if not finding.choice.is_empty:
        _read(context, job, scope, finding, folder, submit)
        if not scope.hands_over and finding.interval.is_whole_table and _keeps_state(side):
            # The transform has become stateful: the state has to be handed over with the rows.
            assert context.facts is not None
            if finding.interval.but_older:
                raise errors.REFRESH_KEEPS_STATE(where=f"pipeline {context.name}", name=context.name)
            refuse_pending(context.paths, context.facts, context.name)
            rebuild_interval(context, replace(scope, hands_over=True), finding, is_last=is_last, submit=submit)
            return
        if scope.hands_over:
            prepare_checkpoint(job, folder, paths)
        manifests = read_built(job)
        _check_files(context, job, finding, manifests)
        _check_read(context, finding, manifests)
    built = _judge(job, scope, finding.interval, manifests, folder)
    if not built.verdict.passed:
        report = report_after(context.report, context.paths.table, finding, built, is_last=is_last)
        plan = plan_swap(context, scope, finding, built, report)
        context.lease.check()
        stays = [] if finding.older is None else finding.older.stays
        keep_held(side, plan, finding.interval, context.report, stays)
        report_held(context.report, report, finding.interval)
        raise _held_error(context, finding.interval, built)
    swap_interval(context, scope, finding, built, is_last=is_last)
    _clear_attempts(context, work)


def _keeps_state(side: PipelinePaths) -> bool:
    birth = read_birth(side)
    return birth is not None and birth.keeps_state


def _clear_attempts(context: RunContext, work: Rework) -> None:
    """Remove what earlier attempts have left. They are listed before the lease is checked, so that a stale process
    removes nothing of its successor's."""
    root = context.paths.backfills / work.app_id
    found = storage.list_folder(root, "*")
    context.lease.check()
    for one in found:
        if one.is_dir():
            storage.remove_tree(one)
        else:
            storage.remove(one)
    storage.remove_empty_folder(root)


def _read(context: RunContext, job: RunContext, scope: Scope, finding: Finding, folder: str, submit: Submit) -> None:
    """Let Spark read the chosen records into the job's own staging."""
    project, spec, side, choice = context.project, context.spec, job.paths, finding.choice
    starts = starts_of_topics(project, context.paths, spec, scope.lineage, choice)
    if finding.excluded.total:
        find_excluded(side.quarantine, choice, side.state / _EXCLUDED)
    links = _link_files(job, choice, context.paths)
    sources = {name: starts.get(name, {}) for name in spec.streams}
    birth = new_birth(side, spec, sources, settings_at_birth(project, spec))
    is_one = spec.trigger == "once" or (scope.closes_at_ms is not None and not scope.hands_over)
    reading = Reading(
        birth=birth if finding.interval.is_whole_table else _with_state_of(birth, context.facts),
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
        partition_columns=_partition_columns(choice, spec.streams),
        load=Load(choice.bytes, sum(map(len, links.values()))),
        cut=Cut.NOWHERE if is_one else Cut.BY_OPTIONS,
        bounds=_bounds_of_refresh(context)
        if scope.hands_over
        else Bounds(
            within=finding.interval.within,
            left_out=_EXCLUDED if finding.excluded.total else "",
            closes_at_ms=scope.closes_at_ms,
        ),
    )
    note_begun(context)
    try:
        build_rows(context, job, folder, reading, submit)
    except TidegateError as error:
        if error.code != "STATE_CHANGED":
            raise
        raise errors.BACKFILL_STATE_CHANGED(
            where=f"pipeline {spec.name}", change=error.message, name=spec.name
        ) from error


def _with_state_of(birth: Birth, facts: Facts | None) -> Birth:
    """``birth`` with the state of the runs' query, which the job's query has to keep too."""
    runs = None if facts is None else facts.birth
    if runs is None:
        return birth
    return replace(birth, state=runs.state, transform=runs.transform, state_spark=runs.state_spark)


def _bounds_of_refresh(context: RunContext) -> Bounds:
    """The bounds of a job whose checkpoint runs will continue: it may read further in topics than runs have, and must
    not skip a record."""
    assert context.facts is not None
    return Bounds(within={}, closes_all=closes_all(context.paths, context.spec, context.facts))


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
            if lost:
                shown = "; ".join(lost[:_NAMED_AT_MOST])
                raise errors.BACKFILL_GONE(
                    where=f"pipeline {job.name}", label="the interval", lost=shown, possible="none"
                )
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


def _partition_columns(choice: Choice, streams: Mapping[str, object]) -> dict[str, list[str]]:
    """The columns in folder names, by source."""
    found = {}
    for name in streams:
        rows = choice.files.get(name, [])
        names = {part.partition("=")[0] for row in rows for part in row.link.split("/")[:-1] if "=" in part}
        found[name] = sorted(names)
    return found


def _check_files(context: RunContext, job: RunContext, finding: Finding, manifests: Sequence[BatchManifest]) -> None:
    """Check that the job has read every chosen file, and that none has changed between the examination and Spark's
    read. Raises SourceLostError BACKFILL_GONE."""
    chosen = [row for rows in finding.choice.files.values() for row in rows]
    read = {file["link"] for one in manifests for source in one.sources.values() for file in source.files or ()}
    lost = [f"{shown_path(row.path)} was not read" for row in chosen if row.link not in read]
    lost += _find_changed(job, chosen)
    if lost:
        shown, label = "; ".join(lost[:_NAMED_AT_MOST]), finding.interval.label
        raise errors.BACKFILL_GONE(where=f"pipeline {context.name}", label=label, lost=shown, possible="none")


def _check_read(context: RunContext, finding: Finding, manifests: Sequence[BatchManifest]) -> None:
    """Check that the swap is safe: no quarantined record was read, no row may have moved, and no record that is
    malformed now may belong to another partition."""
    label, name, where = finding.interval.label, context.name, f"pipeline {context.name}"
    met = sum(source.left_out for one in manifests for source in one.sources.values())
    if met != finding.excluded.total:
        expected = count_of(finding.excluded.total, "record")
        raise errors.BACKFILL_OTHER_TEXTS(where=where, expected=expected, label=label, found=met, name=name)
    if finding.excluded.rejected and any("several" in one.partitioned for one in manifests):
        count = count_of(finding.excluded.rejected, "row")
        raise errors.BACKFILL_SEVERAL_ROWS(where=where, count=count, label=label, name=name)
    late = sum(one.late + one.dropped_updates for one in manifests)
    if finding.closes_at_ms is not None and late:
        raise errors.BACKFILL_LATE(where=where, label=label, name=name)
    others = _check_moves(finding, manifests)
    malformed = sum(one.malformed for one in manifests)
    if malformed and others:
        count, example = count_of(malformed, "record"), describe_partition(next(iter(others)))
        raise errors.BACKFILL_MALFORMED(where=where, count=count, example=f"with rows of {example}", name=name)


def _check_moves(finding: Finding, manifests: Sequence[BatchManifest]) -> set[Partition]:
    """Return the other partitions in which these records have rows. Raises :class:`Spilled` where there are some and
    not all rows were partitioned by the same rule: then a row may now belong to another partition."""
    choice = finding.choice
    others = set(choice.outside)
    for manifest in manifests:
        for file in manifest.files:
            if not finding.interval.holds(file.partition):
                others.add(tuple(sorted((column, value or None) for column, value in file.partition.items())))
    rules = choice.rules | {one.partitioned.get("rule", "") for one in manifests}
    own = {column for one in manifests for column in finding.interval.within if column in one.partitioned}
    has_other_folders = choice.by_folder and bool(manifests) and own != set(finding.interval.within)
    has_other_times = choice.margin is not None and choice.margin.is_known and len(rules) > 1
    if (others and (len(rules) > 1 or "" in rules)) or has_other_folders or has_other_times:
        raise Spilled(others or {(("other folders", None),)})
    return others


def spill_error(name: str, spilled: Spilled) -> Exception:
    """The error for rows that may move out of all requested partitions."""
    others = [describe_partition(one) for one in spilled.others]
    return errors.BACKFILL_SPILLS(where=f"pipeline {name}", others=list_first(others, _NAMED_AT_MOST), name=name)


def _judge(job: RunContext, scope: Scope, interval: Interval, manifests: Sequence[BatchManifest], folder: str) -> Built:
    """Judge the interval's rows by the gate; where rows replace others, only those that remain."""
    inside = [replace(one, files=files_within(one.files, interval.within)) for one in manifests]
    folds = fold_unpublished(job.paths, inside, job.spec) if scope.hands_over and inside else None
    verdict = judge_side_job(job, inside, folded=folds)
    moved, folded = within_pipeline(inside, folds[0] if folds else None, folder)
    return Built(
        manifests=moved,
        files=[file for one in moved for file in one.files],
        quarantine=[file for one in moved for file in one.quarantine_files],
        verdict=verdict,
        side=job.paths,
        folded=folded,
    )


def _held_error(context: RunContext, interval: Interval, built: Built) -> Exception:
    return errors.BACKFILL_HELD(
        where=f"run {context.report.run_id} of pipeline {context.name}",
        label=interval.label,
        reasons="; ".join(built.verdict.reasons),
        name=context.name,
        run_id=quote_word(context.report.run_id),
    )
