"""The conditions of rows and files that are made again."""

from __future__ import annotations

from tidegate.core.errors import (
    Condition,
    DefectError,
    DisagreementError,
    HeldError,
    SourceLostError,
    TryAgainError,
    UsageError,
)

COMPACTION_LOST_ROWS = Condition(
    "COMPACTION_LOST_ROWS",
    DefectError,
    "small files with {before:,} rows were compacted into files with {written:,} rows",
    next_run="is not affected: the table is unchanged, and the new files are removed",
    fix="report this; until it is fixed, maintenance: {{compact_below: 0}} turns compaction off",
)

NO_DATE_PARTITION = Condition(
    "NO_DATE_PARTITION",
    UsageError,
    "maintenance.expire.partitions needs a partition column of type DATE, and the table is partitioned by {columns}",
    next_run="is not affected; nothing was changed",
    fix="remove the key from pipeline.yaml, or have the transform make a DATE column and partition by it "
    "(tidegate repair {name} --rebuild then makes a new table)",
)

BACKFILL_ARGUMENTS = Condition(
    "BACKFILL_ARGUMENTS",
    UsageError,
    "the range to rebuild cannot be used: {fault}",
    next_run="is not affected; nothing was read or written",
    fix="--from 2026-01-01 --to 2026-01-31 (--to is included if it is a day, but not if it is a time stamp such as "
    "2026-01-31T00:00:00+00:00), with --zone Europe/Oslo if needed; or --partition COLUMN=VALUE, once for each "
    "partition",
)

BACKFILL_ONLY_WHOLE = Condition(
    "BACKFILL_ONLY_WHOLE",
    UsageError,
    "no part of the table can be rebuilt alone: {why}",
    next_run="is not affected; nothing was read or written",
    fix="`tidegate {way}` rebuilds the whole table (`--dry-run` shows what that reads)",
)

REFRESH_NOT_POSSIBLE = Condition(
    "REFRESH_NOT_POSSIBLE",
    UsageError,
    "the table cannot be refreshed: with output_mode {output_mode} its rows replace one another in the order of "
    "arrival, which a refresh cannot reproduce",
    next_run="is not affected; nothing was read or written",
    fix="`tidegate repair {name} --rebuild`: a new table from all records still in the sources, with the columns as "
    "they are now; the old one is kept as a backup (`--dry-run` shows it first)",
)

BACKFILL_NO_SUCH_PARTITION = Condition(
    "BACKFILL_NO_SUCH_PARTITION",
    UsageError,
    "the table has no partition {wanted}; its values of {column}: {known}",
    next_run="is not affected; nothing was read or written",
    fix="choose existing partitions; records that have not been read yet are read by the next run",
)

BACKFILL_NO_TABLE = Condition(
    "BACKFILL_NO_TABLE",
    UsageError,
    "there is no table yet, so there is nothing to rebuild",
    next_run="reads what there is",
    fix="`tidegate run {name}`",
)

BACKFILL_STATE_CHANGED = Condition(
    "BACKFILL_STATE_CHANGED",
    UsageError,
    "the part of the query that keeps state was changed, and a run could not continue from the rebuilt part: {change}",
    next_run="is refused as well until this is resolved; the table stays as it is",
    fix="revert the change; or `tidegate refresh {name}` rebuilds the whole table with the new definition",
)

REFRESH_PENDING = Condition(
    "REFRESH_PENDING",
    UsageError,
    "the state of the query, or the columns of the table, cannot be replaced now: {why}",
    next_run="continues with them; nothing was published",
    fix="`tidegate run {name}` finishes the unfinished work, or names the decision that is needed (if it refuses "
    "changed columns, undo their change for this run); then refresh again",
)

REFRESH_KEEPS_STATE = Condition(
    "REFRESH_KEEPS_STATE",
    UsageError,
    "the query keeps state, which is computed from all records: --keep-older cannot exclude the older ones",
    next_run="is not affected; the table stays as it is",
    fix="restore what the sources have lost, then `tidegate refresh {name}`; or `tidegate repair {name} --rebuild`: a "
    "new table from all records still in the sources; the old one is kept as a backup",
)

