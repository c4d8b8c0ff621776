"""Spark's reader options by allow-list. Spark ignores an option it does not know in silence, so here each is named.

The names are those of Spark 4.2's data source pages (json, csv, text, parquet, orc, file stream, Kafka). They are
grouped by what takes them: the listing of the files, the stream (limits), Kafka's client, the parser of the records.
"""

from __future__ import annotations

from typing import Literal

from tidegate.spec.encodings import encoding_of, is_wide
from tidegate.spec.models import FilesSource, KafkaSource

Kind = Literal["text", "letter", "bool", "count", "limit", "bytes", "duration"]

LISTING_OPTIONS: dict[str, Kind] = {"pathGlobFilter": "text", "recursiveFileLookup": "bool"}
FILE_STREAM_OPTIONS: dict[str, Kind] = {"maxFilesPerTrigger": "count", "maxBytesPerTrigger": "bytes"}
KAFKA_STREAM_OPTIONS: dict[str, Kind] = {
    "maxOffsetsPerTrigger": "count",
    "minPartitions": "count",
    "maxRecordsPerPartition": "count",
    "kafkaConsumer.pollTimeoutMs": "count",
}

RATE_OPTIONS: dict[str, Kind] = {"rowsPerSecond": "count", "rampUpTime": "duration", "numPartitions": "count"}
SOCKET_OPTIONS: dict[str, Kind] = {"host": "text", "port": "count", "includeTimestamp": "bool", "timeout": "duration"}
REFUSED_TRIAL_OPTIONS = {
    "rowsPerBatch": ("rows follow from the time that has passed", "write rowsPerSecond"),
}

_TIMES: dict[str, Kind] = {
    "dateFormat": "text",
    "timestampFormat": "text",
    "timestampNTZFormat": "text",
    "enableDateTimeParsingFallback": "bool",
    "timeZone": "text",
    "locale": "text",
}

PARSER_OPTIONS: dict[str, dict[str, Kind]] = {
    "json": {
        **_TIMES,
        "allowBackslashEscapingAnyCharacter": "bool",
        "allowComments": "bool",
        "allowNonNumericNumbers": "bool",
        "allowNumericLeadingZeros": "bool",
        "allowSingleQuotes": "bool",
        "allowUnquotedControlChars": "bool",
        "allowUnquotedFieldNames": "bool",
        "encoding": "text",
        "lineSep": "text",
        "multiLine": "bool",
    },
    "csv": {
        **_TIMES,
        "charToEscapeQuoteEscaping": "letter",
        "comment": "letter",
        "delimiter": "text",
        "emptyValue": "text",
        "encoding": "text",
        "escape": "letter",
        "header": "bool",
        "ignoreLeadingWhiteSpace": "bool",
        "ignoreTrailingWhiteSpace": "bool",
        "lineSep": "text",
        "maxCharsPerColumn": "limit",
        "maxColumns": "count",
        "multiLine": "bool",
        "nanValue": "text",
        "negativeInf": "text",
        "nullValue": "text",
        "positiveInf": "text",
        "quote": "letter",
        "sep": "text",
        "unescapedQuoteHandling": "text",
    },
    "text": {"encoding": "text", "lineSep": "text", "wholetext": "bool"},
    "xml": {
        **_TIMES,
        "attributePrefix": "text",
        "encoding": "text",
        "excludeAttribute": "bool",
        "ignoreNamespace": "bool",
        "ignoreSurroundingSpaces": "bool",
        "nullValue": "text",
        "rowTag": "text",
        "valueTag": "text",
    },
    "parquet": {"datetimeRebaseMode": "text", "int96RebaseMode": "text"},
    "orc": {},
    "avro": {"datetimeRebaseMode": "text"},
    "raw": {},
}

_KEPT_RAW = "tidegate keeps every record that does not parse, raw, in the quarantine"
_LOSES = "it loses records in silence"
_INFERS = "it steers how Spark guesses the schema, which happens once at most; where it guesses wrong, write the schema"
_WRITES = "it is an option for writing"
_LINKS = "tidegate decides which files are new, by its own ledger"
_STARTS = "tidegate pins the starting offsets itself"
_KEYS = "it follows from other keys of the source"

