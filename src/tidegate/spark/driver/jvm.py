"""The settings of the driver's JVM and of Spark for one run, from the pending input. Pure, and without pyspark.

Figures are CPU-seconds of the process tree, measured on 2 busy cores with pyspark 4.2.0 and Java 17, for 1,000 rows of
JSON: a plain job 17, the same with what is set here 5.7. A Spark session that does nothing costs 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from tidegate.spec.project import Project
from tidegate.spec.reader_options import show_option

MIB = 1 << 20

C1_AT_MOST_BYTES = 96 * MIB
"""Up to so much input the C1 compiler alone is cheaper; above it C2's faster code earns back what compiling it costs.

Measured for JSON with eight row rules, C1 against C2: 22 MB 8.2 / 13.8, 67 MB 13.1 / 17.8, 223 MB 30.0 / 22.9.
"""

_C2_WHEN_HOT = [
    # C2 compiles a method when it was called so often: 5,000 and 15,000 are the defaults, and loops 40,000.
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=20000",
    "-XX:Tier4CompileThreshold=300000",
    "-XX:Tier4BackEdgeThreshold=400000",
    # Methods whose compiled code is larger are called, not copied into their callers; 2,500 is the default.
    "-XX:InlineSmallCode=1000",
]
"""C2 for what is really hot: of the 38 CPU-seconds of a million rows of JSON its compiler threads took 13, for code
that ran for seconds. With these the same run takes 32 to 34, and the wall time goes down as well (23 s to 21 s)."""

PINNED = {
    # 200, Spark's default, is for state of many GB: it took a run with 20,000 keys of state to 44 CPU-seconds.
    "spark.sql.shuffle.partitions": "4",
    # The checkpoint knows a source by its name and not by its place in the plan, which moves with the transform.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
"""The settings that a checkpoint keeps from its first batch on. A user's own number of shuffle partitions is
taken at birth instead (``runs/restart/new_query.py``)."""

_FIXED = {
    # Jetty, its servlets and the event store behind them: 18.4 down to 16.7, and no port that can be taken.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's INFO lines drown the run's own progress in a task's log. No measurable cost.
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": PINNED["spark.sql.shuffle.partitions"],
    # What is known of a filtered row is kept by Spark once with and once without each column that is renamed: 2^n
    # facts for the test of a record with n columns, so 16 DOUBLE took 70 CPU-seconds and 40 did not end. Without
    # it rows with a null key are not filtered before a join, which drops them itself.
    "spark.sql.constraintPropagation.enabled": "false",
    # Spark 4 reads csv in UTF-8, UTF-16, UTF-32, US-ASCII and ISO-8859-1 alone, unless it is set to take every
    # encoding of Java as Spark 3 did.
    "spark.sql.legacy.javaCharsets": "true",
    # More than 32 files would start a listing job of up to 10,000 tasks: 28.6 s became 3.3 s for 10,000 files.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # Every path is of a folder: with a Hadoop configuration about, Spark would look for it in HDFS.
    "spark.hadoop.fs.defaultFS": "file:///",
    # Dates and times that every reader of parquet takes for the same instant.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Up to so many table partitions are written side by side; without it a task sorts its rows by partition first.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # The batch manifest says which files count, so Spark's second rename of each and its _SUCCESS file are not
    # wanted.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Batches whose logs the checkpoint keeps; 100, the default, is 400 files before the first one goes. The
    # table's log and the manifests, not these, are what a repair starts from.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Spark 4.2 looks whether a batch that was begun is one of its offline repartitions, and fails (None.get) over
    # the number of partitions, which offset log v2 lacks in a checkpoint's first run: a run that was killed then
    # could never be taken up again. Nothing here repartitions state.
    "spark.sql.streaming.checkUnfinishedRepartitionOnRestart": "false",
    # A file source's lists are merged every ten batches, and the merged ones deleted when they are so old; 10
    # minutes, the default, is for readers concurrent with the writer, and the lease keeps those away.
    "spark.sql.streaming.fileSource.log.cleanupDelay": "60s",
}
"""Spark settings of every run."""

LAUNCHER_ENV = {"SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"}
"""For ``spark-submit``'s own small JVM, which only builds the driver's command line: -0.1."""
WORKER_CONF = {"spark.python.daemon.module": "tidegate.spark.session.light_start"}
"""Of a run in one JVM: on a cluster the workers' machines may lack the module."""

_SMALL_BYTES = 32 * MIB
_FILES_IN_ONE_TASK = 64
_TASKS_FOR_MANY_SMALL_FILES = 2


def jvm_options(pending_bytes: int, archive_path: Path | None) -> list[str]:
    """Options of the driver's JVM for a run over ``pending_bytes`` of input.

    ``archive_path`` is the class archive of :mod:`tidegate.spark.driver.jvm_archive`, or None. An archive that no
    longer fits (another jar, another JDK) is ignored by the JVM: the start is slower, nothing else changes.
    """
    options = [
        # One collector thread and no concurrent marking: with the heap of one driver the parallel collectors only add
        # threads that wait for a core. With C1 it took 16.7 down to 9.8.
        "-XX:+UseSerialGC",
        # jstat's memory-mapped file in the temporary folder is never read.
        "-XX:-UsePerfData",
    ]
    if pending_bytes <= C1_AT_MOST_BYTES:
        # Most of a short run is code that runs a few times: C2 would compile it for nothing.
        options.append("-XX:TieredStopAtLevel=1")
    else:
        options += _C2_WHEN_HOT
    if archive_path is not None:
        # Classes mapped ready-parsed instead of being read and verified from 270 jars: 9.8 down to 6.1.
        options.append(f"-XX:SharedArchiveFile={archive_path}")
        options.append("-Xshare:auto")
        # "shared class paths mismatch" is nothing new to an operator, and the JVM prints it on stdout.
        options.append("-Xlog:cds=error")
    return options


def own_settings(project: Project, pipeline_conf: Mapping[str, object]) -> dict[str, str]:
    """The ``spark.conf`` of the project, overridden by that of the pipeline, in Spark's form."""
    return {str(key): show_option(value) for key, value in {**project.spec.spark.conf, **pipeline_conf}.items()}


def driver_conf(pending_bytes: int, files: int, cores: int) -> dict[str, str]:
    """Spark settings of one run over ``files`` files of together ``pending_bytes`` on ``cores`` cores.

    For Kafka ``files`` is 0. A user's own ``spark.conf`` goes over these. Settings that a checkpoint pins forever are
    taken at its birth; the caller keeps them from there on.
    """
    if pending_bytes < 0 or files < 0 or cores < 1:
        raise ValueError(f"pending_bytes >= 0, files >= 0, cores >= 1, not {pending_bytes}, {files}, {cores}")
    return {
        **_FIXED,
        # A task writes a file per table partition, so few tasks are few files (count_tasks in spark/reading/parts.py).
        "spark.sql.files.minPartitionNum": str(_fewest_tasks(pending_bytes, files, cores)),
    }


def _fewest_tasks(pending_bytes: int, files: int, cores: int) -> int:
    if pending_bytes > _SMALL_BYTES:
        return min(cores, math.ceil(pending_bytes / _SMALL_BYTES))
    return 1 if files <= _FILES_IN_ONE_TASK else min(cores, _TASKS_FOR_MANY_SMALL_FILES)
