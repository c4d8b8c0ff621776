"""``tidegate reread``: a held increment is read again from the source, with the schema, suite or transform as they are
now.

The decision is recorded first, like any other, and carried out by the next process. What it does is what a repair
does (:mod:`tidegate.runs.restart.repair`): the query is ended in the logs, what is staged is backed up, files go back
to the intake and Kafka's offsets to those of the table's last commit, and a new query begins. The decision stays on
disk until that has begun, so a process that is killed anywhere is followed by one that resumes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.core.errors import TidegateError
from tidegate.core.outputs import Reread, RereadSource
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import name_person, now_text
from tidegate.runs import errors
from tidegate.runs.gate.decisions import find_held
from tidegate.runs.preflight.agreement import check_agreement, check_table
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import keep_named, load_report, new_report, save_report
from tidegate.runs.reports.verdicts import (
    Decision,
    StoredVerdict,
    forget,
    list_rereads,
    load_decision,
    load_verdict,
    quote_word,
    save_decision,
)
from tidegate.runs.reports.waiting import load_waiting
from tidegate.runs.restart.disagreement import find_disagreement
from tidegate.runs.restart.new_checkpoint import read_again
from tidegate.runs.restart.rebuild import query_keeps_state
from tidegate.runs.restart.repair_plan import list_files_to_read_again
from tidegate.runs.restart.starts import starts_of_sources
from tidegate.sources.files.differences import find_differences
from tidegate.sources.files.ledger import shown_path
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.spec.transform.load import check_transform
from tidegate.state.birth import as_read
from tidegate.state.topics import join_ranges, ranges_to_json

_ALLOWED = ("SPEC_CHANGED",)
"""Disagreements that reading again settles: the correction itself."""


def record_reread(context: RunContext, verdict: StoredVerdict, reason: str, who: str | None = None) -> None:
    """Write the decision down. Nothing is decided when what would be read again is not all there. ``who`` is by default
    the person at this terminal.

    Raises UsageError STATE_NEEDED, SourceLostError REREAD_LOST, DisagreementError, TryAgainError BROKER_AWAY.
    """
    assert context.facts is not None
    check_transform(context.project, context.spec)
    _check_possible(context.project, context.spec, context.paths, context.facts, verdict.run_id)
    context.lease.check()
    judged, folds = sorted(verdict.batches), list(verdict.folds)
    who = who or name_person()
    save_decision(context.paths, Decision(verdict.run_id, "reread", who, reason.strip(), now_text(), judged, folds))


def refuse_waiting(paths: PipelinePaths, name: str, run_id: str) -> None:
    """Raise UsageError WAITING_NOT_READ_AGAIN for an increment that later runs have passed."""
    if load_waiting(paths, run_id) is not None:
        raise errors.WAITING_NOT_READ_AGAIN(
            where=f"pipeline {name}", run_id=run_id, name=name, quoted=quote_word(run_id)
        )


def carry_out_rereads(context: RunContext, facts: Facts) -> bool:
    """Carry out the first open decision to read again; whether there was one. Paths, spec and facts are others then."""
    open_ones = list_rereads(context.paths)
    if not open_ones:
        return False
    decision = min(open_ones, key=lambda one: one.at)
    lost: list[str] = []
    if _is_unpublished(facts, decision):
        lost = _begin_again(context, facts, decision)
    verdict = load_verdict(context.paths, decision.run_id)
    if verdict is None or decision.is_on(
        verdict
    ):  # else the run id was judged again since, and this is an old decision
        _note_in_report(context, decision, lost)
        if verdict is not None:
            context.lease.check()
            forget(context.paths, verdict)
    context.lease.check()
    forget(context.paths, decision)  # last: without it the report would not be updated
    return True


def _is_unpublished(facts: Facts, decision: Decision) -> bool:
    """Whether the query that read the increment is still the pipeline's: a repair, or an earlier process, may have
    begun the next one."""
    living = facts.query_id or (facts.birth.query_id if facts.birth is not None else None)
    return living in {query_id for query_id, _ in decision.batches}


def _is_begun(facts: Facts, decision: Decision) -> bool:
    """Whether the query was ended already, so that checkpoint and staging no longer have to fit."""
    return any(query in facts.retired and facts.retired[query] < batch for query, batch in decision.batches)


def find_hindrance(facts: Facts, name: str, decisions: Sequence[Decision]) -> TidegateError | None:
    """What the next run ends with before it has carried out the first of these decisions; None for nothing."""
    decision = min(decisions, key=lambda one: one.at)
    if not _is_unpublished(facts, decision):
        return None
    try:
        (check_table if _is_begun(facts, decision) else check_agreement)(facts, name)
    except TidegateError as error:
        return None if error.code in _ALLOWED else error
    return None


def _begin_again(context: RunContext, facts: Facts, decision: Decision) -> list[str]:
    """End the query and begin the next one; the files that changed or went away since it was decided."""
    if _is_begun(facts, decision):
        check_table(facts, context.name)
    else:
        _check_agreement(context.paths, facts, context.name)
    changed = _missing_files(context.project, context.spec, context.paths)
    context.paths, lost = read_again(context.project, context.spec, context.paths, context.lease, errors.REREAD())
    context.spec = as_read(load_pipeline(context.project, context.name), context.paths)
    return changed + [f"{path} is gone" for path in lost if f"{path} is gone" not in changed]


def _note_in_report(context: RunContext, decision: Decision, lost: list[str]) -> None:
    """The run's report starts over: what it counted is counted again."""
    paths = context.paths
    before = load_report(paths, decision.run_id)
    if before is not None and before.outcome in ("published", "discarded"):
        return
    report = new_report(paths.name, decision.run_id)
    report.started_at = before.started_at if before is not None else report.started_at
    report.mode, report.decision = "reread", decision.to_report()
    if before is not None:  # what is named once, and not found again
        report.accepted_loss, report.notes = before.accepted_loss, list(before.notes)
        report.sources = {name: named for name, one in before.sources.items() if (named := keep_named(one))}
    if lost:
        report.notes.append(
            f"not all of the increment could be read again: {'; '.join(lost)}. What was read of these files before is "
            f"in neither table nor quarantine; the rows that were staged of it are kept below {paths.set_aside}"
        )
    context.lease.check()
    save_report(paths, report)


