"""What the next run would do, for ``plan`` and ``status``. Reads only, starts no JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.core.errors import DisagreementError, TidegateError
from tidegate.core.outputs import Ahead, ChangedFile, Decided, HeldWork, Plan, SourceReport
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.rework.backfill.held import list_held
from tidegate.runs.deliver import SinkState, describe_behind, describe_sinks
from tidegate.runs.preflight.agreement import check_agreement, check_table
from tidegate.runs.preflight.damage import AT_A_GLANCE, check_damage
from tidegate.runs.preflight.definition import list_changes
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.preflight.pending import Pending, find_pending
from tidegate.runs.preflight.quarantine import check_ahead, check_quarantine
from tidegate.runs.recovery.abandoned import describe_unfinished_work, list_unfinished_work
from tidegate.runs.reports.report import RunReport
from tidegate.runs.reports.verdicts import Decision, find_hold, list_decided, list_rereads, quote_word
from tidegate.runs.reports.waiting import WaitingIncrement, list_waiting, list_waiting_undecided
from tidegate.runs.restart.losses import find_losses, loss_error
from tidegate.runs.restart.reread import find_hindrance
from tidegate.runs.restart.rollback import describe_rollback, load_rollback
from tidegate.sources.files.changed import changed_error, describe_changed, list_changed
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.starts import describe_change, describe_start
from tidegate.sources.generators.source import RECEIVES_FIRST
from tidegate.sources.registry import Connections, open_sources
from tidegate.spec.models import KafkaSink, PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.spec.transform.load import check_transform
from tidegate.state.birth import as_read, digest_transform
from tidegate.table.sinks_fit import check_sinks_fit
from tidegate.views.unfinished import list_unfinished


@dataclass(frozen=True)
class Outlook:
    """What the next run would do: the ``plan`` as the command prints it, how far each sink is, and what is ``pending``
    in the sources, None where not all of them have answered."""

    plan: Ahead
    sinks: list[SinkState]
    pending: Pending | None = None


def plan_pipeline(project: Project, name: str) -> Plan:
    """Show what the next run of ``name`` would read, what prevents it, and what has changed since the last run that
    read something. Raises UsageError for a bad spec."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    plan = look_ahead(project, spec, gather_facts(paths, spec)).plan
    since, changes = list_changes(project, spec, paths)
    return {**plan, "changes_since": since, "changes": [change.to_json() for change in changes]}


def look_ahead(
    project: Project,
    spec: PipelineSpec,
    facts: Facts,
    connections: Connections | None = None,
    reports: Sequence[RunReport] | None = None,
    *,
    files_at_most: int = AT_A_GLANCE,
) -> Outlook:
    """Find out what the next run would do.

    Args:
        spec: As a run reads it.
        connections: By default new ones are opened.
        reports: Searched for unfinished work, by default many.
        files_at_most: How many files of the table are checked, the newest first.
    """
    name = spec.name
    paths = project.paths(name).pinned()
    rereads, rollback = list_rereads(paths), load_rollback(paths)
    hold, held_work, begun = find_hold(paths, facts.unpublished), _list_held_work(paths), list_unfinished_work(paths)
    waiting, log_fault = _list_waiting(paths)
    facts = replace(facts, log_fault=facts.log_fault or log_fault)
    decided = _list_decided(paths, facts, rereads)
    sinks = describe_sinks(paths, spec) if spec.sinks and facts.log_fault is None else []
    behind = describe_behind(sinks)
    disagreement = _find_disagreement(paths, facts, name, rereads, rollback is not None)
    disagreement = disagreement or _find_damage(paths, files_at_most)
    coming = _look_unless_changed(project, paths, spec, facts, connections or Connections(), disagreement)
    notes = [
        *([] if hold is None else [f"held: run {hold.run_id}: {'; '.join(hold.reasons)}"]),
        *(_describe_waiting(one) for one in waiting),
        *(_describe_held_work(name, one) for one in held_work),
        *(_describe_decided(one) for one in decided),
        *([] if rollback is None else [describe_rollback(rollback)]),
        *(describe_unfinished_work(name, intent) for intent in begun),
        *(one.describe() for one in list_unfinished(paths, reports)),
        *_describe_unfinished(paths, spec, facts, is_refused=bool(disagreement)),
        *(note for source in open_sources(project, paths, spec).values() for note in source.describe_ahead()),
        *behind,
        *coming.notes,
    ]
    errors = [*disagreement, *_find_sink_mismatch(project, paths, spec, facts), *coming.errors]
    if coming.has_new or facts.in_flight is not None:
        errors += _find_transform_fault(project, spec)
    is_unfinished = bool(begun) or rollback is not None or bool(facts.unpublished) or facts.in_flight is not None
    has_work = is_unfinished or coming.has_new or bool(behind)
    plan: Ahead = {
        "pipeline": name,
        "summary": _summarise(has_work, bool(errors), hold is not None, notes),
        "has_new": coming.has_new,
        "pending": has_work,
        "sources": coming.sources,
        "sources_unknown": None if coming.unknown is None else coming.unknown.to_dict(),
        "errors": [error.to_dict() for error in errors],
        "changed": coming.changed,
        "held": None if hold is None else {"run_id": hold.run_id, "reasons": hold.reasons},
        "waiting": [{"run_id": one.run_id, "reasons": one.verdict.reasons} for one in waiting],
        "held_work": held_work,
        "decided": decided,
        "owed_batches": len(facts.unpublished),
        "in_flight_batch": facts.in_flight,
        "notes": notes,
    }
    return Outlook(plan, sinks, coming.pending)


