"""Every error that a person can meet: code, class (which has the exit code), what happened, what the next run does, and
what fixes it. Where it happened is added by the code that raises it: ``raise catalogue.LEASE_HELD(where=...)``.

An entry is named by its code; where a code has several texts, each is an entry with a name of its own. Faults of a
file, which are listed together under one code, have their texts next to the check (``spec``); ``FILE_FAULTS`` says what
their codes mean. The page docs/reference/errors.md is made from this file.
"""

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

# The environment: what is installed, jars, Java

PACKAGE_MISSING = Condition(
    "PACKAGE_MISSING",
    UsageError,
    "the jar {jar} is missing, and jars are not fetched while a pipeline runs",
    next_run="fails again until this is fixed; nothing was read",
    fix="tidegate jars, which fetches it",
)

PACKAGE_UNCHECKED = Condition(
    "PACKAGE_UNCHECKED",
    UsageError,
    "{jar} has no sha256 in {project_file}; Spark is only given jars whose checksum was compared",
    next_run="fails again until this is fixed; nothing was read",
    fix="write, if you trust {path}: {line}",
)

PACKAGE_DIFFERS = Condition(
    "PACKAGE_DIFFERS",
    UsageError,
    "the jar {jar} is not the listed one: its sha256 is {found}, but {project_file} lists {sha256}",
    next_run="fails again until this is fixed; nothing was read",
    fix="tidegate jars, which fetches it again; if it still differs, find out which of the two checksums is right",
)

BAD_MIRROR = Condition(
    "BAD_MIRROR",
    UsageError,
    "MAVEN_ROOT does not begin with https://, and jars are fetched only over https",
    fix="name a mirror of Maven Central by its https address, or unset the variable",
)

PACKAGES_NOT_FETCHED = Condition(
    "PACKAGES_NOT_FETCHED",
    TryAgainError,
    "{jar} could not be fetched: {error}",
    next_run="fails until the jar is there",
    fix="tidegate jars again; a proxy goes into JAVA_TOOL_OPTIONS, a mirror into MAVEN_ROOT",
)

PACKAGE_NOT_FOUND = Condition(
    "PACKAGE_NOT_FOUND",
    UsageError,
    "the registry has no {jar}",
    next_run="fails until the jar is there",
    fix="correct the coordinates; or put {package} into .tools/packages by hand",
)

JAVA_MISSING_FOR_JARS = Condition(
    "JAVA_MISSING",
    UsageError,
    "jars are fetched by Java 17 and pyspark, and one of them is missing",
    fix="tidegate doctor",
)

SPARK_SUBMIT_MISSING = Condition(
    "SPARK_SUBMIT_MISSING",
    UsageError,
    "spark-submit is neither next to {executable} nor on PATH",
    fix='pip install "tidegate[spark]", in the environment that runs tidegate',
)

JAVA_MISSING = Condition(
    "JAVA_MISSING",
    UsageError,
    "Spark needs Java 17, and there is no `java` on PATH",
    fix="install a Java 17 runtime",
)

JAVA_HOME_INVALID = Condition(
    "JAVA_HOME_INVALID",
    UsageError,
    "JAVA_HOME is {home}, which is not a Java installation: it has no bin/java",
    next_run="fails again until this is fixed; nothing was read",
    fix="set JAVA_HOME to a Java 17 installation, or unset it: the `java` on PATH is then used",
)

DRIVER_DIED = Condition(
    "DRIVER_DIED",
    TryAgainError,
    "the Spark driver {how} without a result{tail}",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="`tidegate doctor` looks at Java, Spark and the disk; the log has what the driver said last; then "
    "`tidegate run {name}`",
)

DRIVER_KILLED = Condition(
    "DRIVER_DIED",
    TryAgainError,
    "the Spark driver was killed (SIGKILL) and left no result; the usual cause is the kernel's out-of-memory "
    "killer{tail}",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="if memory ran out (`dmesg -T | grep -i oom` on the machine), give the machine or container more memory, or "
    "run fewer drivers at once (`airflow: {{slots: ...}}` in tidegate.yaml); then `tidegate run {name}`",
)

EXTRA_MISSING = Condition(
    "EXTRA_MISSING",
    UsageError,
    "{subject} is needed for this, and the Python package `{module}` is not installed",
    next_run="fails again until this is fixed; nothing was read or written",
    fix='pip install "tidegate[{extra}]"',
)

SPARK_HOME_INVALID = Condition(
    "SPARK_HOME_INVALID",
    UsageError,
    "SPARK_HOME is {home}, which is not a Spark installation: it has no {missing}",
    next_run="fails again until this is fixed; nothing was read",
    fix="unset SPARK_HOME: the Spark of the installed pyspark is then used; or set it to a Spark installation",
)

SPARK_VERSIONS_DIFFER = Condition(
    "SPARK_VERSIONS_DIFFER",
    UsageError,
    "pyspark {spark} and pyspark-client {client} overwrite each other's files",
    next_run="fails again until this is fixed; nothing was read",
    fix='pip install --force-reinstall --no-deps "pyspark=={client}" "pyspark-client=={client}"',
)

# Commands, projects, names

COMMAND_STOPPED = Condition(
    "STOPPED",
    TryAgainError,
    "the command was stopped ({how})",
    next_run="continues where this one stopped; nothing is lost or duplicated",
    fix="run it again",
)

UNKNOWN_FORMAT = Condition(
    "BAD_FORMAT",
    UsageError,
    "--format: {format!r} is not a format",
    fix="json, csv, text, parquet, orc or avro",
)

TOPIC_FORMAT = Condition(
    "BAD_FORMAT",
    UsageError,
    "--format {format}: the columns of a topic are inferred from JSON records only",
    next_run="fails again until this is fixed; nothing was written",
    fix="omit --format, or write the source by hand: docs/how-to/kafka.md",
)

ONE_AT_A_TIME = Condition(
    "ONE_AT_A_TIME",
    UsageError,
    "--accept-loss abandons records of one pipeline, but {number} were named",
    next_run="is not affected; nothing was run",
    fix='name one: tidegate run NAME --accept-loss "..."',
)

NOT_SUPPORTED_YET = Condition(
    "NOT_SUPPORTED_YET",
    UsageError,
    "--continuous: Spark's continuous processing has no batches that could be checked and published as a whole",
    fix="tidegate stream {name}, which publishes within seconds; each batch exactly once",
)

BAD_DURATION = Condition(
    "BAD_DURATION",
    UsageError,
    "--every: {error}",
    fix='write --every "10 seconds"',
)

BROKER_TOOK_NOTHING = Condition(
    "BROKER_AWAY",
    TryAgainError,
    "the Kafka broker at {bootstrap_servers} accepted no record: {reason}",
    fix="start the broker (make run starts one), or name another with --bootstrap",
)

NOT_CHANGED = Condition(
    "NOT_CHANGED",
    UsageError,
    "{missing} cannot be acknowledged: neither a changed file nor a file or partition with lost rows; open are: {open}",
    next_run="is not affected; nothing was acknowledged",
    fix="name them as `tidegate status {name}` does, or omit the paths for all of them",
)

NO_SUCH_RUN = Condition(
    "NO_SUCH_RUN",
    UsageError,
    "pipeline {name} {missing}",
    next_run="is not affected",
    fix="tidegate status {name} lists the newest runs",
)

REPORT_UNREADABLE = Condition(
    "REPORT_UNREADABLE",
    DisagreementError,
    "{why}",
    next_run="continues as usual, unless this run left something unfinished: then it stops and names the file",
    fix="restore the file from a backup, or move it away: no row of the table depends on it",
)

STATUS_UNREADABLE = Condition(
    "STATUS_UNREADABLE",
    DefectError,
    "the state of the pipeline cannot be read: {error}",
    next_run="may fail at the same place",
    fix="tidegate plan {name} shows more",
)

BAD_NAME = Condition(
    "BAD_NAME",
    UsageError,
    "{name} cannot be the name of a pipeline",
    next_run="fails again until this is fixed",
    fix="use 3 to 63 lower-case letters, digits and _, a letter first",
)

NO_SUCH_PIPELINE = Condition(
    "NO_SUCH_PIPELINE",
    UsageError,
    "there is no pipeline {name!r}; there are: {known}",
    next_run="fails again until this is fixed",
    fix="{nearest}tidegate new {name}",
)

BAD_PROJECT_PATH = Condition(
    "BAD_PROJECT_PATH",
    UsageError,
    "the path of the project {unusable}: {root!r}",
    next_run="fails again until this is fixed",
    fix="move the project to a folder with a plain name",
)

BAD_PROJECT = Condition(
    "BAD_PROJECT",
    UsageError,
    "tidegate.yaml cannot be read: {strerror}",
)

NO_PROJECT = Condition(
    "NO_PROJECT",
    UsageError,
    "there is no tidegate.yaml in {start}{reach}",
    next_run="fails again until this is fixed",
    fix="create a project first: tidegate init DIR; if there is one, go to its folder or use --project DIR",
)

OTHER_KIND_OF_RUN = Condition(
    "OTHER_KIND_OF_RUN",
    UsageError,
    "run id {run_id} is already that of a run of another kind: {mode}, not {kind}",
    next_run="is not affected; nothing was read or written",
    fix="give another --run-id, or none",
)

OTHER_ARGUMENTS = Condition(
    "OTHER_ARGUMENTS",
    UsageError,
    "run id {run_id} was first given for {before}, and is now given for {asked}",
    next_run="is not affected; nothing was read or written",
    fix="give another run id (--run-id, of a replay --as), or none; the first request continues under this id",
)

BAD_RUN_ID = Condition(
    "BAD_RUN_ID",
    UsageError,
    "{run_id!a} cannot be a run id: {why}",
    next_run="is not affected",
    fix="use 1 to {longest} printable characters",
)

FORMAT_UNKNOWN = Condition(
    "FORMAT_UNKNOWN",
    UsageError,
    "the format of {file} cannot be recognized by its name",
    next_run="fails again until this is fixed; nothing was written",
    fix="add --format json, csv, text, parquet, orc or avro; save a workbook of a spreadsheet program as csv first",
)

CANNOT_INFER = Condition(
    "CANNOT_INFER",
    UsageError,
    "the columns of {name} cannot be inferred as {kind}: {why}",
    next_run="fails again until this is fixed; nothing was written",
    fix="{fix}",
)

BAD_NEW_PROJECT_PATH = Condition(
    "BAD_PROJECT_PATH",
    UsageError,
    "the path of the project {unusable}: {root!r}",
    fix="choose a folder with a plain name",
)

NO_SUCH_FILE = Condition(
    "NO_SUCH_FILE",
    UsageError,
    "{sample} is not a file",
    next_run="fails again until this is fixed; nothing was written",
    fix="name a file like those that will arrive, or a topic: --from kafka:orders",
)

CANNOT_WRITE = Condition(
    "CANNOT_WRITE",
    UsageError,
    "{path} cannot be written: {reason}",
    next_run="fails again until this is fixed",
    fix="choose a folder that you may write to",
)

FILE_EXISTS = Condition(
    "FILE_EXISTS",
    UsageError,
    "{taken} already {exist}; no existing file was changed",
    next_run="fails again until this is fixed",
    fix="choose another name, or remove what is there",
)

NO_SCHEMA = Condition(
    "NO_SCHEMA",
    UsageError,
    "the columns of {sources} are not known without reading it",
    fix="write its schema",
)

NO_SUCH_SOURCE = Condition(
    "NO_SUCH_SOURCE",
    UsageError,
    "delivery {number} has rows for {unknown}; the sources are: {sources}",
    fix="use the names of the sources",
)

NO_SUCH_COLUMN = Condition(
    "NO_SUCH_COLUMN",
    UsageError,
    "a row of {source} has {unknown}; the columns are: {columns}",
    fix="correct the row, or the schema",
)

# Airflow

_UNTIL_CONNECTION = "fails again until the connection is corrected"
_RENEW_CONNECTION = (
    "airflow connections delete {conn_id}; airflow connections add {conn_id} --conn-type spark --conn-host 'local[*]'"
)

