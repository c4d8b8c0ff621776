"""Files of a folder as batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.sources.files.batch_plan import divide_files
from tidegate.spark.reading.parts import count_tasks, read_lines, read_parts
from tidegate.spec.models import FilesSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_files(
    spark: SparkSession, folder: Path, links: Iterable[str], spec: FilesSource, partition_columns: Sequence[str] = ()
) -> DataFrame:
    """The records of some files of ``folder``, perhaps none, as a batch."""
    lines = read_lines(spark, divide_files(folder, links, spec), count_tasks(spark))
    return read_parts(lines, folder, spec, partition_columns)


def read_json_texts(spark: SparkSession, folder: Path, links: Iterable[str], spec: FilesSource) -> DataFrame:
    """The texts of all records of JSON in some files of ``folder`` that can be decoded, as ``_raw``."""
    # No record has this column, so none is malformed for it.
    any_object = spec.replace(schema="_tidegate_none STRING", unknown_fields="report")
    return read_files(spark, folder, links, any_object).where(~F.col("_malformed")).select("_raw")
