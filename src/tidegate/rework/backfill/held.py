"""Backfills and refreshes that failed the gate, until a person decides on them.

What the held intervals of a command would publish is kept in the folder of the last of them, as one plan; live runs
continue. A release swaps it in as one version, unless runs have changed one of the partitions since: then it has to be
built again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tidegate.core import outputs, storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import name_person, now_text
from tidegate.core.words import count_of, list_first
from tidegate.rework import errors
from tidegate.rework.backfill.hand_over import describe_pending, is_unchanged
from tidegate.rework.backfill.side_job import plan_again
from tidegate.rework.backfill.span import Interval
from tidegate.runs.deliver import deliver_run
from tidegate.runs.gate.decisions import decided_already
from tidegate.runs.gate.increment import publish_plan
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import FINAL_OUTCOMES, RunReport, load_report, unjudged
from tidegate.runs.reports.verdicts import Answer, check_reason
from tidegate.runs.rework import is_over, open_rework
from tidegate.spec.project import Project
from tidegate.table.log.snapshot import Partition, partition_of
from tidegate.table.log.state import DataFile, digest_files, list_data_files
from tidegate.table.publish.intent import FileToRemove, PublishIntent, intent_from_json
from tidegate.table.publish.plan import Rework
from tidegate.table.schema import extends

_HELD = "held.json"
"""In the folder of an attempt: what it would publish, while it is held."""

KINDS = ("backfill", "refresh")
"""The kinds of work that can be held."""

_FIGURES = ("rows", "sources", "batches", "table", "notes")
"""The figures of a report that add up over all intervals."""
_SOURCE_COUNTS: tuple[Literal["rows", "malformed", "files", "bytes"], ...] = ("rows", "malformed", "files", "bytes")
_TABLE_COUNTS: tuple[Literal["files_added", "files_removed", "rows_added", "rows_removed"], ...] = (
    *("files_added", "files_removed"),
    *("rows_added", "rows_removed"),
)
_OF_RUNS = "the records or state of the runs"
_LEFT = "partitions are left: "
"""The prefix of a note that holds until the work is resumed."""


@dataclass(frozen=True)
class Held:
    """What held partitions would publish, as their file has it."""

    within: dict[str, list[str]]
    intent: PublishIntent
    but_older: bool = False
    stays: Sequence[FileToRemove] = ()
    """The table's files that stay, with ``--keep-older``."""
    before: Mapping[str, object] = field(default_factory=dict)
    """The figures of the report before these partitions; earlier versions did not save all of them."""
    changes_columns: bool = False
    """Whether the current transform makes columns that the table lacks until this is released."""

    @property
    def label(self) -> str:
        """The name of the partitions in reports."""
        return Interval(self.within, but_older=self.but_older).label

    @property
    def run_id(self) -> str:
        """The run id of the command."""
        return self.intent.run_id

    @property
    def rebuilt(self) -> set[str]:
        """The partitions that are rebuilt once it is published."""
        return set() if self.intent.report is None else set(self.intent.report["rebuilt"])


def describe_runs(*, changes_columns: bool) -> str:
    """What becomes of runs while a backfill or refresh is held."""
    if not changes_columns:
        return "live runs continue"
    return (
        "runs that have something to read are refused (SCHEMA_CHANGE) until it is released, or schema and transform "
        "make the columns of the table again"
    )


def keep_held(
    side: PipelinePaths,
    intent: PublishIntent,
    interval: Interval,
    before: RunReport,
    stays: Sequence[DataFile] = (),
    *,
    changes_columns: bool = False,
) -> None:
    """Save what held partitions would publish, the files that stay, and the figures of the report ``before`` that.

    Each attempt has its own folder, so a stale process cannot change its successor's."""
    files = [FileToRemove(file.path, file.rows, file.size_bytes, file.partition) for file in stays]
    figures = {key: value for key, value in before.to_json().items() if key in _FIGURES}
    held = Held(interval.within, intent, interval.but_older, files, figures, changes_columns)
    storage.replace(side.state / _HELD, storage.dump_json(held))


def report_held(report: RunReport, after: RunReport, interval: Interval) -> None:
    """Add to ``report`` the figures of a held interval; ``after`` is the report that it would have once published."""
    rows, publishes = report.rows, after.rows["published"] - report.rows.get("published", 0)
    removes = after.table["rows_removed"] - report.table.get("rows_removed", 0)
    report.rows = {**after.rows, **{key: rows.get(key, 0) for key in ("published", "superseded")}}
    report.sources, report.batches, report.quality = after.sources, after.batches, after.quality
    report.add_note(f"{interval.label}: held: {count_of(publishes, 'row')} would take the place of {removes:,}")


