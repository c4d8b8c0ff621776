"""Rebuild an interval: a side job reads its records again, the same gate judges them, and one version swaps them in.

The side job has its own state folder (:meth:`tidegate.core.paths.PipelinePaths.beside`), so runs do not see what it
stages. Nothing counts before its one intent is written, which replaces the rows and adds newly quarantined records to
quarantine. A job that was stopped before that starts from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from tidegate.core import storage
from tidegate.core.errors import HeldError, TidegateError
from tidegate.core.outputs import Columns, RuleResult, SourceReport, TableFigures
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.core.words import count_of, list_first
from tidegate.rework import errors
from tidegate.rework.backfill.choose import Choice, Scope, join_choices
from tidegate.rework.backfill.examine import (
    Excluded,
    Finding,
    describe_older,
    find_excluded,
    quarantined_before,
    several_rows_error,
    starts_of_topics,
)
from tidegate.rework.backfill.hand_over import (
    closes_all,
    plan_hand_over,
    prepare_checkpoint,
    refuse_pending,
    within_pipeline,
)
from tidegate.rework.backfill.held import describe_runs, keep_held, name_attempt, remove_held_figures, report_held
from tidegate.rework.backfill.lineage import describe_partition
from tidegate.rework.backfill.losses import LEFT_OUT, count_by_day
from tidegate.rework.backfill.side_job import (
    Built,
    Reading,
    build_rows,
    clear_attempts,
    plan_quarantine_half,
    plan_rows,
)
from tidegate.rework.backfill.span import Interval, join_intervals
from tidegate.runs.gate.increment import Rebuilt, judge_staged, publish_plan
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import RunReport, check_balance, fill_from_manifests
from tidegate.runs.reports.verdicts import quote_word
from tidegate.runs.restart.new_query import settings_at_birth
from tidegate.runs.rework import note_begun
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.intake import restore_links, source_path
from tidegate.sources.files.ledger import LedgerRow, LinkedFile, open_ledger, shown_path
from tidegate.sources.files.unreadable import is_in_quarantine, kept_file, unreadable_record
from tidegate.sources.port import Chosen, Cut
from tidegate.spark.driver.order import Bounds
from tidegate.spec.project import Project
from tidegate.state.birth import new_birth, read_birth
from tidegate.state.manifest import BatchManifest, files_within
from tidegate.state.open_state import text_of_ms
from tidegate.table.log.snapshot import Partition, partition_of
from tidegate.table.log.state import digest_files, list_data_files
from tidegate.table.publish.intent import PublishIntent, WholeFiles
from tidegate.table.publish.origins import READ_AGAIN, Batch
from tidegate.table.publish.plan import KEEPS_OLDER, WITHIN, Changes, Rework
from tidegate.table.schema import column_texts, extends
from tidegate.table.upsert.folded import fold_unpublished

MADE_BY = "tidegate.made_by"
"""In a commit: the fingerprint of the transform and spec, which must be the same for all parts of one job."""
_COUNTS: tuple[Literal["rows", "malformed", "files", "bytes"], ...] = ("rows", "malformed", "files", "bytes")


@dataclass(frozen=True)
class Rebuild:
    """An interval whose rows are staged and judged."""

    scope: Scope
    finding: Finding
    built: Built

    @property
    def days(self) -> set[str]:
        """Its days, as reports name them."""
        return {day.label for day in self.finding.interval.days}

    @property
    def folder(self) -> Path:
        """The folder of the attempt that built it."""
        return self.built.side.state

    @property
    def passed(self) -> bool:
        """Whether the gate lets it pass."""
        return self.built.verdict.passed


def _plan_swap(context: RunContext, rebuild: Rebuild, report: RunReport) -> PublishIntent:
    """Plan the publish of what was built; ``report`` is the report after it. Raises TryAgainError
    BACKFILL_TABLE_CHANGED when another program wrote to the table meanwhile."""
    scope, finding, built = rebuild.scope, rebuild.finding, rebuild.built
    table_files = list_data_files(context.paths.table)
    if digest_files(table_files) != digest_files(scope.files):
        raise errors.BACKFILL_TABLE_CHANGED(where=f"pipeline {context.name}", label=finding.interval.label)
    if scope.hands_over:
        batches = {(one.query_id[:8], one.batch_id) for one in built.manifests}
        plan_quarantine = partial(_plan_quarantine, context.paths, finding, built, batches)
        plan = plan_hand_over(context, built, table_files, report, plan_quarantine)
    else:
        plan_quarantine = partial(_plan_quarantine, context.paths, finding, built, finding.choice.batches)
        metadata = {
            WITHIN: json.dumps(finding.interval.within, ensure_ascii=False),
            READ_AGAIN: json.dumps(sorted(finding.choice.batches)),
            MADE_BY: json.dumps(scope.made_by, ensure_ascii=False),
            **({KEEPS_OLDER: "true"} if finding.interval.but_older else {}),
        }
        changes = Changes(
            new=built.files,
            remove=finding.replaced,
            table_files=table_files,
            metadata=metadata,
            replaces_schema=finding.interval.replaces_all,
        )
        plan = plan_rows(context, built.manifests, changes, report, plan_quarantine)
    return replace(plan, whole_files=list(built.whole_files))


def _find_whole(context: RunContext, finding: Finding, side: PipelinePaths) -> list[WholeFiles]:
    folder = str(side.state.relative_to(context.paths.state))
    links = [row.link for rows in finding.choice.files.values() for row in rows]
    quarantined = [link for link in links if unreadable_record(side.unreadable, link) is not None]
    read = set(links).difference(quarantined)
    read = {link for link in read if is_in_quarantine(context.paths.unreadable, link)}
    return [WholeFiles(folder, quarantined, sorted(read))] if quarantined or read else []


def _plan_quarantine(
    paths: PipelinePaths, finding: Finding, built: Built, batches: Collection[Batch], work: Rework, token: str
) -> PublishIntent | None:
    """Plan the quarantine half of the swap: add newly quarantined records, which are of ``batches``. A rebuild of the
    whole table also removes its records' old rows there."""
    old = quarantined_before(paths.quarantine, finding.choice)[0] if finding.interval.is_whole_table else []
    if not built.quarantine and not old:
        return None
    return plan_quarantine_half(paths, work, Changes(token, new=built.quarantine, remove=old), of=batches)


