"""The conditions of the table."""

from __future__ import annotations

from tidegate.core.errors import (
    UNTIL_FIXED,
    Condition,
    DisagreementError,
    TryAgainError,
    UsageError,
)

REPLACED_FILES_GONE = Condition(
    "REPLACED_FILES_GONE",
    DisagreementError,
    "{number} files that were to be replaced are no longer in the table, for example {example}",
    next_run="fails again until this is fixed",
    fix="find out which other program wrote to the table (only tidegate may write to it); then `tidegate repair "
    "{name}`, which ends the unfinished operation, so that it can be started again",
)

COLUMNS_IN_USE = Condition(
    "COLUMNS_IN_USE",
    DisagreementError,
    "the columns of the table cannot be replaced: it has {number} files that are not replaced with them, for example "
    "{example}, which another program has added meanwhile",
    next_run="fails again until this is fixed",
    fix="`tidegate repair {name}` ends the unfinished operation, so that it can be started again",
)

TABLE_FEATURE = Condition(
    "TABLE_FEATURE",
    DisagreementError,
    "another program turned on what tidegate cannot keep: {features}",
    next_run="fails again until this is undone, before anything is read or written",
    fix="with the program that did it, for example in Spark: {undo}",
)

PUBLISHED_FILES_GONE = Condition(
    "PUBLISHED_FILES_GONE",
    DisagreementError,
    "run {run_id} is published, and {number} of its files were removed from the folder by another program before the "
    "log named them, for example {example}: readers that use the log fail, and plain parquet readers miss these rows",
    next_run="does not restore these rows by itself",
    fix="stop the program that removes such new files (VACUUM with RETAIN 0 HOURS); then restore the files from a "
    "backup, or see `tidegate repair {name} --dry-run` for what can be done without one",
)

COMMIT_FAILED = Condition(
    "COMMIT_FAILED",
    TryAgainError,
    "the version could not be committed: {why}",
    next_run="finishes this publish first",
    fix="run again; if it persists, check the permissions and the disk of the table folder",
)

ROWS_OUT_OF_SIGHT = Condition(
    "ROWS_OUT_OF_SIGHT",
    TryAgainError,
    "a publish could be neither finished nor rolled back, because of: {error}. Until it is finished, {missed}; Delta "
    "readers see the rows of the last version",
    next_run="finishes this publish first; no row is lost",
    fix="fix the cause, then `tidegate run {pipeline}`; `tidegate status {pipeline}` shows whether rows are still "
    "missing",
)

TABLE_PATH = Condition(
    "TABLE_PATH",
    UsageError,
    "no table can be kept in {table_path}: Delta readers misread a percent sign with two hex digits, or a backslash, "
    "in a folder's name",
    next_run="fails again until this is fixed; nothing was read or written",
    fix="rename the folder, or set another one in tidegate.yaml (warehouse, quarantine)",
)

_LOG_UNREADABLE = "fails again before anything is read or written, unless it can restore the file itself"

TABLE_LOG_UNREADABLE = Condition(
    "TABLE_LOG_UNREADABLE",
    DisagreementError,
    "the log of the table cannot be read: {error}{named}",
    next_run=_LOG_UNREADABLE,
    fix="restore the folder from a backup made together with its parquet files; or `tidegate repair {name} "
    "--rebuild`: a new table from all records still in the sources (`--dry-run` shows what that reads); the old one is "
    "kept as a backup",
)

TABLE_LOG_TORN = Condition(
    "TABLE_LOG_UNREADABLE",
    DisagreementError,
    "the log of the table cannot be read: {error}; its newest version is torn: {commit}",
    next_run=_LOG_UNREADABLE,
    fix="tidegate run {name}, which writes it again if a publish was interrupted there; otherwise move it away, "
    "to {quoted_commit}.torn, then tidegate repair {name}: what it held is read again; or `tidegate "
    "repair {name} --rebuild`: a new table from all records still in the sources",
)

TABLE_LOG_CUT = Condition(
    "TABLE_LOG_CUT",
    DisagreementError,
    "the log of the table lacks {versions}, and with them {what}",
    next_run="is not affected; nothing was read or written",
    fix="restore the commit files from a copy of the log; or `tidegate repair {name} --rebuild`: a new table from all "
    "that the sources still have, the old one is kept as a backup",
)

TABLE_LOG_MISSING = Condition(
    "TABLE_LOG_MISSING",
    DisagreementError,
    "the table folder holds {number} parquet files but no log, for example {example}",
    next_run="fails again until this is fixed; nothing was moved",
    fix="restore the folder _delta_log, or move the files away",
)

LEASE_LOST_PUBLISHING = Condition(
    "LEASE_LOST",
    TryAgainError,
    "run {run_id} of {pipeline} lost its lease while it published: another run has taken over",
    next_run="the run that holds the lease finishes this publish",
    fix="tidegate status {pipeline}",
)

