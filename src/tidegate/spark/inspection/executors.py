"""The Spark driver of ``tidegate doctor --spark``: asks each executor what its Python has.

The executor's JVM starts that Python as a script. A function for Spark's own workers would not do: one executor without
Python, or with another version, would end the job, and the versions of the others would stay unknown.
"""

from __future__ import annotations

import inspect
import os
import shlex
import time
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.core.errors import TryAgainError
from tidegate.core.process.limit import act_if_slow
from tidegate.quality.row_rules import quote_literal
from tidegate.spark.catalyst.private_api import ExecutorView
from tidegate.spark.driver.failures import answer, application_ended, explain
from tidegate.spark.driver.order import NO_PYTHON, ExecutorsOrder, emit
from tidegate.spark.inspection import probe

_SETTLED_SECONDS = 3.0
"""When no further executor has come for so long, those that are there are asked."""

_SCRIPT = """read -r host
if command -v {python} >/dev/null; then answer=$(timeout {seconds} {command} 2>&1 </dev/null | tail -n 1)
else answer={none}; fi
printf '%s\\t%s\\n' "$host" "$answer"
"""


def main(order: ExecutorsOrder) -> int:
    """Write what each executor answered (host, text) to the order's result file. The exit code is the error's,
    or 0; 75 without a result says that the cluster did not answer in time."""
    root = Path(order.project_root)
    return answer(
        Path(order.result),
        lambda: {"answers": _ask(order)},
        lambda error: explain(error, "NAME", root, root, on_cluster=True),
    )


def _ask(order: ExecutorsOrder) -> list[tuple[str, str]]:
    # This process ends, without a result, when it takes longer: Spark itself waits for a cluster without end.
    end = partial(os._exit, TryAgainError.exit_code)
    emit("progress", note=f"waiting for executors, at most {order.seconds} s")
    with act_if_slow(order.seconds, end):
        spark = SparkSession.builder.appName("tidegate doctor").getOrCreate()
        executors = _wait_for_executors(ExecutorView(spark))
    python = shlex.quote(spark.sparkContext.pythonExec)
    command = f"{python} -c {shlex.quote(inspect.getsource(probe))} {shlex.join(order.modules)}"
    script = quote_literal(_SCRIPT.format(python=python, command=command, seconds=order.seconds // 3, none=NO_PYTHON))
    count = 2 * max(int(spark.sparkContext.defaultParallelism), executors)  # dealt out to each executor in turn
    host = "coalesce(try_reflect('java.net.InetAddress', 'getLocalHost'), '') AS host"
    spark.range(0, count, 1, count).selectExpr(host).createOrReplaceTempView("asked")
    with act_if_slow(order.seconds, end):
        by_tabs = "ROW FORMAT DELIMITED FIELDS TERMINATED BY '\t'"
        answers = spark.sql(f"SELECT TRANSFORM(host) USING {script} AS (host, answer) {by_tabs} FROM asked")
        return sorted({(row["host"], row["answer"] or "") for row in answers.collect()})


def _wait_for_executors(view: ExecutorView) -> int:
    """The number of executors when no more come."""
    known: set[str] = set()
    while not known or view.list_ids() - known:
        if view.is_stopped:
            raise application_ended("NAME")
        known = view.list_ids()
        time.sleep(_SETTLED_SECONDS if known else 0.2)
    return len(known)
