"""Records whose texts are at hand: what quarantine holds, parsed once more as the records of the stream they came from.

The frames have the columns of :mod:`tidegate.reading.files` and :mod:`tidegate.reading.kafka`; ``_position`` is where
the record came from at first, as quarantine has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.reading.files import FRAMEWORK_COLUMNS, parse_records
from tidegate.reading.kafka import parse_values
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN
from tidegate.spec.ddl import Column, parse_ddl, quote_column
from tidegate.spec.models import FilesSource, KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAX_FILE_AGE = "365000d"


def stream_texts(
    spark: SparkSession, folder: Path, origin: FilesSource | KafkaSource, partition_columns: Sequence[str], *, name: str
) -> DataFrame:
    """The stream of the texts in ``folder``; the checkpoint knows it as ``name``."""
    in_folders = _in_folders(origin, partition_columns)
    reader = spark.readStream.name(name).option("maxFileAge", _MAX_FILE_AGE).schema(_schema(in_folders))
    return _parse(reader.parquet(str(folder)), origin, in_folders)


def read_texts(
    spark: SparkSession,
    folder: Path,
    links: Sequence[str],
    origin: FilesSource | KafkaSource,
    partition_columns: Sequence[str],
) -> DataFrame:
    """The texts of some files of ``folder``, perhaps none, as a batch."""
    in_folders = _in_folders(origin, partition_columns)
    reader = spark.read.option("basePath", str(folder)).schema(_schema(in_folders))
    frame = reader.parquet(*(str(folder / link) for link in links)) if links else reader.parquet(str(folder))
    return _parse(frame if links else frame.where("false"), origin, in_folders)


def _parse(frame: DataFrame, origin: FilesSource | KafkaSource, in_folders: Sequence[Column]) -> DataFrame:
    folders = [F.col(quote_column(column.name)) for column in in_folders]
    texts = frame.select(F.col(TEXT_COLUMN).alias("_raw"), F.col(PLACE_COLUMN).alias("_position"), *folders)
    if isinstance(origin, KafkaSource):
        if origin.format == "raw":
            return _bytes_of(texts)
        parsed = parse_values(texts, origin)
        own = [name for name in parsed.columns if name not in FRAMEWORK_COLUMNS]
    else:
        columns = parse_ddl(origin.schema_) if origin.schema_ else [Column("value", "string", True)]
        parsed = parse_records(texts, origin, [column for column in columns if column not in in_folders])
        own = [column.name for column in columns] + (["_rescued"] if origin.unknown_fields == "rescue" else [])
    return parsed.select(*(F.col(quote_column(name)) for name in own), *FRAMEWORK_COLUMNS)


def _bytes_of(texts: DataFrame) -> DataFrame:
    """Values of format raw, which quarantine has as base64."""
    return texts.select(
        F.unbase64("_raw").alias("value"),
        "_raw",
        "_position",
        F.lit(False).alias("_malformed"),
        F.lit(None).cast("string").alias("_detail"),
        F.lit(None).cast("array<string>").alias("_unknown"),
    )


def _in_folders(origin: FilesSource | KafkaSource, partition_columns: Sequence[str]) -> list[Column]:
    columns = parse_ddl(origin.schema_) if origin.schema_ else []
    return [column for column in columns if column.name in partition_columns]


def _schema(in_folders: Sequence[Column]) -> str:
    folders = (f"{quote_column(column.name)} {column.type}" for column in in_folders)
    return ", ".join([f"{TEXT_COLUMN} STRING", f"{PLACE_COLUMN} STRING", *folders])