def look_at_reread(project: Project, name: str, run_id: str) -> Reread:
    """``tidegate reread --dry-run``: what would be read again, and what prevents it. Nothing is decided.

    Raises UsageError NOT_HELD or DECIDED_ALREADY, and DisagreementError for a torn table log.
    """
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    facts = gather_facts(paths, spec)
    refuse_waiting(paths, name, run_id)
    verdict = find_held(paths, facts, name, run_id)
    hindrance: TidegateError | None = None
    try:
        check_transform(project, spec)
        _check_possible(project, spec, paths, facts, run_id)
    except TidegateError as error:
        hindrance = error
    decided = load_decision(paths, verdict)
    return {
        "pipeline": name,
        "run_id": run_id,
        "held": verdict.reasons or verdict.failed_critical,
        "rows": sum(manifest.read for manifest in facts.unpublished),
        "sources": _describe_sources(paths, spec, facts),
        "decided": None if decided is None else decided.to_report(),
        "hindrance": None if hindrance is None else hindrance.to_dict(),
    }


def _describe_sources(paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> dict[str, RereadSource]:
    """What was read of each source, and the files that a new query would read: those that wait for a batch too."""
    files: dict[str, list[str]] = {}
    if spec.file_streams:
        for row in list_files_to_read_again(paths, spec):
            files.setdefault(row.source, []).append(shown_path(row.path))
    by_source: dict[str, RereadSource] = {}
    for name, source in spec.streams.items():
        taken = [manifest.sources[name] for manifest in facts.unpublished if name in manifest.sources]
        by_source[name] = {"rows": sum(one.rows for one in taken)}
        if source.takes_files:
            by_source[name]["files"] = files.get(name, [])
        else:
            by_source[name]["offsets"] = ranges_to_json(join_ranges(one.offsets or {} for one in taken))
    return by_source


def _check_agreement(paths: PipelinePaths, facts: Facts, name: str) -> None:
    found = find_disagreement(paths, facts, name)
    if found is not None and found.code not in _ALLOWED:
        raise found


def _check_possible(project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts, run_id: str) -> None:
    name, quoted = spec.name, quote_word(run_id)
    _check_agreement(paths, facts, name)
    others = f'tidegate release {name} {quoted} --reason "...", or tidegate discard {name} {quoted} --reason "..."'
    if facts.table is not None and query_keeps_state(facts, spec):
        raise errors.STATE_NEEDED(where=f"run {run_id} of pipeline {name}", others=others, name=name)
    gone = [*_missing_files(project, spec, paths), *_missing_offsets(project, spec, paths, facts)]
    if gone:
        more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
        raise errors.REREAD_LOST(
            where=f"run {run_id} of pipeline {name}; {sum(one.staged for one in facts.unpublished):,} rows of the "
            f"{sum(one.read for one in facts.unpublished):,} records that it read are staged, and stay",
            lost="; ".join(gone[:3]),
            more=more,
            others=others,
        )


def _missing_files(project: Project, spec: PipelineSpec, paths: PipelinePaths) -> list[str]:
    """Files of the increment that no longer hold what was read of them, each with how it differs."""
    return find_differences(project, paths, spec.file_streams, list_files_to_read_again(paths, spec))


def _missing_offsets(project: Project, spec: PipelineSpec, paths: PipelinePaths, facts: Facts) -> list[str]:
    """Ranges that the brokers no longer have."""
    sources = open_sources(project, paths, spec)
    if not any(source.keeps_start for source in sources.values()):
        return []
    living = facts.query_id or (facts.birth.query_id if facts.birth is not None else None)
    if any(manifest.query_id != living for manifest in facts.unpublished):
        return ["a loss was accepted in the middle of it"]
    starts = starts_of_sources(project, spec, paths, facts)
    return [gone for name, start in starts.items() for gone in sources[name].find_gone(start)]