def _find_disagreement(
    paths: PipelinePaths, facts: Facts, name: str, rereads: Sequence[Decision], rolls_back: bool
) -> list[TidegateError]:
    """Find why the next run would end before it reads anything: quarantine is older than it was, or checkpoint,
    manifests and table do not agree."""
    if facts.log_fault is not None:
        return [facts.log_fault]
    try:
        check_quarantine(paths)  # as a run does, before it resumes anything
        check_ahead(paths, facts)
    except TidegateError as error:
        return [error]
    try:
        (check_table if rolls_back else check_agreement)(facts, name)
    except TidegateError as error:
        # An unfinished reread leaves a disagreement that the next run resolves.
        found = find_hindrance(facts, name, rereads) if rereads else error
        return [] if found is None else [found]
    return []


def _find_damage(paths: PipelinePaths, at_most: int) -> list[TidegateError]:
    """Find files or versions of table and quarantine that are not as they were written: a run would stop at them."""
    try:
        check_damage(paths, at_most=at_most)
    except TidegateError as error:
        return [error]
    return []


def _find_sink_mismatch(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts
) -> list[TidegateError]:
    """Find why the table's columns do not fit the sinks."""
    if facts.table is None or not any(isinstance(sink, KafkaSink) for sink in spec.sinks):
        return []
    # Only Spark knows whether an edited query adds a column that the table lacks.
    edited = any(change.kind in ("query", "column") for change in list_changes(project, spec, paths)[1])
    try:
        check_sinks_fit(spec, facts.table.schema_json, may_grow=edited)
    except TidegateError as error:
        return [error]
    return []


def _find_transform_fault(project: Project, spec: PipelineSpec) -> list[TidegateError]:
    try:
        check_transform(project, spec)
    except TidegateError as error:
        return [error]
    return []


def _list_waiting(paths: PipelinePaths) -> tuple[list[WaitingIncrement], DisagreementError | None]:
    """List deferred increments. If the table's log cannot be read, also those with a decision, and the error."""
    try:
        return list_waiting_undecided(paths), None
    except DisagreementError as error:
        return list_waiting(paths), error


def _list_decided(paths: PipelinePaths, facts: Facts, rereads: Sequence[Decision]) -> list[Decided]:
    """List the decisions that the next run carries out."""
    decided: list[Decided] = [
        {"run_id": verdict.run_id, **ruling.to_report()}
        for verdict, ruling in list_decided(paths)
        if verdict.choose(facts.unpublished) and ruling.decision != "reread"
    ]
    return decided + [{"run_id": ruling.run_id, **ruling.to_report()} for ruling in rereads]


def _describe_waiting(waiting: WaitingIncrement) -> str:
    rows = count_of(sum(manifest.staged for manifest in waiting.manifests), "row")
    reasons = "; ".join(waiting.verdict.reasons) or "its audit passes now; publish adds it to the table"
    return f"deferred since {waiting.since}: run {waiting.run_id}, {rows}: {reasons}"


def _list_held_work(paths: PipelinePaths) -> list[HeldWork]:
    """List held backfills and refreshes, each with the last partitions that it would have rebuilt."""
    reports = [intent.report for intent in list_held(paths) if intent.report is not None]
    return [{"kind": one["mode"], "run_id": one["run_id"], "partitions": one["rebuilt"][-1]} for one in reports]


def _describe_held_work(name: str, work: HeldWork) -> str:
    run_id = quote_word(work["run_id"])
    return (
        f"held: {work['kind']} {work['run_id']}: {work['partitions']}; live runs continue; decide with `tidegate "
        f'release {name} {run_id} --reason "..."` or `tidegate discard {name} {run_id} --reason "..."`'
    )


