"""What the next run would do, for ``plan`` and ``status``. Reads only, starts no JVM."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError
from tidegate.core.outputs import Ahead, ChangedFile, Decided, HeldWork, Plan, Sink, SourceReport
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.rework.backfill.held import list_held
from tidegate.rework.backfill.span import Interval, Wanted, find_span, join_intervals
from tidegate.rework.held import list_held_side_jobs
from tidegate.runs.deliver import describe_behind, describe_sinks
from tidegate.runs.errors import RUN_STOPPED
from tidegate.runs.preflight.agreement import check_agreement, check_table
from tidegate.runs.preflight.definition import list_changes
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.files import check_files
from tidegate.runs.preflight.gather import Pending, find_pending, gather_facts
from tidegate.runs.preflight.tables import AT_A_GLANCE, check_ahead, check_damage, check_quarantine
from tidegate.runs.recovery.after_commit import find_unsent
from tidegate.runs.recovery.side_jobs import describe_unfinished_work, list_unfinished_work
from tidegate.runs.reports.report import RunReport, load_report, new_report, read_newest
from tidegate.runs.reports.verdicts import (
    Decision,
    StoredVerdict,
    WaitingIncrement,
    find_hold,
    list_decided,
    list_rereads,
    list_waiting,
    list_waiting_undecided,
    quote_word,
)
from tidegate.runs.restart.new_query import find_losses, loss_error
from tidegate.runs.restart.recorded import Rollback, describe_rollback, find_hindrance, load_rollback
from tidegate.sinks.user_code import read_user_code
from tidegate.sources.files.findings import (
    changed_error,
    describe_change,
    describe_changed,
    describe_start,
    describe_unread,
    list_changed,
    unread_error,
)
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.generators.source import RECEIVES_FIRST
from tidegate.sources.registry import Connections, open_sources
from tidegate.spec.models import KafkaSink, PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read, digest_transform
from tidegate.state.lease import LeaseState, read_lease
from tidegate.state.manifest import BatchManifest
from tidegate.table.log.state import list_data_files, read_table_state
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.sinks_fit import check_sinks_fit


@dataclass(frozen=True)
class Outlook:
    """What the next run would do: the ``plan`` as the command prints it, how far each sink is, and what is ``pending``
    in the sources, None where not all of them have answered."""

    plan: Ahead
    sinks: list[Sink]
    pending: Pending | None = None


def plan_pipeline(project: Project, name: str) -> Plan:
    """Show what the next run of ``name`` would read, what prevents it, and what has changed since the last run that
    read something. Raises UsageError for a bad spec."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    plan = look_ahead(project, spec, gather_facts(paths, spec)).plan
    since, changes = list_changes(project, spec, paths)
    return {**plan, "changes_since": since, "changes": changes}


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

    ``spec`` is as a run reads it. By default ``connections`` are new ones, and many ``reports`` are searched for
    unfinished work. Of the table's files the newest ``files_at_most`` are checked.
    """
    name, paths = spec.name, project.paths(spec.name).pinned()
    left = _find_left(paths, facts)
    facts = replace(facts, log_fault=facts.log_fault or left.log_fault)
    sinks = describe_sinks(paths, spec) if spec.sinks and facts.log_fault is None else []
    behind = describe_behind(sinks)
    disagreement = _find_disagreement(paths, facts, left, files_at_most)
    unsent = [] if disagreement else find_unsent(paths, facts.settled)
    coming = _look_unless_changed(project, paths, spec, facts, connections or Connections(), disagreement)
    notes = [
        *left.describe(name),
        *(one.describe() for one in list_unfinished(paths, reports)),
        *_describe_unfinished(paths, spec, facts, unsent, is_refused=bool(disagreement)),
        *(note for source in open_sources(project, paths, spec).values() for note in source.describe_ahead()),
        *behind,
        *coming.notes,
    ]
    errors = [*_find_unwritable(paths, coming.has_new or bool(facts.unpublished), bool(unsent)), *disagreement]
    exit_code = 65 if left.hold is not None and spec.quality.on_critical == "hold" and not errors else None
    errors += [*_find_sink_mismatch(project, paths, spec, facts), *coming.errors]
    if coming.has_new or facts.in_flight is not None or read_user_code(project, spec):
        errors += _error_of(lambda: check_files(project, spec))
    errors = _drop_repeated(errors)
    is_unfinished = left.is_begun or bool(unsent or facts.unpublished) or facts.in_flight is not None
    has_work = is_unfinished or coming.has_new or bool(behind)
    # No error for status: a writer may be about to give the right to read its file.
    unread = None if is_unfinished or coming.has_new else unread_error(paths, coming.sources)
    refused = errors[0] if errors else unread
    plan: Ahead = {
        "pipeline": name,
        "summary": _summarise(has_work, bool(errors), left.hold is not None, notes, unread is not None),
        "has_new": coming.has_new,
        "pending": has_work,
        "sources": coming.sources,
        "sources_unknown": None if coming.unknown is None else coming.unknown.to_dict(),
        "errors": [error.to_dict() for error in errors],
        "exit_code": exit_code or (0 if refused is None else refused.exit_code),
        "changed": coming.changed,
        "held": None if left.hold is None else {"run_id": left.hold.run_id, "reasons": left.hold.reasons},
        "waiting": [{"run_id": one.run_id, "reasons": one.verdict.reasons} for one in left.waiting],
        "held_work": left.held_work,
        "decided": left.decided,
        "owed_batches": len(facts.unpublished),
        "in_flight_batch": facts.in_flight,
        "notes": notes,
    }
    return Outlook(plan, sinks, coming.pending)


@dataclass(frozen=True)
class _Left:
    """What earlier runs and side jobs have left for the next run, and what people have decided."""

    hold: StoredVerdict | None
    waiting: list[WaitingIncrement]
    log_fault: DisagreementError | None
    held_work: list[HeldWork]
    begun: list[PublishIntent]
    rereads: list[Decision]
    rollback: Rollback | None
    decided: list[Decided]

    @property
    def is_begun(self) -> bool:
        """Return whether a publish of a side job, or a rollback, is still to be finished."""
        return bool(self.begun) or self.rollback is not None

    def describe(self, name: str) -> list[str]:
        """Describe each of them in a note."""
        return [
            *([] if self.hold is None else [f"held: run {self.hold.run_id}: {'; '.join(self.hold.reasons)}"]),
            *(_describe_waiting(one) for one in self.waiting),
            *(_describe_held_work(name, one) for one in self.held_work),
            *(_describe_decided(one) for one in self.decided),
            *([] if self.rollback is None else [describe_rollback(self.rollback)]),
            *(describe_unfinished_work(name, intent) for intent in self.begun),
        ]


def _find_left(paths: PipelinePaths, facts: Facts) -> _Left:
    rereads, (waiting, log_fault) = list_rereads(paths), _list_waiting(paths)
    return _Left(
        hold=find_hold(paths, facts.unpublished),
        waiting=waiting,
        log_fault=log_fault,
        held_work=_list_held_work(paths),
        begun=list_unfinished_work(paths),
        rereads=rereads,
        rollback=load_rollback(paths),
        decided=_list_decided(paths, facts, rereads),
    )


def _find_disagreement(paths: PipelinePaths, facts: Facts, left: _Left, files_at_most: int) -> list[TidegateError]:
    """Find why the next run would end before it reads anything: quarantine is older than it was, checkpoint,
    manifests and table do not agree, or a file of the table is damaged."""
    if facts.log_fault is not None:
        return [facts.log_fault]
    # As a run does, before it resumes anything.
    if earlier := _error_of(lambda: check_quarantine(paths)) or _error_of(lambda: check_ahead(paths, facts)):
        return earlier
    try:
        (check_agreement if left.rollback is None else check_table)(facts, paths.name)
    except TidegateError as error:
        # An unfinished reread leaves a disagreement that the next run resolves.
        found = find_hindrance(facts, paths.name, left.rereads) if left.rereads else error
        if found is not None:
            return [found]
    return _error_of(lambda: check_damage(paths, at_most=files_at_most))


def _error_of(check: Callable[[], object]) -> list[TidegateError]:
    """The error that a check raises, if any."""
    try:
        check()
    except TidegateError as error:
        return [error]
    return []


def _drop_repeated(errors: Sequence[TidegateError]) -> list[TidegateError]:
    """The errors in their order, each text once: two checks may find the same."""
    return list({str(error): error for error in errors}.values())


def _find_unwritable(paths: PipelinePaths, has_rows: bool, has_unsent: bool) -> list[TidegateError]:
    """Find why this user could not take the lease, or, with ``has_rows``, not publish; with ``has_unsent`` only
    quarantined records are left to publish."""
    folders = [paths.state]
    folders += [paths.table] if has_rows else []
    folders += [paths.quarantine] if has_rows or has_unsent else []
    return [error for folder in folders if (error := storage.find_unwritable(folder, paths.state)) is not None]


def _find_sink_mismatch(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts
) -> list[TidegateError]:
    """Find why the table's columns do not fit the sinks."""
    if facts.table is None or not any(isinstance(sink, KafkaSink) for sink in spec.sinks):
        return []
    # Only Spark knows whether an edited query adds a column that the table lacks.
    edited = any(change["kind"] in ("query", "column") for change in list_changes(project, spec, paths)[1])
    schema_json = facts.table.schema_json
    return _error_of(lambda: check_sinks_fit(spec, schema_json, may_grow=edited))


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
    held = list_held_side_jobs(paths)
    return [
        {"kind": one["kind"], "run_id": one["run_id"], "partitions": one["what"], "runs": one["runs"]} for one in held
    ]


