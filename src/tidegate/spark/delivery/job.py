"""The Spark driver that feeds foreach_batch sinks: it reads an order, feeds pending versions, answers with a file.

It finds how far each sink is behind from the table's log and the sinks' notes, and it works under the lease of the
command that started it: when that is taken over, it stops before the next version.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.sinks.feed import SinkFault, explain_fault, feed_sink
from tidegate.sinks.foreach import check_added_columns
from tidegate.sinks.rows import find_replaces
from tidegate.sinks.user_code import load_user_code, takes_replaces
from tidegate.spark.driver.failures import answer, explain, explain_cluster
from tidegate.spark.driver.order import DeliveryOrder, emit
from tidegate.spark.session.executors import Executors
from tidegate.spec.models import ForeachBatchSink
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.spec.sink_checks import ADDED_COLUMNS
from tidegate.spec.spark_settings import parse_master
from tidegate.state.lease import check_token
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.delivery import Delivery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_AT_ONCE = 8


class ForeachBatchFeeder:
    """Calls the user's function; ``batch_id`` is the table's version."""

    def __init__(self, sink: ForeachBatchSink, paths: PipelinePaths, schema_json: str, spark: SparkSession) -> None:
        check_added_columns(schema_json)
        self._paths = paths
        self._schema = StructType.fromJson(json.loads(schema_json))
        self._spark = spark
        self._schema_json = schema_json
        self._write = load_user_code(paths.job, sink.function)
        self._takes_replaces = takes_replaces(self._write)

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Feed a version, by one call; one without rows only if the function takes what it replaces."""
        if not (delivery.files or self._takes_replaces):
            return
        with tempfile.TemporaryDirectory(dir=self._paths.state, prefix=".delivery-") as folder:
            frame = self._read(delivery, Path(folder))
            check_lease()
            more = (find_replaces(delivery, self._schema_json),) if self._takes_replaces else ()
            self._write(frame, delivery.number, *more)

    def close(self) -> None:
        """The session is the driver's."""

    def _read(self, delivery: Delivery, folder: Path) -> DataFrame:
        """Exactly the version's files, with the partition columns from their folders.

        Spark passes over hidden names, and so are files called that a later version has replaced: then all are read by
        links in ``folder``. Files on an object store are copied there.
        """
        table = self._paths.table
        names = [file.path for file in delivery.files]
        if storage.is_object(table) or any(name.rpartition("/")[2].startswith(".") for name in names):
            with ThreadPoolExecutor(_AT_ONCE, "tidegate-fetching") as pool:
                names = list(pool.map(partial(_bring, table, folder), names))
            table = folder
        reader = self._spark.read.schema(self._schema).option("basePath", str(table))
        # The paths are names, not patterns: a folder may well be called k={a}.
        frame = (
            reader.option("__globPaths__", "false").parquet(*(str(table / name) for name in names))
            if names
            else self._spark.createDataFrame([], self._schema)
        )
        added = dict(zip(ADDED_COLUMNS, (F.lit(delivery.run_id), F.lit(delivery.number)), strict=True))
        columns = ("`" + name.replace("`", "``") + "`" for name in self._schema.names)
        return frame.select(*(F.col(name) for name in columns)).withColumns(added)


def _bring(table: Path, folder: Path, path: str) -> str:
    """Give the file ``path`` of a table the same path below ``folder``, but for a name that is not hidden: by a link,
    or by a copy of an object. Returns that path."""
    parent, slash, name = path.rpartition("/")
    shown = f"{parent}{slash}{name.lstrip('.')}"
    (folder / shown).parent.mkdir(parents=True, exist_ok=True)
    if storage.is_object(table):
        storage.clone(table / path, folder / shown)
    else:
        os.symlink(os.path.abspath(table / path), folder / shown)
    return shown


def main(order: DeliveryOrder) -> int:
    """Feed the sinks; the exit code is that of the error that ended it, 0 when each sink was fed or has a fault."""
    project = load_project(Path(order.project_root))
    paths, on_cluster = project.paths(order.pipeline), parse_master(order.master).is_cluster

    def work() -> dict[str, object]:
        try:
            faults = _feed(project, order)
        except TidegateError:
            raise
        except Exception as error:  # Spark itself, by any error: no sink was to blame, and none was fed
            traceback.print_exc()
            if on_cluster and (failure := explain_cluster(str(error), order.pipeline)) is not None:
                raise failure from error
            faults = dict.fromkeys(order.sinks, explain_fault(error, paths.job))
        return {"faults": {name: fault.to_dict() for name, fault in faults.items()}}

    return answer(
        paths.delivery_result(order.run_id),
        work,
        lambda error: explain(error, order.pipeline, paths.job, paths.state, on_cluster=on_cluster),
    )


def _feed(project: Project, order: DeliveryOrder) -> dict[str, SinkFault]:
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
