"""``plan``, and what ``status`` says of the future: what the next run would do. Reads only, starts no JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.errors import TidegateError
from tidegate.pipeline import load_pipeline
from tidegate.preflight.agreement import check_agreement
from tidegate.preflight.changed_files import changed_error, describe_changed, list_changed
from tidegate.preflight.definition import list_changes
from tidegate.preflight.facts import Facts, gather_facts
from tidegate.preflight.pending import Pending, find_pending
from tidegate.preflight.starts import describe_change, describe_start
from tidegate.project import Project
from tidegate.reports.verdicts import find_hold, list_decided, list_rereads
from tidegate.restart.losses import find_losses, loss_error
from tidegate.restart.reread import find_hindrance
from tidegate.run.deliver import describe_behind, describe_sinks
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.generators.spool import describe_not_replayable
from tidegate.sources.kafka.brokers import OpenBrokers
from tidegate.spec.as_read import SpooledSource
from tidegate.spec.models import FilesSource, KafkaSink, PipelineSpec
from tidegate.staging.birth import as_read, digest_transform
from tidegate.table.sinks_fit import check_sinks_fit
from tidegate.transform.load import check_transform
from tidegate.words import count_of

_RECEIVES = "the next run first receives"


@dataclass(frozen=True)
class Outlook:
    """What the next run would do: the ``plan`` as the command prints it, and how far each sink is."""

    plan: dict[str, Any]
    sinks: list[dict[str, Any]]


def plan_pipeline(project: Project, name: str) -> dict[str, Any]:
    """What the next run of ``name`` would read, what stands in its way, and what was changed since the last one that
    read something. Raises UsageError for a bad spec."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    plan = look_ahead(project, spec, gather_facts(paths, spec)).plan
    since, changes = list_changes(project, spec, paths)
    return {**plan, "changes_since": since, "changes": [asdict(change) for change in changes]}


def look_ahead(project: Project, spec: PipelineSpec, facts: Facts, brokers: OpenBrokers | None = None) -> Outlook:
    """What the next run would do, from ``spec`` (as a run reads it) and ``facts``; ``brokers`` opens a connection, by
    default one for each look."""
    name = spec.name
    paths = project.paths(name).pinned()
    notes: list[str] = []
    errors: list[TidegateError] = []
    rereads = list_rereads(paths)
    try:
        check_agreement(facts, name)
    except TidegateError as error:
        # One that was begun leaves what does not fit, and the next run goes on with it.
        found = find_hindrance(facts, name, rereads) if rereads else error
        errors += [] if found is None else [found]
    hold = find_hold(paths, facts.owed)
    if hold is not None:
        notes.append(f"held: run {hold.run_id}: {'; '.join(hold.reasons)}")
    decided = [
        {"run_id": verdict.run_id, **ruling.to_report()}
        for verdict, ruling in list_decided(paths)
        if verdict.choose(facts.owed) and ruling.decision != "reread"
    ]
    decided += [{"run_id": ruling.run_id, **ruling.to_report()} for ruling in rereads]
    notes += [
        f"decided, and not done yet: {one['who']} decided at {one['at']} to {one['decision']} run {one['run_id']}; the "
        "next run does it first"
        for one in decided
    ]
    if facts.owed:
        rows = count_of(sum(manifest.staged for manifest in facts.owed), "row")
        notes.append(f"staged and not published: {count_of(len(facts.owed), 'batch', 'batches')}, {rows}")
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
    sinks = describe_sinks(paths, spec) if spec.sinks else []
    behind = describe_behind(sinks)
    notes += behind
    if facts.table is not None and any(isinstance(sink, KafkaSink) for sink in spec.sinks):
        # Whether an edited query brings a column that the table lacks, only Spark can tell.
        edited = any(change.kind in ("query", "column") for change in list_changes(project, spec, paths)[1])
        try:
            check_sinks_fit(spec, facts.table.schema_json, may_grow=edited)
        except TidegateError as error:
            errors.append(error)
    sources: dict[str, Any] = {}
    sources_unknown = None
    changed: list[dict[str, Any]] = []
    has_new = False
    try:
        if any(isinstance(source, FilesSource) for source in spec.streams.values()):
            with open_ledger(paths, read_only=True) as ledger:
                pending = find_pending(project, paths, spec, facts, ledger, brokers)
                changed = list_changed(ledger, pending.scans)
            refused = changed_error(spec, paths, changed)
            if refused is not None:
                errors.append(refused)
            elif changed:
                notes.append(
                    f"{describe_changed(changed)}; when that is known: tidegate acknowledge {name} --reason '...'"
                )
            notes += _describe_settling(pending.summaries)
            notes += _describe_starts(spec, pending)
        else:
            pending = find_pending(project, paths, spec, facts, None, brokers)
        losses = find_losses(pending)
        if losses:
            errors.append(loss_error(name, facts, pending, losses))
        sources, has_new = pending.summaries, pending.has_new
    except TidegateError as error:
        sources_unknown = error.to_dict()
        errors.append(error)
    if has_new or facts.in_flight is not None:
        try:
            check_transform(project, spec)
        except TidegateError as error:
            errors.append(error)
    work = has_new or bool(facts.owed) or facts.in_flight is not None or bool(behind)
    value = {
        "pipeline": name,
        "summary": _summarise(work, bool(errors), hold is not None, notes),
        "has_new": has_new,
        "pending": work,
        "sources": sources,
        "sources_unknown": sources_unknown,
        "errors": [error.to_dict() for error in errors],
        "changed": changed,
        "held": None if hold is None else {"run_id": hold.run_id, "reasons": hold.reasons},
        "decided": decided,
        "owed_batches": len(facts.owed),
        "in_flight_batch": facts.in_flight,
        "notes": notes,
    }
    return Outlook(value, sinks)


def _describe_starts(spec: PipelineSpec, pending: Pending) -> list[str]:
    changed = [describe_change(name, spec.streams[name], scan.began) for name, scan in pending.scans.items()]
    earlier = ((name, one["before_start"]) for name, one in pending.summaries.items() if "before_start" in one)
    told = [describe_start(name, one) for name, one in earlier if one["at"] is None]
    return [*told, *(note for note in changed if note is not None)]


def _describe_settling(sources: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"source {name}: {count_of(len(one['settling']), 'file is', 'files are')} left alone for now, "
        f"first {one['settling'][0]['path']}: {one['settling'][0]['why']}"
        for name, one in sources.items()
        if one.get("settling")
    ]


def _summarise(work: bool, refuses: bool, held: bool, notes: list[str]) -> str:
    if refuses:
        return "the next run would refuse"
    if held:
        return "waits for a decision"
    if work:
        return "there is something to do"
    return "the next run receives first" if any(_RECEIVES in note for note in notes) else "nothing new"
