"""The Spark driver that feeds foreach_batch sinks: it reads an order, feeds pending versions, answers with a file.

It finds how far each sink is behind from the table's log and the sinks' notes, and it works under the lease of the
command that started it: when that is taken over, it stops before the next version.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.sinks.fault import SinkFault, explain_fault
from tidegate.sinks.feed import feed_sink
from tidegate.spark.delivery.foreach_batch import ForeachBatchFeeder
from tidegate.spark.driver.failures import explain_cluster
from tidegate.spark.driver.order import DeliveryOrder, emit
from tidegate.spark.session.executors import Executors
from tidegate.spec.master import parse_master
from tidegate.spec.models import ForeachBatchSink
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import load_project
from tidegate.state.lease import check_token
from tidegate.table.log.state import read_table_state


def main(order: DeliveryOrder) -> int:
    """Feed the sinks; the exit code is that of the error that ended it, 0 when each sink was fed or has a fault."""
    paths = load_project(Path(order.project_root)).paths(order.pipeline)
    faults: dict[str, SinkFault] = {}
    failure: TidegateError | None = None
    try:
        faults = _feed(order)
    except TidegateError as error:
        failure = error
        emit("error", **failure.to_dict())
    except Exception as error:  # noqa: BLE001 - Spark itself, by any error: no sink was to blame, and none was fed
        traceback.print_exc()
        if parse_master(order.master).is_cluster:
            failure = explain_cluster(str(error), order.pipeline)
        faults = dict.fromkeys(order.sinks, explain_fault(error, paths.job))
    answer = {
        "error": None if failure is None else failure.to_dict(),
        "faults": {name: fault.to_dict() for name, fault in faults.items()},
    }
    with contextlib.suppress(TidegateError, OSError):  # on a full disk there is no room for the answer either
        storage.replace(paths.delivery_result(order.run_id), storage.dump_json(answer))
    return 0 if failure is None else failure.exit_code


def _feed(order: DeliveryOrder) -> dict[str, SinkFault]:
    project = load_project(Path(order.project_root))
    spec, paths = load_pipeline(project, order.pipeline), project.paths(order.pipeline)
    table = read_table_state(paths.table)
    assert table is not None, "no sink is behind without a table"
    started = time.monotonic()
    emit("start", pipeline=spec.name, run_id=order.run_id)
    spark = SparkSession.builder.appName(f"tidegate {spec.name} sinks").getOrCreate()
    emit("session", seconds=round(time.monotonic() - started, 2), master=spark.sparkContext.master)
    faults: dict[str, SinkFault] = {}
    executors = Executors(spark, paths)
    with executors.watched():
        for sink in spec.sinks:
            if isinstance(sink, ForeachBatchSink) and sink.name in order.sinks:
                executors.check_storage()
                emit("progress", sink=sink.name)
                try:
                    feed_sink(
                        paths,
                        sink,
                        table,
                        partial(ForeachBatchFeeder, sink, paths, table.schema_json, spark),
                        run_id=order.run_id,
                        check_lease=partial(check_token, paths, order.token),
                    )
                except SinkFault as fault:
                    executors.check_there()  # then the sink is not to blame
                    print(fault.message, file=sys.stderr)
                    faults[sink.name] = fault
    return faults
