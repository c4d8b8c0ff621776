"""The Spark side of a file source: reads the intake folder, never the user's folder.

Every frame carries, beside the declared columns, what the accounting needs: ``_raw`` (the record as it came),
``_position`` (the intake link of its file), ``_malformed``, ``_detail`` (why) and ``_unknown`` (field names the schema
does not have).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidegate.spec.ddl import parse_ddl
from tidegate.spec.models import FilesSource
from tidegate.spec.reader_options import parser_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAMEWORK_COLUMNS = ("_raw", "_position", "_malformed", "_detail", "_unknown")

# A file is read whatever its modification time: Spark skips what is older than the newest file it saw minus this.
_MAX_FILE_AGE = "365000d"

_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")

_CORRUPT = "_corrupt_record"


def stream_files(
    spark: SparkSession, intake: Path, spec: FilesSource, partition_columns: Sequence[str], *, unlimited: bool
) -> DataFrame:
    """The stream of what is linked in ``intake``. ``unlimited`` takes all of it as one batch (trigger ``once``)."""
    options: dict[str, Any] = {"maxFileAge": _MAX_FILE_AGE}
    if not unlimited:
        options |= {key: value for key, value in spec.options.items() if key in _LIMITS}
    reader = spark.readStream.options(**options)
    return _read(reader, str(intake), spec, partition_columns)


def read_links(
    spark: SparkSession, intake: Path, links: Sequence[str], spec: FilesSource, partition_columns: Sequence[str]
) -> DataFrame:
    """The same frame over some links of ``intake`` as a batch, for a second look at one micro-batch."""
    reader = spark.read.option("basePath", str(intake))
    return _read(reader, [str(intake / link) for link in links], spec, partition_columns)


def _read(reader: Any, path: Any, spec: FilesSource, partition_columns: Sequence[str]) -> DataFrame:
    options: dict[str, Any] = dict(parser_options(spec))  # not the limits, nor what the listing has obeyed already
    columns = parse_ddl(spec.schema_) if spec.schema_ else [("value", "STRING", True)]
    in_folders = [column for column in columns if column[0] in partition_columns]
    in_files = [column for column in columns if column[0] not in partition_columns]
    position = F.col("_metadata.file_path").alias("_position")
    names = [F.col(_quoted(name)) for name, _, _ in columns]

    if spec.format in ("json", "text"):
        text_options = {key: value for key, value in options.items() if key in ("lineSep", "wholetext")}
        # The column of the text source must not meet a declared column of the same name.
        frame = reader.format("text").options(**text_options).schema(_ddl([("value", "STRING", True), *in_folders]))
        frame = frame.load(path).select(
            F.col("value").alias("_raw"), position, *(F.col(_quoted(c[0])) for c in in_folders)
        )
        if spec.format == "text":
            return frame.select(
                *(F.col("_raw").alias(name) if name == "value" else F.col(_quoted(name)) for name, _, _ in columns),
                "_raw",
                "_position",
                *_nothing_wrong(),
            )
        from tidegate.source.spark_parse import parse_text

        # A blank line is no record; Spark's own JSON reader passes over it too.
        frame = frame.where(F.length(F.trim("_raw")) > 0)
        parsed = parse_text(
            frame,
            "_raw",
            "json",
            _ddl(in_files),
            {key: value for key, value in options.items() if key not in text_options},
            spec.unknown_fields,
        )
        rescued = ["_rescued"] if spec.unknown_fields == "rescue" else []
        return parsed.select(*names, *rescued, *FRAMEWORK_COLUMNS)

    if spec.format == "csv":
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        if str(options.get("header", "false")).lower() == "true":
            options["enforceSchema"] = False  # or a file with its columns in another order is read wrongly in silence
        frame = reader.format("csv").options(**options).schema(_ddl([*columns, (_CORRUPT, "STRING", True)])).load(path)
        return frame.select(
            *names,
            F.coalesce(F.col(_CORRUPT), F.to_json(F.struct(*names))).alias("_raw"),
            position,
            F.col(_CORRUPT).isNotNull().alias("_malformed"),
            F.when(F.col(_CORRUPT).isNotNull(), F.lit("the row does not fit the schema")).alias("_detail"),
            F.array().cast("array<string>").alias("_unknown"),
        )

    frame = reader.format(spec.format).options(**options).schema(_ddl(columns)).load(path)
    return frame.select(*names, F.to_json(F.struct(*names)).alias("_raw"), position, *_nothing_wrong())


def _nothing_wrong() -> list[Any]:
    return [
        F.lit(False).alias("_malformed"),
        F.lit(None).cast("string").alias("_detail"),
        F.array().cast("array<string>").alias("_unknown"),
    ]


def _ddl(columns: Sequence[tuple[str, str, bool]]) -> str:
    return ", ".join(f"{_quoted(name)} {type_}" for name, type_, _ in columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
