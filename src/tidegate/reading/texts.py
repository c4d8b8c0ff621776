"""Records whose texts are at hand: what quarantine holds, parsed once more as the records of the stream they came from.

The frames have the columns of :mod:`tidegate.reading.parts` and :mod:`tidegate.reading.kafka`; ``_position`` is where
the record came from at first, as quarantine has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.reading.parts import FRAMEWORK_COLUMNS, MAX_FILE_AGE, parse_texts
from tidegate.sources.files.forms import form_of_texts
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN
from tidegate.spec.ddl import Column, parse_ddl, quote_column
from tidegate.spec.models import FilesSource, KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream_texts(spark: SparkSession, folder: Path, in_folders: Sequence[Column], *, name: str) -> DataFrame:
    """The stream of the texts in ``folder`` with the values of its ``k=v`` folders, as ``_raw`` and ``_position``; the
    checkpoint knows it as ``name``."""
    reader = spark.readStream.name(name).option("maxFileAge", MAX_FILE_AGE).schema(_schema(in_folders))
    return _shape(reader.parquet(str(folder)), in_folders)


def read_texts(spark: SparkSession, folder: Path, links: Sequence[str], in_folders: Sequence[Column]) -> DataFrame:
    """The texts of some files of ``folder``, perhaps none, as a batch."""
    reader = spark.read.option("basePath", str(folder)).schema(_schema(in_folders))
    frame = reader.parquet(*(str(folder / link) for link in links)) if links else reader.parquet(str(folder))
    return _shape(frame if links else frame.where("false"), in_folders)


def parse_file_texts(texts: DataFrame, origin: FilesSource, in_folders: Sequence[Column]) -> DataFrame:
    """The records of a source of files."""
    below = [column.name for column in in_folders]
    parsed = parse_texts(texts, form_of_texts(origin, below), below)
    own = [column.name for column in parse_ddl(origin.schema_)] if origin.schema_ else ["value"]
    names = [*own, *(["_rescued"] if origin.unknown_fields == "rescue" else [])]
    return parsed.select(*(F.col(quote_column(name)) for name in names), *FRAMEWORK_COLUMNS)


def parse_topic_texts(texts: DataFrame, origin: KafkaSource) -> DataFrame:
    """The records of a source of topics; values of format raw are in base64."""
    if origin.format != "raw":
        return parse_texts(texts, form_of_texts(origin))
    return texts.select(
        F.unbase64("_raw").alias("value"),
        "_raw",
        "_position",
        F.lit(False).alias("_malformed"),
        F.lit(None).cast("string").alias("_detail"),
        F.lit(None).cast("array<string>").alias("_unknown"),
    )


def columns_in_folders(origin: FilesSource | KafkaSource, partition_columns: Sequence[str]) -> list[Column]:
    """The columns of the schema whose values are in folder names."""
    columns = parse_ddl(origin.schema_) if origin.schema_ else []
    return [column for column in columns if column.name in partition_columns]


def _shape(frame: DataFrame, in_folders: Sequence[Column]) -> DataFrame:
    folders = [F.col(quote_column(column.name)) for column in in_folders]
    return frame.select(F.col(TEXT_COLUMN).alias("_raw"), F.col(PLACE_COLUMN).alias("_position"), *folders)


def _schema(in_folders: Sequence[Column]) -> str:
    folders = (f"{quote_column(column.name)} {column.type}" for column in in_folders)
    return ", ".join([f"{TEXT_COLUMN} STRING", f"{PLACE_COLUMN} STRING", *folders])