def remove_held_figures(context: RunContext) -> None:
    """Remove from the report the figures of a held attempt, and the note on remaining partitions."""
    job = _job(context.paths, Rework(context.name, context.report.mode, context.report.run_id))
    held = _read_newest(_held_attempts(job))
    if held is not None:
        context.report = _subtract_held(context.report, held)
        context.report.quality = unjudged()
    context.report.notes = [note for note in context.report.notes if not note.startswith(_LEFT)]
    context.save()


def _subtract_held(report: RunReport, held: Held) -> RunReport:
    """The report without the figures of what is held. A report of a version that was published after ``held`` was saved
    does not include them."""
    then = _report_before(report, held)
    return then if then.table.get("version") == report.table.get("version") else report


def _report_before(report: RunReport, held: Held) -> RunReport:
    """The report with the figures that it had when ``held`` was saved."""
    return RunReport.from_json({**report.to_json(), **held.before})


def _add_held(report: RunReport, held: Held) -> RunReport:
    """The report after the release: as planned, but what the held partitions add is added to the figures of now."""
    assert held.intent.report is not None
    after = RunReport.from_json(held.intent.report)
    then, now = _report_before(report, held), _subtract_held(report, held)
    after.rows = {key: now.rows.get(key, 0) + count - then.rows.get(key, 0) for key, count in after.rows.items()}
    after.batches += now.batches - then.batches
    for key in _TABLE_COUNTS:
        after.table[key] = now.table.get(key, 0) + after.table.get(key, 0) - then.table.get(key, 0)
    sources = {**now.sources}
    for name, source in after.sources.items():
        known, before = now.sources.get(name, {}), then.sources.get(name, {})
        sources[name] = {**known, **source}
        for count in _SOURCE_COUNTS:
            if count in source:
                sources[name][count] = known.get(count, 0) + source[count] - before.get(count, 0)
    after.sources = sources
    after.rebuilt = [*dict.fromkeys([*now.rebuilt, *after.rebuilt])]
    after.notes += [note for note in now.notes if note not in {*then.notes, *after.notes}]
    return after


def name_attempt(context: RunContext) -> str:
    """A unique name for the folder of an attempt. It sorts behind those of earlier leases, as times of files may not:
    an attempt of a stale process never counts as newer than one of its successor."""
    return f"{context.lease.number:010d}-{secrets.token_hex(4)}"


def is_held(folder: Path) -> bool:
    """Return whether the attempt in this folder is held."""
    return storage.exists(folder / _HELD)


def list_held(paths: PipelinePaths) -> list[Held]:
    """What is held, of each command as one."""
    return [held for held, _ in _list_held_jobs(paths)]


def list_held_attempts(paths: PipelinePaths) -> list[Path]:
    """The folders of what is held."""
    return [folder for _, attempts in _list_held_jobs(paths) for folder in attempts]


def _list_held_jobs(paths: PipelinePaths) -> list[tuple[Held, list[Path]]]:
    """What is held, with the folders of its attempts, of each command."""
    jobs = [_held_attempts(job) for job in storage.list_folders(paths.backfills)]
    found = [(held, attempts) for attempts in jobs if (held := _read_newest(attempts)) is not None]
    return [(held, attempts) for held, attempts in found if not _is_decided(load_report(paths, held.run_id), held)]


def _is_decided(report: RunReport | None, held: Held) -> bool:
    """Return whether a decision was carried out, by a process that was killed before it removed the attempts."""
    return report is not None and (report.outcome in FINAL_OUTCOMES or held.rebuilt <= set(report.rebuilt))


def list_held_files(paths: PipelinePaths) -> list[FileToRemove]:
    """The table's files that held publishes need unchanged: those that they replace, and those that stay."""
    found = list_held(paths)
    replaced = [file for held in found for file in held.intent.files_to_remove]
    return replaced + [file for held in found for file in held.stays]


def find_held_partitions(paths: PipelinePaths) -> set[Partition]:
    """The partitions of held backfills and refreshes, whose files must not change before their release."""
    return {partition_of(file.partition) for file in list_held_files(paths)}


def _held_attempts(job: Path) -> list[Path]:
    """The held attempts of a job, the newest last, by their names (:func:`name_attempt`). Its plan counts: it includes
    what is held of the others, unless they were decided on, or are from a stale process."""
    return sorted(one for one in storage.list_folders(job) if is_held(one))


def _read(attempt: Path) -> Held | None:
    value = storage.read_json(attempt / _HELD)
    if value is None:
        return None
    stays = [FileToRemove(**file) for file in value.get("stays", ())]
    return Held(**{**value, "stays": stays, "intent": intent_from_json(value["intent"])})


def _read_newest(attempts: Sequence[Path]) -> Held | None:
    return _read(attempts[-1]) if attempts else None


def is_held_backfill(project: Project, name: str, run_id: str) -> bool:
    """Return whether this run is a held backfill or refresh."""
    return _kind_of(project, name, run_id) is not None


