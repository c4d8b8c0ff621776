"""The conditions of a run."""

from __future__ import annotations

from tidegate.core.errors import (
    RESTORE_CHECKPOINT,
    UNTIL_FIXED,
    Condition,
    DefectError,
    DisagreementError,
    HeldError,
    SourceLostError,
    TryAgainError,
    UsageError,
)

OTHER_ARGUMENTS = Condition(
    "OTHER_ARGUMENTS",
    UsageError,
    "run id {run_id} was first given for {before}, and is now given for {asked}",
    next_run="is not affected; nothing was read or written",
    fix="give another run id (--run-id, or --as for a replay), or none; only the first request can be continued under "
    "this id",
)

BAD_RUN_ID = Condition(
    "BAD_RUN_ID",
    UsageError,
    "{run_id!a} cannot be a run id: {why}",
    next_run="is not affected",
    fix="use 1 to {longest} printable characters",
)

TABLE_GONE = Condition(
    "TABLE_GONE",
    DisagreementError,
    "the table was at version {version} and is gone",
    next_run=UNTIL_FIXED,
    fix="restore the table folder and run again, or `tidegate repair {name}`: a new table, for which everything is "
    "read again; `tidegate repair {name} --dry-run` shows the choices",
)

TABLE_DAMAGED = Condition(
    "TABLE_DAMAGED",
    DisagreementError,
    "{what} is not as it was written: {found}",
    next_run=UNTIL_FIXED,
    fix="restore it from a backup and run again; or `tidegate repair {name} --dry-run`, which shows what can be done "
    "without one; `tidegate verify {name}` reads every file and lists everything that is damaged",
)

QUARANTINE_BEHIND = Condition(
    "QUARANTINE_BEHIND",
    DisagreementError,
    "quarantine {found}: it was deleted, or an older copy was restored, and it lacks records that are in no table, or "
    "has some that are in the table by now",
    next_run=UNTIL_FIXED,
    fix="restore the newest copy; or `tidegate repair {name}`: removes the records that may be in the table, and names "
    "the command that reads the missing records again; `tidegate repair {name} --dry-run` shows it",
)

QUARANTINE_AHEAD = Condition(
    "QUARANTINE_AHEAD",
    DisagreementError,
    "quarantine, at version {there}, has {found}, which the table, at version {version}, does not: older copies of the "
    "table and of the state folder were restored",
    next_run=UNTIL_FIXED,
    fix="restore the newest copies of both; or `tidegate repair {name}`: keeps the table as it is now, and reads the "
    "missing records again from the source; `tidegate repair {name} --dry-run` shows the choices",
)

PARTITION_BY_CHANGED = Condition(
    "PARTITION_BY_CHANGED",
    DisagreementError,
    "the table is partitioned by {has}, the spec says {wanted}",
    next_run=UNTIL_FIXED,
    fix="revert the change, or `tidegate repair {name} --rebuild`: a new table from all records still in the "
    "sources; the old one is kept as a backup (`tidegate repair {name} --rebuild --dry-run` shows what that reads)",
)

TABLE_REPLACED = Condition(
    "TABLE_REPLACED",
    DisagreementError,
    "the table was replaced by another table (id {table_id}, before: {published_table_id})",
    next_run=UNTIL_FIXED,
    fix="restore the table, or `tidegate repair {name}`: continue from where this table's log ends; `tidegate repair "
    "{name} --dry-run` shows the choices",
)

STATE_BEHIND = Condition(
    "STATE_BEHIND",
    DisagreementError,
    "the table, at version {version}, holds {found}, which the state folder does not know: it was deleted, or an older "
    "copy of it was restored",
    next_run=UNTIL_FIXED,
    fix="restore the state folder from the same time as the table, or {way_on}",
)

ADOPTED_AT_UNKNOWN = Condition(
    "BIRTH_GONE",
    DisagreementError,
    "the birth record is gone, and with it the offsets at which source {source} continues after the adopted table",
    next_run=UNTIL_FIXED,
    fix="restore the state folder from the same time as the table; or `tidegate repair {name} --rebuild`: a new table "
    "from all records still in the sources; the old one is kept as a backup",
)

STAGING_GONE = Condition(
    "STAGING_GONE",
    DisagreementError,
    "staged batches were deleted before they were published: {found}",
    next_run=UNTIL_FIXED,
    fix="restore the state folder, or `tidegate repair {name}`: what the table lacks is read again from the source; "
    "`tidegate repair {name} --dry-run` shows the choices",
)

