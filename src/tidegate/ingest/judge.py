"""Increments too large for pandas are judged here, by the driver's own Spark, before its JVM ends.

The results wait in a file for the audit step, which takes them when they speak of exactly the batches it audits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from tidegate import storage
from tidegate.audit.engine import choose_engine
from tidegate.audit.suite import SuiteSpec
from tidegate.ingest.order import IngestOrder, emit
from tidegate.project import PipelinePaths
from tidegate.staging.manifest import BatchManifest, batch_keys, read_all_manifests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def judge_if_large(spark: SparkSession, paths: PipelinePaths, order: IngestOrder, suite: SuiteSpec | None) -> None:
    """Judge everything that is staged and not settled, when pandas should not; else do nothing."""
    manifests = read_all_manifests(paths.manifests)
    owed = [m for found in manifests.values() for m in found if m.batch_id > order.settled.get(m.query_id, -1)]
    if suite is None or not owed:
        return
    rows = sum(manifest.staged for manifest in owed)
    size_bytes = sum(file.size_bytes for manifest in owed for file in manifest.files)
    if choose_engine(rows, size_bytes, len(suite.columns)) == "pandas":
        return
    from tidegate.audit.spark_engine import judge_dataframe

    emit("progress", note=f"judging {rows:,} rows with Spark")
    results = judge_dataframe(suite, _staged_frame(spark, paths, owed))
    value = {"batches": batch_keys(owed), "results": [result.to_dict() for result in results]}
    storage.replace(paths.driver_results(order.run_id), storage.dump_json(value))


def _staged_frame(spark: SparkSession, paths: PipelinePaths, owed: Sequence[BatchManifest]) -> DataFrame:
    import json

    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(owed[-1].schema_json))
    frames = []
    for manifest in owed:
        if manifest.files:
            base = paths.state / manifest.files[0].path
            while base.name != "rows":
                base = base.parent
            files = [str(paths.state / file.path) for file in manifest.files]
            frames.append(spark.read.schema(schema).option("basePath", str(base)).parquet(*files))
    return reduce(lambda left, right: left.unionByName(right), frames)
