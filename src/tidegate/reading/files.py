"""The Spark side of a file source: reads the intake folder, never the user's folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.reading.parts import read_lines, read_parts
from tidegate.sources.files.batch_plan import divide_files
from tidegate.spec.models import FilesSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_files(
    spark: SparkSession, folder: Path, links: Iterable[str], spec: FilesSource, partition_columns: Sequence[str] = ()
) -> DataFrame:
    """The records of some files of ``folder``, perhaps none, as a batch."""
    return read_parts(read_lines(spark, divide_files(folder, links, spec)), folder, spec, partition_columns)


def read_json_texts(spark: SparkSession, folder: Path, spec: FilesSource) -> DataFrame:
    """The texts of all records of JSON in ``folder`` that can be decoded, as ``_raw``."""
    # No record has this column, so none is malformed for it.
    any_object = spec.model_copy(update={"schema_": "_tidegate_none STRING", "unknown_fields": "report"})
    links = [
        os.path.relpath(os.path.join(at, name), folder)
        for at, _, names in os.walk(folder)
        for name in names
        if not name.startswith(".")
    ]
    return read_files(spark, folder, sorted(links), any_object).where(~F.col("_malformed")).select("_raw")
