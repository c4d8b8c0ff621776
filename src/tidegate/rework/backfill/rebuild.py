"""One interval rebuilt: its records read again beside the runs, judged by the same gate, and swapped in as one version.

The job has a state folder of its own (:meth:`tidegate.core.paths.PipelinePaths.beside`), so a run does not see what it
stages. Nothing of it counts before its one intent is written: old rows leave the table, new ones come in, and newly
quarantined records go into quarantine. A job that was stopped before that starts from the beginning again.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.core import storage
from tidegate.core.errors import TidegateError, catalogue
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.rework.backfill.build import Reading, build_rows, read_built
from tidegate.rework.backfill.choose import Choice
from tidegate.rework.backfill.examine import Finding, Ground
from tidegate.rework.backfill.hand_over import closes_all, make_ready, refuse_pending, within_pipeline
from tidegate.rework.backfill.held import forget_held, keep_held, tell_held
from tidegate.rework.backfill.left_out import find_left_out
from tidegate.rework.backfill.lineage import describe_partition
from tidegate.rework.backfill.offsets import starts_of_topics
from tidegate.rework.backfill.span import Interval
from tidegate.rework.backfill.swap import Built, plan_swap, report_after, swap_interval
from tidegate.runs.drive import Load
from tidegate.runs.gate.increment import judge_beside
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.pinned import settings_at_birth
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.verdicts import quote_word
from tidegate.runs.rework import note_begun
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.intake import restore_links, source_path
from tidegate.sources.files.ledger import LedgerRow, open_ledger, shown_path
from tidegate.sources.files.unreadable import kept_file, unreadable_record
from tidegate.sources.port import Chosen, Cut
from tidegate.spark.driver.order import Bounds
from tidegate.spec.project import Project
from tidegate.state.birth import Birth, new_birth, read_birth
from tidegate.state.manifest import BatchManifest, files_within
from tidegate.table.publish.origins import Partition
from tidegate.table.publish.rework import Rework
from tidegate.table.upsert.folded import fold_owed

_LEFT_OUT = "left_out.parquet"
_NAMED_AT_MOST = 5


class Spilled(Exception):
    """Rows of the same records are, or would be, in partitions that are not rebuilt, and may have moved."""

    def __init__(self, others: Collection[Partition]) -> None:
        super().__init__(str(others))
        self.others = sorted(others, key=str)


def rebuild_interval(context: RunContext, ground: Ground, finding: Finding, *, is_last: bool, submit: Submit) -> None:
    """Read, judge and swap one interval; the report has it then.

    Raises :class:`Spilled` when rows would move to partitions that are not rebuilt, HeldError BACKFILL_HELD, and what
    a run's ingest raises.
    """
    paths = context.paths
    work = Rework(context.name, context.report.mode, context.report.run_id)
    folder = f"backfills/{work.app_id}/{secrets.token_hex(4)}"
    forget_held(context)
    _clear_tries(context, work)
    side = paths.beside(folder)
    storage.make_folder(side.state)
    storage.sync_names_above([side.state], paths.state)
    beside = replace(context, paths=side, facts=None)
    manifests: list[BatchManifest] = []
    if not finding.choice.is_empty:
        _read(context, beside, ground, finding, folder, submit)
        if not ground.hands_over and finding.interval.is_whole_table and _keeps_state(side):
            # The transform keeps state by now: what it keeps has to go on with the rows.
            assert context.facts is not None
            if finding.interval.but_older:
                raise catalogue.REFRESH_KEEPS_STATE(where=f"pipeline {context.name}", name=context.name)
            refuse_pending(context.paths, context.facts, context.name)
            rebuild_interval(context, replace(ground, hands_over=True), finding, is_last=is_last, submit=submit)
            return
        if ground.hands_over:
            make_ready(beside, folder, paths)
        manifests = read_built(beside)
        _check_files(context, beside, finding, manifests)
        _check_read(context, finding, manifests)
    built = _judge(beside, ground, finding.interval, manifests, folder)
    if not built.verdict.passed:
        report = report_after(context.report, context.paths.table, finding, built, is_last=is_last)
        plan = plan_swap(context, ground, finding, built, report)
        context.lease.check()
        stays = [] if finding.older is None else finding.older.stays
        keep_held(side, plan, finding.interval, context.report, stays)
        tell_held(context.report, report, finding.interval)
        _hold(context, finding.interval, built)
    swap_interval(context, ground, finding, built, is_last=is_last)
    _clear_tries(context, work)


def _keeps_state(side: PipelinePaths) -> bool:
    birth = read_birth(side)
    return birth is not None and birth.keeps_state


def _clear_tries(context: RunContext, work: Rework) -> None:
    """Remove what earlier tries of this work have left: those that are there before the lease is looked at, so that a
    process that slept removes nothing of its successor's."""
    root = context.paths.backfills / work.app_id
    found = storage.list_folder(root, "*")
    context.lease.check()
    for one in found:
        if one.is_dir():
            storage.remove_tree(one)
        else:
            storage.remove(one)
    storage.remove_empty_folder(root)


