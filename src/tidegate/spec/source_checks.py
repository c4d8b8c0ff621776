"""Checks across the keys of one source, and the columns it gives."""

from __future__ import annotations

import re
from datetime import datetime

from tidegate.spec.ddl import Column, DdlError, is_infer, parse_ddl
from tidegate.spec.ddl_tree import read_type
from tidegate.spec.document import names_variable
from tidegate.spec.encodings import is_wide
from tidegate.spec.faults import STORAGE_NOT_SUPPORTED, name_nearest, show_value
from tidegate.spec.findings import Finding
from tidegate.spec.models import (
    SELF_DESCRIBING_FORMATS,
    FilesSource,
    KafkaSource,
    PipelineSpec,
    RateSource,
    SocketSource,
    SourceSpec,
)
from tidegate.spec.paths import is_uri
from tidegate.spec.reader_options import check_reader_options
from tidegate.spec.trial_options import check_trial_options, gives_timestamp

KAFKA_METADATA: tuple[Column, ...] = (
    Column("_key", "binary", True),
    Column("_topic", "string", True),
    Column("_partition", "int", True),
    Column("_offset", "bigint", True),
    Column("_timestamp", "timestamp", True),
    Column("_headers", "array<struct<key:string,value:binary>>", True),
)
"""The columns that ``metadata: true`` adds."""

RESCUED = "_rescued"
_OWNED_COLUMNS = {"_corrupt_record", "_tidegate", "_raw", "_position", "_malformed", "_detail", "_unknown", "_metadata"}
_CSV_CANNOT = ("array<", "map<", "struct<", "binary")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_EARLIEST, _LATEST = -2, -1


def check_source(name: str, source: SourceSpec, spec: PipelineSpec) -> list[Finding]:
    """Everything wrong with one source that no single key shows."""
    here = ("sources", name)
    found: list[Finding] = []
    if isinstance(source, (FilesSource, KafkaSource)):
        found += _check_schema(name, source)
        found += check_reader_options((*here, "options"), source)
        found += _check_once(name, source, spec)
        if source.unknown_fields != "report" and source.format not in ("json", "xml"):
            message = (
                f"unknown_fields: {source.unknown_fields} is for json and xml; {source.format} has no unknown fields"
            )
            found.append(Finding((*here, "unknown_fields"), message, "remove it"))
    if isinstance(source, FilesSource):
        found += _check_path((*here, "path"), source.path)
        for number, folder in enumerate(source.follow_links):
            found += _check_path((*here, "follow_links", number), folder)
        found += _check_on_change((*here, "on_change"), source)
        found += _check_start((*here, "start"), source)
    if isinstance(source, KafkaSource):
        found += _check_topics(name, source)
        found += _check_starting_offsets(name, source)
    if isinstance(source, (RateSource, SocketSource)):
        found += check_trial_options((*here, "options"), source)
    if isinstance(source, (FilesSource, KafkaSource, RateSource)):
        found += _check_event_time(name, source)
    return found


def list_columns(source: SourceSpec) -> list[Column] | None:
    """The columns a source gives to the transform; None where that is unknown without reading it."""
    if isinstance(source, RateSource):
        return [Column("timestamp", "timestamp", True), Column("value", "bigint", True)]
    if isinstance(source, SocketSource):
        received = [Column("timestamp", "timestamp", True)] if gives_timestamp(source) else []
        return [Column("value", "string", True), *received]
    if source.schema is None:
        kind = "binary" if source.format == "raw" else "string"
        columns = [Column("value", kind, True)] if source.format in ("text", "raw") else None
    else:
        try:
            columns = None if is_infer(source.schema) else parse_ddl(source.schema)
        except DdlError:
            columns = None
    if columns is None:
        return None
    if source.unknown_fields == "rescue":
        columns = [*columns, Column(RESCUED, "string", True)]
    return [*columns, *KAFKA_METADATA] if isinstance(source, KafkaSource) and source.metadata else columns