def _report_after(before: RunReport, path: Path, rebuild: Rebuild, *, is_last: bool) -> RunReport:
    """The report after the swap: the figures of earlier intervals and of this one together."""
    finding, built = rebuild.finding, rebuild.built
    part = RunReport(before.pipeline, before.run_id)
    fill_from_manifests(part, built.manifests)
    staged, published = (sum(file.rows for file in files) for files in (built.files, built.published))
    part.rows |= {"staged": staged, "transformed": part.rows["rejected"] + staged, "published": published}
    part.rows["superseded"] = staged - published
    check_balance(part.rows, published=True)
    report = RunReport.from_json(before.to_json())
    report.rows = {key: report.rows.get(key, 0) + value for key, value in part.rows.items()}
    for name, source in part.sources.items():
        known = report.sources.get(name, {})
        joined: SourceReport = {**known, **source}
        for key in _COUNTS:
            if key in source:
                joined[key] = known.get(key, 0) + source[key]
        report.sources[name] = joined
    report.batches += part.batches
    report.quality = built.verdict.quality
    report.rebuilt = [*dict.fromkeys([*report.rebuilt, *(day.label for day in finding.interval.days)])]
    figures = report.table
    report.table = {
        "path": str(path),
        "version": None,
        "files_added": figures.get("files_added", 0) + len(built.published),
        "files_removed": figures.get("files_removed", 0) + len(finding.replaced),
        "rows_added": figures.get("rows_added", 0) + published,
        "rows_removed": figures.get("rows_removed", 0) + sum(file.rows for file in finding.replaced),
    }
    columns = _compare_columns(figures, rebuild)
    if columns["before"] != columns["after"]:
        report.table["columns"] = columns
    if finding.excluded.total:
        count = count_of(finding.excluded.total, "record")
        report.add_note(
            f"{finding.interval.label}: in quarantine, until they are replayed: {count} of what was read again"
        )
    if finding.interval.joined and (empty := [day for day in finding.interval.days if not _has_rows(day, rebuild)]):
        report.add_note(f"{join_intervals(empty).label}: no record that runs have read belongs to it")
    if finding.choice.excluded:
        count = count_of(finding.choice.excluded, "record")
        report.add_note(f"{finding.interval.label}: {count} of excluded increments stay excluded")
    if finding.closes_at_ms is not None:
        until = text_of_ms(finding.closes_at_ms) or "the first watermark"
        still_open = f"windows and joins that end after {until} are still open"
        report.add_note(f"{finding.interval.label}: {still_open}; a later run publishes them")
    if finding.older is not None:
        report.add_note(describe_older(finding.older.to_json()))
    report.outcome = "published" if is_last else None
    report.error = None
    report.ended_at = now_text() if is_last else None
    return report


