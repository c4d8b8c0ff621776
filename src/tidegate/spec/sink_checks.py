"""Checks across the keys of the sinks, and their columns where these are known without reading anything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from tidegate.spec.faults import name_nearest, show_value
from tidegate.spec.findings import Finding
from tidegate.spec.models import ForeachBatchSink, ForeachSink, KafkaSink, KafkaSource, PipelineSpec
from tidegate.spec.sink_columns import find_sink_mismatches
from tidegate.spec.source_checks import list_columns

USER_CODE = re.compile(r"(?P<file>[A-Za-z0-9_][A-Za-z0-9_.-]*\.py):(?P<name>[A-Za-z_]\w*)")
ADDED_COLUMNS = ("_run_id", "_version")
"""The columns that foreach and foreach_batch add to each row."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_sinks(spec: PipelineSpec) -> list[Finding]:
    """Everything wrong with the sinks that no single key shows."""
    found: list[Finding] = []
    known = _known_columns(spec)
    for index, sink in enumerate(spec.sinks):
        here = ("sinks", index)
        if isinstance(sink, KafkaSink):
            found += _check_kafka(here, sink, spec)
        elif isinstance(sink, (ForeachSink, ForeachBatchSink)):
            found += _check_user_code(here, sink)
            for column in known or ():
                if column.lower() in ADDED_COLUMNS:
                    message = f"the rows have a column {column}, and a {sink.type} sink adds one of this name"
                    found.append(Finding(here, message, "rename the column in the transform"))
    counts = Counter(sink.name for sink in spec.sinks)
    for index, sink in enumerate(spec.sinks):
        if counts[sink.name] > 1 and sink.name in [other.name for other in spec.sinks[:index]]:
            message = f"{sink.name} is there twice: each would be fed with every row"
            found.append(Finding(("sinks", index), message, "remove one"))
    return found


def explain_topic(topic: str, spec: PipelineSpec) -> tuple[str, str] | None:
    """Why ``topic`` cannot be fed by this pipeline, and what to do instead; None when it can."""
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        return f"{show_value(topic)} cannot be a topic", "use 1 to 249 letters, digits, ., _ and -"
    for name, source in spec.sources.items():
        if isinstance(source, KafkaSource) and _reads(source, topic):
            message = f"the topic {topic} is read by the source {name}: the pipeline would feed itself without end"
            return message, "feed another topic"
    return None


def _known_columns(spec: PipelineSpec) -> dict[str, str] | None:
    """The columns of the rows and their types; None where the transform decides."""
    if spec.transform is not None or len(spec.sources) != 1:
        return None
    columns = list_columns(next(iter(spec.sources.values())))
    return None if columns is None else {column.name: column.type for column in columns}


def _check_kafka(here: tuple[str | int, ...], sink: KafkaSink, spec: PipelineSpec) -> list[Finding]:
    known = _known_columns(spec)
    found = []
    if sink.topic is not None and (refused := explain_topic(sink.topic, spec)) is not None:
        found.append(Finding((*here, "topic"), *refused))
    if sink.topic is None and sink.value == "json":
        fix = "add `topic: ...`; only with value: columns can each row name its own"
        found.append(Finding((*here, "topic"), "the key is missing", fix))
    if sink.key is not None and sink.value == "columns":
        message = "with value: columns the key of a record is the column key"
        found.append(Finding((*here, "key"), message, f"remove it, and name {show_value(sink.key)} key in the rows"))
    elif sink.key is not None:
        found += _check_key((*here, "key"), sink.key, known)
    if known is not None:
        found += [Finding(here, misfit.message, misfit.fix) for misfit in find_sink_mismatches(sink, known)]
    return found


def _reads(source: KafkaSource, topic: str) -> bool:
    if source.topic_pattern is None:
        return topic in (source.topics or ()) or topic in (source.assign or ())
    try:
        return re.fullmatch(source.topic_pattern, topic) is not None
    except re.error:  # Java's pattern, which Python does not know; or a wrong one, which the source's checks name
        return False


def _check_key(here: tuple[str | int, ...], key: str, known: Mapping[str, str] | None) -> list[Finding]:
    if known is None or key.lower() in [name.lower() for name in known]:
        return []
    nearest = name_nearest(key, known)
    fix = f"write {nearest}" if nearest else f"the columns are: {', '.join(known)}"
    return [Finding(here, f"there is no column {show_value(key)}", fix)]


def _check_user_code(here: tuple[str | int, ...], sink: ForeachSink | ForeachBatchSink) -> list[Finding]:
    key, text, name = (
        ("writer", sink.writer, "Writer") if isinstance(sink, ForeachSink) else ("function", sink.function, "write")
    )
    if USER_CODE.fullmatch(text):
        return []
    message = f"{show_value(text)} does not name a file in the folder of the pipeline and something in it"
    return [Finding((*here, key), message, f'write "sinks.py:{name}"')]