def _describe_decided(decided: Decided) -> str:
    return (
        f"decided, not carried out yet: {decided['who']} decided at {decided['at']} to {decided['decision']} run "
        f"{decided['run_id']}; the next run carries it out first"
    )


def _describe_unfinished(paths: PipelinePaths, spec: PipelineSpec, facts: Facts, *, is_refused: bool) -> list[str]:
    """Describe what earlier runs have left for the next one to finish."""
    notes = []
    if facts.unpublished:
        rows = count_of(sum(manifest.staged for manifest in facts.unpublished), "row")
        notes.append(f"staged and not published: {count_of(len(facts.unpublished), 'batch', 'batches')}, {rows}")
    if facts.birth is not None and facts.birth.keeps_state and facts.birth.transform != digest_transform(paths, spec):
        notes.append(
            "the transform was edited since the last run, and the query keeps state: the next run compares the two, "
            f"and refuses a transform that does not fit the state; `tidegate validate {spec.name} --spark` checks now"
        )
    if facts.unusable is not None and not is_refused:
        notes.append(f"the next run that has something to read begins {facts.unusable.describe()}")
    if facts.in_flight is not None:
        notes.append(f"batch {facts.in_flight} was started and is finished first")
    return notes


@dataclass
class _Coming:
    """What the sources have for the next run, filled while they are asked.

    What was found before a source failed is kept, except ``sources``, ``has_new`` and ``pending``, which are valid only
    when all have answered."""

    sources: dict[str, SourceReport] = field(default_factory=dict)
    has_new: bool = False
    unknown: TidegateError | None = None
    changed: list[ChangedFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    errors: list[TidegateError] = field(default_factory=list)
    pending: Pending | None = None


def _look_unless_changed(
    project: Project,
    paths: PipelinePaths,
    spec: PipelineSpec,
    facts: Facts,
    connections: Connections,
    disagreement: Sequence[TidegateError],
) -> _Coming:
    # With another source in the spec, files that were taken from the earlier one would seem to be gone.
    changed = next((error for error in disagreement if error.code == "SPEC_CHANGED"), None)
    return _Coming(unknown=changed) if changed else _look_at_sources(project, paths, spec, facts, connections)


def _look_at_sources(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, connections: Connections
) -> _Coming:
    coming = _Coming()
    try:
        if spec.file_streams:
            with open_ledger(paths, read_only=True) as ledger:
                pending = find_pending(project, paths, spec, facts, replace(connections, ledger=ledger))
                coming.changed = list_changed(ledger, pending.scans)
            _report_changed(paths, spec, coming)
            coming.notes += _describe_settling(pending.summaries)
            coming.notes += _describe_starts(spec, pending)
        else:
            pending = find_pending(project, paths, spec, facts, connections)
        losses = find_losses(pending)
        if losses:
            coming.errors.append(loss_error(spec.name, facts, losses))
        coming.sources, coming.has_new, coming.pending = pending.summaries, pending.has_new, pending
    except TidegateError as error:
        coming.unknown = error
        coming.errors.append(error)
    return coming


def _report_changed(paths: PipelinePaths, spec: PipelineSpec, coming: _Coming) -> None:
    """Report files that changed after they were read: as an error where the spec says fail, otherwise as a note."""
    refused = changed_error(spec, paths, coming.changed)
    if refused is not None:
        coming.errors.append(refused)
    elif coming.changed:
        acknowledge = f"tidegate acknowledge {spec.name} --reason '...'"
        files = count_of(len(coming.changed), "file")
        coming.notes.append(
            f"{files} changed after being read: {describe_changed(coming.changed)}; to accept this: {acknowledge}"
        )


def _describe_starts(spec: PipelineSpec, pending: Pending) -> list[str]:
    changed = [describe_change(name, spec.file_streams[name], scan.began) for name, scan in pending.scans.items()]
    earlier = ((name, one["before_start"]) for name, one in pending.summaries.items() if "before_start" in one)
    starts = [describe_start(name, one) for name, one in earlier if one["at"] is None]
    return [*starts, *(note for note in changed if note is not None)]


def _describe_settling(sources: Mapping[str, SourceReport]) -> list[str]:
    return [
        f"source {name}: {count_of(len(one['settling']), 'file is', 'files are')} still settling, "
        f"first {one['settling'][0]['path']}: {one['settling'][0]['why']}"
        for name, one in sources.items()
        if one.get("settling")
    ]


def _summarise(has_work: bool, refuses: bool, held: bool, notes: list[str]) -> str:
    if refuses:
        return "the next run would refuse"
    if held:
        return "waits for a decision"
    if has_work:
        return "there is something to do"
    return "the next run receives first" if any(RECEIVES_FIRST in note for note in notes) else "nothing new"
