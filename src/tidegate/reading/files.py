"""The Spark side of a file source: reads the intake folder, never the user's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F

from tidegate.reading.parts import read_parts
from tidegate.spec.models import FilesSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

# A file is read whatever its modification time: Spark skips what is older than the newest file it saw minus this.
MAX_FILE_AGE = "365000d"

_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")


def stream_files(
    spark: SparkSession,
    intake: Path,
    spec: FilesSource,
    partition_columns: Sequence[str],
    *,
    name: str,
    unlimited: bool,
) -> DataFrame:
    """The stream of what is linked in ``intake``; the checkpoint knows it as ``name``. ``unlimited`` takes all of it as
    one batch (trigger ``once``)."""
    options: dict[str, str | int | float | bool] = {"maxFileAge": MAX_FILE_AGE}
    if not unlimited:
        options |= {key: value for key, value in spec.options.items() if key in _LIMITS}
    # A reader of streams takes the same calls, with one path.
    reader = cast("DataFrameReader", spark.readStream.name(name).options(**options))
    frame = read_parts(reader, str(intake), spec, partition_columns)
    return frame if spec.partitions is None else frame.repartition(spec.partitions)


def read_links(
    spark: SparkSession, intake: Path, links: Sequence[str], spec: FilesSource, partition_columns: Sequence[str]
) -> DataFrame:
    """The same frame over some links of ``intake``, perhaps none, as a batch: for a second look at one micro-batch."""
    reader = spark.read.option("basePath", str(intake))
    if not links:
        return read_parts(reader, str(intake), spec, partition_columns).where("false")
    return read_parts(reader, [str(intake / link) for link in links], spec, partition_columns)


def read_json_texts(spark: SparkSession, folder: Path, spec: FilesSource) -> DataFrame:
    """The texts of all records of JSON in ``folder`` that can be decoded, as ``_raw``."""
    # No record has this column, so none is malformed for it.
    any_object = spec.model_copy(update={"schema_": "_tidegate_none STRING", "unknown_fields": "report"})
    frame = read_parts(spark.read, str(folder), any_object)
    return frame.where(~F.col("_malformed")).select("_raw")