def _describe_held_work(name: str, work: HeldWork) -> str:
    run_id = quote_word(work["run_id"])
    return (
        f"held: {work['kind']} {work['run_id']}: {work['partitions']}; {work['runs']}; decide with `tidegate "
        f'release {name} {run_id} --reason "..."` or `tidegate discard {name} {run_id} --reason "..."`'
    )


def _describe_decided(decided: Decided) -> str:
    return (
        f"decided, not carried out yet: {decided['who']} decided at {decided['at']} to {decided['decision']} run "
        f"{decided['run_id']}; the next run carries it out first"
    )


def _describe_unfinished(
    paths: PipelinePaths, spec: PipelineSpec, facts: Facts, unsent: Sequence[BatchManifest], *, is_refused: bool
) -> list[str]:
    """Describe what earlier runs have left for the next one to finish."""
    notes = []
    if unsent:
        records = count_of(sum(file.rows for manifest in unsent for file in manifest.quarantine_files), "record")
        notes.append(f"{records} of published batches are not in the quarantine table yet")
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
            coming.notes += describe_unread(pending.summaries)
            coming.notes += [note for scan in pending.scans.values() for note in scan.notes]
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


def _summarise(has_work: bool, refuses: bool, held: bool, notes: list[str], unread: bool) -> str:
    if refuses:
        return "the next run would refuse"
    if held:
        return "waits for a decision"
    if has_work:
        return "there is something to do"
    if any(RECEIVES_FIRST in note for note in notes):
        return "the next run receives first"
    return "nothing that can be read: the next run fails" if unread else "nothing new"