def _read(
    context: RunContext, beside: RunContext, ground: Ground, finding: Finding, folder: str, submit: Submit
) -> None:
    """Have Spark read what was chosen into the job's own staging."""
    project, spec, side, choice = context.project, context.spec, beside.paths, finding.choice
    starts = starts_of_topics(project, context.paths, spec, ground.lineage, choice)
    left_out = finding.left_out
    if left_out.total:
        find_left_out(side.quarantine, choice, side.state / _LEFT_OUT)
    links = _link_files(beside, choice, context.paths)
    sources = {name: starts.get(name, {}) for name in spec.streams}
    birth = new_birth(side, spec, sources, settings_at_birth(project, spec))
    is_one = spec.trigger == "once" or (ground.closes_at_ms is not None and not ground.hands_over)
    reading = Reading(
        birth=birth if finding.interval.is_whole_table else _with_state_of(birth, context.facts),
        chosen={
            name: Chosen(
                links.get(name, {}),
                sources[name],
                None if ground.hands_over else choice.ranges.get(name, []),
                choice.passed_over.get(name, []),
            )
            for name in spec.streams
        },
        links=links,
        partition_columns=_partition_columns(choice, spec.streams),
        load=Load(choice.bytes, sum(map(len, links.values()))),
        cut=Cut.NOWHERE if is_one else Cut.BY_OPTIONS,
        bounds=_bounds_of_drain(context)
        if ground.hands_over
        else Bounds(
            within=finding.interval.within,
            left_out=_LEFT_OUT if left_out.total else "",
            closes_at_ms=ground.closes_at_ms,
        ),
    )
    note_begun(context)
    try:
        build_rows(context, beside, folder, reading, submit)
    except TidegateError as error:
        if error.code != "STATE_CHANGED":
            raise
        raise catalogue.BACKFILL_STATE_CHANGED(
            where=f"pipeline {spec.name}", change=error.message, name=spec.name
        ) from error


def _with_state_of(birth: Birth, facts: Facts | None) -> Birth:
    """``birth`` with the state that runs keep: the job's query has to keep the same."""
    runs = None if facts is None else facts.birth
    if runs is None:
        return birth
    return replace(birth, state=runs.state, transform=runs.transform, state_spark=runs.state_spark)


def _bounds_of_drain(context: RunContext) -> Bounds:
    """Those of a job whose query lives on: of topics it may read further than runs have, but nothing is left behind
    that its checkpoint would pass over."""
    assert context.facts is not None
    return Bounds(within={}, closes_all=closes_all(context.paths, context.spec, context.facts))