def _has_rows(day: Interval, rebuild: Rebuild) -> bool:
    """Return whether the day has rows before or after the swap."""
    replaced, new = rebuild.finding.replaced, rebuild.built.files
    return any(day.holds(file.partition) for file in replaced) or any(day.holds(file.partition) for file in new)


def rebuild_interval(
    context: RunContext, scope: Scope, finding: Finding, submit: Submit, keep: Collection[Path] = ()
) -> Rebuild:
    """Read and judge one interval. Of earlier attempts those to ``keep`` stay, which are held.

    Raises UsageError BACKFILL_SPILLS when rows would move to partitions that are not rebuilt, REFRESH_PENDING,
    REFRESH_KEEPS_STATE, and what a run's ingest raises.
    """
    paths = context.paths
    work = Rework(context.name, context.report.mode, context.report.run_id)
    folder = f"backfills/{work.app_id}/{name_attempt(context)}"
    if not keep:
        remove_held_figures(context)
    clear_attempts(context, [paths.backfills / work.app_id], keep)
    side = paths.beside(folder)
    storage.make_folder(side.state)
    storage.sync_names_above([side.state], paths.state)
    job = replace(context, paths=side, facts=None)
    manifests: list[BatchManifest] = []
    if not finding.choice.is_empty:
        manifests = _read(context, job, scope, finding, folder, submit)
        birth = read_birth(side)
        keeps_state = birth is not None and birth.keeps_state
        if not scope.hands_over and finding.interval.is_whole_table and keeps_state:
            # The transform has become stateful: the state has to be handed over with the rows.
            if finding.interval.but_older:
                raise errors.REFRESH_KEEPS_STATE(where=f"pipeline {context.name}", name=context.name)
            assert context.facts is not None
            refuse_pending(context.paths, context.facts, context.name)
            return rebuild_interval(context, replace(scope, hands_over=True), finding, submit)
        _check_columns(context, manifests)
        if scope.hands_over:
            prepare_checkpoint(job, folder, paths)
        _check_files(job, finding, manifests)
        _check_read(context, finding, manifests)
    built = _judge(job, scope, finding, manifests, folder)
    return Rebuild(scope, finding, replace(built, whole_files=_find_whole(context, finding, side)))


def swap_in(context: RunContext, rebuild: Rebuild, *, is_last: bool, keep: Collection[Path] = ()) -> None:
    """Publish an interval that has passed the gate, and add it to the report. Held attempts to ``keep`` stay. Raises
    TryAgainError BACKFILL_TABLE_CHANGED when another program wrote to the table meanwhile."""
    report = _report_after(context.report, context.paths.table, rebuild, is_last=is_last)
    report.table["version"] = publish_plan(context, partial(_plan_swap, context, rebuild, report)).version
    context.report = report
    clear_attempts(context, [rebuild.folder.parent], keep)


def hold(context: RunContext, rebuild: Rebuild, *, is_last: bool) -> HeldError:
    """Keep what has not passed the gate for a decision. Returns the error for the end of the command; where it
    ``is_last`` the report has the figures. Raises TryAgainError BACKFILL_TABLE_CHANGED."""
    report = _report_after(context.report, context.paths.table, rebuild, is_last=is_last)
    plan = _plan_swap(context, rebuild, report)
    context.lease.check()
    interval, older = rebuild.finding.interval, rebuild.finding.older
    stays = [] if older is None else older.stays
    changes_columns = not extends(rebuild.scope.table.schema_json, plan.schema_json)
    keep_held(rebuild.built.side, plan, interval, context.report, stays, changes_columns=changes_columns)
    if is_last:
        report_held(context.report, report, interval)
    return errors.BACKFILL_HELD(
        where=f"run {plan.run_id} of pipeline {context.name}",
        label=interval.label,
        reasons="; ".join(rebuild.built.verdict.reasons),
        name=context.name,
        run_id=quote_word(plan.run_id),
        next_run=("" if changes_columns else "is not affected: ") + describe_runs(changes_columns=changes_columns),
    )


