"""JSON lines: the fast way gives what the functions that define values give, record by record."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.sources.readers.batches import Batch, Wrong
from tidegate.sources.readers.json_lines import JsonReader
from tidegate.sources.readers.json_text import RecordReader
from tidegate.sources.readers.values import Findings
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.ddl_tree import Node, read_columns

_TOKENS = st.sampled_from(
    [
        *("null", "true", "false", "0", "-0", "1", "-7", "127", "128", "32768", "2147483648", "9223372036854775808"),
        *("0.0", "1.5", "-0.10", "1e2", "1e-3", "1E+2", "1e-400", "1e400", "9007199254740993", "16777217", "1e39"),
        *("1.20", "1.239", "99999999.99", "123456789012345678901234567890.5", "NaN", "Infinity", "-INF", "01", "1."),
        *('""', '"a"', '"NaN"', '"Infinity"', '"1.5"', '"-12.34"', '"1,5"', '"1_0"', '"é"', '"\\u00e9"', '"\\ud800"'),
        *('"2026-01-31"', '"2026-02-30"', '"2026-1-3"', '"0001-01-01"', '"9999-12-31"', '"12026-01-01"', '"20260131"'),
        *('"2026-01-31T10:20:30Z"', '"2026-01-31 10:20:30.5+02:00"', '"2026-01-31T10:20:30"', '"2026-01-31T10"'),
        *('"2026-01-31T10:20:30.1234567Z"', '"2026-07-01T12:00:00 Europe/Paris"', '"2026-01-31T24:00:00Z"'),
        *('"9999-12-31T23:59:59-01:00"', "1700000000", "1700000000000", '"YWJj"', '"!!"', '"a\\":1"', '" :"'),
        *("[]", "[1]", '[null,"x"]', "[[1]]", "{}", '{"a":1}', '{"a":1,"a":2}', '{"b":"x","c":[1.50]}', "[1,2,", "{"),
        *('{"a":{"b":1}}', '[{"a":1},{"z":2},null]', '{"k":1.25,"l":null}', '{"k":{"a":3}}', '"tab\t"'),
    ]
)
_SIMPLE = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(5,0)"),
    *("DECIMAL(4,4)", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
)
_TYPES = st.recursive(
    st.sampled_from(_SIMPLE),
    lambda inner: st.one_of(
        inner.map(lambda one: f"ARRAY<{one}>"),
        inner.map(lambda one: f"MAP<STRING, {one}>"),
        st.tuples(inner, inner).map(lambda two: f"STRUCT<a: {two[0]}, `b c`: {two[1]}>"),
    ),
    max_leaves=3,
)
_NAMES = ("c0", "c1", "it's")
_COMMON = {
    "boolean": ("true", "false"),
    "decimal": ("0", "7", "-0.5", '"12"', "0.25", "1", '"0.1"'),
    "float": ("0", "-1.5", "12.25", "1e3", "0.0"),
    "double": ("0", "-1.5", "12.25", "1e3", "1e-7"),
    "string": ('""', '"a"', '"\\u00e9 \\"x\\":1"', '"a:b"'),
    "binary": ('"YWJj"', '""'),
    "date": ('"2026-01-31"', '"1999-12-01"', '"2026-02-30"'),
    "timestamp": ('"2026-01-31T10:20:30Z"', '"2026-01-31 10:20:30.5-05:30"', '"2026-01-31T10:20:30"', "1700000000"),
    "timestamp_ntz": ('"2026-01-31T10:20:30"', '"2026-01-31 10:20:30.123456"'),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), ("0", "-7", "127")),
}


_RARELY = st.sampled_from([False] * 14 + [True])
"""Integers would be 0 far more often than their share."""


def _tokens(node: Node) -> st.SearchStrategy[str]:
    """Values of a type, most of them in its common form."""
    if node.kind == "array":
        common = st.lists(_tokens(node.item), max_size=3).map(lambda items: f"[{','.join(items)}]")
    elif node.kind == "map":
        keys = st.sampled_from(["k", "l", 'a\\":'])
        pairs = st.dictionaries(keys, _tokens(node.item), max_size=2)
        common = pairs.map(lambda items: "{" + ",".join(f'"{key}":{item}' for key, item in items.items()) + "}")
    elif node.kind == "struct":
        common = _objects(node)
    else:
        common = st.sampled_from(_COMMON[node.kind])
    return _RARELY.flatmap(lambda is_odd: st.one_of(st.just("null"), _TOKENS) if is_odd else common)


@st.composite
def _objects(draw: st.DrawFn, node: Node) -> str:
    """Objects with most fields of a struct, some of them absent, and now and then a field that it lacks."""
    pairs = [(name, draw(_tokens(inner))) for name, inner in node.fields if not draw(_RARELY)]
    if draw(_RARELY):
        pairs.insert(draw(st.integers(0, len(pairs))), draw(st.sampled_from([("new", "1"), ("z", '{"y":[{"x":1}]}')])))
    if pairs and draw(_RARELY):
        pairs.append(pairs[0])
    blank = draw(st.sampled_from(["", "", "", " ", "\t"]))
    return "{" + ",".join(f"{json.dumps(name)}{blank}:{value}" for name, value in pairs) + "}"


@st.composite
def _feeds(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    types = draw(st.lists(_TYPES, min_size=1, max_size=3))
    names = ['q"q', *_NAMES] if draw(_RARELY) else _NAMES
    ddl = ", ".join(f"`{name}` {type_}" for name, type_ in zip(names, types, strict=False))
    if draw(st.booleans()):
        ddl += " NOT NULL"
    odd = st.sampled_from(["null", "[]", '{"c0":1} x', '{"c0":1}{"c0":2}', " {} ", '{"c0":1,}', "{c0:1}", "5"])
    whole = _objects(read_columns(parse_ddl(ddl)))
    lines = [draw(odd if draw(_RARELY) else whole) for _ in range(draw(st.integers(1, 6)))]
    texts = [line.encode() for line in lines]
    if draw(_RARELY):
        texts.append(b'{"c0":"\xff"}')
    return ddl, texts


def _by_definition(ddl: str, line: bytes) -> tuple[dict[str, Any] | None, str | None, list[str]]:
    """(values, why the record is malformed, unknown fields) by the slow functions alone."""
    columns = parse_ddl(ddl)
    findings = Findings()
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None, "not valid UTF-8", []
    required = frozenset(column.name for column in columns if not column.nullable)
    values = RecordReader(read_columns(columns), required).read(text, findings)
    if findings.faults:
        return None, Wrong.of(findings.faults, line).detail, []
    return values, None, list(dict.fromkeys(findings.unknown))


def _read(ddl: str, lines: list[bytes]) -> Batch:
    columns = parse_ddl(ddl)
    required = frozenset(column.name for column in columns if not column.nullable)
    return JsonReader(read_columns(columns), required).read(lines, b"\n".join(lines))


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(feed=_feeds())
def test_the_fast_way_is_the_definition(feed: tuple[str, list[bytes]]) -> None:
    ddl, lines = feed
    batch = _read(ddl, lines)
    names = [column.name for column in parse_ddl(ddl)]
    for at, line in enumerate(lines):
        values, why, unknown = _by_definition(ddl, line)
        assert (batch.wrong[at].detail if at in batch.wrong else None) == why, line
        if values is None:
            assert at not in batch.unknown, line
            continue
        assert list(batch.unknown.get(at, [])) == unknown, line
        for name, column in zip(names, batch.columns, strict=True):
            assert _plain(column[at].as_py()) == _plain(values.get(name)), (name, line)


def _plain(value: Any) -> Any:
    """A value as text, so that -0.0 and NaN are compared too; times in UTC, absent fields of a struct as None."""
    if isinstance(value, dt.datetime):
        return str(value.replace(tzinfo=None))
    if isinstance(value, dict):
        return {name: plain for name, one in value.items() if (plain := _plain(one)) is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None else repr(value + 0 if type(value) is int else value)
