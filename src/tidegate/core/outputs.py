"""What is printed with ``--json`` and kept in run reports, as types; each row is made as one of these.

:mod:`tidegate.cli.outputs` makes the JSON Schemas from them.
"""

from __future__ import annotations

from typing import Literal, NotRequired, final

from typing_extensions import TypedDict


class Fault(TypedDict):
    """One thing wrong in one file."""

    code: str
    file: str
    line: int | None
    key: str
    message: str
    fix: str


class Error(TypedDict):
    """An error that occurred, or would occur."""

    code: str
    message: str
    where: str | None
    next_run: str | None
    fix: str | None
    exit_code: int
    faults: NotRequired[list[Fault]]


class Failed(TypedDict):
    """The output of a command that fails before it has any other."""

    error: Error


RowKey = Literal[
    "read",
    "malformed",
    "entered",
    "late",
    "transformed",
    "rejected",
    "staged",
    "published",
    "superseded",
    "duplicates",
]


class Rows(TypedDict):
    """Counts of an increment."""

    read: int
    malformed: int
    entered: int
    late: int
    transformed: int
    rejected: int
    staged: int
    published: int
    superseded: int
    duplicates: int


class RuleResult(TypedDict):
    """The result of one rule of the suite."""

    rule: str
    type: str
    severity: str
    success: bool
    unexpected_count: int | None
    observed_value: object
    quarantined: NotRequired[int]


VerdictName = Literal["passed", "warned", "failed", "unchecked"]


class Quality(TypedDict):
    """The gate's verdict."""

    suite: str | None
    verdict: VerdictName | None
    results: list[RuleResult]
    warnings: NotRequired[list[str]]


class Sink(TypedDict):
    """How far a further sink was fed; ``version`` is the number by which it knows the version."""

    type: str
    name: str
    version: int | None
    behind: int | None
    error: str | None


class Ruling(TypedDict):
    """The decision of a person."""

    decision: str
    who: str
    reason: str
    at: str


class NotRead(TypedDict):
    """A file or folder that is not read, and why. ``fix`` is what a person can do to have it read; it is absent where a
    rule of the source says that it is not read, where a later run reads it by itself, and for a file that was read
    before. ``retry`` is true where the storage failed, so a retry may read it without a person."""

    path: str
    why: str
    fix: NotRequired[str]
    retry: NotRequired[bool]
    age_seconds: NotRequired[float]


class UnreadFile(TypedDict):
    """A file or folder that cannot be read until a person changes something; ``runs`` is how many runs in a row, up to
    the newest, have reported it."""

    source: str
    path: str
    why: str
    fix: str
    runs: int


class FileState(TypedDict):
    """A file as it was found."""

    size: int
    mtime_ns: int


class Rewritten(TypedDict):
    """A file that changed after it was read: ``how``, and what becomes of it (``policy``)."""

    path: str
    was: FileState
    now: FileState
    how: str
    unread_bytes: int
    policy: str


class BeforeStart(TypedDict):
    """What was there before the source's start; ``at`` is null until a run has looked, and ``paths`` has the first of
    them until a report has named them."""

    start: str
    at: str | None
    files: int
    bytes: int
    paths: NotRequired[list[str]]


class SourceReport(TypedDict, total=False):
    """One source of a run, or its pending records; keys without a value are omitted."""

    rows: int
    malformed: int
    late: int
    partly_late: int
    files: int
    bytes: int
    backlog: int
    pending_offsets: int
    offsets: dict[str, dict[str, list[int]]]
    unknown_fields: dict[str, str]
    unknown_records: int
    skipped: list[NotRead]
    settling: list[NotRead]
    changed: list[Rewritten]
    vanished: list[str]
    lost: list[str]
    before_start: BeforeStart
    schema: str | None
    replayable: bool
    static: str


class TableFigures(TypedDict, total=False):
    """The version that holds a run's rows, and what it added and removed; {} for a run that published nothing."""

    path: str
    version: int | None
    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int
    rolled_back_to: int
    """A rollback's: the version whose rows the table has again."""
    left_out: LeftOut
    """A rollback's with ``--then leave-out``: what stays taken, and is not in the table."""
    columns: Columns
    """A refresh's or backfill's that changed the columns of the table."""


class LeftOut(TypedDict):
    """Records that a rollback excluded from the table; ``batches`` are [query id, first batch, last batch]."""

    records: int
    rows: int
    batches: list[tuple[str, int, int]]


class OpenState(TypedDict, total=False):
    """The open state of a query; {} for one without state. A window is [start, end]."""

    rows: int
    memory_bytes: int
    open_windows: list[list[str | None]]
    event_times: dict[str, str | None]


