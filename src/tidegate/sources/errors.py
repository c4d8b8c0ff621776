"""The conditions of the sources."""

from __future__ import annotations

from tidegate.core.errors import (
    RESTORE_CHECKPOINT,
    RESUMED,
    UNTIL_FIXED,
    Condition,
    DisagreementError,
    SourceLostError,
    TryAgainError,
    UsageError,
)

LEDGER_INCOMPLETE = Condition(
    "LEDGER_INCOMPLETE",
    DisagreementError,
    "the ledger, which lists the files that pipeline {pipeline} has read, {state}; files that are not listed in it "
    "would be read again, and their rows duplicated",
    next_run="fails again until this is fixed, and changes nothing",
    fix="restore a backup of {path} that was made together with the table's, or: tidegate repair {pipeline} "
    "--rebuild, a new table from all records still in the sources",
)

LEDGER_BUSY = Condition(
    "LEDGER_BUSY",
    TryAgainError,
    "another process kept the ledger of pipeline {pipeline} locked for 20 s",
    next_run=RESUMED,
    fix="tidegate status {pipeline}, then run again",
)

LEDGER_UNAVAILABLE = Condition(
    "LEDGER_UNAVAILABLE",
    TryAgainError,
    "the ledger of pipeline {pipeline} cannot be opened or written: {error}",
    next_run=RESUMED,
    fix="check owner and permissions (ls -l {quoted_parent}) and the file system (findmnt -T {quoted_parent}, dmesg), "
    "then run again",
)

LEDGER_UNREADABLE = Condition(
    "LEDGER_UNREADABLE",
    DisagreementError,
    "the ledger, which lists the files that pipeline {pipeline} has read, cannot be read: {why}",
    next_run="fails again until this is fixed, and changes nothing",
    fix="restore a backup of it that was made together with the table's; or move it away (mv {quoted_ledger} "
    "{quoted_ledger}.torn), then: tidegate repair {pipeline} --rebuild, a new table from all records still in the "
    "sources",
)

STATIC_MIXED = Condition(
    "STATIC_MIXED",
    SourceLostError,
    "static source {source_name}: {path}: {why}",
    next_run="checks again; nothing was read",
    fix="keep all its files in folders with the same partition columns",
)

STATIC_MISSING = Condition(
    "STATIC_MISSING",
    SourceLostError,
    "the static source {source_name} of pipeline {pipeline} {lacks}",
    next_run="checks again; nothing was read",
    fix="put the missing files into {path}, or correct the path",
)

CORRECT_FILE = "correct, replace or remove the file"
STATIC_UNREADABLE = Condition(
    "STATIC_UNREADABLE",
    UsageError,
    "{path} of the static source {source_name} cannot be read: {why}",
    next_run="reads the source as it is then; nothing is lost",
    fix="{fix}; then `tidegate run {pipeline}`",
)

SOURCE_IS_TABLE = Condition(
    "SOURCE_IS_TABLE",
    UsageError,
    "source {source} of pipeline {pipeline} would read files of a table: {table}; a table replaces its files by others "
    "with the same rows (maintain, backfill, refresh, rollback, output_mode update), and these would be read again",
    next_run="fails again until the source is changed; nothing was read",
    fix="read the table whole in each run, as a static source (static: true); or feed a Kafka topic from the pipeline "
    "that writes the table (sinks), and read the topic; a source that follows a table (type: table) does not exist yet",
)

SOURCE_MISSING = Condition(
    "SOURCE_MISSING",
    SourceLostError,
    "source {source_name} of pipeline {pipeline} has no folder {filename}",
    next_run="checks again; files that were not read yet are read when the folder is available again",
    fix="create the folder (mkdir -p {filename}), mount the file system that belongs there, or correct the path",
)

SOURCE_UNREADABLE = Condition(
    "SOURCE_UNREADABLE",
    SourceLostError,
    "source {source_name} of pipeline {pipeline}: no permission to list {filename}{more}",
    next_run="checks again; nothing was read or skipped",
    fix="give the user of this process read and search permission on {filename}",
)

FILES_UNREAD = Condition(
    "FILES_UNREAD",
    SourceLostError,
    "the run found nothing that it can read, and {files} of pipeline {pipeline} cannot be read: {named}",
    next_run="reads them as soon as they can be read; nothing is lost",
    fix="{fixes}; then `tidegate run {pipeline}`",
)

KAFKA_LOGIN = Condition(
    "KAFKA_LOGIN",
    UsageError,
    "the Kafka brokers at {address} refused the connection: {error}",
    next_run="fails again until the login is corrected",
    fix="correct security.protocol, sasl.* and ssl.* under kafka.options in tidegate.yaml",
)

