"""Records whose texts are at hand: what quarantine holds, parsed once more as the records of the stream they came from.

The frames have the columns of :mod:`tidegate.spark.reading.parts` and :mod:`tidegate.spark.reading.kafka`;
``_position`` is where the record came from at first, as quarantine has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.sources.files.forms import form_of_texts
from tidegate.spark.reading.parts import FRAMEWORK_COLUMNS, parse_texts, show_columns
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN
from tidegate.spec.ddl import Column, parse_ddl, quote_column
from tidegate.spec.models import FilesSource, KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_texts(lines: DataFrame, folder: Path, in_folders: Sequence[Column]) -> DataFrame:
    """The texts in the files of ``folder`` that ``lines`` (value STRING) of batch files name, as ``_raw`` and
    ``_position``, with the columns ``in_folders`` whose values are in the names of folders."""
    from tidegate.sources.readers.worker import TextFilesReader

    reader = TextFilesReader(str(folder), (TEXT_COLUMN, PLACE_COLUMN), in_folders)
    ddl = ", ".join(filter(None, ["_raw STRING, _position STRING", show_columns(in_folders)]))
    return lines.select("value").mapInArrow(reader, ddl)


def parse_file_texts(texts: DataFrame, origin: FilesSource, in_folders: Sequence[Column]) -> DataFrame:
    """The records of a source of files."""
    below = [column.name for column in in_folders]
    parsed = parse_texts(texts, form_of_texts(origin, below), below)
    own = [column.name for column in parse_ddl(origin.schema)] if origin.schema else ["value"]
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
    columns = parse_ddl(origin.schema) if origin.schema else []
    return [column for column in columns if column.name in partition_columns]