CHECKPOINT_DIVERGED = Condition(
    "CHECKPOINT_DIVERGED",
    DisagreementError,
    "the checkpoint or its birth record was edited, exchanged, deleted, or restored from an older copy: {found}",
    next_run=UNTIL_FIXED,
    fix=RESTORE_CHECKPOINT,
)

CHECKPOINT_OF_ENDED_QUERY = Condition(
    "CHECKPOINT_DIVERGED",
    DisagreementError,
    "the checkpoint is of query {living}, which ended with a repair or an accepted loss: a repair was interrupted, or "
    "the checkpoint of the query that followed is gone",
    next_run=UNTIL_FIXED,
    fix="restore the state folder from the same time as the table, or `tidegate repair {name}`: a new checkpoint that "
    "starts exactly where the table's log ends; `tidegate repair {name} --dry-run` shows the choices",
)

PROJECT_MOVED = Condition(
    "PROJECT_MOVED",
    DisagreementError,
    "the checkpoint was made in {made_in} and holds paths of that folder; it is now in {found_in}",
    next_run=UNTIL_FIXED,
    fix="move the project back; `tidegate repair {name} --dry-run` shows what else can be done",
)

SPEC_CHANGED = Condition(
    "SPEC_CHANGED",
    DisagreementError,
    "the spec was changed under an existing checkpoint: {changes}",
    next_run=UNTIL_FIXED,
    fix="revert the change, or `tidegate repair {name}`: a new checkpoint for the new spec; `tidegate repair "
    "{name} --dry-run` shows the choices",
)

FOREIGN_TABLE = Condition(
    "FOREIGN_TABLE",
    DisagreementError,
    "the folder of the table holds parquet files that no run of this pipeline wrote, for example {first_foreign_file}, "
    "and no _delta_log: readers of the table would see the rows of these files together with the new rows",
    next_run=UNTIL_FIXED,
    fix="move them away (mv {quoted_table_folder} {quoted_path}), or take them over (tidegate adopt {name} --table "
    "{quoted_table_folder}), or give the pipeline another name or the project another warehouse; then run again",
)


REBUILD_CHOICES = (
    "restore state, table and quarantine of the pipeline from the same time, or revert the change of the spec; then "
    "run again",
    "`tidegate repair {name} --rebuild`: a new table from all records still in the sources (`--dry-run` shows what "
    "that reads); the old one is kept as a backup",
)
"""What a person can do about a disagreement of a query with state."""

LOSS_IN_BATCH = Condition(
    "LOSS_IN_BATCH",
    DisagreementError,
    "batch {batch_id} is staged, but Spark had not committed its state yet, and records that it is computed from are "
    "gone: {loss}",
    next_run=UNTIL_FIXED,
    fix="; or ".join(REBUILD_CHOICES)
    + '; after a rebuild `tidegate run {name} --accept-loss "reason"` continues without the lost records',
)

STATE_NEEDED = Condition(
    "STATE_NEEDED",
    UsageError,
    "the query keeps state{kept}, which contains {records}: {why}",
    next_run="is not affected; nothing was changed",
    fix="{others}`tidegate reset {name} --from-beginning --confirm {name}`: a new table from all records still "
    "in the sources; the old one is kept as a backup",
)

REREAD_LOST = Condition(
    "REREAD_LOST",
    SourceLostError,
    "not all of {records} can be read again: {lost}",
    next_run="is not affected; nothing was changed",
    fix="{others}",
)

_DECIDE = (
    'tidegate release {pipeline} {run_id} --reason "..."   or   tidegate discard {pipeline} {run_id} --reason "..."   '
    'or, after a correction:   tidegate reread {pipeline} {run_id} --reason "..."{causes}'
)

INCREMENT_HELD = Condition(
    "INCREMENT_HELD",
    HeldError,
    "the gate holds this increment: {reasons}",
    next_run="waits for the decision",
    fix=_DECIDE,
)

EARLIER_INCREMENT_HELD = Condition(
    "EARLIER_INCREMENT_HELD",
    HeldError,
    "an earlier increment waits for a decision: {reasons}",
    next_run="waits for the decision",
    fix=_DECIDE,
)

