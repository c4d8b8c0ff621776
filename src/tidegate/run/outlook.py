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
from tidegate.spec.load import list_pipelines, load_pipeline
from tidegate.spec.models import FilesSource


def plan_pipeline(project: Project, name: str) -> dict[str, Any]:
    """What the next run of ``name`` would read, and what stands in its way. Raises UsageError for a bad spec."""
    spec = load_pipeline(project, name)
    paths = project.paths(name)
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
    if facts.in_flight is not None:
        notes.append(f"batch {facts.in_flight} was begun and is finished first")
    behind = describe_behind(describe_sinks(paths, spec)) if spec.sinks else []
    notes += behind
    sources: dict[str, Any] = {}
    has_new = False
    try:
        if any(isinstance(source, FilesSource) for source in spec.sources.values()):
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
        notes.append(f"would refuse: {error}")
    work = has_new or bool(facts.owed) or facts.in_flight is not None or bool(behind)
    return {
        "pipeline": name,
        "summary": _summarise(work, notes),
        "has_new": has_new,
        "sources": sources,
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
    return "there is something to do" if work else "nothing new"


def project_status(project: Project, name: str | None) -> list[dict[str, Any]]:
    """Each pipeline with its newest runs, backlog, holds, lease and table version; a bad spec is a note, not an
    error.
    """
    names = [name] if name is not None else list_pipelines(project)
    return [_pipeline_status(project, one, 10 if name is not None else 3, strict=name is not None) for one in names]


def _pipeline_status(project: Project, name: str, runs: int, *, strict: bool) -> dict[str, Any]:
    value: dict[str, Any] = {"pipeline": name, "table": None, "backlog": "unknown", "held": None, "notes": []}
    value |= {"lease": None, "watermark": None, "runs": [], "sinks": []}
    try:
        spec = load_pipeline(project, name)
        paths = project.paths(name)
        value["runs"] = [report.to_dict() for report in list_reports(paths, runs)]
        value["lease"] = read_lease(paths)
        facts = gather_facts(paths, spec)
        if facts.table is not None:
            value["table"] = {"path": str(paths.table), "version": facts.table.version}
        if spec.sinks:
            value["sinks"] = describe_sinks(paths, spec)
        plan = plan_pipeline(project, name)
        value["held"] = plan["held"]
        value["notes"] = plan["notes"]
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
        value["notes"].append(str(error))
    return value