BACKFILL_NOT_KEPT = Condition(
    "BACKFILL_NOT_KEPT",
    SourceLostError,
    "sources that cannot be read again: {sources}",
    next_run="is not affected; nothing was read or written",
    fix="write the records of such a source to files or a Kafka topic, and read these instead",
)

BACKFILL_FOREIGN_ROWS = Condition(
    "BACKFILL_FOREIGN_ROWS",
    UsageError,
    "{label} was changed by others than the runs of the pipeline: {why}",
    next_run="is not affected; nothing was read or written",
    fix="rebuild only parts of the table in which all rows were written by runs: {possible}; or, where rows were "
    "deleted, let the transform exclude them, then `tidegate repair {name} --rebuild`: a new table from all records "
    "still in the sources",
)

BACKFILL_LOG_CUT = Condition(
    "BACKFILL_LOG_CUT",
    DisagreementError,
    "commits of a log are gone (version {versions}), and with them the origin of its rows",
    next_run="is not affected; nothing was read or written",
    fix="restore the files from a copy of its _delta_log; or `tidegate reset {name} --from-beginning`: a new table "
    "from all records still in the sources",
)

BACKFILL_GONE = Condition(
    "BACKFILL_GONE",
    SourceLostError,
    "some of the records from which {label} was built no longer exist: {lost}",
    next_run="is not affected; the table stays as it is",
    fix="restore them, if they were files; what can be rebuilt without them: {possible}; or `tidegate repair {name} "
    "--rebuild`: a new table without their rows, from the records still in the sources; the old one is kept as a "
    "backup (`--dry-run` says what will be missing)",
)

BACKFILL_NOT_EXACT = Condition(
    "BACKFILL_NOT_EXACT",
    UsageError,
    "{label} cannot be rebuilt without losing or duplicating rows: {why}",
    next_run="is not affected; the table stays as it is",
    fix="`tidegate refresh {name}` rebuilds the whole table and its quarantine; or, where records are malformed or "
    "late, correct the schema, or exclude them in the transform",
)

BACKFILL_OTHER_TEXTS = Condition(
    "BACKFILL_OTHER_TEXTS",
    DisagreementError,
    "{label} must be built without {expected} in quarantine, but {found} were found in the source: the schema was "
    "changed in the meantime, or equal records of one file were treated differently, so it is unknown which of them "
    "are in quarantine",
    next_run="is not affected; the table stays as it is",
    fix="revert the change of the schema; or `tidegate refresh {name}` rebuilds table and quarantine together",
)

BACKFILL_SPILLS = Condition(
    "BACKFILL_SPILLS",
    UsageError,
    "rows of the same records are, or would be, in partitions that are not rebuilt ({others}), and the transform "
    "computes the partition of a row differently than before, or in a way that cannot be compared (Python code, the "
    "time of the run): rows could be lost or duplicated",
    next_run="is not affected; the table stays as it is",
    fix="rebuild these partitions together, in one range that includes all of them; or `tidegate refresh {name}`",
)

BACKFILL_TABLE_CHANGED = Condition(
    "BACKFILL_TABLE_CHANGED",
    TryAgainError,
    "another program changed the files of the table while {label} was built",
    next_run="is not affected; the table stays as it is",
    fix="run the backfill again; only tidegate may write to the table while it runs",
)

BACKFILL_OUTDATED = Condition(
    "BACKFILL_OUTDATED",
    UsageError,
    "the table was changed since {label} was rebuilt ({changed}): publishing the rebuilt rows would undo the change",
    next_run="is not affected; the table stays as it is",
    fix='`tidegate discard {name} {run_id} --reason "..."`, then rebuild it under another run id, which includes the '
    "change",
)

BACKFILL_NOT_RESUMABLE = Condition(
    "BACKFILL_NOT_RESUMABLE",
    UsageError,
    "run id {run_id} has rebuilt {done}, and cannot be resumed: {why}",
    next_run="is not affected; nothing was read or written",
    fix="rebuild all partitions under another run id (--run-id); or revert what was edited, and run the same command "
    "again",
)

