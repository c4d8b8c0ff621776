"""The conditions of the Spark driver."""

from __future__ import annotations

from tidegate.core.errors import (
    Condition,
    DefectError,
    DisagreementError,
    SourceLostError,
    TryAgainError,
    UsageError,
)

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
    "{jar} has no sha256 in {project_file}; tidegate gives Spark only jars whose checksum it has compared",
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
    next_run="is not affected; no jar was fetched",
    fix="name a mirror of Maven Central by its https address, or unset the variable",
)

PACKAGES_NOT_FETCHED = Condition(
    "PACKAGES_NOT_FETCHED",
    TryAgainError,
    "{jar} could not be fetched: {error}",
    next_run="fails until the jar is there",
    fix="run `tidegate jars` again; set a proxy in JAVA_TOOL_OPTIONS, a mirror in MAVEN_ROOT",
)

PACKAGE_NOT_FOUND = Condition(
    "PACKAGE_NOT_FOUND",
    UsageError,
    "the registry has no {jar}",
    next_run="fails until the jar is there",
    fix="correct the coordinates; or put {package} into .tools/packages yourself",
)

SPARK_SUBMIT_MISSING = Condition(
    "SPARK_SUBMIT_MISSING",
    UsageError,
    "spark-submit is neither next to {executable} nor on PATH",
    next_run="fails again until this is fixed; nothing was read",
    fix='pip install "tidegate[spark]", in the environment that runs tidegate',
)

JAVA_MISSING = Condition(
    "JAVA_MISSING",
    UsageError,
    "{task} Java 17, and {why}",
    next_run="fails again until this is fixed; nothing was read",
    fix="install a Java 17 runtime, and set JAVA_HOME to it or unset JAVA_HOME: the `java` on PATH is then used",
)

APPLICATION_OUTDATED = Condition(
    "APPLICATION_OUTDATED",
    DisagreementError,
    "{path} belongs to another version of tidegate: it imports {missing}, which this version does not have",
    next_run="fails again until this is fixed; nothing was read",
    fix="remove {path}: tidegate then uses the application of its package; or write `from tidegate.spark.application "
    "import main` into it; then run the same command again",
)

DRIVER_DIED = Condition(
    "DRIVER_DIED",
    TryAgainError,
    "the Spark driver {how} without a result{tail}",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="{fix}; then `tidegate run {name}`",
)

NO_SUCH_NAME = Condition(
    "NO_SUCH_NAME",
    UsageError,
    "{place} has {unknown}; the {kind} are: {known}",
    next_run="is not affected; nothing was changed",
    fix="use one of these names, or correct pipeline.yaml",
)

UNSUPPORTED_OPERATION = Condition(
    "UNSUPPORTED_OPERATION",
    UsageError,
    "{operation} cannot work in a streaming query with output_mode: {mode}: {why}",
    next_run="fails again until this is fixed; nothing was started or read",
    fix="{fix}",
)

TRANSFORM_FAILED = Condition(
    "TRANSFORM_FAILED",
    UsageError,
    "{fault}",
    next_run="fails again until this is fixed; nothing was read",
    fix="{fix}, then `tidegate validate {pipeline} --spark`",
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
    "batch {batch_id} {difference}: the checkpoint does not belong to the intake of this pipeline (was the "
    "project moved?)",
    next_run="fails again until this is fixed; nothing was read",
    fix="`tidegate repair {pipeline} --dry-run` shows the choices",
)

