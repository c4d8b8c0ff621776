"""The Spark side of a file source: reads the intake folder, never the user's folder.

Every frame carries, beside the declared columns, what the accounting needs: ``_raw`` (the record as it came; JSON where
it came without a text of its own), ``_position`` (the intake link of its file), ``_malformed``, ``_detail`` (why) and
``_unknown`` (field names the schema does not have).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F

from tidegate.reading.documents import split_documents
from tidegate.reading.encodings import UNDECODED, decode_texts
from tidegate.reading.faults import explain_csv_fault, list_faults
from tidegate.reading.parts import FRAMEWORK_COLUMNS, JSON_OF_ROWS, is_read_by_parts, read_parts
from tidegate.reading.records import parse_text, separators_of
from tidegate.reading.xml import OPTIONS as OF_XML
from tidegate.reading.xml import OUTSIDE, VALUES, split_xml
from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.values.exact_csv import checked_columns, describe_row
from tidegate.sources.values.exact_values import literal
from tidegate.sources.values.readable_values import find_unreadable
from tidegate.spec.ddl import Column, parse_ddl, quote_column
from tidegate.spec.ddl_tree import read_type
from tidegate.spec.encodings import encoding_of, is_wide
from tidegate.spec.models import FilesSource
from tidegate.spec.reader_options import has_documents, is_csv_by_line, is_read_whole, parser_options

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

# A file is read whatever its modification time: Spark skips what is older than the newest file it saw minus this.
_MAX_FILE_AGE = "365000d"

_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger")

_CORRUPT = "_corrupt_record"

_ROW, _TYPED, _MISFITS = "_tidegate_row", "_tidegate_typed", "_tidegate_misfits"

_OF_TEXT = ("lineSep", "wholetext")
_OF_CSV_VALUES = (
    *("dateFormat", "timestampFormat", "timestampNTZFormat", "enableDateTimeParsingFallback", "timeZone", "locale"),
    *("nanValue", "positiveInf", "negativeInf"),
)
_OF_CSV_LINES = ("sep", "delimiter", "quote", "escape", "charToEscapeQuoteEscaping", "nullValue", "emptyValue")
_OF_CSV_FILES = ("header", "multiLine", "encoding", "comment")


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
    options: dict[str, str | int | float | bool] = {"maxFileAge": _MAX_FILE_AGE}
    if not unlimited:
        options |= {key: value for key, value in spec.options.items() if key in _LIMITS}
    # A reader of streams takes the same calls, with one path.
    reader = cast("DataFrameReader", spark.readStream.name(name).options(**options))
    frame = _read(spark, reader, str(intake), spec, partition_columns)
    return frame if spec.partitions is None else frame.repartition(spec.partitions)


def read_links(
    spark: SparkSession, intake: Path, links: Sequence[str], spec: FilesSource, partition_columns: Sequence[str]
) -> DataFrame:
    """The same frame over some links of ``intake``, perhaps none, as a batch: for a second look at one micro-batch."""
    reader = spark.read.option("basePath", str(intake))
    if not links:
        return _read(spark, reader, str(intake), spec, partition_columns).where("false")
    return _read(spark, reader, [str(intake / link) for link in links], spec, partition_columns)


def _read(
    spark: SparkSession,
    reader: DataFrameReader,
    path: str | list[str],
    spec: FilesSource,
    partition_columns: Sequence[str],
) -> DataFrame:
    from tidegate.sources.readers import avro_file

    if is_read_by_parts(spark, spec):
        return read_parts(reader, path, spec, partition_columns)
    options = parser_options(spec)  # not the limits, nor what the listing has obeyed already
    columns = parse_ddl(spec.schema_) if spec.schema_ else [Column("value", "string", True)]
    names = [F.col(quote_column(column.name)) for column in columns]
    if spec.format in ("json", "text", "xml") or is_csv_by_line(spec):
        parsed = _read_lines(reader, path, spec, columns, partition_columns, options)
        rescued = ["_rescued"] if spec.unknown_fields == "rescue" else []
        return parsed.select(*names, *rescued, *FRAMEWORK_COLUMNS)
    position = F.col("_metadata.file_path").alias("_position")
    if spec.format == "csv":
        in_files = [column for column in columns if column.name not in partition_columns]
        frame, first = _read_csv_files(reader, path, spec, columns, in_files, options)
        raw = F.coalesce(F.col(_CORRUPT), _written_anew(spec, in_files))
        detail = _detail(columns, first)
        position = F.col("_position")
    else:
        if spec.format == "parquet":
            # Writers put a checksum on each page that Spark, left alone, does not look at.
            options["parquet.page.verify-checksum.enabled"] = "true"
        reader = reader.format(avro_file.SPARK_FORMAT if spec.format == "avro" else spec.format)
        frame = reader.options(**options).schema(_ddl(columns)).load(path)
        raw = F.to_json(F.struct(*names), JSON_OF_ROWS)
        detail = _detail(columns, None)
    frame = frame.select(*names, raw.alias("_raw"), position, detail.alias("_detail"))
    return frame.select(
        *names,
        "_raw",
        "_position",
        F.col("_detail").isNotNull().alias("_malformed"),
        "_detail",
        F.lit(None).cast("array<string>").alias("_unknown"),
    )


def _read_csv_files(
    reader: DataFrameReader,
    path: str | list[str],
    spec: FilesSource,
    columns: Sequence[Column],
    in_files: Sequence[Column],
    options: dict[str, str],
) -> tuple[DataFrame, SparkColumn]:
    """The rows as Spark's own reader of csv files gives them, and why one is malformed (null where it is not).

    With ``values: exact`` the columns whose values Spark would change are read as texts and converted afterwards, so
    that the texts are at hand; :data:`_ROW` holds them.
    """
    of_row = {key: value for key, value in options.items() if key not in (*_OF_TEXT, *_OF_CSV_FILES)}
    as_texts = checked_columns(in_files) if spec.values == "exact" else []
    read_as = [column._replace(type="string") if column in as_texts else column for column in columns]
    options = options | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if is_wide(options.get("encoding", "")) and "lineSep" not in options:
        options["multiLine"] = "true"  # line by line Spark looks for the one byte of a line break, inside characters
    options.setdefault("maxCharsPerColumn", str(LONGEST_RECORD_BYTES))  # or a quote that is not closed takes the memory
    options["enforceSchema"] = "false"  # or a file with its columns in another order is read wrongly in silence
    frame = (
        reader.format("csv").options(**options).schema(_ddl([*read_as, Column(_CORRUPT, "string", True)])).load(path)
    )
    names = [F.col(quote_column(column.name)) for column in columns]
    frame = frame.select("*", F.col("_metadata.file_path").alias("_position"), F.struct(*names).alias(_ROW))
    explained = explain_csv_fault(
        in_files, _CORRUPT, of_row, _ROW, dict.fromkeys((one.name for one in as_texts), _TYPED)
    )
    reasons = [f"CASE WHEN {_CORRUPT} IS NOT NULL THEN {explained} END"]
    if as_texts:
        formats = {key: value for key, value in of_row.items() if key in _OF_CSV_VALUES}
        texts = F.to_csv(F.struct(*(F.col(quote_column(column.name)) for column in as_texts)))
        typed = F.from_csv(texts, F.lit(_ddl(as_texts)), {**formats, "mode": "PERMISSIVE"})
        frame = frame.select("*", typed.alias(_TYPED))
        misfits = []
        for column in as_texts:
            name = quote_column(column.name)
            text = literal(f"{column.name}: not a {column.type.upper()}")
            misfits.append(f"CASE WHEN {_ROW}.{name} IS NOT NULL AND {_TYPED}.{name} IS NULL THEN {text} END")
        frame = frame.select("*", F.expr(f"concat_ws('; ', {', '.join(misfits)})").alias(_MISFITS))
        wrong = f"nullif({_MISFITS}, '')"
        faults = describe_row(in_files, _ROW, formats, separators_of(frame.sparkSession, of_row))
        if faults is not None:  # a value of the wrong type is not also reported as inexact
            is_told = f"contains(concat('; ', {_MISFITS}), concat('; ', e.path, ': '))"
            wrong = f"nullif(concat_ws('; ', {wrong}, {list_faults(f'filter({faults}, e -> NOT {is_told})')}), '')"
        reasons.append(f"CASE WHEN {_CORRUPT} IS NULL THEN {wrong} END")
        frame = frame.withColumns({column.name: F.col(f"{_TYPED}.{quote_column(column.name)}") for column in as_texts})
    listed = f"coalesce({', '.join(reasons)})"
    if spec.values == "exact":
        said = f"not valid {options.get('encoding', 'UTF-8')}, or with U+FFFD, which stands for such bytes"
        texts_of_row = f"coalesce({_CORRUPT}, to_json({_ROW}))"
        listed = f"CASE WHEN contains({texts_of_row}, '\ufffd') THEN '{said}' ELSE {listed} END"
    return frame, F.expr(listed)


def _written_anew(spec: FilesSource, in_files: Sequence[Column]) -> SparkColumn:
    """A row of a csv file as its line most likely was: Spark keeps the text only of rows that it cannot read itself.
    With ``values: exact`` the values that matter are there as they were written, and where the line comes out as it
    was, its number is found by it."""
    if spec.values != "exact":
        return F.to_json(_ROW, JSON_OF_ROWS)
    kept = {key: value for key, value in parser_options(spec).items() if key in _OF_CSV_LINES}
    blanks = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
    return F.to_csv(
        F.struct(*(F.col(f"{_ROW}.{quote_column(column.name)}") for column in in_files)), {**kept, **blanks}
    )


def _read_lines(
    reader: DataFrameReader,
    path: str | list[str],
    spec: FilesSource,
    columns: Sequence[Column],
    partition_columns: Sequence[str],
    options: Mapping[str, str],
) -> DataFrame:
    in_folders = [column for column in columns if column.name in partition_columns]
    in_files = [column for column in columns if column.name not in partition_columns]
    frame = _read_texts(reader, path, spec, in_folders)
    if spec.format != "text":
        # A blank line is not a record; Spark's own readers of JSON and csv pass over it too. (Asking for its length
        # would count the characters of every line.)
        frame = frame.where(F.trim("_raw") != "")
    if comment := options.get("comment") if spec.format == "csv" else None:
        frame = frame.where(~F.col("_raw").startswith(comment))
    if spec.format == "xml":
        frame = split_xml(frame, "_raw", in_files, options)
        of_values = {key: value for key, value in _of_parser(options).items() if key not in OF_XML}
        policy, declared = spec.unknown_fields, _declare(in_files)
        parsed = parse_text(frame, VALUES, "json", declared, of_values, policy, spec.values, undecoded=UNDECODED)
        unknown = f"concat(coalesce(_unknown, array()), {OUTSIDE})"
        return parsed.withColumn("_unknown", F.expr(f"CASE WHEN size({OUTSIDE}) > 0 THEN {unknown} ELSE _unknown END"))
    return parse_records(frame, spec, in_files, undecoded=UNDECODED if encoding_of(spec) != "UTF-8" else None)


def parse_records(
    frame: DataFrame, spec: FilesSource, in_files: Sequence[Column], *, undecoded: str | None = None
) -> DataFrame:
    """``frame`` with the columns ``in_files`` of the texts in ``_raw``, each a record of a json, csv or text source,
    and what is wrong with it. The column ``undecoded`` says why a text is none, where there is one."""
    options = _of_parser(parser_options(spec))
    declared, policy = _declare(in_files), spec.unknown_fields
    return parse_text(frame, "_raw", spec.format, declared, options, policy, spec.values, undecoded=undecoded)


def _of_parser(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key not in (*_OF_TEXT, *_OF_CSV_FILES)}


def _declare(columns: Sequence[Column]) -> str:
    return ", ".join(f"{quote_column(c.name)} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in columns)


def _read_texts(
    reader: DataFrameReader, path: str | list[str], spec: FilesSource, in_folders: Sequence[Column]
) -> DataFrame:
    """A row for each record, of xml each file: ``_raw``, ``_position``, columns of folders, perhaps UNDECODED."""
    of_text = {key: value for key, value in parser_options(spec).items() if key in _OF_TEXT}
    is_whole = has_documents(spec) or of_text.get("wholetext") == "true"
    if is_read_whole(spec):
        of_text["wholetext"] = "true"
    # The column of the text source must not meet a declared column of the same name.
    lines = reader.format("text").options(**of_text).schema(_ddl([Column("value", "string", True), *in_folders]))
    frame = lines.load(path).select(
        F.col("value").alias("_raw"),
        F.col("_metadata.file_path").alias("_position"),
        *(F.col(quote_column(column.name)) for column in in_folders),
    )
    if spec.format == "xml":
        return frame
    if (encoding := encoding_of(spec)) != "UTF-8":
        frame = decode_texts(frame, "_raw", encoding, of_text.get("lineSep"), is_whole=is_whole)
    return split_documents(frame, "_raw") if has_documents(spec) else frame


def read_json_texts(spark: SparkSession, folder: Path, spec: FilesSource) -> DataFrame:
    """The texts of all records in ``folder`` that can be decoded, as ``_raw``."""
    frame = _read_texts(spark.read, str(folder), spec, [])
    return frame.where(F.col(UNDECODED).isNull()).select("_raw")


def _detail(columns: Sequence[Column], first: SparkColumn | None) -> SparkColumn:
    """Why a row that Spark has read is malformed, or null: ``first``, else missing values and those no reader shows."""
    reasons = []
    for column in columns:
        name = quote_column(column.name)
        if not column.nullable:
            text = f"{column.name}: missing or null, but NOT NULL"
            reasons.append(f"CASE WHEN {name} IS NULL THEN {literal(text)} END")
        if (unreadable := find_unreadable(read_type(column.type), name, column.name)) is not None:
            reasons.append(unreadable)
    found = F.expr(f"nullif(concat_ws('; ', {', '.join(reasons)}), '')" if reasons else "CAST(NULL AS STRING)")
    return found if first is None else F.coalesce(first, found)


def _ddl(columns: Sequence[Column]) -> str:
    return ", ".join(f"{quote_column(column.name)} {column.type}" for column in columns)