BACKFILL_HELD = Condition(
    "BACKFILL_HELD",
    HeldError,
    "{label} did not pass the gate: {reasons}",
    next_run="{next_run}; the table stays as it is",
    fix="correct data or suite, and rebuild it with the same command and --run-id {run_id}; or `tidegate release "
    '{name} {run_id} --reason "..."` publishes it as it was rebuilt, `tidegate discard {name} {run_id} --reason "..."` '
    "drops it",
)

_ADOPT_NOTHING = "is not changed by this; nothing was adopted, and nothing was changed"

ADOPT_TABLE_NOT_NAMED = Condition(
    "ADOPT_TABLE_NOT_NAMED",
    UsageError,
    "the table of pipeline {name} is {own}, and --table is {given}: a table is adopted in place, and the spec names "
    "the place",
    next_run=_ADOPT_NOTHING,
    fix="write into {spec}: `table: {{path: {line}}}` (in addition to the existing keys of `table`), or give --table "
    "{quoted_own}",
)

ADOPT_NOT_A_TABLE = Condition(
    "ADOPT_NOT_A_TABLE",
    UsageError,
    "{table} is not a table: {why}",
    next_run=_ADOPT_NOTHING,
    fix="give the folder that contains the parquet files, their column=value folders, or _delta_log",
)

ADOPT_NOT_NEW = Condition(
    "ADOPT_NOT_NEW",
    UsageError,
    "pipeline {name} is in use already: {what}; only a new pipeline can take over a table and a checkpoint",
    next_run=_ADOPT_NOTHING,
    fix="give the pipeline that takes over another name, or move the folder {state} and its table away first",
)

ADOPT_FILES_DO_NOT_FIT = Condition(
    "ADOPT_FILES_DO_NOT_FIT",
    DisagreementError,
    "the files do not form one table that matches the spec: {faults}",
    next_run=_ADOPT_NOTHING,
    fix="correct the spec, or rewrite or move away the files named; then adopt again",
)

ADOPT_SINK_LOG = Condition(
    "ADOPT_SINK_LOG",
    DisagreementError,
    "the list of committed files that Spark's file sink keeps in the table cannot be used: {why}",
    next_run=_ADOPT_NOTHING,
    fix="restore the folder {folder}, or move the table back to where it was written; or, only if every parquet file "
    "in the folder belongs to the table, rename {folder} to ._spark_metadata.before and adopt without it",
)

ADOPT_LOG_NOT_TAKEN_OVER = Condition(
    "ADOPT_LOG_NOT_TAKEN_OVER",
    DisagreementError,
    "the table has a Delta log that tidegate cannot continue: {why}",
    next_run=_ADOPT_NOTHING,
    fix="remove the feature with the program that made the table. Or start a new log: run VACUUM on {table} with "
    "RETAIN 0 HOURS in that program, so that only current files are left; rename _delta_log to ._delta_log.before; "
    "and adopt the table as plain parquet (if it has deletion vectors or column mapping, rewrite its rows first)",
)

ADOPT_CHECKPOINT = Condition(
    "ADOPT_CHECKPOINT",
    DisagreementError,
    "the checkpoint cannot be taken over: {why}",
    next_run=_ADOPT_NOTHING,
    fix="give the checkpointLocation of the job that wrote the table, of the same time as the table; if it is lost, "
    "adopt without --checkpoint and set in the spec where each source starts",
)

ADOPT_STATE = Condition(
    "ADOPT_STATE",
    DisagreementError,
    "the query of this checkpoint keeps state (windows, deduplication, joins), which only Spark's own plan of that "
    "query can read: tidegate cannot continue it",
    next_run=_ADOPT_NOTHING,
    fix="let the old job read all remaining records, so that its windows are closed and in the table; then adopt "
    "without --checkpoint, with `start: now` or a time stamp (topics: starting_offsets) in the spec",
)

ADOPT_BATCH_UNKNOWN = Condition(
    "ADOPT_BATCH_UNKNOWN",
    DisagreementError,
    "the old job was stopped within batch {planned} (the last one that it finished is {committed}), and the table does "
    "not say whether the rows of that batch are in it: only Spark's file sink and its Delta sink record their "
    "batches in the table",
    next_run=_ADOPT_NOTHING,
    fix="start the old job once more and stop it when it has finished its batch (`trigger(availableNow=True)` does); "
    "then adopt again",
)

