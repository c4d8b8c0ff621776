"""The columns that ``value: columns`` of a Kafka sink takes, as Spark's Kafka sink does, and those that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidegate.spec.faults import name_nearest
from tidegate.spec.models import KafkaSink

_HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
WANTED: dict[str, tuple[str, ...]] = {
    "key": ("STRING", "BINARY"),
    "value": ("STRING", "BINARY"),
    "topic": ("STRING",),
    "partition": ("INT",),
    "headers": (_HEADERS,),
}
"""{column: the types that it may have}. The table may have other columns; they are not sent."""


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