def _check_schema(name: str, source: FilesSource | KafkaSource) -> list[Finding]:
    here = ("sources", name, "schema")
    text = source.schema
    if text is None:
        if source.format in ("text", "raw"):
            return []
        return [Finding(here, f"{source.format} needs a schema", "add `schema: id BIGINT, name STRING`")]
    if is_infer(text) and source.format in ("xml", "avro"):
        fix = "write the columns: schema: id BIGINT, name STRING"
        return [Finding(here, f"schema: infer is not for {source.format}", fix)]
    if is_infer(text) and isinstance(source, FilesSource) and source.format != "text":
        return []
    if is_infer(text) and source.format in ("json", "csv"):
        fix = "write the columns: schema: id BIGINT, name STRING"
        return [Finding(here, "schema: infer is for files; records of a topic do not tell their columns", fix)]
    if is_infer(text) and source.format == "text":
        return [Finding(here, "text has one column, value STRING: there is nothing to infer", "remove it")]
    if source.format == "raw" or (source.format == "text" and isinstance(source, KafkaSource)):
        kind = "BINARY" if source.format == "raw" else "STRING"
        return [Finding(here, f"{source.format} has one column, value {kind}, and no schema", "remove it")]
    try:
        columns = parse_ddl(text)
    except DdlError as error:
        column = f"column {error.column}: " if error.column else ""
        return [Finding(here, f"not a schema in Spark's DDL: {column}{error.message}", error.fix)]
    found = [
        Finding(here, f"the column {column.name} is tidegate's own", f"rename it (the names {_names()} are taken)")
        for column in columns
        if column.name.lower() in _OWNED_COLUMNS
        or column.name.lower().startswith("_tidegate")
        or (source.unknown_fields == "rescue" and column.name.lower() == RESCUED)
        or (isinstance(source, KafkaSource) and source.metadata and column.name.lower() in _METADATA_NAMES)
    ]
    if source.format == "csv":
        found += [
            Finding(here, f"column {column.name}: csv cannot hold {column.type}", "write STRING, and parse it later")
            for column in columns
            if column.type.startswith(_CSV_CANNOT)
        ]
    found += _check_fractions(here, source, columns)
    if source.format == "text" and not any(column.name == "value" and column.type == "string" for column in columns):
        found.append(Finding(here, "text gives its lines in the column value", "add `value STRING`, or remove schema"))
    return found


def _check_fractions(
    here: tuple[str | int, ...], source: FilesSource | KafkaSource, columns: list[Column]
) -> list[Finding]:
    """In German 1.234 is more than a thousand; as a DOUBLE it would be little more than one."""
    locale = str(source.options.get("locale", "en"))
    if source.format not in ("csv", "xml") or locale.partition("-")[0] == "en":
        return []
    named = [
        column.name
        for column in columns
        if any(leaf.kind in ("double", "float") for leaf in read_type(column.type).leaves())
    ]
    if not named:
        return []
    message = (
        f"column{'s' if len(named) > 1 else ''} {', '.join(named)}: DOUBLE and FLOAT are read with a decimal "
        f"point, whatever the option locale ({locale}) says"
    )
    fix = "declare DECIMAL, which follows the locale, such as DECIMAL(18,4); or remove the option locale"
    return [Finding(here, message, fix)]


_METADATA_NAMES = {column.name for column in KAFKA_METADATA}


def _names() -> str:
    return ", ".join(sorted(_OWNED_COLUMNS))


def _check_once(name: str, source: FilesSource | KafkaSource, spec: PipelineSpec) -> list[Finding]:
    limits = ("maxFilesPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerTrigger")
    if spec.trigger != "once":
        return []
    return [
        Finding(
            ("sources", name, "options", limit),
            "trigger: once takes everything in one batch, so there is no limit",
            "remove it, or write trigger: available_now",
        )
        for limit in limits
        if limit in source.options
    ]


def _check_path(here: tuple[str | int, ...], path: str) -> list[Finding]:
    if is_uri(path):
        message = f"{show_value(path)} is a URI; only paths of the local file system are supported"
        return [Finding(here, message, "write a path: data/inbox/...", STORAGE_NOT_SUPPORTED)]
    if not path.strip():
        return [Finding(here, "the path is empty", "write a folder or a pattern: data/inbox/*.json")]
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        return [Finding(here, "the path has a line break or another control character in it", "remove it")]
    if path.startswith("~"):
        return [Finding(here, "~ is not expanded", "write the path out, or relative to tidegate.yaml")]
    if names_variable(path):
        message = "the environment is filled in in tidegate.yaml only"
        return [Finding(here, message, "write the path out, or relative to tidegate.yaml")]
    return []


def _check_on_change(here: tuple[str | int, ...], source: FilesSource) -> list[Finding]:
    if source.on_change == "report":
        return []
    if source.static:
        return [Finding(here, "a static source is read afresh in each run, so no change is missed", "remove it")]
    if source.on_change == "fail":
        return []
    other = "write report or fail"
    if source.format in SELF_DESCRIBING_FORMATS:
        return [Finding(here, f"reread_tail reads appended lines, and {source.format} has none", other)]
    if source.format == "xml":
        return [Finding(here, "reread_tail reads appended lines, and in xml a line is not a record", other)]
    options = {key: str(value).lower() for key, value in source.options.items()}
    for key in ("wholetext", "multiLine"):
        if options.get(key) == "true":
            return [Finding(here, f"reread_tail reads appended lines, and with {key} a line is not a record", other)]
    if is_wide(options.get("encoding", "")):
        return [Finding(here, f"reread_tail cannot tell the lines of {source.options['encoding']}", other)]
    return []


