"""Spark settings of a run whose executors are processes of a cluster. Pure, and without pyspark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tidegate.core.errors import TryAgainError
from tidegate.spark import errors
from tidegate.spark.driver.jvm import C1_AT_MOST_BYTES, MIB
from tidegate.spec.master import Master

BYTES_PER_CORE = 32 * MIB
CORES_AT_MOST = 8
"""A standalone cluster gives an application every core it has unless a limit is set. A run takes a core per
:data:`BYTES_PER_CORE` of what is pending, and no more than this, unless `spark.cores.max` is set."""

EXECUTOR_WAIT = "spark.scheduler.maxRegisteredResourcesWaitingTime"
"""The time that a run waits for an executor, at its start and later. Spark's setting, with our default: Spark's 30 s
are short on a shared cluster."""

OUTPUT_COMMITTER = "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"


def choose_cores(master: Master, pending_bytes: int, own: Mapping[str, str]) -> int:
    """The cores that a run on a cluster asks for: what the user's settings ``own`` come to, else by what is pending."""
    if "spark.cores.max" in own and own["spark.cores.max"].isdigit():
        return max(1, int(own["spark.cores.max"]))
    instances, each = own.get("spark.executor.instances", ""), own.get("spark.executor.cores", "1")
    if instances.isdigit() and each.isdigit():
        return max(1, int(instances) * int(each))
    if master.kind == "standalone":
        return min(CORES_AT_MOST, max(1, math.ceil(pending_bytes / BYTES_PER_CORE)))
    return 2  # YARN's and Kubernetes' own default: two executors of one core


def cluster_conf(master: Master, pending_bytes: int, cores: int, driver_python: str) -> dict[str, str]:
    """The settings that differ from a run in one JVM. The user's ``spark.conf`` overrides all but the committer's."""
    # As in the driver: a short run's code is not worth compiling twice.
    c1 = " -XX:TieredStopAtLevel=1" if pending_bytes <= C1_AT_MOST_BYTES else ""
    conf = {
        # Version 2 lets a task rename its files into place by itself. An executor that was cut off or frozen in the
        # middle of that could put its files over those of the task's second attempt, after they were checked. With
        # version 1 the driver does it when all tasks are done, and takes away what a late task would rename.
        OUTPUT_COMMITTER: "1",
        # Executors run the `python3` of their own machine, the driver this interpreter. Both must be set: for Spark
        # the first is the driver's as well.
        "spark.pyspark.python": "python3",
        "spark.pyspark.driver.python": driver_python,
        "spark.executor.extraJavaOptions": f"-XX:+UseSerialGC -XX:-UsePerfData{c1}",
        EXECUTOR_WAIT: "300s",
        # On YARN and Kubernetes Spark would not begin before most of the executors are there, or that time has passed.
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    }
    if master.kind == "standalone":
        conf["spark.cores.max"] = str(cores)
    return conf


def no_executors(read_setting: Callable[[str, str], str], where: str, master: str, seconds: float) -> TryAgainError:
    """The error when ``master`` gives no executor for so long; ``read_setting`` has Spark's settings, with defaults."""
    return errors.NO_EXECUTORS(
        where=where,
        master=master,
        seconds=seconds,
        cores=read_setting("spark.executor.cores", "all"),
        memory=read_setting("spark.executor.memory", "1g"),
        cores_in_all=read_setting("spark.cores.max", "any number of"),
        executor_wait=EXECUTOR_WAIT,
    )
