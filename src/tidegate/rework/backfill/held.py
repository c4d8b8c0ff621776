"""A backfill that did not pass the gate waits for a person, and holds nothing but itself.

What it would publish is kept as it was built, in its own folder; live runs go on. Released, it is swapped in, unless
runs have changed the partition since: then only building it again is exact.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegate.core import outputs, storage
from tidegate.core.errors import catalogue
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import name_person, now_text
from tidegate.core.words import count_of, is_wordless
from tidegate.rework.backfill.hand_over import is_unchanged
from tidegate.rework.backfill.span import Interval
from tidegate.runs.gate.decisions import decided_already
from tidegate.runs.gate.increment import publish_plan
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import RunReport, load_report
from tidegate.runs.rework import is_over, open_rework
from tidegate.runs.steps import deliver_run
from tidegate.spec.project import Project
from tidegate.table.log.state import DataFile, digest_files, list_data_files
from tidegate.table.publish.intent import FileToRemove, PublishIntent, intent_from_json
from tidegate.table.publish.rework import Rework

_HELD = "held.json"
"""In the folder of a try: what it would publish is held."""

KINDS = ("backfill", "refresh")
"""The work that can be held."""

_FIGURES = ("rows", "sources", "batches", "notes")
"""What a report tells of all intervals together."""
_LEFT = "partitions are left: "
"""How a note begins that is true until the work goes on."""


def keep_held(
    side: PipelinePaths, intent: PublishIntent, interval: Interval, before: RunReport, stays: Sequence[DataFile] = ()
) -> None:
    """Keep what a held interval would publish, beside what it was built of, the files that ``stay``, and the figures of
    the intervals ``before`` it: each try has a folder of its own, so a process that slept changes nothing of its
    successor's."""
    told = [FileToRemove(file.path, file.rows, file.size_bytes, file.partition) for file in stays]
    figures = {key: value for key, value in before.to_json().items() if key in _FIGURES}
    value = {
        "within": interval.within,
        "but_older": interval.but_older,
        "stays": told,
        "intent": intent,
        "before": figures,
    }
    storage.replace(side.state / _HELD, storage.dump_json(value))


def tell_held(report: RunReport, after: RunReport, interval: Interval) -> None:
    """Put into ``report`` what a held interval has read and rejected; ``after`` is the report that it would have."""
    rows, publishes = report.rows, after.rows["published"] - report.rows.get("published", 0)
    removes = after.table["rows_removed"] - report.table.get("rows_removed", 0)
    report.rows = {**after.rows, **{key: rows.get(key, 0) for key in ("published", "superseded")}}
    report.sources, report.batches, report.quality = after.sources, after.batches, after.quality
    report.add_note(f"{interval.label}: held: {count_of(publishes, 'row')} would take the place of {removes:,}")


def forget_held(context: RunContext) -> None:
    """Take out of the report what it tells of a try that was held, and of what is left: it is not so any more."""
    job = _job(context.paths, Rework(context.name, context.report.mode, context.report.run_id))
    held = _read_newest(_held_tries(job))
    if held is not None and "before" in held:  # earlier versions did not tell, and kept nothing
        context.report = RunReport.from_json({**context.report.to_json(), **held["before"]})
    context.report.notes = [note for note in context.report.notes if not note.startswith(_LEFT)]
    context.save()


def is_held(folder: Path) -> bool:
    """Whether what is in the folder of a try waits for a decision."""
    return storage.exists(folder / _HELD)


def list_held(paths: PipelinePaths) -> list[PublishIntent]:
    """What waits for a decision, as it would be published."""
    return [intent_from_json(held["intent"]) for held in _read_held(paths)]


def list_held_files(paths: PipelinePaths) -> list[FileToRemove]:
    """The files of the table that it must find as they were: those that it replaces, and those that stay."""
    stay = [FileToRemove(**file) for held in _read_held(paths) for file in held.get("stays", ())]
    return [file for intent in list_held(paths) for file in intent.files_to_remove] + stay


def _read_held(paths: PipelinePaths) -> list[dict[str, Any]]:
    tries = [one for job in storage.list_folders(paths.backfills) for one in _held_tries(job)]
    found = [storage.read_json(one / _HELD) for one in tries]
    return [held for held in found if held is not None]


def _held_tries(job: Path) -> list[Path]:
    """The tries of a job that are held, the newest last: of two, one was decided on or is of a process that slept."""
    tries = [one for one in storage.list_folders(job) if is_held(one)]
    return sorted(tries, key=lambda one: storage.stat(one / _HELD).modified_ns)


def _read_newest(tries: Sequence[Path]) -> dict[str, Any] | None:
    return storage.read_json(tries[-1] / _HELD) if tries else None


def is_held_backfill(project: Project, name: str, run_id: str) -> bool:
    """Whether a decision on this run is one on a backfill."""
    return _kind_of(project, name, run_id) is not None


def find_decided(project: Project, name: str, run_id: str, decision: str) -> outputs.RunReport | None:
    """The report of a backfill of which nothing is held any more, where this was decided on what was held last."""
    report = load_report(project.paths(name), run_id)
    if report is None or report.mode not in KINDS or report.decision is None or report.decision["decision"] != decision:
        return None
    return report.to_json()


