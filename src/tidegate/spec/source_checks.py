"""Checks across the keys of one source, the columns it gives, and the paths in a spec."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import datetime

from tidegate.core import storage
from tidegate.spec.ddl import Column, DdlError, is_infer, parse_ddl, read_columns
from tidegate.spec.document import Finding, KeyPath, names_variable
from tidegate.spec.encodings import is_wide
from tidegate.spec.faults import STORAGE_NOT_SUPPORTED, name_nearest, show_value, suggest
from tidegate.spec.models import (
    SELF_DESCRIBING_FORMATS,
    FilesSource,
    KafkaSource,
    PipelineSpec,
    RateSource,
    SocketSource,
    SourceSpec,
)
from tidegate.spec.option_checks import check_reader_options, check_trial_options
from tidegate.spec.reader_options import show_option
from tidegate.spec.trial_options import gives_timestamp

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
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_EARLIEST, _LATEST = -2, -1
_BATCH_LIMITS = ("maxFilesPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerTrigger")
_WRITE_COLUMNS = "write the columns: schema: id BIGINT, name STRING"
_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/")
_GLOB = "[]{}*?\\"


def is_uri(text: str) -> bool:
    """Return whether ``text`` names a storage by scheme (``s3a://...``, ``file:/...``) and not a local path."""
    return _URI.match(text) is not None


def describe_unusable_path(text: str, *, may_be_pattern: bool = False) -> str | None:
    """Why a path cannot be used, or None. Spark takes every path as a glob, so glob characters are not possible in the
    name of a folder."""
    if not text.strip():
        return "is empty"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return "has a line break or another control character in it"
    found = [letter for letter in _GLOB if letter in text]
    if found and not may_be_pattern:
        return f"has {' '.join(found)} in it, which Spark takes as a pattern"
    if text.startswith("~"):
        return "starts with ~, which is not expanded"
    return None


def describe_unusable_place(text: str, *, may_be_pattern: bool = False) -> tuple[str, str, str] | None:
    """Why a folder, or a prefix of an object store, cannot be used, with a fix and the code of the fault; None when it
    can."""
    path = storage.parse_path(text)
    if isinstance(path, storage.ObjectPath):
        example = f"write {path.scheme}://bucket/prefix"
        if not path.bucket:
            return "names no bucket", example, "BAD_SPEC"
        if not path.is_plain:
            return "has `..` in it, which a store takes for a name", example, "BAD_SPEC"
    elif is_uri(text):
        supported = ", ".join(f"{scheme}://" for scheme in storage.SCHEMES)
        fix = "write s3://bucket/prefix" if text.lower().startswith(("s3a:", "s3n:", "s3:")) else ""
        return f"is a URI, and only {supported} and local paths are supported", fix, STORAGE_NOT_SUPPORTED
    unusable = describe_unusable_path(text, may_be_pattern=may_be_pattern)
    return None if unusable is None else (unusable, "" if may_be_pattern else "use a plain name", "BAD_SPEC")


def check_source(name: str, source: SourceSpec, spec: PipelineSpec) -> list[Finding]:
    """Everything wrong with one source that no single key shows."""
    here = ("sources", name)
    found: list[Finding] = []
    if isinstance(source, (FilesSource, KafkaSource)):
        found += [*_check_schema(here, source), *check_reader_options((*here, "options"), source)]
        found += _check_format(here, source, spec)
    if isinstance(source, FilesSource):
        found += _check_path((*here, "path"), source.path)
        for number, folder in enumerate(source.follow_links):
            found += _check_link_folder((*here, "follow_links", number), source, folder)
        found += [*_check_on_change((*here, "on_change"), source), *_check_start((*here, "start"), source)]
        found += _check_list_all_every((*here, "list_all_every"), source)
        found += _check_notifications((*here, "notifications"), source)
    if isinstance(source, KafkaSource):
        found += [*_check_topics(here, source), *_check_starting_offsets((*here, "starting_offsets"), source)]
    if isinstance(source, (RateSource, SocketSource)):
        found += check_trial_options((*here, "options"), source)
    if isinstance(source, (FilesSource, KafkaSource, RateSource)):
        found += _check_event_time(here, source)
    return found


def no_such_column(here: KeyPath, name: str, columns: Collection[str]) -> Finding:
    """A name at ``here`` that is none of ``columns``."""
    return Finding(here, f"there is no column {show_value(name)}", suggest(name, columns, "the columns are"))


def find_row_types(spec: PipelineSpec) -> dict[str, str] | None:
    """The columns of the rows and their types; None where the transform decides, or a file has to be read."""
    if spec.transform is not None or len(spec.sources) != 1:
        return None
    columns = list_columns(next(iter(spec.sources.values())))
    return None if columns is None else {column.name: column.type for column in columns}


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


def _check_schema(source_path: KeyPath, source: FilesSource | KafkaSource) -> Iterator[Finding]:
    here, text = (*source_path, "schema"), source.schema
    if text is None:
        if source.format not in ("text", "raw"):
            yield Finding(here, f"{source.format} needs a schema", "add `schema: id BIGINT, name STRING`")
        return
    refused = _refuse_infer(source) if is_infer(text) else None
    if refused is None and (source.format == "raw" or (source.format == "text" and isinstance(source, KafkaSource))):
        kind = "BINARY" if source.format == "raw" else "STRING"
        refused = f"{source.format} has one column, value {kind}, and no schema", "remove it"
    if refused is not None:
        yield Finding(here, *refused)
    elif not is_infer(text):
        try:
            yield from _check_columns(here, source, parse_ddl(text))
        except DdlError as error:
            column = f"column {error.column}: " if error.column else ""
            yield Finding(here, f"not a schema in Spark's DDL: {column}{error.message}", error.fix)


def _refuse_infer(source: FilesSource | KafkaSource) -> tuple[str, str] | None:
    """Why ``schema: infer`` is not possible, and what to do."""
    if source.format in ("xml", "avro"):
        return f"schema: infer is not for {source.format}", _WRITE_COLUMNS
    if source.format == "text":
        return "text has one column, value STRING: there is nothing to infer", "remove it"
    if isinstance(source, KafkaSource) and source.format != "raw":
        return "schema: infer is for files; records of a topic do not contain their columns", _WRITE_COLUMNS
    return None


def _check_columns(here: KeyPath, source: FilesSource | KafkaSource, columns: list[Column]) -> Iterator[Finding]:
    taken = set(_OWNED_COLUMNS)
    if source.unknown_fields == "rescue":
        taken.add(RESCUED)
    if isinstance(source, KafkaSource) and source.metadata:
        taken |= {column.name for column in KAFKA_METADATA}
    for column in columns:
        if column.name.lower() in taken or column.name.lower().startswith("_tidegate"):
            fix = f"rename it (the names {', '.join(sorted(_OWNED_COLUMNS))} are taken)"
            yield Finding(here, f"the column {column.name} is tidegate's own", fix)
        if source.format == "csv" and column.type.startswith(_CSV_CANNOT):
            message = f"column {column.name}: csv cannot hold {column.type}"
            yield Finding(here, message, "write STRING, and parse it later")
    yield from _check_fractions(here, source, columns)
    if source.format == "text" and not any(column.name == "value" and column.type == "string" for column in columns):
        yield Finding(here, "text gives its lines in the column value", "add `value STRING`, or remove schema")


def _check_fractions(here: KeyPath, source: FilesSource | KafkaSource, columns: list[Column]) -> Iterator[Finding]:
    """In German 1.234 is more than a thousand; as a DOUBLE it would be little more than one."""
    locale = str(source.options.get("locale", "en"))
    if source.format not in ("csv", "xml") or locale.partition("-")[0] == "en":
        return
    fields = read_columns(columns).fields
    named = [name for name, node in fields if any(leaf.kind in ("double", "float") for leaf in node.leaves())]
    if named:
        message = (
            f"column{'s' if len(named) > 1 else ''} {', '.join(named)}: DOUBLE and FLOAT are read with a decimal "
            f"point, whatever the option locale ({locale}) says"
        )
        fix = "declare DECIMAL, which follows the locale, such as DECIMAL(18,4); or remove the option locale"
        yield Finding(here, message, fix)


def _check_format(here: KeyPath, source: FilesSource | KafkaSource, spec: PipelineSpec) -> Iterator[Finding]:
    for limit in _BATCH_LIMITS:
        if spec.trigger == "once" and limit in source.options:
            message = "trigger: once takes everything in one batch, so there is no limit"
            yield Finding((*here, "options", limit), message, "remove it, or write trigger: available_now")
    if source.unknown_fields != "report" and source.format not in ("json", "xml"):
        policy = f"unknown_fields: {source.unknown_fields}"
        message = f"{policy} is for json and xml; {source.format} has no unknown fields"
        yield Finding((*here, "unknown_fields"), message, "remove it")


def _check_path(here: KeyPath, path: str) -> Iterator[Finding]:
    fix = "write the path out, or relative to tidegate.yaml: data/inbox/*.json"
    if unusable := describe_unusable_place(path, may_be_pattern=True):
        what, instead, code = unusable
        yield Finding(here, f"the path {what}", instead or fix, code)
    elif names_variable(path):
        fix = f"{fix}; where it differs between machines, let a folder there be a symbolic link"
        yield Finding(here, "the environment is filled in in tidegate.yaml only", fix)


def _check_link_folder(here: KeyPath, source: FilesSource, folder: str) -> Iterator[Finding]:
    if source.is_on_store or storage.is_object(storage.parse_path(folder)):
        yield Finding(here, "an object store has no symbolic links", "remove it")
    else:
        yield from _check_path(here, folder)


def _check_on_change(here: KeyPath, source: FilesSource) -> Iterator[Finding]:
    if source.on_change != "report" and source.static:
        yield Finding(here, "a static source is read afresh in each run, so no change is missed", "remove it")
    elif source.on_change == "reread_tail" and (reason := _describe_lines_missing(source)):
        yield Finding(here, f"reread_tail {reason}", "write report or fail")


def _describe_lines_missing(source: FilesSource) -> str | None:
    """Why appended lines of the files cannot be read; None when they can."""
    if source.is_on_store:
        return "reads appended lines, and nothing is appended to an object: it is replaced as a whole"
    if source.format in SELF_DESCRIBING_FORMATS:
        return f"reads appended lines, and {source.format} has none"
    if source.format == "xml":
        return "reads appended lines, and in xml a line is not a record"
    for key in ("wholetext", "multiLine"):
        if show_option(source.options.get(key, "")).lower() == "true":
            return f"reads appended lines, and with {key} a line is not a record"
    if is_wide(str(source.options.get("encoding", ""))):
        return f"cannot find the lines of {source.options['encoding']}"
    return None


def _check_start(here: KeyPath, source: FilesSource) -> Iterator[Finding]:
    if source.start != "all" and source.static:
        yield Finding(here, "a static source is read whole in each run", "remove it")
    elif source.start not in ("all", "now"):
        yield from _check_moment(here, source.start, ("all", "now"), "write all, now, or an ISO time stamp")


def _check_list_all_every(here: KeyPath, source: FilesSource) -> Iterator[Finding]:
    if source.list_all_every is None:
        return
    if source.static:
        yield Finding(here, "a static source is read whole in each run", "remove it")
    elif not source.is_on_store:
        yield Finding(here, "a folder is listed whole in each run; only a store can list a part", "remove it")


def _check_notifications(here: KeyPath, source: FilesSource) -> Iterator[Finding]:
    if source.notifications is None:
        return
    if not source.path.startswith("s3://"):
        yield Finding(here, "only those of S3 (s3://) are understood", "remove it")
    elif source.static:
        yield Finding(here, "a static source is read whole in each run", "remove it")
    elif source.list_all_every is None:
        yield Finding(here, "an object whose message is lost would never be read", "add `list_all_every: 1 day`")
    topic, path = source.notifications.topic, source.notifications.path
    if (topic is None) == (path is None):
        yield Finding(here, "exactly one of topic and path says where they arrive", "write {topic: NAME}")
    elif topic is not None:
        yield from _check_topic((*here, "topic"), topic)
    elif path is not None:
        yield from _check_path((*here, "path"), path)
        if f"{path}/".startswith(f"{source.path.rstrip('/')}/"):
            yield Finding((*here, "path"), "is inside of the source, whose files are records", "write another folder")


def _check_topic(here: KeyPath, topic: str, more: str = "") -> Iterator[Finding]:
    if not TOPIC.fullmatch(topic) or topic in (".", ".."):
        fix = "use letters, digits, . _ and -, at most 249" + (more if topic else "")
        yield Finding(here, f"{show_value(topic)} cannot be the name of a topic", fix)


def _check_moment(here: KeyPath, value: str, words: tuple[str, ...], fix: str) -> Iterator[Finding]:
    """Check a place to start that is none of ``words``."""
    nearest = name_nearest(value, words)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        yield Finding(here, f"{show_value(value)} is not a place to start", f"write {nearest}" if nearest else fix)
        return
    if moment.tzinfo is None:
        yield Finding(here, f"{show_value(value)} has no time zone", f"write {moment.isoformat()}Z for UTC")


def _check_topics(here: KeyPath, source: KafkaSource) -> Iterator[Finding]:
    given = [key for key in ("topics", "topic_pattern", "assign") if getattr(source, key) is not None]
    if len(given) != 1:
        message = f"there are {' and '.join(given)}" if given else "there is none of topics, topic_pattern and assign"
        fix = "keep one of them" if given else "add `topics: [name]`"
        yield Finding((*here, given[-1] if given else "topics"), message, fix)
        return
    names, named_at = source.topic_names, (*here, given[0])
    if source.topic_pattern is None and not names:
        yield Finding(named_at, "there is no topic", "name at least one")
    for topic in names:
        yield from _check_topic(named_at, topic, "; for a pattern: topic_pattern")
    if len(set(names)) != len(names):
        yield Finding(named_at, "a topic is named twice", "name each once")
    for topic, partitions in (source.assign or {}).items():
        if not partitions or len(set(partitions)) != len(partitions) or min(partitions) < 0:
            message = f"{show_value(partitions)} ({topic}) is not a list of partitions"
            yield Finding((*here, "assign", topic), message, "write each partition once: [0, 1]")
    if source.topic_pattern is not None:
        try:
            re.compile(source.topic_pattern)
            fault = None if source.topic_pattern else "it is empty"
        except re.error as error:
            fault = str(error)
        if fault:
            fix = 'write a regular expression: "orders-.*"'
            yield Finding((*here, "topic_pattern"), f"not a regular expression: {fault}", fix)


def _check_starting_offsets(here: KeyPath, source: KafkaSource) -> Iterator[Finding]:
    value = source.starting_offsets
    fix = "write earliest, latest, an ISO time stamp, or {topic: {partition: offset}}"
    if isinstance(value, str):
        if value not in ("earliest", "latest"):
            yield from _check_moment(here, value, ("earliest", "latest"), fix)
        return
    if not value:
        yield Finding(here, "it names no topic", fix)
        return
    read = sorted(set(source.topics or source.assign or {}))
    for topic, partitions in value.items():
        if read and topic not in read:
            message = f"the topic {show_value(topic)} is not read by this source"
            yield Finding((*here, topic), message, suggest(topic, read, "the topics are"))
        if not partitions:
            yield Finding((*here, topic), "it names no partition", fix)
        for partition, offset in partitions.items():
            if not (partition.isascii() and partition.isdigit()) or offset < _EARLIEST:
                message = f"{show_value(partition)}: {offset} is not a valid partition/offset pair"
                yield Finding((*here, topic, partition), message, "write 0: 123 (-2 is the earliest, -1 the latest)")
    for topic in read:
        if topic not in value:
            message = f"the topic {topic!r} is missing"
            yield Finding(here, message, "name a start for every topic, or write earliest")


def _check_event_time(source_path: KeyPath, source: FilesSource | KafkaSource | RateSource) -> Iterator[Finding]:
    here, column = (*source_path, "event_time"), source.event_time
    columns = list_columns(source)
    if column is None:
        if source.watermark is not None:
            yield Finding((*source_path, "watermark"), "a watermark needs event_time", "add `event_time: column`")
    elif columns is not None:
        types = {one.name: one.type for one in columns}
        if column not in types:
            yield no_such_column(here, column, types)
        elif types[column] != "timestamp":
            message = f"the column {column} is {types[column].upper()}, not TIMESTAMP"
            yield Finding(here, message, "declare it as TIMESTAMP, or name another column")