TABLE_BEHIND = Condition(
    "TABLE_BEHIND",
    DisagreementError,
    "an older copy of the table was restored: {found}",
    next_run=UNTIL_FIXED,
    fix="restore the newer copy, or `tidegate repair {name}`: what this copy lacks is read again from the source; "
    "`tidegate repair {name} --dry-run` shows the choices",
)

COPY_PUBLISHED = Condition(
    "STATE_BEHIND",
    DisagreementError,
    "the table, at version {version}, holds batch {batch} of query {query}, by run {run_id}, with other rows than are "
    "staged here: a copy of the state folder is in use elsewhere",
    next_run=UNTIL_FIXED,
    fix="let runs use one copy of the state folder only; then here: restore the state folder from the same time as the "
    "table, or `tidegate repair {name}`; `tidegate repair {name} --dry-run` shows the choices",
)

STAGED_FILES_LOST = Condition(
    "STAGED_FILES_LOST",
    DisagreementError,
    "a file of the increment is neither staged nor in the {target} folder, and the log there does not have batch "
    "{app_version}: {error}",
    next_run="fails again until this is fixed; nothing more was published",
    fix="restore the file, or `tidegate repair {pipeline}`: what the table lacks is read again from the source",
)

SCHEMA_UNSUPPORTED = Condition(
    "SCHEMA_UNSUPPORTED",
    UsageError,
    "{subject}: {faults}",
    next_run="fails again until this is fixed; nothing was published",
    fix="cast or rename these columns in the transform; if the table itself has them, move it away and rewrite its "
    "rows with other types, or give the pipeline another name",
)

SCHEMA_CHANGE = Condition(
    "SCHEMA_CHANGE",
    UsageError,
    "the rows no longer fit the table: {faults}",
    next_run="fails again until this is fixed; table and checkpoint are unchanged",
    fix="change the transform as described; or rebuild the table with the columns as they are now, from all records "
    "that runs have read: `tidegate refresh {name} --dry-run` shows them, `tidegate refresh {name}` does it; a table "
    "that refresh refuses (`output_mode: update` without state, lost or adopted records) is made anew from the records "
    "still in the sources: `tidegate repair {name} --rebuild --dry-run`, `tidegate repair {name} --rebuild`",
)

PARTITION_BY = Condition(
    "PARTITION_BY",
    UsageError,
    "the table cannot be partitioned as the spec says: {faults}",
    next_run="fails again until this is fixed; table and checkpoint are unchanged",
    fix="correct table.partition_by in pipeline.yaml",
)

TABLE_KEYS = Condition(
    "TABLE_KEYS",
    UsageError,
    "{key} cannot be used: {faults}; the columns are {columns}",
    next_run="continues once this is corrected; what is staged stays, the table is untouched",
    fix="correct {key} in pipeline.yaml, or cast the column in the transform",
)

UPDATE_KEYS_NOT_UNIQUE = Condition(
    "UPDATE_KEYS_NOT_UNIQUE",
    UsageError,
    "rows of batch {batch} have the same keys ({keys}), so it is undefined which one replaces the other, for "
    "example {example}",
    next_run="continues once this is corrected; what is staged stays, the table is untouched",
    fix="if they are changes of one row, write `order_by: COLUMN` next to `keys: [{keys}]` in pipeline.yaml, with the "
    "column that tells which change is newer (such as changed_at, or _offset of a topic with `metadata: true`), and "
    "run again. If they are different rows, add the columns that distinguish them to table.keys, and run again. The "
    "staged rows stay as they are: if they lack such a column, add it in the transform and read everything again, "
    "`tidegate repair {name} --rebuild`",
)

TABLE_FILES_GONE = Condition(
    "TABLE_FILES_GONE",
    DisagreementError,
    "a data file that the table's log names is not there: {file_path}",
    next_run="fails again until this is fixed; nothing was moved",
    fix="restore the file; only tidegate may write to the table's folder",
)

QUARANTINE_WHERE = Condition(
    "QUARANTINE_WHERE",
    UsageError,
    "`{given}` is not a condition on a quarantined record{hint}",
    next_run="is not affected",
    fix="write COLUMN=TEXT (the value is TEXT) or COLUMN~TEXT (it contains TEXT), repeated for several that must all "
    "hold; columns: {columns}",
)

QUARANTINE_UNKNOWN = Condition(
    "QUARANTINE_UNKNOWN",
    UsageError,
    "no record in quarantine has the {kind} {given}, and there is no such {kind}{hint}",
    next_run="is not affected; nothing was changed",
    fix="choose one that exists, such as: {known}; `tidegate quarantine list {name}` shows what is in quarantine",
)

EXPORT_PLACE = Condition(
    "EXPORT_PLACE",
    UsageError,
    "{path} cannot be written: {why}",
    next_run="is not affected; nothing was exported",
    fix="name another file, in an existing folder that you may write to, or omit --to and redirect stdout",
)