ADOPT_SOURCES = Condition(
    "ADOPT_SOURCES",
    DisagreementError,
    "the sources of the old job cannot be matched with those of the spec. The checkpoint has: {old}. The spec has: "
    "{new}",
    next_run=_ADOPT_NOTHING,
    fix="give each source of the spec the path or the topics of the old source that it continues, and add no other "
    "source before the first run",
)

ADOPT_NO_START = Condition(
    "ADOPT_NO_START",
    UsageError,
    "without --checkpoint it is not known which records are in the table already, and the spec does not say where "
    "they start: the first run would read everything, and rows would be duplicated",
    next_run=_ADOPT_NOTHING,
    fix="give --checkpoint, or write {keys}: `start: now` or a time stamp, `starting_offsets: latest` or offsets; "
    "`start: all` or `starting_offsets: earliest` explicitly, if no record of the source is in the table yet",
)

ADOPT_COMPLETE = Condition(
    "ADOPT_COMPLETE",
    UsageError,
    "with output_mode: complete, each run replaces the whole table, so no row of an adopted table would remain",
    next_run=_ADOPT_NOTHING,
    fix="use append or update, or start without the old table: tidegate run {name}",
)

ADOPT_NOTHING_TO_RETIRE = Condition(
    "ADOPT_NOTHING_TO_RETIRE",
    UsageError,
    "--retire-old prevents Spark from starting the query of the checkpoint that the table is adopted with, but {why}",
    next_run="is not changed by this; nothing was adopted or retired",
    fix="give --checkpoint with the checkpointLocation of the old job; or omit --retire-old, and make sure that "
    "nothing starts the old job again",
)

REPLAY_FILE = Condition(
    "REPLAY_FILE",
    UsageError,
    "the file of edited records cannot be used: {fault}",
    next_run="is not affected; nothing was changed",
    fix="write one JSON object per line, with `id` as printed by `tidegate quarantine export` and `show --json`, and "
    "`raw`, the corrected record; other keys are ignored. An id no longer exists after its record was replayed",
)

REPLAY_NOT_APPEND = Condition(
    "REPLAY_NOT_APPEND",
    UsageError,
    "a quarantined record cannot be replayed alone: {why}",
    next_run="is not affected; nothing was changed",
    fix="send the corrected records to the source again, as new ones; or `tidegate repair {name} --rebuild` rebuilds "
    "table and quarantine (`--dry-run` shows what that reads)",
)

REPLAY_REFUSED = Condition(
    "REPLAY_REFUSED",
    UsageError,
    "none of the {count} that were chosen can be replayed: {reasons}",
    next_run="is not affected; they stay in quarantine",
    fix="`tidegate quarantine export {name} --to FILE` writes them; if the text of a record can be corrected, correct "
    "it there and run `tidegate quarantine replay {name} --file FILE`, otherwise send them to the source again, as new "
    "ones",
)

REPLAY_OTHER_RECORDS = Condition(
    "REPLAY_OTHER_RECORDS",
    DefectError,
    "{offered} should have been replayed, but {read} were read",
    next_run="is not affected; they stay in quarantine",
    fix="please report this, with the log that `tidegate logs {name} {run_id}` prints",
)

REPLAY_HELD = Condition(
    "REPLAY_HELD",
    HeldError,
    "the replayed records did not pass the gate: {reasons}",
    next_run="is not affected: live runs continue; the records stay in quarantine",
    fix="correct the records (`tidegate quarantine replay {name} --file FILE`) or the suite, and replay again; a "
    "selection (--reason, --rule, --run-id, --where) excludes the others",
)

BACKFILL_REPLAYED = Condition(
    "BACKFILL_REPLAYED",
    UsageError,
    "rebuilding {label} would read records again that were replayed with edited texts, which the source does not have: "
    "{replays}",
    next_run="is not affected; nothing was read or written",
    fix="rebuild only parts of the table that no such replay has changed: {possible}",
)
