"""``plan`` and ``status``: what is, and what the next run would do. Reads only, starts no JVM."""

from __future__ import annotations

from typing import Any

from tidegate.errors import TidegateError
from tidegate.lease import read_lease
from tidegate.project import Project
from tidegate.run.deliver import describe_behind, describe_sinks
from tidegate.run.pending import find_pending
from tidegate.run.preflight import check_agreement, gather_facts
from tidegate.run.report import list_reports
from tidegate.run.verdicts import find_hold
from tidegate.source.spool import describe_not_replayable
from tidegate.spec.as_read import SpooledSource
from tidegate.spec.load import list_pipelines, load_pipeline
from tidegate.spec.models import FilesSource
from tidegate.staging.birth import as_read, digest_transform
from tidegate.staging.open_state import describe_open_state, read_open_state, text_of_ms

_RECEIVES = "the next run first receives"


def plan_pipeline(project: Project, name: str) -> dict[str, Any]:
    """What the next run of ``name`` would read, and what stands in its way. Raises UsageError for a bad spec."""
    paths = project.paths(name)
    spec = as_read(load_pipeline(project, name), paths)
    facts = gather_facts(paths, spec)
    notes: list[str] = []
    try:
        check_agreement(facts, name)
    except TidegateError as error:
        notes.append(f"would refuse: {error}")
    hold = find_hold(paths, facts.owed)
    if hold is not None:
        notes.append(f"held: run {hold.run_id}: {'; '.join(hold.reasons)}")
    if facts.owed:
        notes.append(f"staged and not published: {len(facts.owed)} batches, {sum(m.staged for m in facts.owed):,} rows")
    if facts.birth is not None and facts.birth.keeps_state and facts.birth.transform != digest_transform(paths, spec):
        notes.append(
            "the transform was edited since the last run, and the query keeps state: the next run compares what that "
            f"was made for, and refuses what does not fit it; `tidegate validate {name} --spark` tells now"
        )
    if facts.in_flight is not None:
        notes.append(f"batch {facts.in_flight} was begun and is finished first")
    for key, one in spec.sources.items():
        if isinstance(one, SpooledSource):
            notes.append(describe_not_replayable(key, one))
            notes.append(f"{_RECEIVES} what source {key} has; nothing was asked of it now")
    behind = describe_behind(describe_sinks(paths, spec)) if spec.sinks else []
    notes += behind
    sources: dict[str, Any] = {}
    sources_unknown = None
    has_new = False
    try:
        if any(isinstance(source, FilesSource) for source in spec.streams.values()):
            from tidegate.source.ledger import open_ledger

            with open_ledger(paths, read_only=True) as ledger:
                pending = find_pending(project, paths, spec, facts.birth, facts.checkpoint, ledger)
        else:
            pending = find_pending(project, paths, spec, facts.birth, facts.checkpoint, None)
            from tidegate.source.kafka_loss import find_loss

            for source, (start, plan) in pending.kafka.items():
                loss = find_loss(start, plan)
                if loss is not None:
                    notes.append(f"would refuse: {loss.to_error(name, source)}")
        sources, has_new = pending.summaries, pending.has_new
    except TidegateError as error:
        sources_unknown = _in_one_line(error)
        notes.append(f"would refuse: {error}")
    work = has_new or bool(facts.owed) or facts.in_flight is not None or bool(behind)
    return {
        "pipeline": name,
        "summary": _summarise(work, notes),
        "has_new": has_new,
        "sources": sources,
        "sources_unknown": sources_unknown,
        "held": None if hold is None else {"run_id": hold.run_id, "reasons": hold.reasons},
        "owed_batches": len(facts.owed),
        "in_flight_batch": facts.in_flight,
        "notes": notes,
    }


def _summarise(work: bool, notes: list[str]) -> str:
    if any(note.startswith("would refuse") for note in notes):
        return "the next run would refuse"
    if any(note.startswith("held") for note in notes):
        return "waits for a decision"
    if work:
        return "there is something to do"
    return "the next run receives first" if any(_RECEIVES in note for note in notes) else "nothing new"


def _in_one_line(error: TidegateError) -> str:
    return f"{error.code}: {error.message}".partition("\n")[0]


def project_status(project: Project, name: str | None) -> list[dict[str, Any]]:
    """Each pipeline with its newest runs, backlog, holds, lease and table version; a bad spec is a note, not an
    error. A ``backlog`` that cannot be told is None, with the reason as ``backlog_unknown``.
    """
    names = [name] if name is not None else list_pipelines(project)
    return [_pipeline_status(project, one, 10 if name is not None else 3, strict=name is not None) for one in names]


def _pipeline_status(project: Project, name: str, runs: int, *, strict: bool) -> dict[str, Any]:
    value: dict[str, Any] = {"pipeline": name, "table": None, "backlog": None, "backlog_unknown": None, "held": None}
    value |= {"notes": [], "lease": None, "watermark": None, "state": None, "runs": [], "sinks": []}
    try:
        paths = project.paths(name)
        spec = as_read(load_pipeline(project, name), paths)
        value["runs"] = [report.to_dict() for report in list_reports(paths, runs)]
        value["lease"] = read_lease(paths)
        facts = gather_facts(paths, spec)
        if facts.table is not None:
            value["table"] = {"path": str(paths.table), "version": facts.table.version}
        if spec.sinks:
            value["sinks"] = describe_sinks(paths, spec)
        plan = plan_pipeline(project, name)
        note = read_open_state(paths, facts.query_id)
        if note is not None:
            value["watermark"] = text_of_ms(note.watermark_ms)
            value["state"] = describe_open_state(note)
        value["held"] = plan["held"]
        value["notes"] = plan["notes"]
        value["backlog_unknown"] = plan["sources_unknown"]
        if value["backlog_unknown"] is None:
            value["backlog"] = ", ".join(
                f"{source} {one['files']} files" if "files" in one else f"{source} {one['pending_offsets']} offsets"
                for source, one in plan["sources"].items()
            )
        lease = value["lease"]
        if lease is not None and lease["state"] in ("held", "parked"):
            value["notes"].append(
                f"lease: {lease['state']} by run {lease['run_id']} ({lease['command']}, pid {lease['pid']} on "
                f"{lease['host']}) since {lease['acquired_at']}"
            )
    except TidegateError as error:
        if strict:
            raise
        value["backlog_unknown"] = _in_one_line(error)
        value["notes"].append(str(error))
    return value