BATCH_NOT_REPEATABLE = Condition(
    "BATCH_NOT_REPEATABLE",
    DisagreementError,
    "batch {batch_id} had {then} rows when it was staged, and has {now} now: the transform does not give the same rows "
    "for the same input (rand(), now(), a changed static source, or an edited transform)",
    next_run="fails again until this is fixed",
    fix="remove from the transform whatever gives different rows each time; then run again",
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

SCHEMA_DRIFT = Condition(
    "SCHEMA_DRIFT",
    UsageError,
    "{files} of source {source} {do} not fit the columns that were inferred and are kept: {differences}",
    next_run="quarantines these files, whole, and reads the others",
    fix="send them with the columns that `tidegate plan {pipeline}` shows",
)

NO_STATE = Condition(
    "NO_STATE",
    UsageError,
    "{name} has no state: {reason}",
    next_run="is not affected; nothing was changed",
    fix="tidegate status {name}",
)

INGEST_FAILED = Condition(
    "INGEST_FAILED",
    DefectError,
    "the Spark driver failed: {error}",
    next_run="reads the same batch again; nothing is lost",
    fix="the Spark log contains the full stack trace; correct the cause, or report it, then run again",
)

READER_FAILED = Condition(
    "READER_FAILED",
    DefectError,
    "tidegate's reader failed on {input}: {error}",
    next_run="reads the same batch again; nothing is lost",
    fix="report it with {fix}",
)

KAFKA_DAMAGED = Condition(
    "KAFKA_DAMAGED",
    TryAgainError,
    "the broker returned records that differ from those written to it: {error}",
    next_run="reads the same batch again; nothing of it was staged",
    fix="check the disk and the replicas of the broker; if the records are lost permanently, remove them with "
    "kafka-delete-records.sh, and the next run names the loss",
)

OUT_OF_MEMORY = Condition(
    "OUT_OF_MEMORY",
    UsageError,
    "Spark ran out of memory: {fault}",
    next_run="reads the same batch again, and fails again with the same memory; nothing is lost",
    fix="{fix}; then `tidegate run {name}`",
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
    "the state of {name} cannot be read: {error}",
    next_run="fails again until this is fixed; nothing was published, and nothing is lost as long as the sources "
    "have it",
    fix="restore state, table and quarantine of {name} from the same time; or `tidegate repair {name} --rebuild` "
    "(`tidegate repair {name} --rebuild --dry-run` shows what that reads)",
)

KAFKA_RECORDS_LOST = Condition(
    "KAFKA_RECORDS_LOST",
    SourceLostError,
    "the broker no longer has the records that this run planned to read: {error}",
    next_run="compares the offsets that were not read yet with those that the broker still has, and names the exact "
    "lost ranges",
    fix="`tidegate plan {name}` shows the lost records, and the command that continues without them",
)

BROKER_STOPPED = Condition(
    "BROKER_AWAY",
    TryAgainError,
    "the Kafka broker stopped answering: {error}",
    next_run="compares offsets and topics with the broker's, then continues from the last staged batch",
    fix="start the broker again, then `tidegate run {name}`{address_hint}",
)

FILE_VANISHED = Condition(
    "FILE_VANISHED",
    TryAgainError,
    "a file vanished before it was read: {error}",
    next_run="names the files that no longer exist",
    fix="run again",
)

PARTITION_VALUE = Condition(
    "PARTITION_VALUE",
    UsageError,
    "a value of the partition column {column} cannot be a folder name: the folder name would have {size} bytes, and "
    "begins with {beginning!r}",
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
    "the executors run Python {there}, this driver runs {here}: executors read records with Python, whose minor "
    "version must be that of the driver",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="`spark.pyspark.python` under spark.conf names the executors' Python (docs/how-to/from-machine-to-cluster.md)",
)

PYTHON_MISSING = Condition(
    "PYTHON_MISSING",
    UsageError,
    "an executor has no {first_missing}, but executors read records with Python",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="install it on each worker, with tidegate and its packages, or let `spark.pyspark.python` under spark.conf "
    "name theirs (docs/how-to/from-machine-to-cluster.md)",
)

MODULE_MISSING = Condition(
    "MODULE_MISSING",
    UsageError,
    "an executor lacks a Python module: {first_lost_module}. Executors need tidegate with its dependencies, because it "
    "reads the records on the executors, and the modules that the transform imports",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="install this version of tidegate, and the modules that the transform imports, on each worker (pip install); "
    "or send a packed environment with `spark.archives` and `spark.pyspark.python` under spark.conf "
    "(docs/how-to/from-machine-to-cluster.md)",
)

VERSION_DIFFERS = Condition(
    "VERSION_DIFFERS",
    UsageError,
    "the executors have tidegate {there}, this driver has {here}: executors read records with tidegate, whose version "
    "must be that of the driver",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="`pip install tidegate=={here}` on each worker; or send a packed environment that has it with `spark.archives` "
    "and `spark.pyspark.python` under spark.conf (docs/how-to/from-machine-to-cluster.md)",
)

APPLICATION_ENDED = Condition(
    "APPLICATION_ENDED",
    TryAgainError,
    "{master} ended this run{reason}",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="check the web page of the master, then `tidegate run {name}`",
)

EXECUTOR_LOST = Condition(
    "EXECUTOR_LOST",
    TryAgainError,
    "executors were lost {how}",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="find the cause in the logs of the workers (if they ran out of memory, raise spark.executor.memory), then run "
    "again",
)

PYTHON_WORKER_LOST = Condition(
    "PYTHON_WORKER_LOST",
    TryAgainError,
    "a Python process that reads records for Spark was killed, most often because the machine ran out of memory",
    next_run="reads the same batch again; nothing is lost or duplicated",
    fix="look for `Out of memory` in the kernel's log (dmesg), give the machine more memory or run fewer pipelines at "
    "once, then `tidegate run {name}`",
)

TRANSFORM_FAILED_ON_ROW = Condition(
    "TRANSFORM_FAILED",
    UsageError,
    "{failure}: {error}",
    next_run="reads the same batch again and fails until this is fixed; nothing is lost",
    fix="correct the transform, or let it give null for such a value (try_cast, try_to_timestamp, try_divide) and a "
    "rule quarantine its row (docs/how-to/your-own-data.md), then `tidegate run {name}`",
)

YARN_CONF_MISSING = Condition(
    "YARN_CONF_MISSING",
    UsageError,
    "the master is yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set, so the address of YARN is not known",
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
    fix="start the master again, or correct its address, then `tidegate run {name}`",
)

STORAGE_NOT_SHARED = Condition(
    "STORAGE_NOT_SHARED",
    UsageError,
    "the executors do not share the project's storage with this machine: {fault}",
    next_run="asks the executors again; nothing was read or written",
    fix="{fix}",
)

NO_EXECUTORS = Condition(
    "NO_EXECUTORS",
    TryAgainError,
    "{master} gave no executor for {seconds:.0f} s (asked for: {cores} cores and {memory} each, {cores_in_all} cores "
    "in all)",
    next_run="continues from the last staged batch; nothing is lost or duplicated",
    fix="check on the web page of the master that a worker is alive and has enough free cores and memory, then run "
    "again; `{executor_wait}` under spark.conf sets how long a run waits",
)

BACKFILL_STATE = Condition(
    "BACKFILL_STATE",
    UsageError,
    "the query keeps state, and {label} cannot be rebuilt exactly: {why}",
    next_run="is not affected; the table stays as it is",
    fix="`tidegate refresh {name}` rebuilds the whole table; of the requested partitions, these can be rebuilt: "
    "{possible}",
)

REPLAY_SEVERAL_ROWS = Condition(
    "REPLAY_SEVERAL_ROWS",
    UsageError,
    "the transform makes {rows}, and for some of these records a rule rejected one of several rows: their other rows "
    "may be in the table, and would be duplicated",
    next_run="is not affected; they stay in quarantine",
    fix="`tidegate quarantine replay {name} --reason malformed` replays only records from which no row was made",
)