class PlannedAnew(TypedDict):
    """A batch that is planned again behind a loss."""

    query_id: str | None
    batch_id: int


class AcceptedLoss(TypedDict):
    """A loss that a person accepted: ``sources`` has what each source lost."""

    run_id: str
    at: str
    reason: str
    sources: dict[str, dict[str, object]]
    planned_anew: NotRequired[PlannedAnew]


class RunReport(TypedDict):
    """One run."""

    pipeline: str
    run_id: str
    mode: str
    outcome: Literal["published", "nothing_new", "held", "discarded", "failed"] | None
    started_at: str
    ended_at: str | None
    duration_seconds: dict[str, float]
    requests: dict[str, int]
    sources: dict[str, SourceReport]
    batches: int
    watermark: str | None
    rows: Rows
    quality: Quality
    table: TableFigures
    state: OpenState
    sinks: list[Sink]
    error: Error | None
    adopted_runs: list[str]
    published_by: str | None
    accepted_loss: AcceptedLoss | None
    decision: Ruling | None
    asked: str | None
    rebuilt: list[str]
    notes: list[str]


class BackfillMargin(TypedDict):
    """What a backfill reads because windows and joins need records of other times. ``is_known``: whether event times
    show which; otherwise all records that runs have taken are read, and those without a row there are counted."""

    files: int
    bytes: int
    offsets: int
    is_known: bool


class BackfillOlder(TypedDict):
    """What ``refresh --keep-older`` leaves as it is: ``rows`` in ``files`` of the table, in these ``partitions``, that
    runs have published ``until`` then; ``lost``: what the sources no longer hold of it ([]: nothing, and none stays).
    """

    files: int
    rows: int
    partitions: list[str]
    until: str | None
    lost: list[str]


class BackfillInterval(TypedDict):
    """Partitions that a backfill would rebuild in one version.

    ``days`` are its days, each named as in ``rebuilt`` of the report. ``files``, ``bytes`` and ``offsets`` are read,
    ``margin`` of these (null where no state is kept) for the sake of records of other times; ``by_folder`` says whether
    files were chosen by their folder; ``rows_of_others`` rows of the same records are in partitions that stay;
    ``older`` is null unless it was asked for.
    """

    partitions: str
    days: list[str]
    files_now: int
    rows_now: int
    files: int
    bytes: int
    offsets: int
    margin: BackfillMargin | None
    by_folder: bool
    rows_of_others: int
    stays_in_quarantine: int
    stays_discarded: int
    older: BackfillOlder | None
    hindrance: Error | None


class Columns(TypedDict):
    """The table's columns with their types, before and after a refresh; ``after`` is None where there is no file to
    infer them from."""

    before: dict[str, str]
    after: dict[str, str] | None


class BackfillPlan(TypedDict):
    """The plan of a backfill; ``sinks``: what each further sink would receive. ``columns``: of a refresh.

    Each interval is read by one Spark driver. If a day cannot be rebuilt, each day is an interval of its own, with its
    ``hindrance``.
    """

    pipeline: str
    intervals: list[BackfillInterval]
    columns: Columns | None
    sinks: list[str]
    hindrance: Error | None


class AdoptedSource(TypedDict, total=False):
    """What is known of a source when a table is adopted. Of files: how many count as taken, how many of these are gone,
    and how many the next run reads; of topics: the offsets at which it continues."""

    files_taken: int
    files_gone: int
    files_waiting: int
    offsets: dict[str, dict[str, int]]


class Adoption(TypedDict):
    """The findings of ``adopt --dry-run``, and the plan of the adoption."""

    pipeline: str
    table: str
    kind: Literal["parquet", "delta"]
    files: int
    rows: int
    bytes: int
    columns: dict[str, str]
    partition_by: list[str]
    query_id: str | None
    batch: int | None
    sources: dict[str, AdoptedSource]
    actions: list[str]
    notes: list[str]
    adopted: bool


class Held(TypedDict):
    """An increment that waits for a decision."""

    run_id: str
    reasons: list[str]


class Decided(Ruling):
    """A decision that was recorded and not carried out."""

    run_id: str


ChangeKind = Literal["column", "rule", "query", "setting"]


class Change(TypedDict):
    """Something that was changed since the pipeline last read; null where it was not there, or is no longer."""

    kind: ChangeKind
    name: str
    was: str | None
    now: str | None


class ChangedFile(TypedDict):
    """A file that changed after it was read; ``unread_bytes`` of it are not read."""

    source: str
    path: str
    size: int
    mtime_ns: int
    how: str
    unread_bytes: int


class LeaseRow(TypedDict):
    """Who writes the pipeline, or wrote it last; null for what a damaged record does not say."""

    token: int
    run_id: str | None
    command: str | None
    host: str | None
    pid: int | None
    acquired_at: str | None
    state: Literal["held", "parked", "released", "expired", "dead"]
    last_heartbeat_at: str
    expires_in_seconds: float


