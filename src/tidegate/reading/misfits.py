"""Where inside a nested column a JSON record does not fit: ``a.b[].c: not an INT``.

Spark names only the column. The malformed records that came along with the metrics are few enough to be looked at once
more, here and not in the query, whose plan would grow with the schema. The token of a value tells whether it fits a
number, a BOOLEAN or a nested type; Spark is asked about the others (dates, decimals, texts), with the source's options.
A record that Python cannot parse, and those that are too many for the metrics, keep what Spark said of the column.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.quarantine.schema import CapturedRecord
from tidegate.reading.faults import corrupt_tokens, does_not_fit, does_not_fit_inside
from tidegate.spec.as_read import origin_of
from tidegate.spec.ddl import Column, parse_ddl
from tidegate.spec.ddl_tree import Node, read_type
from tidegate.spec.models import PipelineSpec
from tidegate.spec.reader_options import parser_options
from tidegate.words import list_first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TEXTS = ("string", "char", "varchar", "variant")
_ASKED_AT_MOST = 20_000
"""Values that Spark is asked about in one batch; a record beyond keeps the short form."""
_NAMED_AT_MOST = 64


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


@dataclass(frozen=True)
class _Doubt:
    """A value of a nested column that does not fit, or, with a ``token``, of which Spark must say whether it does."""

    path: str
    type: str
    token: str | None = None


def name_misfits(spark: SparkSession, spec: PipelineSpec, records: list[CapturedRecord]) -> list[CapturedRecord]:
    """The malformed ``records`` with the path of each value that does not fit, where
    ``detail`` names a nested column alone."""
    told = list(records)
    for name, stream in spec.streams.items():
        source = origin_of(stream)
        if source is not None and source.format == "json" and source.schema_:
            nested = [column for column in parse_ddl(source.schema_) if column.type.endswith(">")]
            of_source = [number for number, record in enumerate(told) if record["source"] == name]
            details = [(str(told[number]["raw"]), str(told[number]["detail"])) for number in of_source]
            # The records are texts, however their files are written.
            options = {key: value for key, value in parser_options(source).items() if key != "encoding"}
            for number, detail in zip(of_source, _name(spark, nested, options, details), strict=True):
                if detail != str(told[number]["detail"]):
                    told[number] = {**told[number], "detail": detail}
    return told


def _name(
    spark: SparkSession, nested: list[Column], options: Mapping[str, str], records: list[tuple[str, str]]
) -> list[str]:
    """The details of ``records`` (raw, detail), with paths."""
    trees = {column.name: read_type(column.type) for column in nested}
    doubts: dict[int, dict[str, list[_Doubt]]] = {}
    to_ask: dict[str, set[str]] = defaultdict(set)
    for number, (raw, detail) in enumerate(records):
        named = [column for column in nested if _find_segment(detail, column) is not None]
        if not named or sum(map(len, to_ask.values())) > _ASKED_AT_MOST:
            continue
        value = _read(raw)
        doubts[number] = {
            column.name: list(_doubts(value[column.name], trees[column.name], column.name))
            for column in named
            if column.name in value
        }
        for doubt in (one for found in doubts[number].values() for one in found):
            if doubt.token is not None:
                to_ask[doubt.type].add(doubt.token)
    corrupt = {kind: corrupt_tokens(spark, kind, sorted(tokens), options) for kind, tokens in to_ask.items()}
    details = [detail for _, detail in records]
    for number, by_column in doubts.items():
        for column in nested:
            found = [
                one for one in by_column.get(column.name, ()) if one.token is None or one.token in corrupt[one.type]
            ]
            segment = _find_segment(details[number], column)
            if found and segment is not None:
                details[number] = _replace(details[number], segment, _list(found))
    return details


def _find_segment(detail: str, column: Column) -> str | None:
    """What ``detail`` says of the column."""
    said = (does_not_fit_inside(column.name, column.type), does_not_fit(column.name, column.type))
    return next((one for one in said if f"; {one}; " in f"; {detail}; "), None)


def _replace(detail: str, segment: str, told: str) -> str:
    return f"; {detail}; ".replace(f"; {segment}; ", f"; {told}; ", 1)[2:-2]


def _list(found: list[_Doubt]) -> str:
    named = list(dict.fromkeys(does_not_fit(one.path, one.type) for one in found))
    return list_first(named, _NAMED_AT_MOST, "; ")


def _read(raw: str) -> dict[str, Any]:
    """The record's fields, numbers as they are written; none where it is JSON to Spark's lenient options alone."""
    try:
        value = json.loads(raw, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _doubts(value: object, node: Node, path: str) -> Iterator[_Doubt]:
    if value is None or node.kind in _TEXTS:
        return
    if node.kind == "struct" and isinstance(value, dict):
        for name, inner in node.fields:
            yield from _doubts(value.get(name), inner, f"{path}.{name}")
    elif node.kind == "array" and isinstance(value, list):
        for one in value:
            yield from _doubts(one, node.item, f"{path}[]")
    elif node.kind == "map" and isinstance(value, dict):
        for one in value.values():
            yield from _doubts(one, node.item, f"{path}{{}}")
    elif node.fields or isinstance(value, dict | list):
        yield _Doubt(path, node.type)
    elif node.kind in _INTEGER_BITS or node.kind == "boolean":
        if not _fits(value, node.kind):
            yield _Doubt(path, node.type)
    else:
        yield _Doubt(path, node.type, str(value) if isinstance(value, _Number) else json.dumps(value))


def _fits(value: object, kind: str) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if not isinstance(value, _Number) or not value.removeprefix("-").isdigit():
        return False
    limit = 1 << (_INTEGER_BITS[kind] - 1)
    return len(value) <= 20 and -limit <= int(value) < limit
