"""Checks across the keys of the sinks, and of the columns that they take, where these are known without reading."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidegate.spec.document import Finding, KeyPath
from tidegate.spec.faults import name_nearest, show_value
from tidegate.spec.models import ForeachBatchSink, ForeachSink, KafkaSink, KafkaSource, PipelineSpec
from tidegate.spec.source_checks import TOPIC, find_row_types, no_such_column

USER_CODE = re.compile(r"(?P<file>[A-Za-z0-9_][A-Za-z0-9_.-]*\.py):(?P<name>[A-Za-z_]\w*)")
ADDED_COLUMNS = ("_run_id", "_version")
"""The columns that foreach and foreach_batch add to each row."""

WANTED: dict[str, tuple[str, ...]] = {
    "key": ("STRING", "BINARY"),
    "value": ("STRING", "BINARY"),
    "topic": ("STRING",),
    "partition": ("INT",),
    "headers": ("ARRAY<STRUCT<key: STRING, value: BINARY>>",),
}
"""{column: the types that it may have} of a Kafka sink with ``value: columns``, as in Spark's Kafka sink. The table may
have other columns; they are not sent."""


class SinkMismatch(NamedTuple):
    """A column that the sink cannot take. ``is_missing``: a transform may still add it."""

    message: str
    fix: str
    is_missing: bool = False


def find_sink_mismatches(sink: KafkaSink, types: Mapping[str, str]) -> list[SinkMismatch]:
    """What keeps rows with columns of these types, {name: type in Spark's DDL}, from ``sink``; [] for one that takes
    them, and for one that does not take columns. Where the sink names its topic, a column of that name is not sent."""
    if sink.value != "columns":
        return []
    spelt = {name.lower(): name for name in types if sink.topic is None or name.lower() != "topic"}
    found = []
    for column, wanted in WANTED.items():
        name = spelt.get(column)
        if name is None:
            continue
        if _plain(types[name]) not in {_plain(kind) for kind in wanted}:
            kind = types[name] if "<" in types[name] else types[name].upper()
            expected = " or ".join(wanted)
            message = f"the column {name} is {kind}, and a kafka sink with value: columns wants {expected}"
            found.append(SinkMismatch(message, f"make it {expected} in the transform, or give it another name"))
    columns = ", ".join(types) or "none"
    if "value" not in spelt:
        nearest = name_nearest("value", types)
        rename = f"rename {nearest} to value" if nearest else "add the column value (STRING or BINARY)"
        message = f"there is no column value, which a kafka sink with value: columns sends; the columns are: {columns}"
        found.append(SinkMismatch(message, f"{rename} in the transform, or write value: json", is_missing=True))
    if "topic" not in spelt and sink.topic is None:
        message = f"there is no column topic, and the sink names no topic; the columns are: {columns}"
        fix = "write topic: NAME in the sink, or add the column topic (STRING) in the transform"
        found.append(SinkMismatch(message, fix, is_missing=True))
    return found


def _plain(kind: str) -> str:
    return kind.lower().replace(" ", "").replace("`", "")


def check_sinks(spec: PipelineSpec) -> Iterator[Finding]:
    """Find everything wrong with the sinks that no single key shows."""
    types = find_row_types(spec)
    names: set[str] = set()
    for index, sink in enumerate(spec.sinks):
        here = ("sinks", index)
        if isinstance(sink, KafkaSink):
            yield from _check_kafka(here, sink, spec, types)
        elif isinstance(sink, (ForeachSink, ForeachBatchSink)):
            yield from _check_user_code(here, sink)
            for column in types or ():
                if column.lower() in ADDED_COLUMNS:
                    message = f"the rows have a column {column}, and a {sink.type} sink adds one of this name"
                    yield Finding(here, message, "rename the column in the transform")
        if sink.name in names:
            yield Finding(here, f"{sink.name} is there twice: each would be fed with every row", "remove one")
        names.add(sink.name)


def explain_topic(topic: str, spec: PipelineSpec) -> tuple[str, str] | None:
    """Why ``topic`` cannot be fed by this pipeline, and what to do instead; None when it can."""
    if not TOPIC.fullmatch(topic) or topic in (".", ".."):
        return f"{show_value(topic)} cannot be a topic", "use 1 to 249 letters, digits, ., _ and -"
    for name, source in spec.sources.items():
        if isinstance(source, KafkaSource) and _reads(source, topic):
            message = f"the topic {topic} is read by the source {name}: the pipeline would feed itself without end"
            return message, "feed another topic"
    return None


def _check_kafka(here: KeyPath, sink: KafkaSink, spec: PipelineSpec, types: dict[str, str] | None) -> Iterator[Finding]:
    if sink.topic is not None and (refused := explain_topic(sink.topic, spec)) is not None:
        yield Finding((*here, "topic"), *refused)
    if sink.topic is None and sink.value == "json":
        fix = "add `topic: ...`; only with value: columns can each row name its own"
        yield Finding((*here, "topic"), "the key is missing", fix)
    if sink.key is not None and sink.value == "columns":
        message = "with value: columns the key of a record is the column key"
        yield Finding((*here, "key"), message, f"remove it, and name {show_value(sink.key)} key in the rows")
    elif sink.key is not None and types is not None and sink.key.lower() not in [name.lower() for name in types]:
        yield no_such_column((*here, "key"), sink.key, types)
    for misfit in find_sink_mismatches(sink, types) if types is not None else ():
        yield Finding(here, misfit.message, misfit.fix)


def _reads(source: KafkaSource, topic: str) -> bool:
    if source.topic_pattern is None:
        return topic in source.topic_names
    try:
        return re.fullmatch(source.topic_pattern, topic) is not None
    except re.error:  # Java's pattern, which Python does not know; or a wrong one, which the source's checks name
        return False


def _check_user_code(here: KeyPath, sink: ForeachSink | ForeachBatchSink) -> Iterator[Finding]:
    key, text, name = (
        ("writer", sink.writer, "Writer") if isinstance(sink, ForeachSink) else ("function", sink.function, "write")
    )
    if not USER_CODE.fullmatch(text):
        message = f"{show_value(text)} does not name a file in the folder of the pipeline and something in it"
        yield Finding((*here, key), message, f'write "sinks.py:{name}"')