def join_held(scope: Scope, held: Sequence[Rebuild]) -> Rebuild:
    """All held intervals of a command as one, on which a person decides. ``scope`` is the current one."""
    if len(held) == 1:
        return replace(held[0], scope=scope)
    findings, builts = [one.finding for one in held], [one.built for one in held]
    results: dict[str, RuleResult] = {}
    for result in (one for built in builts for one in built.verdict.quality["results"]):
        known = results.get(result["rule"])
        if known is None or known["success"]:
            results[result["rule"]] = result
    last = builts[-1]
    verdict = replace(
        last.verdict,
        quality={
            **last.verdict.quality,
            "results": list(results.values()),
            "warnings": [*dict.fromkeys(text for built in builts for text in built.verdict.quality["warnings"])],
        },
        failed_critical=[*dict.fromkeys(rule for built in builts for rule in built.verdict.failed_critical)],
        reasons=[reason for built in builts for reason in built.verdict.reasons],
    )
    finding = Finding(
        interval=join_intervals([one.interval for one in findings]),
        choice=join_choices([one.choice for one in findings]),
        excluded=Excluded({str(number): one.excluded.total for number, one in enumerate(findings)}),
        replaced=[file for one in findings for file in one.replaced],
        error=None,
        closes_at_ms=findings[-1].closes_at_ms,
    )
    built = replace(
        last,
        manifests=[one for built in builts for one in built.manifests],
        files=[one for built in builts for one in built.files],
        quarantine=[one for built in builts for one in built.quarantine],
        verdict=verdict,
        whole_files=[one for built in builts for one in built.whole_files],
    )
    return Rebuild(scope, finding, built)


def _compare_columns(figures: TableFigures, rebuild: Rebuild) -> Columns:
    """The columns of the table before the command, of which ``figures`` are known, and after this interval."""
    table, built = rebuild.scope.table.schema_json, rebuild.built
    now = column_texts(table)
    is_replaced = built.manifests and (built.files or rebuild.finding.interval.replaces_all)
    return {
        "before": figures["columns"]["before"] if "columns" in figures else now,
        "after": column_texts(built.manifests[-1].schema_json, table) if is_replaced else now,
    }


def _check_columns(context: RunContext, manifests: Sequence[BatchManifest]) -> None:
    """Raise UsageError REFRESH_PENDING if the rows do not fit the columns of the table, and runs have staged rows that
    still have to be published to it."""
    facts = context.facts
    assert facts is not None and facts.table is not None, "there are rows to replace"
    if manifests and not extends(facts.table.schema_json, manifests[-1].schema_json):
        refuse_pending(context.paths, facts, context.name)


def _read(
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


def _check_files(job: RunContext, finding: Finding, manifests: Sequence[BatchManifest]) -> None:
    """Check that the job has read every chosen file, and that none has changed between the examination and Spark's
    read. Raises SourceLostError BACKFILL_GONE."""
    chosen = [row for rows in finding.choice.files.values() for row in rows]
    read = {file["link"] for one in manifests for source in one.sources.values() for file in source.files or ()}
    lost = [f"{shown_path(row.path)} was not read" for row in chosen if row.link not in read]
    _refuse_gone(job.name, finding.interval.label, lost + _find_changed(job, chosen))


def _check_read(context: RunContext, finding: Finding, manifests: Sequence[BatchManifest]) -> None:
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


def _judge(job: RunContext, scope: Scope, finding: Finding, manifests: Sequence[BatchManifest], folder: str) -> Built:
    """Judge the interval's rows by the gate, each of its days that has rows, or had some, as an increment of its own;
    where rows replace others, only those that remain."""
    interval = finding.interval
    inside = [_keep_within(one, interval) for one in manifests]
    folds = fold_unpublished(job.paths, inside, job.spec) if scope.hands_over and inside else None
    partitions = [file.partition for file in finding.replaced]
    partitions += [file.partition for one in inside for file in one.files]
    days = {day.label: day.within for day in interval.joined if any(map(day.holds, partitions))}
    replaced = {file.path for file in (scope.files if scope.hands_over else finding.replaced)}
    others = [file for file in scope.files if file.path not in replaced]
    losses = count_by_day(scope, interval, finding.choice, job.paths.state, inside)
    verdict = judge_staged(job, inside, folded=folds, rebuilt=Rebuilt(others, days, losses))
    moved, folded = within_pipeline(inside, folds[0] if folds else None, folder)
    return Built(
        manifests=moved,
        files=[file for one in moved for file in one.files],
        quarantine=[file for one in moved for file in one.quarantine_files],
        verdict=verdict,
        side=job.paths,
        folded=folded,
    )


def _keep_within(manifest: BatchManifest, interval: Interval) -> BatchManifest:
    """The batch without the rows of partitions that are not rebuilt."""
    if interval.is_whole_table:
        return manifest
    files = files_within(manifest.files, interval.within)
    return replace(manifest, files=files, transformed=manifest.rejected + sum(file.rows for file in files))