def _kind_of(project: Project, name: str, run_id: str) -> str | None:
    """The kind of work that is held under this run id."""
    paths = project.paths(name)
    return next((kind for kind in KINDS if _held_tries(_job(paths, Rework(name, kind, run_id)))), None)


def decide_backfill(
    project: Project,
    name: str,
    run_id: str,
    *,
    decision: str,
    reason: str,
    who: str | None = None,
    submit: Submit | None = None,
) -> outputs.RunReport:
    """``release`` or ``discard`` a held backfill; its report. Without ``submit`` further sinks are fed by the next run;
    ``who`` is by default the person at this terminal.

    Raises UsageError BACKFILL_OUTDATED when runs have changed the partition since it was built, DECIDED_ALREADY when an
    earlier command did the opposite, and REASON_MISSING.
    """
    if is_wordless(reason):
        raise catalogue.DECISION_REASON_MISSING()
    kind = _kind_of(project, name, run_id) or KINDS[0]
    with open_rework(project, name, run_id, kind, note_failure=False) as context:
        job = _job(context.paths, Rework(name, kind, run_id))
        tries = _held_tries(job)
        held = _read_newest(tries)
        is_done = is_over(context) or (held is not None and _label_of(held) in context.report.rebuilt)
        if held is not None and not is_done:
            ruling: outputs.Ruling = {
                "decision": decision,
                "who": who or name_person(),
                "reason": reason.strip(),
                "at": now_text(),
            }
            _carry_out(context, held, ruling)
        context.lease.check()
        for one in tries:
            storage.remove_tree(one)
        storage.remove_empty_folder(job)
        before = context.report.decision
        if is_done and before is not None and before["decision"] != decision:
            raise decided_already(name, run_id, before)
        has_sinks, report = bool(context.spec.sinks), context.report.to_json()
    if submit is not None and has_sinks and report["outcome"] == "published":
        return deliver_run(project, name, run_id, submit=submit)
    return report


def _carry_out(context: RunContext, held: dict[str, Any], ruling: outputs.Ruling) -> None:
    intent = intent_from_json(held["intent"])
    assert intent.report is not None
    is_last = intent.report["outcome"] is not None
    if ruling["decision"] == "discard":
        _drop(context, held, ruling, is_last=is_last)
    else:
        files = list_data_files(context.paths.table)
        _check_unchanged(context, held, intent, files)
        metadata = {**intent.custom_metadata, "tidegate.decision": json.dumps(ruling, ensure_ascii=False)}
        report = {**intent.report, "decision": ruling}
        if not is_last:
            more = f"{_LEFT}the same command with --run-id {intent.run_id} goes on"
            report["notes"] = [*report["notes"], more]
        released = replace(intent, table_files=digest_files(files), custom_metadata=metadata, report=report)
        result = publish_plan(context, lambda: released)
        context.report = RunReport.from_json(report)
        context.report.table["version"] = result.version


def _drop(context: RunContext, held: dict[str, Any], ruling: outputs.Ruling, *, is_last: bool) -> None:
    """End the work without the held interval. What it swapped before that stays, and so it has published."""
    report = context.report
    report.outcome, report.ended_at, report.error = "discarded", now_text(), None
    report.decision = ruling
    if report.table.get("version") is not None:
        forget_held(context)
        report = context.report
        report.outcome = "published"
        report.add_note(f"{_label_of(held)}: discarded; before it were rebuilt, and stay: {', '.join(report.rebuilt)}")
    if not is_last:
        report.add_note(f"what comes behind {_label_of(held)} was not rebuilt: it takes a command with another run id")
    context.save()


def _label_of(held: dict[str, Any]) -> str:
    return Interval(held["within"], but_older=held.get("but_older", False)).label


def _check_unchanged(
    context: RunContext, held: dict[str, Any], intent: PublishIntent, files: Sequence[DataFile]
) -> None:
    now = {file.path for file in files if Interval(held["within"]).holds(file.partition)}
    then = {file.path for file in intent.files_to_remove} | {str(file["path"]) for file in held.get("stays", ())}
    aside = intent.companion.table_files if intent.companion is not None else None
    has_other_quarantine = aside is not None and aside != digest_files(list_data_files(context.paths.quarantine))
    given, is_behind = intent.hand_over, False
    if given is not None:
        assert context.facts is not None
        is_behind = not is_unchanged(context.paths, context.facts, given)
    if now != then or has_other_quarantine or is_behind:
        raise catalogue.BACKFILL_OUTDATED(
            where=f"run {intent.run_id} of pipeline {context.name}",
            label=_label_of(held),
            changed=_what_changed(len(now ^ then), is_behind=is_behind),
            name=context.name,
            run_id=intent.run_id,
        )


def _what_changed(files: int, *, is_behind: bool) -> str:
    if files:
        return count_of(files, "file")
    return "what runs have read and keep as state" if is_behind else "quarantined records"


def _job(paths: PipelinePaths, work: Rework) -> Path:
    """Where the tries of a job are."""
    return paths.backfills / work.app_id
