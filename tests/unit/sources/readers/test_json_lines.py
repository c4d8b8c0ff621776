"""JSON lines: the fast way gives what the functions that define values give, record by record."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.sources.readers.json_lines import JsonReader
from tidegate.sources.readers.json_text import RecordReader
from tidegate.sources.readers.records import Batch, Wrong
from tidegate.sources.readers.values import Findings
from tidegate.sources.readers.ways import Ways
from tidegate.spec.ddl import Node, parse_ddl, read_columns

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


_OPTIONS: list[dict[str, str]] = [
    {},
    {"dateFormat": "dd/MM/yyyy", "timestampFormat": "dd.MM.yyyy HH:mm", "timeZone": "Europe/Berlin"},
    {"timestampFormat": "yyyyMMdd'T'HHmmss.SSSXXX", "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss[.SSS]"},
    {"dateFormat": "d MMM yyyy", "timestampFormat": "d/M/yyyy hh:mm a", "timeZone": "America/New_York"},
    {"dateFormat": "dd/MM/yyyy", "enableDateTimeParsingFallback": "true", "locale": "de-DE"},
    {"timeZone": "Europe/Berlin", "locale": "fr-FR", "allowSingleQuotes": "true", "allowNumericLeadingZeros": "true"},
    {"allowComments": "true", "allowUnquotedControlChars": "true", "allowNonNumericNumbers": "false"},
]
_WRITTEN = {
    "date": ("31/01/2026", "31/13/2026", "7 Mar 2026", "2026-01-31", "01/01/0000", "1/1/2026"),
    "timestamp": (
        *("29.03.2026 02:30", "25.10.2026 02:30", "31.01.2026 10:20", "31.01.2026 24:00", "01.07.2026 00:00"),
        *("01.01.2040 12:00", "01.07.2040 12:00", "01.07.1945 12:00", "01.01.0001 00:00", "31.12.9999 23:59"),
        *("20260131T102030.5+02:00", "20260131T102030.1Z", "31/1/2026 12:20 AM", "8/3/2026 2:30 am", "1/7/2026 1:5 PM"),
        *("2026-03-29T02:30:00", "2026-07-01 12:00:00", "2026-07-01T12:00:00Z", "1850-01-01T00:00:00"),
    ),
    "timestamp_ntz": ("2026-01-31 10:20:30", "2026-01-31 10:20:30.25", "2026-01-31 10:20:30.0001"),
    "decimal": ("1.234,56", "1234,5", "12", "1.5", "1 234,5", "1\u202f234,5", "1,5e1", "1.23", "12.345"),
}
"""Texts in the forms of the options."""

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
        written = [json.dumps(text) for text in _WRITTEN.get(node.kind, ())]
        common = st.sampled_from((*_COMMON[node.kind], *written))
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


_ODD = (
    *("null", "[]", '{"c0":1} x', '{"c0":1}{"c0":2}', " {} ", '{"c0":1,}', "{c0:1}", "5"),
    *("{'c0':1}", '{"c0":1}//', '/**/{"c0":007}', '{"c0":NaN}', '{"c0":"\t"}'),
)


@st.composite
def _feeds(draw: st.DrawFn) -> tuple[str, Ways, list[bytes]]:
    types = draw(st.lists(_TYPES, min_size=1, max_size=3))
    names = ['q"q', *_NAMES] if draw(_RARELY) else _NAMES
    ddl = ", ".join(f"`{name}` {type_}" for name, type_ in zip(names, types, strict=False))
    if draw(st.booleans()):
        ddl += " NOT NULL"
    odd = st.sampled_from(_ODD)
    whole = _objects(read_columns(parse_ddl(ddl)))
    lines = [draw(odd if draw(_RARELY) else whole) for _ in range(draw(st.integers(1, 6)))]
    texts = [line.encode() for line in lines]
    if draw(_RARELY):
        texts.append(b'{"c0":"\xff"}')
    return ddl, Ways.of(draw(st.sampled_from(_OPTIONS))), texts


def _by_definition(ddl: str, ways: Ways, line: bytes) -> tuple[dict[str, Any] | None, str | None, list[str]]:
    """(values, why the record is malformed, unknown fields) by the slow functions alone."""
    columns = parse_ddl(ddl)
    findings = Findings()
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None, "not valid UTF-8", []
    required = frozenset(column.name for column in columns if not column.nullable)
    values = RecordReader(read_columns(columns), required, ways).read(text, findings)
    if findings.faults:
        return None, Wrong.of(findings.faults, line).detail, []
    return values, None, list(dict.fromkeys(findings.unknown))


def _read(ddl: str, ways: Ways, lines: list[bytes]) -> Batch:
    columns = parse_ddl(ddl)
    required = frozenset(column.name for column in columns if not column.nullable)
    return JsonReader(read_columns(columns), required, ways).read(lines, b"\n".join(lines))


@settings(max_examples=examples(1500), deadline=None, suppress_health_check=list(HealthCheck))
@given(feed=_feeds())
def test_the_fast_way_is_the_definition(feed: tuple[str, Ways, list[bytes]]) -> None:
    ddl, ways, lines = feed
    batch = _read(ddl, ways, lines)
    names = [column.name for column in parse_ddl(ddl)]
    for at, line in enumerate(lines):
        values, why, unknown = _by_definition(ddl, ways, line)
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
