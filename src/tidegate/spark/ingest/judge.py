"""Increments too large for pandas are judged here, by the driver's own Spark, before its JVM ends.

The results are kept in a file for the audit step, which takes them when they are of exactly the batches it audits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.core.paths import PipelinePaths
from tidegate.quality.engine import Question, RuleResult, choose_engine, write_driver_results
from tidegate.quality.suite import SuiteSpec, digest_suite
from tidegate.spark.catalyst.private_api import SPARK_ERRORS
from tidegate.spark.driver.failures import is_read_fault
from tidegate.spark.driver.order import IngestOrder, emit
from tidegate.spark.ingest.pace import watching_tasks
from tidegate.spark.ingest.plan import unmark_texts
from tidegate.spark.reading.frames import read_files
from tidegate.spark.reading.sending import find_unseen
from tidegate.spec.ddl import quote_column
from tidegate.spec.models import FilesSource, PipelineSpec
from tidegate.state.files import check_whole
from tidegate.state.lease import check_token
from tidegate.state.manifest import BatchManifest, StagedFile, batch_keys, files_within, read_all_manifests
from tidegate.table.upsert.folded import fold_unpublished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def judge_if_large(
    spark: SparkSession, paths: PipelinePaths, order: IngestOrder, suite: SuiteSpec | None, spec: PipelineSpec
) -> None:
    """Judge everything that is staged and not settled, when pandas should not; else do nothing. The days of a side job
    are judged one by one."""
    manifests = read_all_manifests(paths.manifests)
    unpublished = [m for found in manifests.values() for m in found if m.batch_id > order.settled.get(m.query_id, -1)]
    if order.within is not None:
        unpublished = [replace(m, files=files_within(m.files, order.within)) for m in unpublished]
    if suite is None or not suite.without_queries.rules or not unpublished:
        return
    answers = []
    parts: Sequence[dict[str, list[str]] | None] = order.days or [None]
    for within in parts:
        staged = [m if within is None else replace(m, files=files_within(m.files, within)) for m in unpublished]
        if _fits_pandas(suite, [file for manifest in staged for file in manifest.files]):
            continue
        check_token(paths, order.token)
        folded = fold_unpublished(paths, staged, spec)
        files = [file for part in (staged if folded is None else folded) for file in part.files]
        if _fits_pandas(suite, files):
            continue
        results = _judge(spark, paths, suite.without_queries, files, staged[-1])
        if results is None:
            continue
        asked = Question(batch_keys(staged), [each.token for each in folded or ()], digest_suite(suite), within)
        answers.append((asked, results))
    if answers:
        write_driver_results(paths, order.run_id, answers)


def _judge(
    spark: SparkSession, paths: PipelinePaths, suite: SuiteSpec, files: Sequence[StagedFile], newest: BatchManifest
) -> list[RuleResult] | None:
    """The results of all rules; None where they cannot be had here."""
    from tidegate.spark.ingest.spark_engine import judge_dataframe  # pandas, for large increments alone

    check_whole(paths.state, files, newest.pipeline)
    emit("audit", rows=sum(file.rows for file in files), rules=len(suite.rules), note="in Spark, for their number")
    with watching_tasks(spark, "audit"):
        frame = _staged_frame(spark, paths, files, newest.schema_json)
        return None if frame is None else judge_dataframe(suite, frame)


def _fits_pandas(suite: SuiteSpec, files: Sequence[StagedFile]) -> bool:
    rows, size_bytes = sum(file.rows for file in files), sum(file.size_bytes for file in files)
    return choose_engine(rows, size_bytes, len(suite.columns)) == "pandas"


def _staged_frame(
    spark: SparkSession, paths: PipelinePaths, staged: Sequence[StagedFile], schema_json: str
) -> DataFrame | None:
    """The rows of ``staged``. None where tasks do not see these files, and the readers of sources, which read them
    there, do not take each value: of a date after the year 9999, and of a text that is not UTF-8, Spark has a value."""
    schema = StructType.fromJson(json.loads(schema_json))
    by_base: dict[Path, list[str]] = {}
    for file in staged:
        path = paths.state / file.path
        base = next(parent for parent in path.parents if parent.name == "rows")
        by_base.setdefault(base, []).append(str(path.relative_to(base)))
    unseen, columns = find_unseen(spark, paths), list(staged[0].partition)
    if unseen is None:
        reader = spark.read.schema(schema)
        found = [
            reader.option("basePath", str(base)).parquet(*(str(base / name) for name in names))
            for base, names in by_base.items()
        ]
    else:
        source = FilesSource.read({"type": "files", "path": "rows", "format": "parquet", "schema": schema.toDDL()})
        found = [read_files(spark, base, names, source, columns, unseen) for base, names in by_base.items()]
        try:
            if any(not frame.where("_malformed").isEmpty() for frame in found):
                return None
        except SPARK_ERRORS as error:
            if is_read_fault(error):  # a folder's name is such a value
                return None
            raise
    names = [F.col(quote_column(name)) for name in schema.names]
    frames = [unmark_texts(frame.select(*names), columns) for frame in found]
    return reduce(lambda left, right: left.unionByName(right), frames)