def _check_start(here: tuple[str | int, ...], source: FilesSource) -> list[Finding]:
    value = source.start
    if value == "all":
        return []
    if source.static:
        return [Finding(here, "a static source is read whole in each run", "remove it")]
    if value == "now":
        return []
    return _check_moment(here, value, ("all", "now"), "write all, now, or an ISO time stamp")


def _check_moment(here: tuple[str | int, ...], value: str, words: tuple[str, ...], fix: str) -> list[Finding]:
    """What is wrong with a place to start that is none of ``words``."""
    nearest = name_nearest(value, words)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return [Finding(here, f"{show_value(value)} is not a place to start", f"write {nearest}" if nearest else fix)]
    if moment.tzinfo is None:
        return [Finding(here, f"{show_value(value)} has no time zone", f"write {moment.isoformat()}Z for UTC")]
    return []


def _check_topics(name: str, source: KafkaSource) -> list[Finding]:
    here = ("sources", name)
    given = [key for key in ("topics", "topic_pattern", "assign") if getattr(source, key) is not None]
    if len(given) != 1:
        message = f"there are {' and '.join(given)}" if given else "there is none of topics, topic_pattern and assign"
        fix = "keep one of them" if given else "add `topics: [name]`"
        return [Finding((*here, given[-1] if given else "topics"), message, fix)]
    found: list[Finding] = []
    names = source.topics if source.topics is not None else list(source.assign or {})
    if source.topic_pattern is None and not names:
        found.append(Finding((*here, given[0]), "there is no topic", "name at least one"))
    for topic in names:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            fix = "use letters, digits, . _ and -, at most 249" + ("; for a pattern: topic_pattern" if topic else "")
            found.append(Finding((*here, given[0]), f"{show_value(topic)} cannot be the name of a topic", fix))
    if len(set(names)) != len(names):
        found.append(Finding((*here, given[0]), "a topic is named twice", "name each once"))
    for topic, partitions in (source.assign or {}).items():
        if not partitions or len(set(partitions)) != len(partitions) or min(partitions) < 0:
            message = f"{show_value(partitions)} ({topic}) is not a list of partitions"
            found.append(Finding((*here, "assign", topic), message, "write each partition once: [0, 1]"))
    if source.topic_pattern is not None:
        try:
            re.compile(source.topic_pattern)
            fault = None if source.topic_pattern else "it is empty"
        except re.error as error:
            fault = str(error)
        if fault:
            fix = 'write a regular expression: "orders-.*"'
            found.append(Finding((*here, "topic_pattern"), f"not a regular expression: {fault}", fix))
    return found


def _check_starting_offsets(name: str, source: KafkaSource) -> list[Finding]:
    here = ("sources", name, "starting_offsets")
    value = source.starting_offsets
    fix = "write earliest, latest, an ISO time stamp, or {topic: {partition: offset}}"
    if isinstance(value, str):
        if value in ("earliest", "latest"):
            return []
        return _check_moment(here, value, ("earliest", "latest"), fix)
    if not value:
        return [Finding(here, "it names no topic", fix)]
    found: list[Finding] = []
    read = set(source.topics or source.assign or {})
    for topic, partitions in value.items():
        if read and topic not in read:
            nearest = name_nearest(topic, read)
            wanted = f"write {nearest}" if nearest else f"the topics are: {', '.join(sorted(read))}"
            found.append(Finding((*here, topic), f"the topic {show_value(topic)} is not read by this source", wanted))
        if not partitions:
            found.append(Finding((*here, topic), "it names no partition", fix))
        for partition, offset in partitions.items():
            if not (partition.isascii() and partition.isdigit()) or offset < _EARLIEST:
                message = f"{show_value(partition)}: {offset} is not a valid partition/offset pair"
                wanted = "write 0: 123 (-2 is the earliest, -1 the latest)"
                found.append(Finding((*here, topic, partition), message, wanted))
    found += [
        Finding(here, f"the topic {topic!r} is missing", "name a start for every topic, or write earliest")
        for topic in sorted(read - set(value))
    ]
    return found


def _check_event_time(name: str, source: FilesSource | KafkaSource | RateSource) -> list[Finding]:
    here = ("sources", name, "event_time")
    if source.event_time is None:
        if source.watermark is None:
            return []
        return [Finding(("sources", name, "watermark"), "a watermark needs event_time", "add `event_time: column`")]
    columns = list_columns(source)
    if columns is None:
        return []
    kinds = {column.name: column.type for column in columns}
    if source.event_time not in kinds:
        nearest = name_nearest(source.event_time, kinds)
        fix = f"write {nearest}" if nearest else f"the columns are: {', '.join(kinds)}"
        return [Finding(here, f"there is no column {show_value(source.event_time)}", fix)]
    if kinds[source.event_time] != "timestamp":
        message = f"the column {source.event_time} is {kinds[source.event_time].upper()}, not TIMESTAMP"
        return [Finding(here, message, "declare it as TIMESTAMP, or name another column")]
    return []