_REFUSED_EVERYWHERE: dict[str, tuple[str, str]] = {
    "mode": (_KEPT_RAW, "remove it"),
    "columnNameOfCorruptRecord": (_KEPT_RAW, "remove it"),
    "badRecordsPath": (f"Spark accepts and ignores it; {_KEPT_RAW}", "remove it"),
    "rescuedDataColumn": ("Spark accepts and ignores it", "write unknown_fields: rescue on the source"),
    "samplingRatio": (_INFERS, "remove it"),
    "inferSchema": (_INFERS, "remove it"),
    "prefersDecimal": (_INFERS, "remove it"),
    "primitivesAsString": (_INFERS, "remove it"),
    "dropFieldIfAllNull": (_INFERS, "remove it"),
    "preferDate": (_INFERS, "remove it"),
    "mergeSchema": (_INFERS, "remove it"),
    "singleVariantColumn": ("it replaces the declared schema", "declare the columns in schema"),
    "compression": (f"{_WRITES}; for reading, the file extension decides", "remove it"),
    "ignoreNullFields": (_WRITES, "remove it"),
    "quoteAll": (_WRITES, "remove it"),
    "escapeQuotes": (_WRITES, "remove it"),
    "extension": (_WRITES, "remove it"),
    "schema": (_KEYS, "write schema on the source"),
    "path": (_KEYS, "write path on the source"),
}
_REFUSED_FILES: dict[str, tuple[str, str]] = {
    "ignoreCorruptFiles": (_LOSES, "remove it: a corrupt file goes to quarantine by itself"),
    "ignoreMissingFiles": (_LOSES, "remove it: a file that vanished is reported by name"),
    "modifiedBefore": ("the time stamps of files do not matter", "remove it, or use settle"),
    "modifiedAfter": ("the time stamps of files do not matter", "remove it; start: TIME says what the first run reads"),
    "maxFileAge": (f"{_LOSES}; {_LINKS}", "remove it"),
    "latestFirst": (f"{_LOSES} together with a file's age; {_LINKS}", "remove it"),
    "fileNameOnly": (_LINKS, "remove it"),
    "maxCachedFiles": (_LINKS, "remove it"),
    "cleanSource": ("tidegate never touches the files of a source", "remove it"),
    "sourceArchiveDir": ("tidegate never touches the files of a source", "remove it"),
    "basePath": (_LINKS, "remove it"),
}
_REFUSED_KAFKA: dict[str, tuple[str, str]] = {
    "failOnDataLoss": (f"{_LOSES} when false", "remove it; after exit 66 use tidegate run NAME --accept-loss"),
    "startingOffsets": (_STARTS, "write starting_offsets on the source"),
    "startingTimestamp": (_STARTS, "write starting_offsets on the source, with a time stamp"),
    "startingOffsetsByTimestamp": (_STARTS, "write starting_offsets on the source, with a time stamp"),
    "startingOffsetsByTimestampStrategy": (_STARTS, "remove it"),
    "endingOffsets": ("a run reads to what was there when it began", "remove it"),
    "endingTimestamp": ("a run reads to what was there when it began", "remove it"),
    "endingOffsetsByTimestamp": ("a run reads to what was there when it began", "remove it"),
    "minOffsetsPerTrigger": ("it leaves records behind though the gate is open", "remove it"),
    "maxTriggerDelay": ("it leaves records behind though the gate is open", "remove it"),
    "subscribe": (_KEYS, "write topics on the source"),
    "subscribePattern": (_KEYS, "write topic_pattern on the source"),
    "assign": (_KEYS, "write assign on the source"),
    "includeHeaders": (_KEYS, "write metadata: true on the source"),
    "groupIdPrefix": ("records are read without a consumer group", "remove it"),
    "fetchOffset.numRetries": ("a run asks for offsets again by itself", "remove it"),
    "fetchOffset.retryIntervalMs": ("a run asks for offsets again by itself", "remove it"),
}
_REFUSED_BY_FORMAT: dict[str, dict[str, tuple[str, str]]] = {
    "json": {"charset": ("it is another name of encoding", "write encoding")},
    "csv": {
        "charset": ("it is another name of encoding", "write encoding"),
        "enforceSchema": ("where there is a header, it is always checked against the schema", "remove it"),
    },
}


def find_refusal(key: str, source: FilesSource | KafkaSource) -> tuple[str, str] | None:
    """Why an option of Spark's, in whatever case, cannot be set on ``source``, and what to do instead."""
    tables = (
        _REFUSED_BY_FORMAT.get(source.format, {}),
        _REFUSED_FILES if isinstance(source, FilesSource) else _REFUSED_KAFKA,
        _REFUSED_EVERYWHERE,
    )
    named = (reason for table in tables for name, reason in table.items() if name.lower() == key.lower())
    return next(named, None)


def list_allowed(source: FilesSource | KafkaSource) -> dict[str, Kind]:
    """The options that may be set on ``source``, with the kind of their value (``kafka.*`` not among them)."""
    if isinstance(source, FilesSource):
        return {**FILE_STREAM_OPTIONS, **LISTING_OPTIONS, **PARSER_OPTIONS[source.format]}
    parser = {key: kind for key, kind in PARSER_OPTIONS[source.format].items() if key not in OPTIONS_OF_FILES}
    return {**KAFKA_STREAM_OPTIONS, **parser}


OPTIONS_OF_FILES = {"lineSep", "wholetext", "header", "multiLine", "encoding"}
"""Parser options about a file; a Kafka value is one record."""


def parser_options(source: FilesSource | KafkaSource) -> dict[str, str]:
    """The options of ``source`` that are for the parser of its records (json, csv, text, parquet)."""
    names = PARSER_OPTIONS[source.format]
    return {key: show_option(value) for key, value in source.options.items() if key in names}


def has_documents(source: FilesSource | KafkaSource) -> bool:
    """Return whether the files of ``source`` hold JSON over several lines, or XML."""
    if source.format == "xml":
        return True
    is_set = show_option(source.options.get("multiLine", False)) == "true"
    return isinstance(source, FilesSource) and source.format == "json" and is_set


def is_read_whole(source: FilesSource | KafkaSource) -> bool:
    """Return whether a file of ``source`` can be read from its beginning alone, as one part."""
    return has_documents(source) or is_wide(encoding_of(source))


def has_line_records(source: FilesSource) -> bool:
    """Return whether a line of a text file of ``source`` is a record: excluding one leaves the others as they are."""
    options = {key: show_option(value) for key, value in source.options.items()}
    if is_read_whole(source) or "true" in (options.get("multiLine"), options.get("wholetext")):
        return False
    return not is_wide(options.get("encoding", ""))


def show_option(value: object) -> str:
    """The value of an option or a setting as Spark wants it: text, with ``true`` and ``false`` in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