SPARK_CONNECTION_MISSING = Condition(
    "SPARK_CONNECTION_MISSING",
    UsageError,
    "Airflow has no connection {conn_id!r}; the provider would use `yarn` instead, tidegate does not",
    next_run=_UNTIL_CONNECTION,
    fix=_RENEW_CONNECTION,
)

SPARK_CONNECTION_MALFORMED = Condition(
    "SPARK_CONNECTION_MALFORMED",
    UsageError,
    "connection {conn_id!r} {fault}",
    next_run=_UNTIL_CONNECTION,
    fix=_RENEW_CONNECTION,
)

SPARK_DEPLOY_MODE = Condition(
    "SPARK_DEPLOY_MODE",
    UsageError,
    "connection {conn_id!r} asks for deploy-mode {deploymode!r}; only client is possible, because a driver elsewhere "
    "would outlive a killed task (and a standalone cluster runs no Python driver at all)",
    next_run=_UNTIL_CONNECTION,
    fix=_RENEW_CONNECTION,
)

TRIGGER_FORM_REFUSED = Condition(
    "TRIGGER_FORM_REFUSED",
    UsageError,
    "the conf of this run cannot be used: {fault}",
    next_run="is not affected; nothing was read",
    fix='trigger again with {{}} or {{"accept_loss": "<reason>"}} as conf',
)

ACTION_OF_OTHER_SITE = Condition(
    "ACTION_OF_OTHER_SITE",
    UsageError,
    "the request was not sent by these pages: the browser names another site, or says nothing",
    next_run="is not affected; nothing was done",
    fix="use the pages in Airflow; a program sends its token as `Authorization: Bearer ...`",
)

ACTION_REFUSED = Condition(
    "ACTION_REFUSED",
    UsageError,
    "the request cannot be used: {fault}",
    next_run="is not affected; nothing was done",
    fix="open the page of the pipeline again, and use its form",
)

ACTION_TOO_SOON = Condition(
    "ACTION_TOO_SOON",
    TryAgainError,
    "run {run_id} is running in Airflow, and is not asking for a decision now: {state}",
    next_run="is not affected; nothing was decided",
    fix="look again in a minute: when the run waits, its Required Action takes the decision; when it has ended, "
    "another run carries it out",
)

DECISION_UNDER_WAY = Condition(
    "DECISION_UNDER_WAY",
    UsageError,
    "a decision is in progress: run {decider} is queued or running in Airflow to {decision} it",
    next_run="is not affected; your decision was not taken",
    fix="look again when run {decider} has ended (in a paused DAG it starts once the DAG is unpaused); to decide "
    "otherwise, mark it failed in Airflow before it begins",
)

AIRFLOW_REFUSED = Condition(
    "AIRFLOW_REFUSED",
    UsageError,
    "Airflow does not {what} (HTTP {status}): {said}",
    next_run="is not affected; nothing was done",
    fix="do what Airflow says above; the administrator of this Airflow grants rights",
)

SPARK_KUBERNETES_MISSING = Condition(
    "SPARK_KUBERNETES_MISSING",
    UsageError,
    "connection {conn_id!r} is for {master}, and Airflow's Spark provider needs the Python package `kubernetes` for "
    "that",
    next_run="fails again until this is fixed",
    fix="install `kubernetes` in Airflow's environment (apache-airflow-providers-apache-spark[cncf.kubernetes])",
)

SPARK_CONNECTION_AMBIGUOUS = Condition(
    "SPARK_CONNECTION_MALFORMED",
    UsageError,
    "connection {conn_id!r} is read as {master!r} here and as {provider_master!r} by the Spark provider",
    fix="write the connection as JSON, with the whole master in host",
)

SPARK_BINARY_MISSING = Condition(
    "SPARK_SUBMIT_MISSING",
    UsageError,
    "{binary}, which connection {conn_id!r} asks for, is not on PATH",
    fix="remove spark-binary from the connection's extra, or install it",
)

DRIVER_TASK_KILLED = Condition(
    "KILLED",
    TryAgainError,
    "the task was stopped (SIGTERM), and its driver was ended",
    next_run="continues where this one was stopped; nothing is lost",
    fix="clear the task, or wait for the next tick",
)

PROJECT_NOT_FOUND = Condition(
    "PROJECT_NOT_FOUND",
    UsageError,
    "no {project_file} at or above {parent}, and TIDEGATE_PROJECT is not set",
    fix="put the DAG file into a project, or set TIDEGATE_PROJECT, or build_dag(name, project_dir=...)",
)

PYTHON_TASK_KILLED = Condition(
    "KILLED",
    TryAgainError,
    "the task was stopped (SIGTERM)",
    next_run="finishes what was begun; nothing is lost and nothing is duplicated",
    fix="clear the task, or wait for the next tick",
)

# Storage and the lease

NOT_READABLE = Condition(
    "NOT_READABLE",
    TryAgainError,
    "user {user} may not read {path}{ownership}",
    next_run="finishes what this run had begun; nothing is lost",
    fix="{command}, then run the same command again",
)

NOT_WRITABLE = Condition(
    "NOT_WRITABLE",
    TryAgainError,
    "user {user} may not write to {path}{ownership}",
    next_run="finishes what this run had begun; nothing is lost",
    fix="{command}, then run the same command again",
)

FILE_SYSTEM_READ_ONLY = Condition(
    "NOT_WRITABLE",
    TryAgainError,
    "the file system that holds {path} is read-only",
    next_run="finishes what this run had begun; nothing is lost",
    fix="mount it writable (findmnt -T {quoted_path} names it), then run the same command again",
)

_LEASE_FREE = "starts as soon as the lease is free; a holder that died is replaced automatically"

LEASE_HELD = Condition(
    "LEASE_HELD",
    TryAgainError,
    "the lease of pipeline {pipeline} is held by {holder}, since {since}; it expires in {seconds:.0f} s unless it is "
    "renewed",
    next_run=_LEASE_FREE,
    fix="wait for run {run_id} to end, or stop it; then run again",
)

LEASE_PARKED = Condition(
    "LEASE_HELD",
    TryAgainError,
    "pipeline {pipeline} has been waiting for the next step of {holder} since {since}; the lease is kept for that "
    "run for another {seconds:.0f} s",
    next_run=_LEASE_FREE,
    fix="let run {run_id} continue, or run again after {seconds:.0f} s",
)

LEASE_LOST = Condition(
    "LEASE_LOST",
    TryAgainError,
    "pipeline {pipeline}: this process no longer holds lease token {token}; {holder}",
    next_run="continues from what is staged; this process has changed nothing that a reader sees",
    fix="tidegate status {pipeline}",
)

DISK_FULL = Condition(
    "DISK_FULL",
    TryAgainError,
    "no space left on the device that holds {path}",
    next_run="finishes what this run had begun; nothing is lost",
    fix="free space (df -h {parent}), then run again",
)

PATH_UNUSABLE = Condition(
    "PATH_UNUSABLE",
    TryAgainError,
    "cannot use {name}: {strerror}",
    next_run="finishes what this run had begun; nothing is lost",
    fix="check the type and permissions of each folder on that path (namei -l {quoted_name}), or correct the path in "
    "tidegate.yaml; then run the same command again",
)

STORAGE_FAILED = Condition(
    "STORAGE_FAILED",
    TryAgainError,
    "the file system that holds {path} failed: {reason}",
    next_run="finishes what this run had begun; nothing is lost",
    fix="check that the file system is mounted and healthy (findmnt -T {quoted_path}, dmesg), then run the same "
    "command again",
)

TOO_MANY_OPEN_FILES = Condition(
    "TOO_MANY_OPEN_FILES",
    TryAgainError,
    "cannot open {path}: {reason}",
    next_run="finishes what this run had begun; nothing is lost",
    fix="raise the limit of open files (ulimit -n of the process; /proc/sys/fs/file-max for the machine), then run the "
    "same command again",
)

NO_HARD_LINKS = Condition(
    "NO_HARD_LINKS",
    UsageError,
    "the file system that holds {folder} does not support hard links, which protect state and tables from concurrent "
    "writers",
    next_run="stops here again; nothing was changed",
    fix="move the state and table folders of tidegate.yaml to a file system with hard links: a local disk or NFS, not "
    "SMB, exFAT or FAT (findmnt -T {quoted_folder} names it)",
)

# Files

LEDGER_MISSING = Condition(
    "LEDGER_MISSING",
    DisagreementError,
    "pipeline {pipeline} has read files, but the ledger that lists them is gone; reading them again would duplicate "
    "their rows",
    next_run="fails again until this is fixed, and changes nothing",
    fix="restore {path} from a backup, or: tidegate repair {pipeline} --rebuild, a new table from all that the "
    "sources still have",
)

LEDGER_BEHIND = Condition(
    "LEDGER_BEHIND",
    DisagreementError,
    "the ledger, which lists the files that pipeline {pipeline} has read, ends at number {last}; the last publish saw "
    "{least}: an older copy was restored, and reading the files it lacks again would duplicate their rows",
    next_run="fails again until this is fixed, and changes nothing",
    fix="restore a backup of {path} that was made together with the table's, or: tidegate repair {pipeline} "
    "--rebuild, a new table from all that the sources still have",
)

LEASE_LOST_LEDGER = Condition(
    "LEASE_LOST",
    TryAgainError,
    "the ledger of pipeline {pipeline} is written under lease token {found}, but this process has token {token}: "
    "another run has taken over",
    next_run="continues from what is staged; this process has changed nothing in the ledger since",
    fix="tidegate status {pipeline}",
)

LEDGER_BUSY = Condition(
    "LEDGER_BUSY",
    TryAgainError,
    "another process kept the ledger of pipeline {pipeline} locked for 20 s",
    next_run="finishes what this run had begun; nothing is lost",
    fix="tidegate status {pipeline}, then run again",
)

LEDGER_UNAVAILABLE = Condition(
    "LEDGER_UNAVAILABLE",
    TryAgainError,
    "the ledger of pipeline {pipeline} cannot be opened or written: {error}",
    next_run="finishes what this run had begun; nothing is lost",
    fix="check owner and permissions (ls -l {quoted_parent}) and the file system (findmnt -T {quoted_parent}, dmesg), "
    "then run again",
)

LEDGER_UNREADABLE = Condition(
    "LEDGER_UNREADABLE",
    DisagreementError,
    "the ledger, which lists the files that pipeline {pipeline} has read, cannot be read: {why}",
    next_run="fails again until this is fixed, and changes nothing",
    fix="restore a backup of it that was made together with the table's; or move it away (mv {quoted_ledger} "
    "{quoted_ledger}.torn), then: tidegate repair {pipeline} --rebuild, a new table from all that the sources still "
    "have",
)

SOURCE_START_UNREADABLE = Condition(
    "SOURCE_UNREADABLE",
    SourceLostError,
    "source {source_name} of pipeline {pipeline} starts at {start}, and what is there before that is unknown: no "
    "permission to list {first_unlisted}",
    next_run="checks again; nothing was read or skipped",
    fix="give the user of this process read and search permission on {first_unlisted}",
)

STATIC_MIXED = Condition(
    "STATIC_MIXED",
    SourceLostError,
    "static source {source_name}: {path}: {why}",
    next_run="checks again; nothing was read",
    fix="keep all its files in folders with the same partition columns",
)

STATIC_EMPTY = Condition(
    "STATIC_EMPTY",
    SourceLostError,
    "the static source {source_name} of pipeline {pipeline} has no file, or only empty ones",
    next_run="checks again; nothing was read",
    fix="put its files into {spec_path}, or correct the path",
)

STATIC_UNREADABLE = Condition(
    "STATIC_UNREADABLE",
    UsageError,
    "the file {file} of the static source {source_name} cannot be read: {why}",
    next_run="reads the source as it is then; nothing is lost",
    fix="correct, replace or remove the file, then `tidegate run {pipeline}`",
)