INCREMENT_WAITS = Condition(
    "INCREMENT_WAITS",
    HeldError,
    "the gate holds this increment and defers it (on_critical: continue): {reasons}",
    next_run="continues with what comes after it; this increment waits for the decision",
    fix='tidegate release {pipeline} {run_id} --reason "..."   or   tidegate discard {pipeline} {run_id} --reason '
    '"..."   or, after a correction of its suite:   tidegate audit {pipeline} --run-id {run_id}, then tidegate publish '
    "{pipeline} --run-id {run_id}",
)

WAITING_NOT_READ_AGAIN = Condition(
    "WAITING_NOT_READ_AGAIN",
    UsageError,
    "run {run_id} of {name} is deferred, and later runs have continued after it: its query does not go back to its "
    "records",
    next_run="is not affected; the increment waits as before",
    fix='tidegate release {name} {quoted} --reason "..."   or   tidegate discard {name} {quoted} --reason "..."   or, '
    "after a correction of its suite:   tidegate audit {name} --run-id {quoted}, then tidegate publish {name} --run-id "
    "{quoted}",
)

READ_AGAIN = (
    "to have its records read again, send a corrected copy under a new name; or see with `tidegate repair {name} "
    "--rebuild --dry-run` what a new table from all records still in the sources would read"
)

DECIDED_ALREADY = Condition(
    "DECIDED_ALREADY",
    UsageError,
    "{who} already decided to {decision} it at {at}, and that decision is final",
    next_run="is not affected",
    fix="{fix}",
)

REREAD_ALREADY = Condition(
    "DECIDED_ALREADY",
    UsageError,
    "{who} already decided to reread it at {at}, and that decision is final",
    next_run="reads its records again, unless a run has done so since then",
    fix="wait for the run that reads them: they are audited again, and if that increment is held, you decide again",
)

NOT_HELD = Condition(
    "NOT_HELD",
    UsageError,
    "run {run_id} of {name} holds no increment: {why}",
    next_run="is not affected; nothing was changed",
    fix="{fix}",
)

DECISION_PENDING = Condition(
    "DECISION_PENDING",
    TryAgainError,
    "{who} decided at {at} to {decision} batches of this increment",
    next_run="carries the decision out first",
    fix="tidegate run {pipeline}",
)

PUBLISH_DOES_NOT_FIT = Condition(
    "PUBLISH_DOES_NOT_FIT",
    DefectError,
    "the commit to {target} has {committed} rows, but the increment has {expected}",
    next_run="compares table and manifests before anything else",
    fix="tidegate status {pipeline}",
)

RUN_UNBALANCED = Condition(
    "UNBALANCED",
    DefectError,
    "the counts of this run do not balance: {faults}",
    next_run="does not publish this increment while its counts do not balance",
    fix="report it with this run's report",
)

NOT_AUDITED = Condition(
    "NOT_AUDITED",
    TryAgainError,
    "the increment of run {run_id} must be audited first: {why}",
    next_run="audits it first",
    fix="tidegate audit {name} --run-id {quoted_run_id}, or tidegate run {name}",
)

STATE_FILE_MISPLACED = Condition(
    "STATE_FILE_MISPLACED",
    DisagreementError,
    "{path} does not contain a usable {word} of the run in its name",
    next_run="fails again until this is fixed; nothing was read or written",
    fix="mv {quoted_path} {quoted_path}.aside, then run again: the increment is checked again",
)

SINK_FAILED = Condition(
    "SINK_FAILED",
    TryAgainError,
    "the table is published, but not every sink received it: {failures}",
    next_run="delivers the pending versions first, even if there are no new records; a failed version is delivered "
    "again completely",
    fix="{fixes}; then: tidegate deliver {pipeline}",
)

NO_SUCH_VERSION = Condition(
    "NO_SUCH_VERSION",
    UsageError,
    "the table cannot go back to version {version}: {why}",
    next_run="is not affected; nothing was changed",
    fix="{fix}",
)

VERSION_VACUUMED = Condition(
    "VERSION_VACUUMED",
    SourceLostError,
    "version {version} is no longer available: {why}; the nearest version that is available is {nearest}",
    next_run="is not affected; nothing was changed",
    fix="use --to-version {nearest}; maintenance.keep_versions sets how long replaced files are kept",
)


ROLLBACK_CHOICE = Condition(
    "ROLLBACK_CHOICE",
    UsageError,
    "a rollback to version {version} needs a choice for {records}: {choices}",
    next_run="is not affected; nothing was changed",
    fix="tidegate rollback {name} --to-version {version} --then reread, or --then leave-out; --dry-run shows what each "
    "does",
)

