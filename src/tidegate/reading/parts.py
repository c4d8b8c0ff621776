"""Files as parts, which workers expand to records in Python: :mod:`tidegate.sources.readers`."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.sources.files.forms import form_of
from tidegate.sources.readers.form import FRAMEWORK_DDL, RESCUED_DDL, Form
from tidegate.sources.readers.lines import PACKED_SUFFIXES, PART_BYTES, is_packed
from tidegate.spec.ddl import Column, parse_ddl, quote_column
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource
from tidegate.spec.reader_options import parser_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader

FRAMEWORK_COLUMNS = ("_raw", "_position", "_malformed", "_detail", "_unknown")
_FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_PACKED = rf"({'|'.join(map(re.escape, PACKED_SUFFIXES))})$"

JSON_OF_ROWS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How a row without a text of its own is kept raw: with its nulls, and with every digit of its times."""


def read_parts(
    reader: DataFrameReader, path: str | list[str], spec: FilesSource, in_folders: Sequence[str] = ()
) -> DataFrame:
    """The records of the files at ``path``, a stream or a batch, with the framework's columns. The values of the
    columns ``in_folders`` are in the names of folders."""
    from tidegate.sources.readers.worker import PartsReader

    files = reader.format("binaryFile").schema(_FILES).load(path)  # whose content is not read: nobody asks for it
    last, end = F.lit(0), F.lit(None)
    if divides_files(spec):
        # What is packed can be read from its beginning alone.
        is_whole = F.col("path").rlike(_PACKED) if spec.format not in SELF_DESCRIBING_FORMATS else F.lit(False)
        last = F.when(is_whole, F.lit(0)).otherwise(F.greatest(F.col("length") - 1, F.lit(0)))
        end = F.when(~is_whole & (F.col("begin") + PART_BYTES < F.col("length")), F.col("begin") + PART_BYTES)
    begins = F.explode(F.sequence(F.lit(0), last, F.lit(PART_BYTES)))
    parts = files.select(F.col("_metadata.file_path").alias("path"), "length", begins.alias("begin")).select(
        "path", F.col("begin").cast("bigint").alias("begin"), end.cast("bigint").alias("end")
    )
    if divides_files(spec) and _has_large_file(path):
        # The parts of a file are made within one partition.
        parts = parts.repartition(int(parts.sparkSession.sparkContext.defaultParallelism))
    form = form_of(spec, in_folders)
    columns = parse_ddl(form.ddl)
    below = [column for column in columns if column.name in in_folders]
    own = [column for column in columns if column not in below]
    rescued = ["_rescued"] if spec.unknown_fields == "rescue" else []
    ddl = [show_columns(own), *([RESCUED_DDL] if rescued else []), show_columns(below), FRAMEWORK_DDL]
    found = parts.mapInArrow(PartsReader(form), ", ".join(filter(None, ddl)))
    names = [F.col(quote_column(column.name)) for column in columns]
    # A record without a text of its own is kept as JSON, where it is kept.
    raw = F.coalesce("_raw", F.to_json(F.struct(*names), JSON_OF_ROWS)).alias("_raw")
    kept = raw if spec.format in SELF_DESCRIBING_FORMATS else F.col("_raw")
    return found.select(*names, *rescued, kept, *FRAMEWORK_COLUMNS[1:])


def divides_files(spec: FilesSource) -> bool:
    """Whether a large file of ``spec`` is several parts."""
    options = parser_options(spec)
    if spec.format == "xml" or "lineSep" in options or "true" in (options.get("multiLine"), options.get("wholetext")):
        return False
    return codecs.lookup(options.get("encoding", "UTF-8")).name == "utf-8"


def _has_large_file(path: str | list[str]) -> bool:
    """Whether a file that waits to be read has more than one part."""
    paths = (
        path if isinstance(path, list) else [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
    )
    return any(not is_packed(one) and os.path.exists(one) and os.path.getsize(one) > PART_BYTES for one in paths)


def parse_texts(texts: DataFrame, form: Form, kept: Sequence[str] = ()) -> DataFrame:
    """The records whose texts ``texts`` holds (_raw STRING or BINARY, _position, and the columns ``kept``): the columns
    of ``form``, those that are kept, and the framework's."""
    from tidegate.sources.readers.worker import TextsReader

    types = dict(texts.dtypes)
    behind = [Column(name, types[name], True) for name in kept]
    frame = texts.select("_raw", "_position", *(F.col(quote_column(name)) for name in kept))
    return frame.mapInArrow(
        TextsReader(form, kept), ", ".join(filter(None, [*_own(form), show_columns(behind), FRAMEWORK_DDL]))
    )


def _own(form: Form) -> list[str]:
    return [show_columns(parse_ddl(form.ddl)), *([RESCUED_DDL] if form.policy == "rescue" else [])]


def show_columns(columns: Sequence[Column]) -> str:
    """DDL, every column nullable: what is NOT NULL is demanded by the reader."""
    return ", ".join(f"{quote_column(column.name)} {column.type}" for column in columns)
