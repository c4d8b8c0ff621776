"""The foreach_batch sink: the user's ``write(df, batch_id)``, called by Spark with the rows of one version."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.project import PipelinePaths
from tidegate.sink.foreach import check_added_columns
from tidegate.sink.user_code import load_user_code
from tidegate.spec.models import ForeachBatchSink
from tidegate.spec.sink_checks import ADDED_COLUMNS
from tidegate.table.delivery import Delivery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ForeachBatchFeeder:
    """Calls the user's function; ``batch_id`` is the table's version."""

    def __init__(self, sink: ForeachBatchSink, paths: PipelinePaths, schema_json: str, spark: SparkSession) -> None:
        check_added_columns(schema_json)
        self._paths = paths
        self._schema = StructType.fromJson(json.loads(schema_json))
        self._spark = spark
        self._write = load_user_code(paths.job, sink.function)

    def __call__(self, delivery: Delivery, check_lease: Callable[[], None]) -> None:
        """Feed a version, by one call."""
        frame = self._read(delivery)
        check_lease()
        self._write(frame, delivery.version)

    def close(self) -> None:
        """The session is the driver's."""

    def _read(self, delivery: Delivery) -> DataFrame:
        """Exactly the version's files, with the partition columns that their folders tell."""
        table = self._paths.table
        reader = self._spark.read.schema(self._schema).option("basePath", str(table))
        # The paths are names, not patterns: a folder may well be called k={a}.
        frame = reader.option("__globPaths__", "false").parquet(*(str(table / file.path) for file in delivery.files))
        added = dict(zip(ADDED_COLUMNS, (F.lit(delivery.run_id), F.lit(delivery.version)), strict=True))
        names = ("`" + name.replace("`", "``") + "`" for name in self._schema.names)
        return frame.select(*(F.col(name) for name in names)).withColumns(added)