_KINDS = ("backfill", "refresh")
_LOOKED_THROUGH = 100
_MAY_WAIT_SECONDS = 90.0
"""How long a backfill lets a run that was refused go first (:mod:`tidegate.runs.opening`)."""


@dataclass(frozen=True)
class Unfinished:
    """An unfinished job. ``is_certain``: no process works on it or waits for its turn."""

    name: str
    kind: str
    run_id: str
    done: str
    asked: str | None
    is_certain: bool

    @property
    def found(self) -> str:
        """What was found: how far the job is."""
        waits = "" if self.is_certain else ", or waits for its turn"
        return f"{self.kind} {self.run_id} is unfinished{waits}: {self.done}"

    @property
    def command(self) -> str | None:
        """The command that resumes it; None where its options are not recorded."""
        if self.asked is None:
            return None
        options = "" if self.asked == "no options" else f" {self.asked}"
        return f"tidegate {self.kind} {self.name}{options} --run-id {quote_word(self.run_id)}"

    @property
    def fix(self) -> str:
        """What resumes it."""
        return self.command or f"the same command with --run-id {quote_word(self.run_id)}"

    def describe(self) -> str:
        """The whole sentence."""
        return f"{self.found}; {f'`{self.command}`' if self.command else self.fix} resumes it"


