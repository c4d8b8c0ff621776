"""Spark settings of a run whose executors are processes of a cluster. Pure, and without pyspark."""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from tidegate.core.errors import TidegateError, TryAgainError
from tidegate.spark import errors
from tidegate.spark.driver.jvm import C1_AT_MOST_BYTES, MIB
from tidegate.spec.spark_settings import Master, parse_master

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


_ANSWER_SECONDS = 3.0
_REASON = re.compile(r"Application has been killed\. Reason: (.*)")


def check_master(url: str, name: str) -> None:
    """Raise TryAgainError MASTER_AWAY when no address of a standalone master takes connections, UsageError
    YARN_CONF_MISSING when nothing says where YARN is.

    Spark itself would try for a minute, in a JVM.
    """
    master = parse_master(url)
    if master.kind == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise errors.YARN_CONF_MISSING(where="spark.master in tidegate.yaml, or the DAG's Spark connection")
    if not master.addresses:
        return
    failures = []
    for host, port in master.addresses:
        try:
            socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
            return
        except (OSError, ValueError) as error:  # a name that cannot be one is a ValueError
            failures.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
    raise errors.MASTER_AWAY(where=_master_setting(url), failures="; ".join(failures), name=name)


def explain_end(error: TidegateError, log_path: Path, url: str, name: str) -> TidegateError:
    """Add the cluster's reason, which only the driver's log has, to APPLICATION_ENDED; other errors are unchanged."""
    if error.code != "APPLICATION_ENDED":
        return error
    try:
        found = _REASON.findall(log_path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = []
    reason = found[-1].strip() if found else ""
    if "All masters are unresponsive" in reason:
        failure = f"{url} takes connections, but is not a master of Spark {version('pyspark')}, or hangs"
        return errors.MASTER_AWAY(where=_master_setting(url), failures=failure, name=name)
    if "FAILED" in reason:
        return errors.EXECUTORS_FAILED(
            where=f"log: {log_path}; what the executors said is in the workers' own logs (work/app-*/*/stderr)",
            url=url,
            reason=reason,
        )
    return errors.APPLICATION_ENDED(
        where=f"log: {log_path}", master=url, reason=": " + reason if reason else "", name=name
    )


def _master_setting(url: str) -> str:
    return f"{url} (spark.master in tidegate.yaml, or the DAG's Spark connection)"