def _link_files(beside: RunContext, choice: Choice, pipeline: PipelinePaths) -> dict[str, dict[str, Any]]:
    """Put the files into the job's intake; {source: {link: file}} as an order has it. Raises SourceLostError
    BACKFILL_GONE when one went away, or was changed, since it was looked at."""
    links: dict[str, dict[str, Any]] = {}
    if not beside.spec.file_streams:
        return links
    with open_ledger(beside.paths, create=True, lease=beside.lease) as ledger:
        for rows in choice.files.values():
            ledger.take_again(_as_read(beside.project, row) for row in rows)
        for name, source in beside.spec.file_streams.items():
            beside.paths.intake(name).mkdir(parents=True, exist_ok=True)
            for row in choice.files.get(name, ()):
                if (kept := kept_file(pipeline.unreadable, row.link)) is not None:  # what was read is what is kept
                    storage.make_folder((beside.paths.intake(name) / row.link).parent)
                    storage.link(kept, beside.paths.intake(name) / row.link)
            restored = restore_links(beside.project, beside.paths, name, source, ledger)
            lost = [f"{shown_path(path)} is gone" for path in restored.lost]
            # One that was copied back has another time, and may hold the same.
            changed = [row for row in choice.files.get(name, ()) if row.path in restored.changed]
            lost += _find_changed(beside, changed)
            if lost:
                told = "; ".join(lost[:_NAMED_AT_MOST])
                raise catalogue.BACKFILL_GONE(
                    where=f"pipeline {beside.name}", label="the interval", lost=told, possible="none"
                )
            links[name] = {row.link: row.linked_file for row in ledger.waiting(name)}
    return links


def _as_read(project: Project, row: LedgerRow) -> LedgerRow:
    """A file that has grown since, or has another time stamp, is copied as far as it was read, where its mark tells
    that it begins with what was read."""
    try:
        there = storage.stat(Path(source_path(project, row.path)))
    except OSError:
        return row  # restoring its link says what is wrong
    is_same = (there.size_bytes, there.modified_ns) == (row.size, row.mtime_ns)
    if is_same or row.until is not None or row.mark is None or row.mark.size != row.size:
        return row
    return row._replace(until=row.size) if there.size_bytes > row.size or row.mark.is_whole else row


def _find_changed(beside: RunContext, rows: Sequence[LedgerRow]) -> list[str]:
    """Those of ``rows``, files in the job's intake, that hold something else than was read of them, or more."""
    if not rows:
        return []
    with open_ledger(beside.paths, read_only=True) as ledger:
        copied = {row.link for row in ledger.rows() if row.until is not None}
    rows = [row._replace(until=row.read_until) if row.link in copied else row for row in rows]
    found = find_differences(beside.project, beside.paths, beside.spec.file_streams, rows)
    for row in rows:
        link = beside.paths.intake(row.source) / row.link
        is_sound = row.until is None and unreadable_record(beside.paths.unreadable, row.link) is None
        if is_sound and storage.exists(link) and (size := storage.stat(link).size_bytes) > row.size:
            found.append(f"{shown_path(row.path)} grew after it was read: {row.size:,} bytes then, {size:,} now")
    return found


def _partition_columns(choice: Choice, streams: Mapping[str, object]) -> dict[str, list[str]]:
    """Columns that are in folder names, by source."""
    found = {}
    for name in streams:
        rows = choice.files.get(name, [])
        names = {part.partition("=")[0] for row in rows for part in row.link.split("/")[:-1] if "=" in part}
        found[name] = sorted(names)
    return found


def _check_files(context: RunContext, beside: RunContext, finding: Finding, manifests: Sequence[BatchManifest]) -> None:
    """Whether the job has read every file that was chosen, and they still hold what runs have taken: it takes a while
    from the look at them until Spark has read them. Raises SourceLostError BACKFILL_GONE."""
    chosen = [row for rows in finding.choice.files.values() for row in rows]
    read = {file["link"] for one in manifests for source in one.sources.values() for file in source.files or ()}
    lost = [f"{shown_path(row.path)} was not read" for row in chosen if row.link not in read]
    lost += _find_changed(beside, chosen)
    if lost:
        told, label = "; ".join(lost[:_NAMED_AT_MOST]), finding.interval.label
        raise catalogue.BACKFILL_GONE(where=f"pipeline {context.name}", label=label, lost=told, possible="none")