SOURCE_NOT_LOCAL = Condition(
    "SOURCE_NOT_LOCAL",
    UsageError,
    "source {source_name} of pipeline {pipeline} is at {path}; files are read from local or mounted folders",
    next_run="fails again until the path is changed",
    fix="mount the store as a folder, or copy its files into one, and give that folder as path",
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
    next_run="checks again; files that were not taken yet are read once the folder is back",
    fix="mkdir -p {filename}, mount what belongs there, or correct the path",
)

SOURCE_UNREADABLE = Condition(
    "SOURCE_UNREADABLE",
    SourceLostError,
    "source {source_name} of pipeline {pipeline}: no permission to list {filename}",
    next_run="checks again",
    fix="give the user of this process read and search permission on {filename}",
)

# Kafka

KAFKA_CLIENT_REFUSES = Condition(
    "KAFKA_OPTIONS",
    UsageError,
    "the Kafka client refuses its settings: {complaint}",
    fix="correct the option named above",
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
    fix="run again; if it persists, look at the brokers",
)

BROKER_SILENT = Condition(
    "BROKER_AWAY",
    TryAgainError,
    "no answer from the Kafka brokers at {address} within {patience_seconds:g} seconds, trying to {attempt}: {reason}",
    next_run="tries again; nothing was read and nothing is lost",
    fix="start the broker or correct kafka.bootstrap_servers in tidegate.yaml, then run the same command again",
)

KAFKA_LOSS = Condition(
    "KAFKA_LOSS",
    SourceLostError,
    "Kafka no longer has records that this pipeline has not read yet: {ranges}",
    next_run="fails again until the loss is accepted; nothing was read",
    fix='tidegate run {pipeline} --accept-loss "reason"',
)

KAFKA_LOSS_UNKNOWN = Condition(
    "KAFKA_LOSS",
    SourceLostError,
    "every record that tidegate had seen was read, but records that arrived later may be lost: {ranges}",
    next_run="fails again until the loss is accepted; nothing was read",
    fix='tidegate run {pipeline} --accept-loss "reason"',
)

