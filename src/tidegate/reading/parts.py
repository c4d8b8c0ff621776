"""Files as parts, which workers expand to records in Python: :mod:`tidegate.sources.readers`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.sources.readers.lines import PACKED_SUFFIXES, PART_BYTES, is_packed
from tidegate.spec.ddl import Column, parse_ddl, quote_column, show_ddl
from tidegate.spec.models import FilesSource
from tidegate.spec.reader_options import parser_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from tidegate.sources.readers.worker import Form

_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_PACKED = rf"({'|'.join(map(re.escape, PACKED_SUFFIXES))})$"


def is_read_by_parts(spark: SparkSession, spec: FilesSource, partition_columns: Sequence[str]) -> bool:
    """Whether the files of ``spec`` are read by our own readers. The executors of a cluster may not have them."""
    options = set(parser_options(spec)) - {"lineSep"}
    return (
        str(spark.sparkContext.master).startswith("local")
        and spec.format in ("json", "text")
        and not options
        and not partition_columns
        and spec.values == "exact"
        and spec.unknown_fields != "rescue"
        and bool(spec.schema_ or spec.format == "text")
    )


def read_parts(reader: DataFrameReader, path: str | list[str], spec: FilesSource) -> DataFrame:
    """The records of the files at ``path``, a stream or a batch, with the framework's columns."""
    from tidegate.sources.readers.worker import FRAMEWORK_DDL, PartsReader

    columns = parse_ddl(spec.schema_ or "value STRING")
    files = reader.format("binaryFile").schema(_FILES).load(path)  # whose content is not read: nobody asks for it
    ending = parser_options(spec).get("lineSep")
    # What is packed can be read from its beginning alone; so is what another ending than a line feed divides.
    is_whole = F.lit(ending is not None) | F.col("path").rlike(_PACKED)
    last = F.when(is_whole, F.lit(0)).otherwise(F.greatest(F.col("length") - 1, F.lit(0)))
    begins = F.explode(F.sequence(F.lit(0), last, F.lit(PART_BYTES)))
    end = F.when(~is_whole & (F.col("begin") + PART_BYTES < F.col("length")), F.col("begin") + PART_BYTES)
    parts = files.select(F.col("_metadata.file_path").alias("path"), "length", begins.alias("begin")).select(
        "path", F.col("begin").cast("bigint").alias("begin"), end.cast("bigint").alias("end")
    )
    if ending is None and _has_large_file(path):
        # The parts of a file are made within one partition.
        parts = parts.repartition(int(parts.sparkSession.sparkContext.defaultParallelism))
    function = PartsReader(_form(spec, columns), None if ending is None else ending.encode())
    return parts.mapInArrow(function, f"{_show(columns)}, {FRAMEWORK_DDL}")


def _has_large_file(path: str | list[str]) -> bool:
    """Whether a file that waits to be read has more than one part."""
    paths = (
        path if isinstance(path, list) else [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
    )
    return any(not is_packed(one) and os.path.exists(one) and os.path.getsize(one) > PART_BYTES for one in paths)


def parse_texts(
    texts: DataFrame, spec: FilesSource, columns: Sequence[Column], in_folders: Sequence[Column]
) -> DataFrame:
    """``texts`` (_raw, _position, and the columns ``in_folders``) with ``columns`` and the framework's."""
    from tidegate.sources.readers.worker import FRAMEWORK_DDL, TextsReader

    function = TextsReader(_form(spec, columns), [column.name for column in in_folders])
    given = [FRAMEWORK_DDL, _show(in_folders)] if in_folders else [FRAMEWORK_DDL]
    return texts.mapInArrow(function, ", ".join([_show(columns), *given]))


def _form(spec: FilesSource, columns: Sequence[Column]) -> Form:
    from tidegate.sources.readers.worker import Form

    return Form(spec.format, show_ddl(list(columns)), spec.unknown_fields)


def _show(columns: Sequence[Column]) -> str:
    """DDL, every column nullable: what is NOT NULL is demanded by the reader."""
    return ", ".join(f"{quote_column(column.name)} {column.type}" for column in columns)