def _check_read(context: RunContext, finding: Finding, manifests: Sequence[BatchManifest]) -> None:
    """Whether what was read allows the swap: no quarantined record among it, no row that may have moved, none that is
    malformed by now and may be of another partition."""
    label, name, where = finding.interval.label, context.name, f"pipeline {context.name}"
    met = sum(source.left_out for one in manifests for source in one.sources.values())
    if met != finding.left_out.total:
        expected = count_of(finding.left_out.total, "record")
        raise catalogue.BACKFILL_OTHER_TEXTS(where=where, expected=expected, label=label, found=met, name=name)
    if finding.left_out.rejected and any("several" in one.partitioned for one in manifests):
        count = count_of(finding.left_out.rejected, "row")
        raise catalogue.BACKFILL_SEVERAL_ROWS(where=where, count=count, label=label, name=name)
    late = sum(one.late + one.dropped_updates for one in manifests)
    if finding.closes_at_ms is not None and late:
        raise catalogue.BACKFILL_LATE(where=where, label=label, name=name)
    others = _check_moves(finding, manifests)
    malformed = sum(one.malformed for one in manifests)
    if malformed and others:
        count, example = count_of(malformed, "record"), describe_partition(next(iter(others)))
        raise catalogue.BACKFILL_MALFORMED(where=where, count=count, example=f"with rows of {example}", name=name)


def _check_moves(finding: Finding, manifests: Sequence[BatchManifest]) -> set[Partition]:
    """The other partitions in which these records have rows. Raises :class:`Spilled` where there are some, and not
    every row got its partition by one and the same rule: then a row may belong to another partition by now."""
    choice = finding.choice
    others = set(choice.outside)
    for manifest in manifests:
        for file in manifest.files:
            if not finding.interval.holds(file.partition):
                others.add(tuple(sorted((column, value or None) for column, value in file.partition.items())))
    rules = choice.rules | {one.partitioned.get("rule", "") for one in manifests}
    own = {column for one in manifests for column in finding.interval.within if column in one.partitioned}
    by_folder_no_more = choice.by_folder and bool(manifests) and own != set(finding.interval.within)
    by_times_no_more = choice.margin is not None and choice.margin.is_known and len(rules) > 1
    if (others and (len(rules) > 1 or "" in rules)) or by_folder_no_more or by_times_no_more:
        raise Spilled(others or {(("other folders", None),)})
    return others


def spill_error(name: str, spilled: Spilled) -> Exception:
    """The error for rows that may move out of all that was asked for."""
    told = [describe_partition(one) for one in spilled.others]
    return catalogue.BACKFILL_SPILLS(where=f"pipeline {name}", others=list_first(told, _NAMED_AT_MOST), name=name)


def _judge(
    beside: RunContext, ground: Ground, interval: Interval, manifests: Sequence[BatchManifest], folder: str
) -> Built:
    """The gate's word on the interval's rows; where rows replace others, on those that remain."""
    inside = [replace(one, files=files_within(one.files, interval.within)) for one in manifests]
    folds = fold_owed(beside.paths, inside, beside.spec) if ground.hands_over and inside else None
    verdict = judge_beside(beside, inside, folded=folds)
    moved, folded = within_pipeline(inside, folds[0] if folds else None, folder)
    return Built(
        manifests=moved,
        files=[file for one in moved for file in one.files],
        quarantine=[file for one in moved for file in one.quarantine_files],
        verdict=verdict,
        side=beside.paths,
        folded=folded,
    )


def _hold(context: RunContext, interval: Interval, built: Built) -> None:
    raise catalogue.BACKFILL_HELD(
        where=f"run {context.report.run_id} of pipeline {context.name}",
        label=interval.label,
        reasons="; ".join(built.verdict.reasons),
        name=context.name,
        run_id=quote_word(context.report.run_id),
    )