KAFKA_CLUSTER_CHANGED = Condition(
    "KAFKA_CLUSTER_CHANGED",
    UsageError,
    "the brokers at {address} are Kafka cluster {now}, but this source was read from cluster {known} so far: the "
    "same topics and offsets hold other records there",
    next_run="fails again until the address leads to the old cluster; nothing was read, nothing counts as lost",
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

STARTING_OFFSETS = Condition(
    "STARTING_OFFSETS",
    UsageError,
    "starting_offsets must give an offset (or -2 for earliest, -1 for latest) for every partition: {faults}",
    next_run="fails again until this is fixed",
    fix="correct starting_offsets",
)

STARTING_OFFSETS_GONE = Condition(
    "STARTING_OFFSETS_GONE",
    SourceLostError,
    "the broker does not have the offsets given in starting_offsets: {offsets}",
    next_run="fails again until this is fixed",
    fix="write offsets that the broker has, or -2 for the earliest",
)

SAMPLE_NOT_READ = Condition(
    "BROKER_AWAY",
    TryAgainError,
    "the records of topic {topic} cannot be read: {why}",
    next_run="tries again; nothing was written",
    fix="make sure that this user may Read the topic and that this machine reaches each broker, then run it again",
)

KAFKA_OPTIONS = Condition(
    "KAFKA_OPTIONS",
    UsageError,
    "options that cannot be used: {faults}",
    next_run="fails again until this is fixed",
    fix="correct the options named above",
)

TOPIC_RECREATED = Condition(
    "TOPIC_RECREATED",
    SourceLostError,
    "topic {topics} was deleted and created again while a batch was read: records of the new one may be among those of "
    "the batch, which was not staged",
    next_run="names what is lost, before anything is read; nothing of the batch was staged",
    fix='`tidegate plan {pipeline}` shows what is lost; `tidegate run {pipeline} --accept-loss "reason"` continues '
    "from the beginning of the new topic",
)

# Generators

SOCKET_AWAY = Condition(
    "SOCKET_AWAY",
    TryAgainError,
    "nothing is listening at {host}:{port}: {error}",
    next_run="connects again; nothing was read",
    fix="start the program that sends there (to try: nc -l {port}), or correct host and port",
)

# Checkpoint, staging and table agree

_UNTIL_FIXED = "fails again until this is fixed; nothing was read or written"
_REPAIR_CHECKPOINT = (
    "or `tidegate repair {name}`: a new checkpoint that starts exactly where the table's log ends; `tidegate repair "
    "{name} --dry-run` shows the choices"
)
_RESTORE_CHECKPOINT = (
    "restore the state folder from the same time as the table; `tidegate repair {name} --dry-run` shows what else can "
    "be done"
)
_RESTORE_STATE = f"restore the state folder from the same time as the table, {_REPAIR_CHECKPOINT}"
_RESTORE_STAGING = (
    "restore the state folder, or `tidegate repair {name}`: what the table lacks is read again from the source; "
    "`tidegate repair {name} --dry-run` shows the choices"
)

TABLE_GONE = Condition(
    "TABLE_GONE",
    DisagreementError,
    "the table was at version {version} and is gone",
    next_run=_UNTIL_FIXED,
    fix="restore the table folder and run again, or `tidegate repair {name}`: a new table, for which everything is "
    "read again; `tidegate repair {name} --dry-run` shows the choices",
)

STATE_GONE = Condition(
    "STATE_GONE",
    DisagreementError,
    "the table exists (version {version}), but there is no record of what was read for it",
    next_run=_UNTIL_FIXED,
    fix="restore the pipeline's state folder and run again, or {way_on}",
)

TABLE_BEHIND = Condition(
    "TABLE_BEHIND",
    DisagreementError,
    "the table is at version {version}, batch {batch_id}; the last publish was version {published_version}, batch "
    "{published_batch_id}: an older copy was restored",
    next_run=_UNTIL_FIXED,
    fix="restore the newer copy, or `tidegate repair {name}`: what this copy lacks is read again from the source; "
    "`tidegate repair {name} --dry-run` shows the choices",
)

TABLE_DAMAGED = Condition(
    "TABLE_DAMAGED",
    DisagreementError,
    "{what} is not as it was written: {found}",
    next_run=_UNTIL_FIXED,
    fix="restore it from a backup and run again; or `tidegate repair {name} --dry-run`, which shows what can be done "
    "without one; `tidegate verify {name}` reads every file and names all that is wrong",
)

QUARANTINE_BEHIND = Condition(
    "QUARANTINE_BEHIND",
    DisagreementError,
    "quarantine {found}: it was deleted, or an older copy was restored, and it lacks records that are in no table, or "
    "has some that are in the table by now",
    next_run=_UNTIL_FIXED,
    fix="restore the newest copy; or `tidegate repair {name}`: takes out what may be in the table, and names the "
    "command that reads again what quarantine lacks; `tidegate repair {name} --dry-run` shows it",
)

QUARANTINE_AHEAD = Condition(
    "QUARANTINE_AHEAD",
    DisagreementError,
    "quarantine, at version {there}, has {found}, which the table, at version {version}, does not: older copies of the "
    "table and of the state folder were restored",
    next_run=_UNTIL_FIXED,
    fix="restore the newest copies of both; or `tidegate repair {name}`: keeps the table as it is now, what it lacks "
    "is read again from the source; `tidegate repair {name} --dry-run` shows the choices",
)

PARTITION_BY_CHANGED = Condition(
    "PARTITION_BY_CHANGED",
    DisagreementError,
    "the table is partitioned by {has}, the spec says {wanted}",
    next_run=_UNTIL_FIXED,
    fix="revert the change, or `tidegate repair {name} --rebuild`: a new table from all that the sources still "
    "have; the old one is kept as a backup (`tidegate repair {name} --rebuild --dry-run` shows what that reads)",
)

TABLE_REPLACED = Condition(
    "TABLE_REPLACED",
    DisagreementError,
    "another table is in its place (id {table_id}, was {published_table_id})",
    next_run=_UNTIL_FIXED,
    fix="restore the table, or `tidegate repair {name}`: continue from where this table's log ends; `tidegate repair "
    "{name} --dry-run` shows the choices",
)

CHECKPOINT_OF_RETIRED_QUERY = Condition(
    "QUERY_RETIRED",
    DisagreementError,
    "query {living} of this checkpoint ended with a repair or an accepted loss: a repair was interrupted, or the "
    "checkpoint of the query that followed is gone",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_STATE,
)

STATE_BEHIND = Condition(
    "STATE_BEHIND",
    DisagreementError,
    "the table, at version {version}, holds {found}, which the state folder does not know: an older copy of the "
    "state folder was restored",
    next_run=_UNTIL_FIXED,
    fix="restore the state folder from the same time as the table, or {way_on}",
)

CHECKPOINT_TORN = Condition(
    "CHECKPOINT_TORN",
    DisagreementError,
    "the checkpoint is incomplete: {faults}",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_CHECKPOINT,
)

CHECKPOINT_GONE = Condition(
    "CHECKPOINT_GONE",
    DisagreementError,
    "the checkpoint of query {query_id} is gone",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_CHECKPOINT,
)

BIRTH_GONE = Condition(
    "BIRTH_GONE",
    DisagreementError,
    "there is a checkpoint, but its birth record is gone",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_CHECKPOINT,
)

BIRTH_AND_CHECKPOINT_GONE = Condition(
    "BIRTH_GONE",
    DisagreementError,
    "the checkpoint and its birth record are gone",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_CHECKPOINT,
)

ADOPTED_AT_UNKNOWN = Condition(
    "BIRTH_GONE",
    DisagreementError,
    "the birth record is gone, and with it the offsets at which source {source} continues after the adopted table",
    next_run=_UNTIL_FIXED,
    fix="restore the state folder from the same time as the table; or `tidegate repair {name} --rebuild`: a new table "
    "from all that the sources still have; the old one is kept as a backup",
)

CHECKPOINT_REPLACED = Condition(
    "CHECKPOINT_REPLACED",
    DisagreementError,
    "the checkpoint belongs to query {query_id}; this pipeline's is {own_query_id}",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_CHECKPOINT,
)

CHECKPOINT_BEHIND = Condition(
    "CHECKPOINT_BEHIND",
    DisagreementError,
    "the checkpoint ends at batch {last_offset}, but batch {newest} was staged or published: an older copy was "
    "restored",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_CHECKPOINT,
)

STAGING_GONE = Condition(
    "STAGING_GONE",
    DisagreementError,
    "batches {gone} are complete in the checkpoint, but neither staged nor published",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_STAGING,
)

STAGED_FILES_GONE = Condition(
    "STAGED_FILES_GONE",
    DisagreementError,
    "{number} staged files are gone, first {example}",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_STAGING,
)

MANIFESTS_DAMAGED = Condition(
    "STAGED_FILE_DAMAGED",
    DisagreementError,
    "{number} staged files do not have the size that was written, first {example}",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_STAGING,
)

CHECKPOINT_DIVERGED = Condition(
    "CHECKPOINT_DIVERGED",
    DisagreementError,
    "the checkpoint was edited, or its files were exchanged: {faults}{more}",
    next_run=_UNTIL_FIXED,
    fix=_RESTORE_CHECKPOINT,
)

PROJECT_MOVED = Condition(
    "PROJECT_MOVED",
    DisagreementError,
    "the checkpoint was made in {made_in} and holds paths of that folder; it is now in {found_in}",
    next_run=_UNTIL_FIXED,
    fix="move the project back; `tidegate repair {name} --dry-run` shows what else can be done",
)

SPEC_CHANGED = Condition(
    "SPEC_CHANGED",
    DisagreementError,
    "the spec was changed under an existing checkpoint: {changes}",
    next_run=_UNTIL_FIXED,
    fix="revert the change, or `tidegate repair {name}`: a new checkpoint for the new spec; `tidegate repair "
    "{name} --dry-run` shows the choices",
)

FOREIGN_TABLE = Condition(
    "FOREIGN_TABLE",
    DisagreementError,
    "the folder of the table holds parquet files that no run of this pipeline wrote, for example "
    "{first_foreign_file}, and no _delta_log: its readers would see their rows among the new ones",
    next_run=_UNTIL_FIXED,
    fix="move them away (mv {quoted_table_folder} {quoted_path}), or take them over (tidegate adopt {name} --table "
    "{quoted_table_folder}), or give the pipeline another name or the project another warehouse; then run again",
)

FILES_CHANGED = Condition(
    "FILES_CHANGED",
    SourceLostError,
    "{files} changed after being read: {changes}",
    next_run="fails again, and reads nothing, until the change is acknowledged",
    fix='send what is missing under a new name, then: tidegate acknowledge {pipeline} --reason "..."',
)

START_UNKNOWN = Condition(
    "START_UNKNOWN",
    DisagreementError,
    "source {first_at_risk} has `start: now`, and the record of the files that were there when it started is gone: a "
    "new table would hold only what arrives from now on, without what the old one has",
    next_run="fails again until this is fixed; nothing was changed",
    fix="restore {name} from a backup; or write `start: all`, or the time from which files are to be read, then: "
    "tidegate repair {pipeline} --rebuild",
)

STAGED_FILE_GONE = Condition(
    "STAGED_FILES_GONE",
    DisagreementError,
    "a staged file is gone: {file_path}",
    next_run="fails again until this is fixed; nothing of the file was published",
    fix="restore the state folder, or `tidegate repair {name}`: what the table lacks is read again",
)

LOSS_REASON_MISSING = Condition(
    "REASON_MISSING",
    UsageError,
    "a loss is accepted only with a reason, and the given one says nothing",
    next_run="is not affected; nothing was read",
    fix='give the reason: --accept-loss "retention was too short"',
)

LOSS_IN_BATCH = Condition(
    "LOSS_IN_BATCH",
    DisagreementError,
    "batch {batch_id} is staged, but Spark had not committed its state yet, and records that it is computed from are "
    "gone: {loss}",
    next_run=_UNTIL_FIXED,
    fix='{choices}; after a rebuild `tidegate run {name} --accept-loss "reason"` continues without the lost records',
)

LEASE_LOST_TO_NEW_QUERY = Condition(
    "LEASE_LOST",
    TryAgainError,
    "another process has begun query number {query} of pipeline {pipeline}",
    next_run="continues with the query that was begun",
    fix="tidegate status {pipeline}",
)

# The reasons for a repair that a person asked for: internal, so the reference page leaves them out.

REBUILD = Condition(
    "REBUILD",
    DisagreementError,
    "nothing disagrees; a new table was requested",
)

REREAD = Condition(
    "REREAD",
    DisagreementError,
    "a held increment is read again",
)

ROLLBACK = Condition(
    "ROLLBACK",
    DisagreementError,
    "the table goes back to an earlier version, and what came after it is read again",
)

RESET = Condition(
    "RESET",
    DisagreementError,
    "nothing disagrees; a new checkpoint was requested",
)

INTERNAL = ("REBUILD", "REREAD", "ROLLBACK", "RESET")
"""Codes that no command ends with."""

TABLE_BEHIND_ANY_INTENT = Condition(
    "TABLE_BEHIND_INTENT",
    DisagreementError,
    "a publish was begun on a newer {target}",
)

STATE_NEEDED = Condition(
    "STATE_NEEDED",
    UsageError,
    "the query keeps state, and the records of the held increment are already counted in it: reading them again "
    "would count them twice",
    next_run="waits for the decision",
    fix="{others}; or `tidegate repair {name} --rebuild`: a new table from all that the sources still have",
)

REREAD_LOST = Condition(
    "REREAD_LOST",
    SourceLostError,
    "not all of the increment can be read again: {lost}{more}",
    next_run="waits for the decision",
    fix="{others}; release publishes the staged rows",
)

STATE_CHANGED = Condition(
    "STATE_CHANGED",
    DisagreementError,
    "the transform was changed in a way that makes the state kept so far give wrong results: {change}{spelling_hint}",
    next_run=_UNTIL_FIXED,
    fix="revert the change; or `tidegate refresh {name}` rebuilds table and state in a side job, from all that runs "
    "have read; or `tidegate repair {name} --rebuild`: a new table from all that the sources still have (`--dry-run` "
    "of both shows what that is)",
)

STAGED_FILE_DAMAGED = Condition(
    "STAGED_FILE_DAMAGED",
    DisagreementError,
    "a staged file is not what was written: {damage}",
    next_run="fails again until this is fixed; nothing of the file was published",
    fix="check the disk, and what else writes there; then `tidegate repair {pipeline}`: the batch is read again from "
    "the source (`tidegate repair {pipeline} --dry-run` shows the choices)",
)

BATCH_OF_RETIRED_QUERY = Condition(
    "QUERY_RETIRED",
    TryAgainError,
    "query {name} ended when a loss was accepted: its batch {path_stem} does not count",
    next_run="reads these records with the query that followed",
    fix="nothing needs to be done; run again",
)

# The transform and its batches

UNSUPPORTED_OPERATION = Condition(
    "UNSUPPORTED_OPERATION",
    UsageError,
    "{operation} cannot work in a streaming query with output_mode: {mode}: {why}",
    next_run="fails again until this is fixed; nothing was started or read",
    fix="{fix}",
)

TRANSFORM_MISSING = Condition(
    "TRANSFORM_FAILED",
    UsageError,
    "{file}, which `transform:` names, is not there",
    next_run="fails again until this is fixed; nothing was read",
    fix="create it, or correct `transform:`, then `tidegate validate {pipeline}`",
)

TRANSFORM_FAILED = Condition(
    "TRANSFORM_FAILED",
    UsageError,
    "{kind}: {error}",
    next_run="fails again until this is fixed; nothing was read",
    fix="correct {file}, then `tidegate validate {pipeline}`",
)

TRANSFORM_RETURNS_NO_DATAFRAME = Condition(
    "TRANSFORM_FAILED",
    UsageError,
    "transform returned {kind}, not a DataFrame",
    fix="end transform() with `return <DataFrame>`",
)

CHECKPOINT_READS_FILES_AGAIN = Condition(
    "CHECKPOINT_DIVERGED",
    DisagreementError,
    "batch {batch_id} of source {source} would read {number} files again that were staged before, first {example}: "
    "the checkpoint does not belong to this intake (was the project moved?)",
    next_run="fails again until this is fixed; nothing was read",
    fix="`tidegate repair {pipeline} --dry-run` shows the choices",
)

STATE_INPUT_GONE = Condition(
    "STATE_INPUT_GONE",
    DisagreementError,
    "batch {batch_id} was staged, but Spark had not committed its state yet, and {number} files of source {source} "
    "from which it is computed are gone, first {example}",
    next_run="fails again until this is fixed; nothing was read",
    fix="restore the state folder, or `tidegate repair {pipeline} --dry-run` shows the choices",
)

CHECKPOINT_READS_OTHER_RECORDS = Condition(
    "CHECKPOINT_DIVERGED",
    DisagreementError,
    "batch {batch_id} was staged with other records than the checkpoint now gives it",
    next_run="fails again until this is fixed",
    fix="`tidegate repair {pipeline} --dry-run` shows the choices",
)

BATCH_NOT_REPEATABLE = Condition(
    "BATCH_NOT_REPEATABLE",
    DisagreementError,
    "batch {batch_id} gave {then} rows when it was staged and {now} now: the transform does not give the same rows "
    "for the same input (rand(), now(), a changed static source, or an edited transform)",
    next_run="fails again until this is fixed",
    fix="remove what changes from the transform; then run again",
)

STATIC_MALFORMED = Condition(
    "STATIC_MALFORMED",
    UsageError,
    "{number} records of the static source {source} do not fit its schema; the first: {fault}: {record}",
    next_run="reads the batch again, with the source as it is then; nothing is lost",
    fix="correct the record in {place} (or, of a topic, let starting_offsets begin after it), then `tidegate run "
    "{pipeline}`",
)

SCHEMA_NOT_INFERRED = Condition(
    "SCHEMA_NOT_INFERRED",
    UsageError,
    "the columns of source {name} cannot be inferred: {why}",
    next_run="infers the columns from the files that are there then; nothing was read, nothing is lost",
    fix="write the columns: schema: id BIGINT, name STRING; what does not fit them goes to quarantine",
)

FILE_CHANGING = Condition(
    "FILE_CHANGING",
    TryAgainError,
    "{paths} changed each time it was read",
    next_run="reads the batch again",
    fix="let writers finish first: write under a hidden or .tmp name, then rename, or set `settle:`",
)

TRANSFORM_COLUMNS = Condition(
    "TRANSFORM_FAILED",
    UsageError,
    "the transform's rows {fault}: {refused} (columns: {columns})",
    next_run="fails again until this is fixed; nothing was read",
    fix="{fix}",
)

ROW_ERRORS_WITH_STATE = Condition(
    "UNSUPPORTED_OPERATION",
    UsageError,
    "on_row_error: quarantine, but the query keeps state (windows, duplicates, joins of streams): a record on which "
    "it fails cannot be taken out of what the state has seen",
    next_run="fails again until this is fixed; nothing was started or read",
    fix="remove on_row_error and let the transform give null for such values (try_cast, try_divide: "
    "docs/how-to/your-own-data.md), or convert them in a separate pipeline before this one",
)

SOURCE_NOT_USED = Condition(
    "SOURCE_NOT_USED",
    UsageError,
    "the rows of the transform do not depend on the source {sources}: it would never be read",
    next_run="fails again until this is fixed; nothing was started or read",
    fix="use it in the transform, or remove it from pipeline.yaml",
)

BATCH_UNBALANCED = Condition(
    "UNBALANCED",
    DefectError,
    "batch {batch_id}: {faults}",
    next_run="reads the batch again",
    fix="run `tidegate run {pipeline}` again; if it persists, report it with the files of this batch",
)

TRANSFORM_MODULE_UNREADABLE = Condition(
    "TRANSFORM_FAILED",
    UsageError,
    "a file next to the transform cannot be read: {strerror}",
    next_run="fails again until this is fixed; nothing was read",
    fix="make it readable, or remove it",
)

SCHEMA_DRIFT = Condition(
    "SCHEMA_DRIFT",
    UsageError,
    "{files} of source {source} {do} not fit the columns that were inferred and are kept: {differences}{more}",
    next_run="quarantines these files, whole, and reads the others",
    fix="send them with the columns that `tidegate plan {pipeline}` shows",
)

NO_STATE = Condition(
    "NO_STATE",
    UsageError,
    "the query of {name} does not keep state",
    fix="tidegate status {name}",
)

NO_STATE_YET = Condition(
    "NO_STATE",
    UsageError,
    "no run of {name} has written any state yet",
    fix="tidegate status {name}",
)

STATE_NOT_SHOWN = Condition(
    "STATE_UNREADABLE",
    DisagreementError,
    "the state of {name} cannot be read: {first_error}",
    next_run="fails while it reads the state; nothing is lost",
    fix="restore the pipeline's state folder from a backup; or `tidegate repair {name} --rebuild`",
)

STATIC_MISSING = Condition(
    "STATIC_MISSING",
    SourceLostError,
    "the log of the static source {source} names the file {file}, which is not there",
    next_run="checks again; nothing was read",
    fix="put it back, then run again",
)

STATIC_CHANGING = Condition(
    "STATIC_CHANGING",
    TryAgainError,
    "the file {file} of the static source {source} {change} while it was copied",
    next_run="reads the source as it is then; nothing was read",
    fix="replace static files whole (write under another name, then rename); then run again",
)

# The Spark driver and the cluster

INGEST_FAILED = Condition(
    "INGEST_FAILED",
    DefectError,
    "the Spark driver failed: {error}",
    next_run="reads the same batch again; nothing is lost",
    fix="the Spark log has the whole trace; correct the cause, or report it, then run again",
)

READER_FAILED = Condition(
    "READER_FAILED",
    DefectError,
    "tidegate's reader failed on this file: {error}",
    next_run="reads the same batch again; nothing is lost",
    fix="report it with the file; to continue without it, move it out of the source's folder and remove its link (rm "
    "{link}), then run again: it counts as gone before it was read",
)

TOPIC_READER_FAILED = Condition(
    "READER_FAILED",
    DefectError,
    "tidegate's reader failed on records of a topic: {error}",
    next_run="reads the same batch again; nothing is lost",
    fix="report it with the records (kafka-console-consumer.sh --partition, --offset)",
)

KAFKA_DAMAGED = Condition(
    "KAFKA_DAMAGED",
    TryAgainError,
    "what the broker gives is not what was written to it: {error}",
    next_run="reads the same batch again; nothing of it was staged",
    fix="look at the broker's disk and its replicas; where the records are lost for good, kafka-delete-records.sh "
    "removes them, and the next run names the loss",
)

SPARK_OUT_OF_MEMORY = Condition(
    "OUT_OF_MEMORY",
    UsageError,
    "Spark ran out of memory: {error}",
    next_run="reads the same batch again, and fails again with the same memory; nothing is lost",
    fix="raise `spark.driver.memory` (on a cluster `spark.executor.memory`), then `tidegate run {name}`",
)

CHECKPOINT_BUSY = Condition(
    "CHECKPOINT_BUSY",
    TryAgainError,
    "another process wrote the checkpoint of this pipeline at the same time",
    next_run="continues from what was committed; nothing is lost or duplicated",
    fix="`tidegate status {name}` shows who holds the lease; then run again",
)

STATE_UNREADABLE = Condition(
    "STATE_UNREADABLE",
    DisagreementError,
    "the state of the query cannot be read: {error}",
    next_run="fails again until this is fixed; nothing was published, and nothing is lost as long as the sources "
    "have it",
    fix="restore state, table and quarantine of {name} from the same time; or `tidegate repair {name} --rebuild` "
    "(`tidegate repair {name} --rebuild --dry-run` shows what that reads)",
)

KAFKA_RECORDS_LOST = Condition(
    "KAFKA_RECORDS_LOST",
    SourceLostError,
    "the broker no longer has the records that this run planned to read: {error}",
    next_run="compares the offsets not read yet with those retained, and names the exact ranges",
    fix="`tidegate plan {name}` shows what is gone, and the command that continues without it",
)

BROKER_STOPPED = Condition(
    "BROKER_AWAY",
    TryAgainError,
    "the Kafka broker stopped answering: {error}",
    next_run="compares offsets and topics with the broker's, then continues from the last staged batch",
    fix="bring the broker back, then `tidegate run {name}`{address_hint}",
)

FILE_VANISHED = Condition(
    "FILE_VANISHED",
    TryAgainError,
    "a file vanished before it was read: {error}",
    next_run="names the files that are gone for good",
    fix="run again",
)

PARTITION_VALUE = Condition(
    "PARTITION_VALUE",
    UsageError,
    "a value of the partition column {column} cannot be a folder name: as one it has {size} bytes, and begins with "
    "{beginning!r}",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="shorten the value in the transform, partition by something else, or quarantine such rows with "
    "expect_column_value_lengths_to_be_between and `on_failure: quarantine`; then `tidegate run {name}`",
)

SPARK_DIFFERS = Condition(
    "SPARK_DIFFERS",
    UsageError,
    "the executors run another version of Spark than this driver, which runs {version}: {error}",
    next_run="fails again until this is fixed; nothing was read or written",
    fix="install Spark {version} on master and workers",
)

PYTHON_DIFFERS = Condition(
    "PYTHON_DIFFERS",
    UsageError,
    "the executors run Python {there}, this driver runs {here}: records are read by Python on the executors, which has "
    "to be of the same minor version",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="`spark.pyspark.python` under spark.conf names the executors' Python (docs/how-to/from-machine-to-cluster.md)",
)

PYTHON_MISSING = Condition(
    "PYTHON_MISSING",
    UsageError,
    "an executor has no {first_missing}, and records are read by Python there",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="install it on each worker, with tidegate and its packages, or let `spark.pyspark.python` under spark.conf "
    "name theirs (docs/how-to/from-machine-to-cluster.md)",
)

MODULE_MISSING = Condition(
    "MODULE_MISSING",
    UsageError,
    "an executor lacks a Python module: {first_lost_module}. Executors need tidegate with its packages, which reads "
    "the records there, and what the transform imports",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="`pip install tidegate` of this version, and what the transform imports, on each worker; or send a packed "
    "environment with `spark.archives` and `spark.pyspark.python` under spark.conf "
    "(docs/how-to/from-machine-to-cluster.md)",
)

VERSION_DIFFERS = Condition(
    "VERSION_DIFFERS",
    UsageError,
    "the executors have tidegate {there}, this driver has {here}: records are read by tidegate on the executors, which "
    "has to be of the same version",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="`pip install tidegate=={here}` on each worker; or send a packed environment that has it with `spark.archives` "
    "and `spark.pyspark.python` under spark.conf (docs/how-to/from-machine-to-cluster.md)",
)

APPLICATION_ENDED = Condition(
    "APPLICATION_ENDED",
    TryAgainError,
    "{master} ended this run{reason}",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="look at the master's page, then `tidegate run {name}`",
)

EXECUTOR_LOST = Condition(
    "EXECUTOR_LOST",
    TryAgainError,
    "executors were lost {how}",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="look for what ends them in the workers' logs (memory: spark.executor.memory), then run again",
)

PYTHON_WORKER_LOST = Condition(
    "PYTHON_WORKER_LOST",
    TryAgainError,
    "a Python process that reads records for Spark was killed, most often because the machine ran out of memory",
    next_run="reads the same batch again; nothing is lost or duplicated",
    fix="look for `Out of memory` in the kernel's log (dmesg), give the machine more memory or run fewer pipelines at "
    "once, then `tidegate run {name}`",
)

_SAME_BATCH = "reads the same batch again and fails until this is fixed; nothing is lost"
_CORRECT_TRANSFORM = "correct the transform, then `tidegate run {name}`"

TRANSFORM_FAILED_ON_ROW = Condition(
    "TRANSFORM_FAILED",
    UsageError,
    "{failure}: {error}",
    next_run=_SAME_BATCH,
    fix=_CORRECT_TRANSFORM,
)

ROW_DOES_NOT_FIT_TRANSFORM = Condition(
    "TRANSFORM_FAILED",
    UsageError,
    "a row does not fit the transform: {error}",
    next_run=_SAME_BATCH,
    fix="let the transform give null for such a value (try_cast, try_to_timestamp, try_divide) and a rule quarantine "
    "its row (docs/how-to/your-own-data.md), then `tidegate run {name}`",
)

YARN_CONF_MISSING = Condition(
    "YARN_CONF_MISSING",
    UsageError,
    "the master is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR says where YARN is",
    next_run="fails again until this is fixed; nothing was read",
    fix="set HADOOP_CONF_DIR to the folder of yarn-site.xml, where runs are started",
)

EXECUTORS_FAILED = Condition(
    "EXECUTORS_FAILED",
    UsageError,
    "{url} ended this run, because its executors ended as soon as they were started ({reason})",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="usually a worker lacks Java 17 or has another Spark version, or its executors cannot reach the driver: set "
    "SPARK_LOCAL_HOSTNAME (or spark.driver.host) to a name of this machine that workers can resolve",
)

MASTER_AWAY = Condition(
    "MASTER_AWAY",
    TryAgainError,
    "the Spark master does not answer: {failures}",
    next_run="reads the same records; nothing was read",
    fix="bring the master back, or correct its address, then `tidegate run {name}`",
)

DRIVER_OUT_OF_MEMORY = Condition(
    "OUT_OF_MEMORY",
    UsageError,
    "the Spark driver ran out of its {memory} of memory; it was reading {in_hand}",
    next_run="reads the same batch again, and fails again with the same memory; nothing is lost",
    fix="`spark: {{conf: {{spark.driver.memory: {more}}}}}` in jobs/{name}/pipeline.yaml, or smaller batches "
    "(options: maxFilesPerTrigger, maxOffsetsPerTrigger; a batch that was begun keeps its size); then `tidegate run "
    "{name}`",
)

STORAGE_NOT_SHARED = Condition(
    "STORAGE_NOT_SHARED",
    UsageError,
    "the executors do not share the project's storage with this machine: {fault}",
    next_run="asks the executors again; nothing was read or written",
    fix="mount the project's folder (data and sources) on each worker under the same path, for the same user; or "
    "take the worker out of the cluster",
)

NO_EXECUTORS = Condition(
    "NO_EXECUTORS",
    TryAgainError,
    "{master} gave no executor for {seconds:.0f} s (asked for: {cores} cores and {memory} each, {cores_in_all} cores "
    "in all)",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="look at the master's page: is a worker alive, and does it have that much free? Then run again; "
    "`{executor_wait}` under spark.conf sets how long a run waits",
)

# The gate

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

# Held increments that wait alone (on_critical: continue), and decisions taken in Airflow

INCREMENT_WAITS = Condition(
    "INCREMENT_WAITS",
    HeldError,
    "the gate holds this increment and defers it (on_critical: continue): {reasons}",
    next_run="continues with what comes after it; this increment waits for the decision",
    fix='tidegate release {pipeline} {run_id} --reason "..."   or   tidegate discard {pipeline} {run_id} --reason '
    '"..."   or, after a correction of its suite:   tidegate audit {pipeline} --run-id {run_id}, then tidegate publish '
    "{pipeline} --run-id {run_id}",
)

DECISION_FORM_REFUSED = Condition(
    "DECISION_FORM_REFUSED",
    UsageError,
    "the answer is refused: {fault}",
    next_run="is not affected; nothing was decided, and Airflow asks again",
    fix="answer the Required Action with one of its choices and a reason in one line",
)

WAITING_NOT_READ_AGAIN = Condition(
    "WAITING_NOT_READ_AGAIN",
    UsageError,
    "run {run_id} of {name} is deferred, and later runs have passed it: its query does not return to its records",
    next_run="is not affected; the increment waits as before",
    fix='tidegate release {name} {quoted} --reason "..."   or   tidegate discard {name} {quoted} --reason "..."   or, '
    "after a correction of its suite:   tidegate audit {name} --run-id {quoted}, then tidegate publish {name} --run-id "
    "{quoted}",
)

GX_DROPPED_RULES = Condition(
    "GX_DROPPED_RULES",
    DefectError,
    "Great Expectations kept {kept} of {rules} rules",
    next_run="checks the same increment again",
    fix="look for two rules that differ only in their name",
)

GX_LEFT_OUT_RESULTS = Condition(
    "GX_LEFT_OUT_RESULTS",
    DefectError,
    "Great Expectations gave {results} results for {rules} rules",
    next_run="checks the same increment again",
)

BAD_SUITE = Condition(
    "BAD_SUITE",
    UsageError,
    "Great Expectations refuses rule {rule!r} ({rule_type}): {error}",
    next_run="fails again until this is fixed",
    fix="correct the rule's kwargs",
)

RULE_NOT_EVALUATED = Condition(
    "RULE_NOT_EVALUATED",
    UsageError,
    "rule {rule!r} ({rule_type}) could not be evaluated: {info}",
    next_run="checks the same increment again and fails at the same rule",
    fix="correct the rule, then run again: the increment is kept",
)

GX_LEFT_OUT_COUNT = Condition(
    "GX_LEFT_OUT_RESULTS",
    DefectError,
    "Great Expectations gave no count of offending rows for rule {rule!r}",
)

RESULTS_DO_NOT_FIT = Condition(
    "RESULTS_DO_NOT_FIT",
    DefectError,
    "{results} results for the {rules} rules of the suite {suite!r}",
    next_run="checks the same increment again",
)

_READ_AGAIN = (
    "to have its records read again, send a corrected copy under a new name; or see with `tidegate repair {name} "
    "--rebuild --dry-run` what a new table from all that the sources still have would read"
)

DECIDED_ALREADY = Condition(
    "DECIDED_ALREADY",
    UsageError,
    "{who} already decided to {decision} it at {at}, and that counts",
    next_run="is not affected",
    fix=_READ_AGAIN,
)

REREAD_ALREADY = Condition(
    "DECIDED_ALREADY",
    UsageError,
    "{who} already decided to reread it at {at}, and that counts",
    next_run="reads its records again, unless one has done so since",
    fix="wait for that run: what it reads is audited again, and if it is held, you decide on that",
)

NOTHING_HELD = Condition(
    "NOT_HELD",
    UsageError,
    "no increment of {name} is held under the run id {run_id!r}",
    next_run="is not affected",
    fix="tidegate status {name} shows what is held",
)

HELD_SIDE_JOB = Condition(
    "NOT_HELD",
    UsageError,
    "a held {kind} is not an increment: it can be released or discarded, not read again",
    next_run="is not affected; nothing was changed",
    fix="correct data or suite and start it again with --run-id {run_id}; or `tidegate release {name} {run_id}` "
    "or `tidegate discard {name} {run_id}`, each with a --reason",
)

_RUN_OVER = (
    "run {run_id} of {name} is not held but {outcome}: {read} read, {published} published, {quarantined:,} in "
    "quarantine; there is nothing to decide"
)

NOT_HELD_ANY_MORE = Condition(
    "NOT_HELD",
    UsageError,
    _RUN_OVER,
    next_run="is not affected",
    fix=_READ_AGAIN,
)

NEVER_HELD = Condition(
    "NOT_HELD",
    UsageError,
    _RUN_OVER,
    next_run="is not affected",
    fix="tidegate status {name}",
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
    "the commit of {target} holds {committed} rows, the increment {expected}",
    next_run="compares table and manifests before anything else",
    fix="tidegate status {pipeline}",
)

RUN_UNBALANCED = Condition(
    "UNBALANCED",
    DefectError,
    "the counts of this run do not balance: {faults}",
    next_run="does not publish what does not balance",
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
    "{path} does not hold a usable {word} for the run that it is named after",
    next_run="fails again until this is fixed; nothing was read or written",
    fix="mv {quoted_path} {quoted_path}.aside, then run again: the increment is checked again",
)

# The table and the sinks

SINK_FAILED = Condition(
    "SINK_FAILED",
    TryAgainError,
    "the table is published, but not every sink received it: {failures}",
    next_run="delivers the pending versions first, even when nothing is new; a failed version is delivered again whole",
    fix="{fixes}; then: tidegate deliver {pipeline}",
)

REPLACED_FILES_GONE = Condition(
    "REPLACED_FILES_GONE",
    DisagreementError,
    "{number} files that were to be replaced are no longer in the table, for example {example}",
    next_run="fails again until this is fixed",
    fix="find out what else wrote to the table: only tidegate may; then `tidegate repair {name}`: what was begun is "
    "abandoned, and can be started again",
)

TABLE_FEATURE = Condition(
    "TABLE_FEATURE",
    DisagreementError,
    "another program turned on what tidegate cannot keep: {features}",
    next_run="fails again until this is undone, before anything is read or written",
    fix="with the program that did it, for example in Spark: {undo}",
)

TABLE_APPEND_ONLY = Condition(
    "TABLE_APPEND_ONLY",
    DisagreementError,
    "this takes rows out of the table, which another program has forbidden (delta.appendOnly)",
    next_run="fails again until this is undone; runs that only add rows are not affected",
    fix="with the program that did it, for example in Spark: ALTER TABLE {table} SET TBLPROPERTIES "
    "('delta.appendOnly' = 'false')",
)

PUBLISHED_FILES_GONE = Condition(
    "PUBLISHED_FILES_GONE",
    DisagreementError,
    "run {run_id} is published, and {number} of its files were removed from the folder by another program before the "
    "log named them, for example {example}: readers by the log fail, plain readers miss these rows",
    next_run="does not restore these rows by itself",
    fix="stop the program that removes files which are that new (VACUUM with RETAIN 0 HOURS); then restore the files "
    "from a backup, or see `tidegate repair {name} --dry-run` for what can be done without one",
)

COMMIT_FAILED = Condition(
    "COMMIT_FAILED",
    TryAgainError,
    "the version could not be committed: {why}",
    next_run="finishes this publish first",
    fix="run again; if it persists, look at the permissions and the disk of the table folder",
)

ROWS_OUT_OF_SIGHT = Condition(
    "ROWS_OUT_OF_SIGHT",
    TryAgainError,
    "a publish could be neither finished nor rolled back, because of: {error}. Until it is finished {missed}; Delta "
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
    "--rebuild`: a new table from all that the sources still have (`--dry-run` shows what that reads); the old one is "
    "kept as a backup",
)

TABLE_LOG_TORN = Condition(
    "TABLE_LOG_UNREADABLE",
    DisagreementError,
    "the log of the table cannot be read: {error}; its newest version is torn: {commit}",
    next_run=_LOG_UNREADABLE,
    fix="tidegate run {name}, which writes it again if a publish was interrupted there; otherwise move it away (mv "
    "{quoted_commit} {quoted_commit}.torn), then tidegate repair {name}: what it held is read again; or `tidegate "
    "repair {name} --rebuild`: a new table from all that the sources still have",
)

TABLE_LOG_CUT = Condition(
    "TABLE_LOG_CUT",
    DisagreementError,
    "the log of the table lacks {versions}, and with them {what}",
    next_run="is not affected; nothing was read or written",
    fix="restore the commit files from a copy of the log; or `tidegate repair {name} --rebuild`: a new table from all "
    "that the sources still have, the old one is kept as a backup",
)

VERSION_GONE = Condition(
    "VERSION_GONE",
    DisagreementError,
    "the table's log no longer contains version {version}",
    next_run="fails again until this is fixed",
    fix="restore the commit file",
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

TABLE_BEHIND_INTENT = Condition(
    "TABLE_BEHIND_INTENT",
    DisagreementError,
    "a publish of batches {first} to {last} was begun, but the table's log ends at batch {newest}: the table was "
    "deleted or restored from an older copy",
    next_run="fails again until this is fixed; nothing was moved",
    fix="tidegate repair {pipeline} --dry-run",
)

STAGED_FILES_LOST = Condition(
    "STAGED_FILES_LOST",
    DisagreementError,
    "a file of the increment is neither staged nor in the {target} folder, and the log there does not have batch "
    "{app_version}: {error}",
    next_run="fails again until this is fixed; nothing more was published",
    fix="restore the file, or `tidegate repair {pipeline}`: what the table lacks is read again from the source",
)

TABLE_SCHEMA_UNSUPPORTED = Condition(
    "SCHEMA_UNSUPPORTED",
    UsageError,
    "the table itself has columns that tidegate does not write, whatever the new rows have: {faults}",
    next_run="fails again until this is fixed; nothing was published",
    fix="move the table away and rewrite its rows with other types, or give the pipeline another name",
)

ROW_SCHEMA_UNSUPPORTED = Condition(
    "SCHEMA_UNSUPPORTED",
    UsageError,
    "the rows cannot be stored in a table: {faults}",
    next_run="fails again until this is fixed; nothing was published",
    fix="cast or rename these columns in the transform",
)

SCHEMA_CHANGE = Condition(
    "SCHEMA_CHANGE",
    UsageError,
    "the rows no longer fit the table: {faults}",
    next_run="fails again until this is fixed; table and checkpoint are unchanged",
    fix="change the transform as described; a table only accepts additional columns",
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
    "the keys of the table cannot be used: {faults}; the columns are {columns}",
    next_run="continues once the keys are corrected; what is staged stays, the table is untouched",
    fix="correct table.keys in pipeline.yaml, or cast the column in the transform",
)

UPDATE_KEYS_NOT_UNIQUE = Condition(
    "UPDATE_KEYS_NOT_UNIQUE",
    UsageError,
    "rows of batch {batch} have the same keys ({keys}), so it is undefined which one replaces the other, for "
    "example {example}",
    next_run="continues once this is corrected; what is staged stays, the table is untouched",
    fix="add the columns that distinguish the rows to table.keys, and run again; or aggregate by the keys in the "
    "transform and read everything again, since the staged rows stay as they are: `tidegate repair {name} --rebuild`",
)

TABLE_FILES_GONE = Condition(
    "TABLE_FILES_GONE",
    DisagreementError,
    "a data file that the table's log names is not there: {file_path}",
    next_run="fails again until this is fixed; nothing was moved",
    fix="restore the file; only tidegate may write to the table's folder",
)

# Rollback, and checkpoints that are started anew

NO_VERSION_YET = Condition(
    "NO_SUCH_VERSION",
    UsageError,
    "the table of {name} has no version {version}: it has none yet",
    next_run="is not affected",
    fix="tidegate run {name} makes version 0",
)

NO_SUCH_VERSION = Condition(
    "NO_SUCH_VERSION",
    UsageError,
    "the table has no version {version}: the oldest is 0, the newest {newest}",
    next_run="is not affected; nothing was changed",
    fix="give --to-version one of these; the reports (tidegate status) name the version of each run",
)

VERSION_TAKEN_BACK = Condition(
    "VERSION_TAKEN_BACK",
    UsageError,
    "version {version} was undone by version {by}, a rollback whose records are read again: restoring it would "
    "duplicate them",
    next_run="is not affected; nothing was changed",
    fix="give --to-version a version that no such rollback has undone",
)

VERSION_VACUUMED = Condition(
    "VERSION_VACUUMED",
    SourceLostError,
    "version {version} is no longer available: {files} of it were removed, for example {example}; the nearest version "
    "that is available is {nearest}",
    next_run="is not affected; nothing was changed",
    fix="--to-version {nearest}; maintenance.keep_versions says how long replaced files are kept",
)

VERSION_OF_OLD_LOG = Condition(
    "VERSION_VACUUMED",
    SourceLostError,
    "version {version} is no longer available: the table's log does not go back to it; the nearest version that is "
    "available is {nearest}",
    next_run="is not affected; nothing was changed",
    fix="--to-version {nearest}",
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
    "version {version} ({kind} {run_id}) moved records between the table and {other}: without its rows they would be "
    "in neither place, or in both",
    next_run="is not affected; nothing was changed",
    fix="--to-version {version} or a later one; or correct what is wrong: `tidegate refresh {name}` rebuilds table "
    "and quarantine",
)

ROLLBACK_REFRESHED = Condition(
    "ROLLBACK_REFRESHED",
    UsageError,
    "version {version} (refresh {run_id}) began a new query, whose state belongs to its rows and does not fit those "
    "of an earlier version",
    next_run="is not affected; nothing was changed",
    fix="--to-version {version} or a later one; or correct what is wrong: `tidegate refresh {name}` rebuilds table "
    "and state",
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

ROLLBACK_STATE = Condition(
    "ROLLBACK_STATE",
    UsageError,
    "{records} cannot be read again after a rollback: the query keeps state that has seen them, and would count them "
    "twice",
    next_run="is not affected; nothing was changed",
    fix="{others}`tidegate reset {name} --from-beginning --confirm {name}`: a new table from all that the sources "
    "still have",
)

ROLLBACK_COUNTED = Condition(
    "ROLLBACK_COUNTED",
    UsageError,
    "{records} cannot be excluded: the query keeps state that has counted them, and output_mode is {mode}, so they "
    "come back with the next row of the same key",
    next_run="is not affected; nothing was changed",
    fix="`tidegate reset {name} --from-beginning --confirm {name}`: a new table from all that the sources still have",
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

ROLLBACK_LOST = Condition(
    "ROLLBACK_LOST",
    SourceLostError,
    "not all of {records} can be read again: {lost}{more}",
    next_run="is not affected; nothing was changed",
    fix="--then leave-out; or give --to-version a later version, after what is gone",
)

ROLLBACK_NOT_IN_TABLE = Condition(
    "ROLLBACK_NOT_IN_TABLE",
    DisagreementError,
    "the table is a copy from before a rollback that read records again: it is no longer known which of these it "
    "holds, and which were in quarantine",
    next_run=_UNTIL_FIXED,
    fix="restore the newest copy of the table; or `tidegate repair {name} --rebuild`: a new table from all that the "
    "sources still have; the old one is kept as a backup",
)

RESET_UNCONFIRMED = Condition(
    "RESET_UNCONFIRMED",
    UsageError,
    "a new checkpoint for {name} has to be confirmed; it would: {plan}",
    next_run="is not affected; nothing was changed",
    fix="tidegate reset {name}{option} --confirm {name}; --dry-run shows the same as a list",
)

RESET_STATE = Condition(
    "RESET_STATE",
    UsageError,
    "the query keeps state ({kept}), and what it has read and not yet published is there alone: a new checkpoint that "
    "starts where this one stopped would lose it",
    next_run="is not affected; nothing was changed",
    fix="tidegate reset {name} --from-beginning --confirm {name}: a new table from all that the sources still have; "
    "the old one is kept as a backup",
)

# Maintenance

COMPACTION_LOST_ROWS = Condition(
    "COMPACTION_LOST_ROWS",
    DefectError,
    "small files with {before:,} rows were put together into files with {written:,}",
    next_run="is not affected: the table is as it was, and what was written is removed",
    fix="report this; until then, maintenance: {{compact_below: 0}} leaves files as they are",
)

NO_DATE_PARTITION = Condition(
    "NO_DATE_PARTITION",
    UsageError,
    "maintenance.expire.partitions needs a partition column of type DATE, and the table is partitioned by {columns}",
    next_run="is not affected; nothing was changed",
    fix="remove the key from pipeline.yaml, or have the transform make a DATE column and partition by it "
    "(tidegate repair {name} --rebuild then makes a new table)",
)

# The run

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
    fix='write why in place of the dots, for those who read the record later: --reason "..."',
)

# Backfills

BACKFILL_ARGUMENTS = Condition(
    "BACKFILL_ARGUMENTS",
    UsageError,
    "a backfill needs --from and --to, or --partition, but got {given}",
    next_run="is not affected; nothing was read or written",
    fix="--from 2026-01-01 --to 2026-01-31 (days, the last one included), or --partition COLUMN=VALUE",
)

BACKFILL_TIME = Condition(
    "BACKFILL_TIME",
    UsageError,
    "{text!r} is neither a day nor a time stamp",
    next_run="is not affected; nothing was read or written",
    fix="write a day as 2026-01-31, a time stamp as 2026-01-31T00:00:00+00:00",
)

BACKFILL_ZONE = Condition(
    "BACKFILL_ZONE",
    UsageError,
    "{zone!r} is not a time zone",
    next_run="is not affected; nothing was read or written",
    fix="write it as Europe/Oslo, or omit it for UTC",
)

BACKFILL_EMPTY_SPAN = Condition(
    "BACKFILL_EMPTY_SPAN",
    UsageError,
    "the range ends at {end}, which is not after its start, {start}",
    next_run="is not affected; nothing was read or written",
    fix="swap --from and --to; --to is included when it is a day, not when it is a time stamp",
)

BACKFILL_PARTS_OF_DAYS = Condition(
    "BACKFILL_PARTS_OF_DAYS",
    UsageError,
    "{start} to {end} has parts of days in {zone}, and the table's partitions are whole days",
    next_run="is not affected; nothing was read or written",
    fix="--from {first} --to {last} rebuilds the whole days",
)

BACKFILL_UNPARTITIONED = Condition(
    "BACKFILL_UNPARTITIONED",
    UsageError,
    "the table has no partitions, so no part of it can be rebuilt alone",
    next_run="is not affected; nothing was read or written",
    fix="`tidegate refresh {name}` rebuilds the whole table; to have partitions set `table: {{partition_by: [...]}}` "
    "and let `tidegate repair {name} --rebuild` rebuild it",
)

BACKFILL_NO_DAYS = Condition(
    "BACKFILL_NO_DAYS",
    UsageError,
    "the table is partitioned by {columns}, and none of these, or more than one, holds days",
    next_run="is not affected; nothing was read or written",
    fix="tidegate backfill {name} --partition {example}",
)

BACKFILL_PARTITION = Condition(
    "BACKFILL_PARTITION",
    UsageError,
    "{given!r} is not a partition of the table, which is partitioned by {columns}",
    next_run="is not affected; nothing was read or written",
    fix="--partition COLUMN=VALUE, once for each",
)

BACKFILL_NO_SUCH_PARTITION = Condition(
    "BACKFILL_NO_SUCH_PARTITION",
    UsageError,
    "the table has no partition {wanted}; its values of {column}: {known}",
    next_run="is not affected; nothing was read or written",
    fix="choose partitions that are there; what has not arrived yet is read by the next run",
)

BACKFILL_NO_TABLE = Condition(
    "BACKFILL_NO_TABLE",
    UsageError,
    "there is no table yet, so there is nothing to rebuild",
    next_run="reads what there is",
    fix="`tidegate run {name}`",
)

BACKFILL_NOT_APPEND = Condition(
    "BACKFILL_NOT_APPEND",
    UsageError,
    "a table cannot be rebuilt concurrently with its runs: {why}",
    next_run="is not affected; nothing was read or written",
    fix="`tidegate {way}` rebuilds the whole table (`--dry-run` shows what that reads)",
)

BACKFILL_STATE = Condition(
    "BACKFILL_STATE",
    UsageError,
    "the query keeps state, and {label} cannot be rebuilt exactly: {why}",
    next_run="is not affected; the table stays as it is",
    fix="`tidegate refresh {name}` rebuilds the whole table; of the partitions asked for, these can "
    "be rebuilt: {possible}",
)

BACKFILL_STATE_CHANGED = Condition(
    "BACKFILL_STATE_CHANGED",
    UsageError,
    "the part of the query that keeps state was changed, and a run could not continue from the rebuilt part: {change}",
    next_run="is refused as well until this is resolved; the table stays as it is",
    fix="revert the change; or `tidegate refresh {name}` rebuilds the whole table with the new definition",
)

BACKFILL_LATE = Condition(
    "BACKFILL_LATE",
    UsageError,
    "records of {label} are late in any run: their event times are before 1970",
    next_run="is not affected; the table stays as it is",
    fix="exclude such records in the transform or the schema; or `tidegate refresh {name}` puts them into quarantine",
)

REFRESH_PENDING = Condition(
    "REFRESH_PENDING",
    UsageError,
    "the query keeps state, and a new one cannot take its place now: {why}",
    next_run="continues with it; nothing was read or written",
    fix="`tidegate run {name}` finishes what was begun, or names the open decision; then refresh again",
)

REFRESH_KEEPS_STATE = Condition(
    "REFRESH_KEEPS_STATE",
    UsageError,
    "the query keeps state, which is made of all records: --keep-older cannot exclude the older ones",
    next_run="is not affected; the table stays as it is",
    fix="restore what the sources have lost, then `tidegate refresh {name}`; or `tidegate repair {name} --rebuild`: a "
    "new table from all that the sources still have; the old one is kept as a backup",
)

REFRESH_NOT_IN_TABLE = Condition(
    "REFRESH_NOT_IN_TABLE",
    DisagreementError,
    "the table is a copy from before a refresh that began a new query: it is no longer known which files its rows "
    "came from",
    next_run=_UNTIL_FIXED,
    fix="restore the newest copy of the table; or `tidegate repair {name} --rebuild`: a new table from all that the "
    "sources still have; the old one is kept as a backup",
)

BACKFILL_NOT_KEPT = Condition(
    "BACKFILL_NOT_KEPT",
    SourceLostError,
    "sources that cannot be read again: {sources}",
    next_run="is not affected; nothing was read or written",
    fix="keep such a source's records in files or a topic, and read those",
)

BACKFILL_FOREIGN_ROWS = Condition(
    "BACKFILL_FOREIGN_ROWS",
    UsageError,
    "{label} has rows that no run of the pipeline has read (the table was adopted, or another program wrote to it): "
    "they would be lost",
    next_run="is not affected; nothing was read or written",
    fix="rebuild only what holds no other rows than those of runs: {possible}",
)

BACKFILL_ROWS_DELETED = Condition(
    "BACKFILL_ROWS_DELETED",
    UsageError,
    "another program has deleted rows of {label}: they would come back",
    next_run="is not affected; nothing was read or written",
    fix="rebuild only what no other program wrote to: {possible}; or let the transform exclude what must not come "
    "back, then `tidegate repair {name} --rebuild`: a new table from all that the sources still have",
)

BACKFILL_LOG_CUT = Condition(
    "BACKFILL_LOG_CUT",
    DisagreementError,
    "commits of a log are gone (version {versions}), and with them the origin of its rows",
    next_run="is not affected; nothing was read or written",
    fix="restore the files from a copy of its _delta_log; or `tidegate reset {name} --from-beginning`: a new table "
    "from all that the sources still have",
)

BACKFILL_GONE = Condition(
    "BACKFILL_GONE",
    SourceLostError,
    "not all that {label} was built from is still there: {lost}",
    next_run="is not affected; the table stays as it is",
    fix="restore it; what can be rebuilt without it: {possible}",
)

BACKFILL_UNPLACED = Condition(
    "BACKFILL_UNPLACED",
    UsageError,
    "quarantine has {count} of {label} whose record is unknown, because the transform does not keep it: read again "
    "they would be in two places",
    next_run="is not affected; nothing was read or written",
    fix="`tidegate refresh {name}` rebuilds table and quarantine together",
)

BACKFILL_OTHER_TEXTS = Condition(
    "BACKFILL_OTHER_TEXTS",
    DisagreementError,
    "of {expected} in quarantine that {label} reads again, {found} were found: the schema was changed since, or equal "
    "records of one file were treated differently, so it is unknown which of them are in quarantine",
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
    fix="rebuild these partitions together, a range that holds all of them; or `tidegate refresh {name}`",
)

BACKFILL_SEVERAL_ROWS = Condition(
    "BACKFILL_SEVERAL_ROWS",
    UsageError,
    "the transform may make several rows of a record, and a rule has rejected {count} of what {label} reads: it is "
    "unknown which other rows of these records are in the table",
    next_run="is not affected; the table stays as it is",
    fix="`tidegate refresh {name}` rebuilds the whole table and its quarantine",
)

BACKFILL_TABLE_CHANGED = Condition(
    "BACKFILL_TABLE_CHANGED",
    TryAgainError,
    "another program changed the files of the table while {label} was built",
    next_run="is not affected; the table stays as it is",
    fix="run the backfill again; only tidegate may write to the table while it runs",
)

BACKFILL_MALFORMED = Condition(
    "BACKFILL_MALFORMED",
    UsageError,
    "{count} that were valid when first read are malformed now ({example}), and files with rows of other partitions "
    "hold them: it is unknown which partition they belong to",
    next_run="is not affected; the table stays as it is",
    fix="correct the schema; or `tidegate refresh {name}` rebuilds the whole table",
)

BACKFILL_OUTDATED = Condition(
    "BACKFILL_OUTDATED",
    UsageError,
    "runs have changed {label} since this was built ({changed}): swapping it in would remove their rows from the table",
    next_run="is not affected; the table stays as it is",
    fix='`tidegate discard {name} {run_id} --reason "..."`, then rebuild it under another run id, which includes what '
    "came since",
)

BACKFILL_EDITED = Condition(
    "BACKFILL_EDITED",
    UsageError,
    "run id {run_id} has rebuilt {done}; edited since then: {changed}",
    next_run="is not affected; what was rebuilt stays, and nothing else has changed",
    fix="revert the edit, and the same command continues; or rebuild all of it as it is now, under another run id "
    "(--run-id)",
)

BACKFILL_UNDONE = Condition(
    "BACKFILL_UNDONE",
    UsageError,
    "what run id {run_id} has rebuilt ({done}) is not in the table any more: it was rolled back or rebuilt",
    next_run="is not affected; nothing was read or written",
    fix="rebuild all of it under another run id (--run-id)",
)

BACKFILL_HELD = Condition(
    "BACKFILL_HELD",
    HeldError,
    "{label} did not pass the gate: {reasons}",
    next_run="is not affected: live runs continue, and it stays as it is",
    fix='correct data or suite and rebuild it again; or `tidegate release {name} {run_id} --reason "..."` swaps it in '
    'as it was built, `tidegate discard {name} {run_id} --reason "..."` drops it',
)

# Adopting a table and a checkpoint that exist

_ADOPT_NOTHING = "is not changed by this; nothing was adopted, and nothing was changed"

ADOPT_TABLE_NOT_NAMED = Condition(
    "ADOPT_TABLE_NOT_NAMED",
    UsageError,
    "the table of pipeline {name} is {own}, and --table is {given}: a table is adopted in place, and the spec names "
    "the place",
    next_run=_ADOPT_NOTHING,
    fix="write into {spec}: `table: {{path: {line}}}` (next to the keys that table has), or give --table {quoted_own}",
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
    "pipeline {name} is in use already: {what}; a table and a checkpoint are only taken over by a new one",
    next_run=_ADOPT_NOTHING,
    fix="give the pipeline that takes over another name, or move the folder {state} and its table away first",
)

ADOPT_FILES_DO_NOT_FIT = Condition(
    "ADOPT_FILES_DO_NOT_FIT",
    DisagreementError,
    "the files are not one table that the spec fits: {faults}",
    next_run=_ADOPT_NOTHING,
    fix="correct the spec, or rewrite or move away the files named; then adopt again",
)

ADOPT_SINK_LOG = Condition(
    "ADOPT_SINK_LOG",
    DisagreementError,
    "the list of committed files that Spark's file sink keeps in the table cannot be used: {why}",
    next_run=_ADOPT_NOTHING,
    fix="restore the folder {folder}, or move the table back to where it was written; where every parquet file in the "
    "table counts, and only then, rename {folder} to ._spark_metadata.before and adopt without it",
)

ADOPT_LOG_NOT_TAKEN_OVER = Condition(
    "ADOPT_LOG_NOT_TAKEN_OVER",
    DisagreementError,
    "the table has a Delta log that tidegate cannot continue: {why}",
    next_run=_ADOPT_NOTHING,
    fix="drop the feature with the program that made the table; or begin a new log: vacuum {table} with that program "
    "down to 0 hours, so that only files that count are left, rename _delta_log to ._delta_log.before, and adopt the "
    "table as plain parquet (not with deletion vectors or column mapping: rewrite its rows first)",
)

ADOPT_CHECKPOINT = Condition(
    "ADOPT_CHECKPOINT",
    DisagreementError,
    "the checkpoint cannot be taken over: {why}",
    next_run=_ADOPT_NOTHING,
    fix="give the folder that the old job has as checkpointLocation; where it is lost, adopt without --checkpoint and "
    "say in the spec where each source starts",
)

ADOPT_STATE = Condition(
    "ADOPT_STATE",
    DisagreementError,
    "the query of this checkpoint keeps state (windows, deduplication, joins), which only Spark's own plan of that "
    "query can read: tidegate cannot continue it",
    next_run=_ADOPT_NOTHING,
    fix="let the old job read all that it still has to, so that its windows are closed and in the table; then adopt "
    "without --checkpoint, with `start: now` or a time stamp (topics: starting_offsets) in the spec",
)

ADOPT_BATCH_UNKNOWN = Condition(
    "ADOPT_BATCH_UNKNOWN",
    DisagreementError,
    "the old job was stopped within batch {planned} (the last one that it finished is {committed}), and the table does "
    "not say whether the rows of that batch are in it: only Spark's file sink and Delta's note their batches there",
    next_run=_ADOPT_NOTHING,
    fix="start the old job once more and stop it when it has finished its batch (`trigger(availableNow=True)` does); "
    "then adopt again",
)

ADOPT_OTHER_CHECKPOINT = Condition(
    "ADOPT_OTHER_CHECKPOINT",
    DisagreementError,
    "the table holds batches up to {in_table}, and the checkpoint finished {committed} and planned {planned}: they are "
    "not of one job, or one of them is an older copy",
    next_run=_ADOPT_NOTHING,
    fix="give the checkpoint of the job that wrote the table as it is now, or restore both from the same time",
)

ADOPT_SOURCES = Condition(
    "ADOPT_SOURCES",
    DisagreementError,
    "the sources of the old job cannot be matched with those of the spec. The checkpoint has: {old}. The spec has: "
    "{new}",
    next_run=_ADOPT_NOTHING,
    fix="give each source of the spec the path or the topics of the one it takes over, and no further source; more are "
    "added after the first run",
)

ADOPT_NO_START = Condition(
    "ADOPT_NO_START",
    UsageError,
    "without --checkpoint it is not known which records are in the table already, and the spec does not say where "
    "they start: the first run would read everything, and rows would be duplicated",
    next_run=_ADOPT_NOTHING,
    fix="give --checkpoint, or write {keys}: `start: now` or a time stamp, `starting_offsets: latest` or offsets; "
    "`start: all` or `starting_offsets: earliest` explicitly, when nothing of what lies there is in the table",
)

ADOPT_COMPLETE = Condition(
    "ADOPT_COMPLETE",
    UsageError,
    "with output_mode: complete each run replaces the whole table, so that nothing of an adopted one would stay",
    next_run=_ADOPT_NOTHING,
    fix="use append or update, or begin without the old table: tidegate run {name}",
)

ADOPTION_UNFINISHED = Condition(
    "ADOPTION_UNFINISHED",
    DisagreementError,
    "the adoption of a table that was begun at {begun_at} is not finished",
    next_run="fails again until it is; nothing was read",
    fix="{command}, which finishes it",
)

ADOPT_NOTHING_TO_RETIRE = Condition(
    "ADOPT_NOTHING_TO_RETIRE",
    UsageError,
    "--retire-old keeps Spark from starting the query of a checkpoint, and no --checkpoint was given",
    next_run=_ADOPT_NOTHING,
    fix="give --checkpoint, the folder that the old job has as checkpointLocation; or omit --retire-old, and make "
    "sure that nothing starts the old job again",
)

ADOPT_CHECKPOINT_OF_ANOTHER = Condition(
    "ADOPT_CHECKPOINT_OF_ANOTHER",
    UsageError,
    "the checkpoint is that of query {query}, and the table was adopted with {adopted}",
    next_run="is not changed by this; the checkpoint is as it was",
    fix="give the checkpoint that the table was adopted with",
)

OLD_JOB_WROTE = Condition(
    "OLD_JOB_WROTE",
    DisagreementError,
    "another job has written to the table, most likely the one that this pipeline has replaced: {found}",
    next_run="fails again until this is fixed; nothing was read",
    fix="pause whatever starts that job (its DAG, its cron entry), then `tidegate repair {name}`: it takes these "
    "files and rows out of the table and keeps them as a backup, and the pipeline reads their source records itself; "
    "`--dry-run` shows it first. `tidegate adopt {name} ... --retire-old` keeps Spark from starting the old query. If "
    "a Delta writer that you want is running, wait until it has committed, and run again",
)

# Quarantined records: chosen, exported, put through again

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
    "no record in quarantine has the {kind} {given}, and the suite knows none of that name{hint}",
    next_run="is not affected; nothing was changed",
    fix="choose one of: {known}",
)

QUARANTINE_OF_NO_RUN = Condition(
    "QUARANTINE_UNKNOWN",
    UsageError,
    "no record in quarantine is of a run {given}, and there is no report of one{hint}",
    next_run="is not affected; nothing was changed",
    fix="`tidegate quarantine list {name}` names the runs that quarantined records, `tidegate status {name}` the "
    "newest",
)

EXPORT_EXISTS = Condition(
    "EXPORT_EXISTS",
    UsageError,
    "{path} already exists, and an export overwrites nothing",
    next_run="is not affected",
    fix="name another file, or remove this one",
)

EXPORT_PLACE = Condition(
    "EXPORT_PLACE",
    UsageError,
    "{path} cannot be written: {why}",
    next_run="is not affected; nothing was exported",
    fix="name a file in a folder that is there and takes files of yours, or omit --to and redirect stdout",
)

REPLAY_FILE = Condition(
    "REPLAY_FILE",
    UsageError,
    "the file of edited records cannot be used: {fault}",
    next_run="is not affected; nothing was changed",
    fix="one JSON object a line, with `id` as `tidegate quarantine export` and `show --json` print it, and `raw`, the "
    "record as it should have come; other keys are ignored",
)

REPLAY_NOT_THERE = Condition(
    "REPLAY_NOT_THERE",
    UsageError,
    "{count} of the file are not in quarantine: {ids}",
    next_run="is not affected; nothing was changed",
    fix="take these lines out: an id is gone once its record was replayed; `tidegate quarantine export {name}` has "
    "what is there now",
)

REPLAY_ARGUMENTS = Condition(
    "REPLAY_ARGUMENTS",
    UsageError,
    "--file names the records itself, so {given} cannot be given with it",
    next_run="is not affected; nothing was changed",
    fix="give one of them",
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
    fix="`tidegate quarantine export {name} --to FILE` writes them; where a text helps, correct it there and "
    "`tidegate quarantine replay {name} --file FILE`, else send them to the source again, as new ones",
)

REPLAY_SEVERAL_ROWS = Condition(
    "REPLAY_SEVERAL_ROWS",
    UsageError,
    "the transform makes {transformed} of {entered}, and among these are some of which a rule rejected one row: their "
    "other rows are in the table, and would be duplicated",
    next_run="is not affected; they stay in quarantine",
    fix="`tidegate quarantine replay {name} --reason malformed` replays those that gave no row",
)

REPLAY_EXPLODES = Condition(
    "REPLAY_SEVERAL_ROWS",
    UsageError,
    "the transform makes several rows of one record (explode, a sliding window), and of some of these a rule rejected "
    "one row: their other rows may be in the table, and would be duplicated",
    next_run="is not affected; they stay in quarantine",
    fix="`tidegate quarantine replay {name} --reason malformed` replays those that gave no row",
)

REPLAY_OTHER_RECORDS = Condition(
    "REPLAY_OTHER_RECORDS",
    DefectError,
    "of {offered} that were to be replayed, {read} were read",
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
    "{label} would read records again that were replayed with a text that the source does not have: {replays}",
    next_run="is not affected; nothing was read or written",
    fix="rebuild only what no replay has touched: {possible}",
)

# Data Docs

NOT_JUDGED = Condition(
    "NOT_JUDGED",
    UsageError,
    "the run has no results of rules to show; it is {outcome}",
    next_run="is not affected; nothing was written",
    fix="name a run that the gate has judged: `tidegate status` lists runs",
)

DATA_DOCS_FOLDER = Condition(
    "DATA_DOCS_FOLDER",
    UsageError,
    "the folder holds other things than Data Docs",
    next_run="is not affected; nothing was written",
    fix="name an empty folder, or one that holds Data Docs already: --to DIR",
)

DATA_DOCS_NOT_MADE = Condition(
    "DATA_DOCS_NOT_MADE",
    DefectError,
    "Great Expectations made no page of the run: {error}",
    next_run="is not affected",
    fix="please report this, with the suite and the run's report",
)

# Faults of files

FILE_FAULTS = {
    "BAD_SPEC": "`pipeline.yaml` cannot be used; every fault is listed with its line, the value and what to write",
    "BAD_PROJECT": "`tidegate.yaml` cannot be used; every fault is listed with its line, the value and what to write",
    "BAD_SUITE": "`expectations/<pipeline>.yaml` cannot be used: a type that Great Expectations does not know, a wrong "
    "argument, an empty suite; every fault is listed with its line",
    "BAD_TRANSFORM": "`transform.py` or `transform.sql` does not fit the spec; every fault is listed with its line",
    "BAD_SINK": "a file that a sink names does not fit (it is missing, is not Python, or lacks the function or class), "
    "or the rows lack a column that a sink takes, or have it in another type; "
    "every fault is listed with its line",
    "LITERAL_SECRET": "`validate` alone: a secret is written out in `tidegate.yaml`, or is in a `pipeline.yaml`, "
    "where the environment is not filled in; write it in `tidegate.yaml` as `${VAR}`",
    "STORAGE_NOT_SUPPORTED": "a path is a URI; only folders of the local file system are supported",
}
"""Codes of faults of files: they are raised together as one SpecError (exit code 64), with the lines as message."""