class HeldWork(TypedDict):
    """A backfill or a refresh that waits for a decision; ``runs`` says what becomes of runs meanwhile."""

    kind: str
    run_id: str
    partitions: str
    runs: str


class Ahead(TypedDict):
    """The plan of the next run."""

    pipeline: str
    summary: str
    has_new: bool
    pending: bool
    sources: dict[str, SourceReport]
    sources_unknown: Error | None
    errors: list[Error]
    exit_code: int
    changed: list[ChangedFile]
    held: Held | None
    waiting: list[Held]
    held_work: list[HeldWork]
    decided: list[Decided]
    owed_batches: int
    in_flight_batch: int | None
    notes: list[str]


class Plan(Ahead):
    """The plan of the next run, and the changes since the last one that read something."""

    changes_since: str | None
    changes: list[Change]


@final
class FilesBacklog(TypedDict):
    """Files that wait."""

    files: int
    bytes: int


@final
class KafkaBacklog(TypedDict):
    """Offsets that wait."""

    offsets: int


class Table(TypedDict):
    """Where a table is, and its newest version."""

    path: str
    version: int


class LostFile(TypedDict):
    """A damaged file that a repair, the run ``run_id``, took out of the log; its rows are not rebuilt. Of a quarantine
    that is an older copy ``path`` may name what it lacks (``records of run X``), with 0 rows where nobody knows."""

    of: Literal["table", "quarantine"]
    path: str
    rows: int
    partition: dict[str, str | None]
    run_id: str


class Lost(TypedDict):
    """Rows that were lost with damaged files and are neither rebuilt nor acknowledged, and the command to rebuild
    them."""

    rows: int
    files: list[LostFile]
    command: str


TroubleKind = Literal["held", "failed", "missed", "lost", "refused", "unknown", "behind", "undone", "unread", "changed"]


class Trouble(TypedDict):
    """One thing that needs a person."""

    kind: TroubleKind
    message: str


class Status(TypedDict):
    """One pipeline."""

    pipeline: str
    schedule: str | None
    table: Table | None
    pending: bool
    backlog: dict[str, FilesBacklog | KafkaBacklog] | None
    backlog_unknown: Error | None
    held: Held | None
    waiting: list[Held]
    held_work: list[HeldWork]
    errors: list[Error]
    trouble: list[Trouble]
    missed: list[str]
    lost: Lost | None
    decided: list[Decided]
    unread: list[UnreadFile]
    changed: list[ChangedFile]
    notes: list[str]
    lease: LeaseRow | None
    watermark: str | None
    state: OpenState | None
    runs: list[RunReport]
    sinks: list[Sink]


class CatalogEntry(TypedDict):
    """A pipeline of the project."""

    pipeline: str
    schedule: str | None
    sources: dict[str, str]
    description: str | None
    error: Error | None


LogStep = Literal["ingest", "deliver"]


class KeptLog(TypedDict):
    """A driver's log."""

    step: LogStep
    path: str
    text: str


class Logs(TypedDict):
    """The log files of a run."""

    pipeline: str
    run_id: str
    outcome: str | None
    error: Error | None
    report: str
    progress: list[dict[str, object]]
    logs: list[KeptLog]


class DataDocs(TypedDict):
    """The Data Docs of a run: the first page of the site, and the page of the run."""

    pipeline: str
    run_id: str
    index: str
    page: str


class StateRow(TypedDict):
    """The state of one key."""

    key: object
    value: object
    partition: int | None


class Store(TypedDict):
    """Some rows of what an operator keeps, and how many there are."""

    operator: str
    store: str
    count: int
    rows: list[StateRow]


class State(TypedDict):
    """The state of a query, as of a batch."""

    pipeline: str
    batch: int
    operators: list[Store]


class DamagedFile(TypedDict):
    """A file or a version of a table's log that is not as it was written; ``rows`` as the log counts them."""

    path: str
    kind: Literal["gone", "size", "digest", "unreadable", "rows", "commit_gone", "commit_torn", "not_in_log"]
    found: str
    rows: int


class VerifiedTable(TypedDict):
    """A table that was read whole; ``digests``: how many of its files were compared by a digest that its log has."""

    table: Literal["table", "quarantine"]
    path: str
    version: int | None
    files: int
    rows: int
    bytes: int
    digests: int
    damaged: list[DamagedFile]


class Verification(TypedDict):
    """Whether all files in the logs of a pipeline's tables exist and are intact."""

    pipeline: str
    ok: bool
    tables: list[VerifiedTable]
    fix: list[str]


