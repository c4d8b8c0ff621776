"""The foreach_batch sink: the user's ``write(df, batch_id)``, called by Spark with the rows of one version; with what
they replace, where it takes a third argument."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.core.paths import PipelinePaths
from tidegate.sinks.foreach import check_added_columns
from tidegate.sinks.rows import find_replaces
from tidegate.sinks.user_code import load_user_code, takes_replaces
from tidegate.spec.models import ForeachBatchSink
from tidegate.spec.sink_checks import ADDED_COLUMNS
from tidegate.table.publish.delivery import Delivery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        links in ``folder``.
        """
        table = self._paths.table
        names = [file.path for file in delivery.files]
        if any(name.rpartition("/")[2].startswith(".") for name in names):
            table, names = folder, [_link(table / name, folder, name) for name in names]
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


def _link(file: Path, folder: Path, path: str) -> str:
    """A link to ``file`` in the partition folders of ``path`` below ``folder``, under a name that is not hidden."""
    parent, slash, name = path.rpartition("/")
    shown = f"{parent}{slash}{name.lstrip('.')}"
    (folder / shown).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(os.path.abspath(file), folder / shown)
    return shown