KAFKA_NOT_ALLOWED = Condition(
    "KAFKA_NOT_ALLOWED",
    UsageError,
    "the broker does not allow this user to {attempt}: {error}",
    next_run="fails again until the user may Describe and Read the topic",
    fix="kafka-acls.sh --add --allow-principal User:<name> --operation Read --operation Describe --topic <topic>",
)

KAFKA_UNSETTLED = Condition(
    "KAFKA_UNSETTLED",
    TryAgainError,
    "the topic is being changed or a partition has no leader; tidegate could not {attempt}: {error}",
    next_run="checks again; nothing was read",
    fix="run again; if it persists, check the brokers",
)

BROKER_AWAY = Condition(
    "BROKER_AWAY",
    TryAgainError,
    "{fault}: {reason}",
    next_run="tries again; nothing was read or written, and nothing is lost",
    fix="start the broker or correct kafka.bootstrap_servers in tidegate.yaml, make sure that this machine reaches "
    "each broker and that the user may Read the topic, then run the same command again",
)

KAFKA_LOSS = Condition(
    "KAFKA_LOSS",
    SourceLostError,
    "{what}: {ranges}",
    next_run="fails again until the loss is accepted; no record behind it was staged",
    fix='tidegate run {pipeline} --accept-loss "reason"',
)

KAFKA_CLUSTER_CHANGED = Condition(
    "KAFKA_CLUSTER_CHANGED",
    UsageError,
    "the brokers at {address} are Kafka cluster {now}, but this source was read from cluster {known} so far: the same "
    "topics and offsets contain other records on that cluster",
    next_run="fails again until the address leads to the old cluster; nothing was read, nothing is reported as lost",
    fix="correct kafka.bootstrap_servers in tidegate.yaml (or its variable), or kafka.bootstrap.servers of the "
    "source. If the records have moved to this cluster for good: give the source another name in "
    "jobs/{pipeline}/pipeline.yaml and the transform, with starting_offsets on this cluster; the table stays",
)

TOPIC_MISSING = Condition(
    "TOPIC_MISSING",
    SourceLostError,
    "on the Kafka brokers at {address}, {missing}",
    next_run="checks again",
    fix="create the topic (kafka-topics.sh --create --topic <topic>), or correct the name in pipeline.yaml, or "
    "kafka.bootstrap_servers in tidegate.yaml",
)

STARTING_OFFSETS_GONE = Condition(
    "STARTING_OFFSETS_GONE",
    SourceLostError,
    "the broker does not have the offsets given in starting_offsets: {offsets}",
    next_run="fails again until this is fixed",
    fix="write offsets that the broker has, or -2 for the earliest",
)

KAFKA_OPTIONS = Condition(
    "KAFKA_OPTIONS",
    UsageError,
    "settings of Kafka that cannot be used: {faults}",
    next_run="fails again until this is fixed",
    fix="correct the settings named above",
)

SOCKET_AWAY = Condition(
    "SOCKET_AWAY",
    TryAgainError,
    "nothing is listening at {host}:{port}: {error}",
    next_run="connects again; nothing was read",
    fix="start the program that sends the records (for a test: nc -l {port}), or correct host and port",
)

CHECKPOINT_TORN = Condition(
    "CHECKPOINT_TORN",
    DisagreementError,
    "the checkpoint is incomplete: {faults}",
    next_run=UNTIL_FIXED,
    fix=RESTORE_CHECKPOINT,
)

FILES_CHANGED = Condition(
    "FILES_CHANGED",
    SourceLostError,
    "{files} changed after being read: {changes}",
    next_run="fails again, and reads nothing, until the change is acknowledged",
    fix='send the missing records in a file with a new name, then: tidegate acknowledge {pipeline} --reason "..."',
)

START_UNKNOWN = Condition(
    "START_UNKNOWN",
    DisagreementError,
    "source {first_at_risk} has `start: now`, but the list of the files that existed when it started is lost: a new "
    "table would contain only records that arrive from now on, without those of the old table",
    next_run="fails again until this is fixed; nothing was changed",
    fix="restore {name} from a backup; or write `start: all`, or the time from which files are to be read, then: "
    "tidegate repair {pipeline} --rebuild",
)

FILE_CHANGING = Condition(
    "FILE_CHANGING",
    TryAgainError,
    "{changes}",
    next_run="reads the batch again, with the files as they are then; nothing is lost",
    fix="let writers finish first: write under a hidden or .tmp name, then rename, or set `settle:` for a stream; then "
    "run again",
)