class Finding(TypedDict):
    """One thing that ``doctor`` looked at."""

    check: str
    ok: bool
    found: str
    fix: str | None


class Repair(TypedDict):
    """What disagrees, the choices, what was or would be done, and what the next run does then."""

    pipeline: str
    dry_run: bool
    found: str
    code: str | None
    choices: list[str]
    actions: list[str]
    next_run: list[str]
    unreadable_again: list[str]


class RereadSource(TypedDict):
    """What of a source would be read again; files or offsets ({topic: {partition: [from, until]}})."""

    rows: int
    files: NotRequired[list[str]]
    offsets: NotRequired[dict[str, dict[str, list[int]]]]


class Reread(TypedDict):
    """What ``reread`` would read again; ``decided`` is an open decision, ``hindrance`` what is in the way."""

    pipeline: str
    run_id: str
    held: list[str]
    rows: int
    sources: dict[str, RereadSource]
    decided: Ruling | None
    hindrance: Error | None


class RolledBack(TypedDict):
    """A version that a rollback goes back over; ``kind`` is ``run``, or the kind of side job that made it."""

    version: int
    kind: str
    run_id: str
    outcome: str
    records: int
    rows: int


class RollbackChoice(TypedDict):
    """What can become of the records in between; ``hindrance`` is what is in the way of it."""

    then: Literal["reread", "leave-out"]
    does: list[str]
    hindrance: Error | None


class Rollback(TypedDict):
    """What a rollback would do: to the files and rows of the table, to the records of the versions in between, and to
    further sinks."""

    pipeline: str
    to_version: int
    from_version: int
    files_back: int
    rows_back: int
    files_leave: int
    rows_leave: int
    records: int
    versions: list[RolledBack]
    choices: list[RollbackChoice]
    sinks: list[str]
    notes: list[str]
    hindrance: Error | None


MaintenanceWork = Literal[
    "expire", "compact", "replaced", "log", "staging", "reports", "backups", "checkpoints", "source"
]


class MaintenanceItem(TypedDict):
    """One thing that ``maintain`` would do: ``of`` is ``table``, ``quarantine``, ``state`` or a source; of a log
    ``files`` are its commits."""

    work: MaintenanceWork
    of: str
    files: int
    bytes: int
    rows: int
    partitions: int


class Maintenance(TypedDict):
    """The plan of ``maintain``; ``hindrance`` is what is in the way."""

    pipeline: str
    items: list[MaintenanceItem]
    notes: list[str]
    hindrance: Error | None


class Acknowledged(TypedDict):
    """The changed files, and the rows lost with damaged files, that were acknowledged; ``left`` is how many files of
    both kinds are still open."""

    pipeline: str
    acknowledged: list[ChangedFile]
    lost: list[LostFile]
    left: int


class TriedSource(TypedDict):
    """What was read of a source."""

    rows: int


class TriedRecord(TypedDict):
    """A record that would be quarantined."""

    reason: str
    detail: str | None
    source: str | None
    position: object
    raw: str | None


class TriedLook(TypedDict):
    """What a source of files has: ``path`` as the spec says it, and how many files there are to read."""

    path: str
    files: int
    settling: list[NotRead]
    skipped: list[NotRead]


class Trial(TypedDict):
    """What would become of some records; ``held`` says why the gate would hold them, or null."""

    pipeline: str
    sources: dict[str, TriedSource]
    looked: dict[str, TriedLook]
    counts: Rows
    quality: Quality
    held: str | None
    rows: list[dict[str, object]]
    set_aside: list[TriedRecord]


class RecordsThatStay(TypedDict):
    """Records that cannot be replayed."""

    why: str
    records: int


class ReplayPlan(TypedDict):
    """What would be replayed: ``records``, by source and by the reason that they are in quarantine for; how
    many of them are ``edited``; which of the selection ``stay``; what each further sink would get."""

    pipeline: str
    records: int
    sources: dict[str, int]
    reasons: dict[str, int]
    edited: int
    stay: list[RecordsThatStay]
    sinks: list[str]
    hindrance: Error | None


class QuarantineCount(TypedDict):
    """Quarantined records, by run, source, reason and cause, with one of them. ``held``: the increment is, and they are
    not in the quarantine table before somebody decides."""

    run_id: str | None
    source: str | None
    reason: str
    detail: str | None
    records: int
    first_at: str
    last_at: str
    example: str | None
    held: bool


class QuarantinedRecord(TypedDict):
    """One quarantined record. ``id`` names it as long as it is in quarantine; null while it is ``held``."""

    id: str | None
    pipeline: str
    run_id: str
    source: str | None
    position: object
    raw: str | None
    reason: str
    detail: str | None
    quarantined_at: str
    held: bool