def list_unfinished(paths: PipelinePaths, reports: Sequence[RunReport] | None = None) -> list[Unfinished]:
    """List unfinished jobs, except those that are reported elsewhere: held, interrupted in their publish, or failed
    before a part of them was done.

    ``reports`` are those that are known already, where no more are to be read."""
    lease = read_lease(paths)
    if reports is None:
        reports = read_newest(paths, _LOOKED_THROUGH)[0]
    found = [one for one in reports if one.mode in _KINDS and _can_resume(one) and not _is_superseded(one, reports)]
    if lease is not None and lease.state in ("dead", "expired") and lease.holder.command in _KINDS:
        found += _find_without_report(paths, lease, found)
    if not found:
        return []
    reported = {one.run_id for one in list_unfinished_work(paths)} | {one.run_id for one in list_held(paths)}
    is_busy = lease is not None and lease.state in ("held", "parked")
    if lease is not None and is_busy:
        reported.add(str(lease.holder.run_id))
    is_certain = not is_busy and not _lets_one_go_first(paths)
    return [
        Unfinished(paths.name, one.mode, one.run_id, _describe_done(paths, one), one.asked, is_certain)
        for one in found
        if one.run_id not in reported
    ]


def _can_resume(report: RunReport) -> bool:
    """Return whether the same command, given again, does the rest of it."""
    is_stopped = report.error is not None and report.error["code"] == RUN_STOPPED.code
    return report.outcome is None or (report.outcome == "failed" and (is_stopped or bool(report.rebuilt)))


def _is_superseded(report: RunReport, reports: Sequence[RunReport]) -> bool:
    """Return whether a later job has rebuilt the same."""
    later = [one for one in reports if one.started_at > report.started_at and one.outcome == "published"]
    return any(one.mode == "refresh" or (one.mode, one.asked) == (report.mode, report.asked) for one in later)


def _find_without_report(paths: PipelinePaths, lease: LeaseState, known: Sequence[RunReport]) -> list[RunReport]:
    """The job that only the lease records: it was killed before anything was read, or in a retry."""
    run_id, kind = lease.holder.run_id, lease.holder.command
    if run_id is None or kind is None or any(one.run_id == run_id for one in known):
        return []
    report = load_report(paths, run_id)
    if report is None:
        report = new_report(paths.name, run_id)
        report.mode = kind
        return [report]
    return [report] if report.outcome in (None, "failed") else []


def _lets_one_go_first(paths: PipelinePaths) -> bool:
    note = storage.read_json(paths.refused)
    return note is not None and 0 <= time.time() - float(note["at_s"]) < _MAY_WAIT_SECONDS


def _describe_done(paths: PipelinePaths, report: RunReport) -> str:
    if not report.rebuilt:
        return "nothing of it is rebuilt"
    wanted = _list_wanted(paths, report)
    rebuilt = [one for one in wanted if one.label in report.rebuilt]
    left = [one for one in wanted if one not in rebuilt]
    done = _name_days(rebuilt) if rebuilt else f"{', '.join(report.rebuilt)} is"
    return f"{done} rebuilt, {_name_days(left) if left else 'the rest is'} not"


def _name_days(days: Sequence[Interval]) -> str:
    """Some days, consecutive ones as the first and the last one, and the verb for them."""
    return f"{join_intervals(days).label} {'is' if len(days) == 1 else 'are'}"


def _list_wanted(paths: PipelinePaths, report: RunReport) -> list[Interval]:
    """The intervals that were asked for; none where report and table do not say."""
    words = shlex.split(report.asked or "")
    if report.mode != "backfill" or len(words) % 2:
        return []
    given = list(zip(words[::2], words[1::2], strict=True))
    one = dict(given)
    partitions = tuple(value for option, value in given if option == "--partition")
    wanted = Wanted(one.get("--from"), one.get("--to"), partitions, one.get("--zone"))
    table = read_table_state(paths.table)
    if table is None:
        return []
    try:
        return find_span(
            wanted,
            paths.name,
            schema_json=table.schema_json,
            partition_by=table.partition_columns,
            files=list_data_files(paths.table),
        )
    except TidegateError:
        return []