ROLLBACK_MOVED = Condition(
    "ROLLBACK_MOVED",
    UsageError,
    "version {version} ({kind} {run_id}) cannot be rolled back: {why}",
    next_run="is not affected; nothing was changed",
    fix="--to-version {version} or a later one; or correct what is wrong: `tidegate refresh {name}` rebuilds table, "
    "quarantine and state",
)

ROLLBACK_HELD = Condition(
    "ROLLBACK_HELD",
    HeldError,
    "an increment waits for a decision, and a rollback cannot decide on its records",
    next_run="waits for the decision; nothing was changed",
    fix='decide first: tidegate release {name} {run_id} --reason "...", tidegate discard {name} {run_id} --reason '
    '"...", or tidegate reread {name} {run_id} --reason "..."; then roll back',
)

ROLLBACK_WAITS = Condition(
    "ROLLBACK_HELD",
    HeldError,
    "run {run_id} is deferred and waits for a decision; a rollback cannot decide on its records, nor undo the "
    "decision later",
    next_run="continues with what comes after it; nothing was changed",
    fix="correct what is wrong in another way: `tidegate backfill {name}` rebuilds days, `tidegate refresh {name}` "
    'the whole table; or tidegate release {name} {quoted} --reason "...", or tidegate discard {name} {quoted} '
    '--reason "..."; after that you can roll back to that version or a later one',
)

ROLLBACK_GIVEN_BACK = Condition(
    "ROLLBACK_GIVEN_BACK",
    UsageError,
    "{records} cannot be excluded: a rollback (version {by}, run {run_id}) scheduled them to be read again, and no "
    "run has read them yet",
    next_run="reads them again; nothing was changed",
    fix="correct the rule, schema or transform before the next run; or let `tidegate run {name}` read them, with what "
    "is new, and then `tidegate rollback {name} --to-version {version} --then leave-out`, which excludes all of that",
)

NOT_IN_TABLE = Condition(
    "NOT_IN_TABLE",
    DisagreementError,
    "the table is a copy from before {work}: it is no longer known which records are in it",
    next_run=UNTIL_FIXED,
    fix="restore the newest copy of the table; or `tidegate repair {name} --rebuild`: a new table from all records "
    "still in the sources; the old one is kept as a backup",
)

RESET_UNCONFIRMED = Condition(
    "RESET_UNCONFIRMED",
    UsageError,
    "a new checkpoint for {name} has to be confirmed; it would: {plan}",
    next_run="is not affected; nothing was changed",
    fix="tidegate reset {name}{option} --confirm {name}; --dry-run shows the same as a list",
)

RUN_STOPPED = Condition(
    "STOPPED",
    TryAgainError,
    "the run was stopped",
    next_run="continues where it stopped",
    fix="tidegate run {name}",
)

UNEXPECTED = Condition(
    "UNEXPECTED",
    DefectError,
    "{name}: {error}",
    next_run="tries again; nothing is lost",
    fix="report it with the traceback",
)

NOTHING_STAGED = Condition(
    "NOTHING_STAGED",
    TryAgainError,
    "run {run_id} of {pipeline} has nothing staged",
    next_run="ingests first",
    fix="tidegate run {pipeline}",
)

REASON_MISSING = Condition(
    "REASON_MISSING",
    UsageError,
    "{action} needs a reason",
    next_run="is not affected; nothing was read or written",
    fix='replace the dots with the reason, for those who read it later: {option} "..."',
)

ADOPTION_UNFINISHED = Condition(
    "ADOPTION_UNFINISHED",
    DisagreementError,
    "the adoption of a table, started at {begun_at}, is not finished",
    next_run="fails again until it is; nothing was read",
    fix="{command} finishes the adoption",
)

OLD_JOB_WROTE = Condition(
    "OLD_JOB_WROTE",
    DisagreementError,
    "another job has written to the table, most likely the one that this pipeline has replaced: {found}",
    next_run="fails again until this is fixed; nothing was read",
    fix="pause whatever starts that job (its DAG, its cron entry), then `tidegate repair {name}`: it takes these files "
    "and rows out of the table and keeps them as a backup, and the pipeline reads their source records itself; "
    "`--dry-run` shows it first. `tidegate adopt {name} ... --retire-old` keeps Spark from starting the old query. "
    "If the files are those of another Delta writer that may write to the table, wait until it has committed, and "
    "run again",
)