def _kind_of(project: Project, name: str, run_id: str) -> str | None:
    """The kind of work that is held under this run id; None where nothing is."""
    paths = project.paths(name)
    return next((kind for kind in KINDS if _held_attempts(_job(paths, Rework(name, kind, run_id)))), None)


def decide_backfill(
    project: Project, name: str, run_id: str, answer: Answer, *, submit: Submit | None = None
) -> outputs.RunReport:
    """``release`` or ``discard`` a held backfill, and return its report. Without ``submit`` the next run feeds further
    sinks.

    Raises UsageError BACKFILL_OUTDATED when the partition, or the columns of the table, were changed since it was
    built, DECIDED_ALREADY when an earlier command did the opposite, and REASON_MISSING.
    """
    check_reason(answer.reason)
    kind = _kind_of(project, name, run_id) or KINDS[0]
    with open_rework(project, name, run_id, kind, note_failure=False) as context:
        job = _job(context.paths, Rework(name, kind, run_id))
        attempts = _held_attempts(job)
        held = _read_newest(attempts)
        is_done = is_over(context) or (held is not None and _is_decided(context.report, held))
        if held is not None and not is_done:
            ruling: outputs.Ruling = {
                "decision": answer.decision,
                "who": answer.who or name_person(),
                "reason": answer.reason.strip(),
                "at": now_text(),
            }
            _carry_out(context, held, ruling)
        context.lease.check()
        for one in attempts:
            storage.remove_tree(one)
        storage.remove_empty_folder(job)
        before = context.report.decision
        if is_done and before is not None and before["decision"] != answer.decision:
            raise decided_already(name, run_id, kind, before)
        has_sinks, report = bool(context.spec.sinks), context.report.to_json()
    if submit is not None and has_sinks and report["outcome"] == "published":
        return deliver_run(project, name, run_id, submit=submit)
    return report


def _carry_out(context: RunContext, held: Held, ruling: outputs.Ruling) -> None:
    intent = held.intent
    assert intent.report is not None
    is_last = intent.report["outcome"] is not None
    if ruling["decision"] == "discard":
        _drop(context, held, ruling, is_last=is_last)
    else:
        files = list_data_files(context.paths.table)
        _check_unchanged(context, held, files)
        report = _add_held(context.report, held)
        report.decision = ruling
        metadata = {
            **intent.custom_metadata,
            "tidegate.rows": json.dumps(report.rows),
            "tidegate.decision": json.dumps(ruling, ensure_ascii=False),
        }
        if not is_last:
            report.add_note(f"{_LEFT}the same command with --run-id {intent.run_id} rebuilds them")
        released = replace(intent, table_files=digest_files(files), custom_metadata=metadata, report=report.to_json())
        report.table["version"] = publish_plan(context, lambda: plan_again(context.paths, released)).version
        context.report = report


def _drop(context: RunContext, held: Held, ruling: outputs.Ruling, *, is_last: bool) -> None:
    """End the work without the held partitions. Those that were swapped stay published."""
    is_swapped = context.report.table.get("version") is not None
    report = context.report = _subtract_held(context.report, held) if is_swapped else context.report
    report.outcome, report.ended_at, report.error = "published" if is_swapped else "discarded", now_text(), None
    report.decision = ruling
    if is_swapped:
        report.add_note(f"{held.label}: discarded; rebuilt, and kept: {list_first(report.rebuilt)}")
    if not is_last:
        report.add_note("other partitions of the command were not rebuilt: use another run id for them")
    context.save()


def _check_unchanged(context: RunContext, held: Held, files: Sequence[DataFile]) -> None:
    changed = _describe_change(context, held, files)
    if changed is not None:
        raise errors.BACKFILL_OUTDATED(
            where=f"run {held.run_id} of pipeline {context.name}",
            label=held.label,
            changed=changed,
            name=context.name,
            run_id=held.run_id,
        )


def _describe_change(context: RunContext, held: Held, files: Sequence[DataFile]) -> str | None:
    """What was changed since the held partitions were rebuilt; None for nothing."""
    intent, facts = held.intent, context.facts
    assert facts is not None and facts.table is not None, "it has rows to replace"
    now = {file.path for file in files if Interval(held.within).holds(file.partition)}
    then = {file.path for file in intent.files_to_remove} | {file.path for file in held.stays}
    if now != then:
        return count_of(len(now ^ then), "file")
    recorded = intent.companion.table_files if intent.companion is not None else None
    if recorded is not None and recorded != digest_files(list_data_files(context.paths.quarantine)):
        return "quarantined records"
    if intent.hand_over is not None:
        return None if is_unchanged(context.paths, facts, intent.hand_over) else _OF_RUNS
    if extends(facts.table.schema_json, intent.schema_json):
        return None
    if not intent.replaces_schema:
        return "its columns"
    return None if describe_pending(context.paths, facts) is None else _OF_RUNS


def _job(paths: PipelinePaths, work: Rework) -> Path:
    """The folder with the attempts of a job."""
    return paths.backfills / work.app_id
