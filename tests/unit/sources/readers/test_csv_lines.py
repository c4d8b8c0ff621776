"""Records of csv: the fast way gives what the functions that define rows give, whatever the options."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.csv_records import read, read_with
from tests.support.sweep import examples
from tidegate.sources.readers.csv_rows import RowReader, Splitter
from tidegate.sources.readers.csv_values import CsvOptions
from tidegate.sources.readers.records import Wrong
from tidegate.sources.readers.values import Findings
from tidegate.spec.ddl import parse_ddl, read_columns

_TOKENS = st.sampled_from(
    [
        *("", " ", "0", "-0", "1", "-7", "+5", "007", "128", "32768", "2147483648", "9223372036854775808", "0x10"),
        *("1L", "0.0", "-0.0", "1.5", "-0.10", "1e2", "1e-3", "1e-400", "1e400", "9007199254740993", "16777217"),
        *("1e39", "5.", "1.20", "1.239", "99999999.99", "123456789012345678901234567890.5", "NaN", "nan", "Inf"),
        *("-Infinity", "inf", "true", "TRUE", "False", "yes", "1,5", "1_0", "٣", "x", "é", "NA", "\0", "a b", " a"),
        *("a ", "\t", "#c", "1d", "2026-01-31", "2026-02-30", "2026-1-3", "0000-01-01", "9999-12-31", "12026-01-01"),
        *("20260131", "2026-01-31T10:20:30Z", "2026-01-31 10:20:30.5+02:00", "2026-01-31T10:20:30", "2026-01-31T10"),
        *("2026-01-31T10:20:30.1234567Z", "2026-07-01T12:00:00 Europe/Paris", "0x", "1e5", "12345678901", "x" * 40),
    ]
)
_ODD = st.lists(st.sampled_from([*"\",;\\ab'# \t1-|é", "\r\n", "\n", "\r", '""', '\\"']), max_size=7).map("".join)
_TYPES = st.sampled_from(
    (
        *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(5,0)"),
        *("DECIMAL(4,4)", "DECIMAL(38,3)", "STRING", "STRING", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"),
    )
)
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "sep": st.sampled_from([",", ";", "\t", r"\t", "||", " "]),
        "quote": st.sampled_from(['"', "'", ""]),
        "escape": st.sampled_from(['"', "\\", "'", "#"]),
        "charToEscapeQuoteEscaping": st.sampled_from(["\\", "#"]),
        "nullValue": st.sampled_from(["NA", "x", "0"]),
        "emptyValue": st.sampled_from(["NA", "e"]),
        "ignoreLeadingWhiteSpace": st.just("true"),
        "ignoreTrailingWhiteSpace": st.just("true"),
        "maxColumns": st.sampled_from(["1", "2", "5"]),
        "maxCharsPerColumn": st.sampled_from(["1", "10", "-1"]),
        "lineSep": st.sampled_from(["\n", "|"]),
        "unescapedQuoteHandling": st.sampled_from(
            ["STOP_AT_CLOSING_QUOTE", "BACK_TO_DELIMITER", "STOP_AT_DELIMITER", "SKIP_VALUE", "RAISE_ERROR"]
        ),
    },
)


@st.composite
def _feeds(draw: st.DrawFn) -> tuple[str, CsvOptions, list[bytes]]:
    types = draw(st.lists(_TYPES, min_size=1, max_size=3))
    ddl = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(types)) + draw(
        st.sampled_from(["", " NOT NULL"])
    )
    options = draw(_OPTIONS) if draw(st.booleans()) else {}
    made = CsvOptions.of(options)
    made = made.with_layout(made.separator, draw(st.integers(0, 9)) == 0)
    doubled = _ODD.map(lambda text: '"' + text.replace('"', '""') + '"')
    field = st.one_of(_TOKENS, _TOKENS, _TOKENS, doubled, _TOKENS.map(lambda text: f'"{text}"'), _ODD)
    row = st.lists(field, min_size=len(types), max_size=len(types)).map(made.separator.join)
    if made.ends_with_separator:
        row = row.map(lambda text: text + made.separator)
    any_row = st.lists(field, min_size=1, max_size=4).map(made.separator.join)
    end = st.sampled_from([""] * 9 + ["\n", "\r\n", "\r", "\r\r\n"])
    lines = draw(st.lists(st.tuples(st.one_of(row, row, any_row), end).map("".join), min_size=1, max_size=6))
    if made.ending is not None and draw(st.integers(0, 3)):  # a file has been cut there
        lines = [re.sub("\r?\n" if made.ending == "\n" else re.escape(made.ending), "", line) for line in lines]
    texts = [line.encode() for line in lines]
    if draw(st.integers(0, 9)) == 0:
        texts.insert(0, b'\xff,"a"')
    return ddl, made, texts


def _by_definition(ddl: str, options: CsvOptions, line: bytes) -> tuple[dict[str, Any], str | None]:
    columns, findings = parse_ddl(ddl), Findings()
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return {}, "not valid UTF-8"
    required = frozenset(column.name for column in columns if not column.nullable)
    values = RowReader(read_columns(columns), required, options).read(text, findings)
    return (values, None) if not findings.faults else ({}, Wrong.of(findings.faults, line).detail)


@settings(max_examples=examples(1500), deadline=None)
@given(feed=_feeds())
def test_the_fast_way_is_the_definition(feed: tuple[str, CsvOptions, list[bytes]]) -> None:
    ddl, options, lines = feed
    batch = read_with(options, ddl, *lines)
    names = [column.name for column in parse_ddl(ddl)]
    for at, line in enumerate(lines):
        values, why = _by_definition(ddl, options, line)
        assert (batch.wrong[at].detail if at in batch.wrong else None) == why, line
        for name, column in zip(names, batch.columns, strict=True):
            if why is None:
                assert _plain(column[at].as_py()) == _plain(values.get(name)), (name, line)


def _plain(value: Any) -> str:
    return str(value.replace(tzinfo=None)) if isinstance(value, dt.datetime) else repr(value)


@settings(max_examples=examples(500), deadline=None)
@given(
    rows=st.lists(st.lists(st.text(st.sampled_from('",;\\a \t\n\ré\0')), min_size=2, max_size=2), min_size=1),
    separator=st.sampled_from([",", ";", "\t"]),
)
def test_what_the_standard_library_writes(rows: list[list[str]], separator: str) -> None:
    """It quotes as RFC 4180 has it, and every text comes back; an empty one is null."""
    lines = []
    for row in rows:
        written = io.StringIO()
        csv.writer(written, delimiter=separator, lineterminator="\r\n").writerow(row)
        lines.append(written.getvalue().encode())
    batch = read("a STRING, b STRING", *lines, sep=separator, escape='"')
    assert not batch.wrong
    assert [list(pair) for pair in zip(*(c.to_pylist() for c in batch.columns), strict=True)] == [
        [text or None for text in row] for row in rows
    ]


@settings(max_examples=examples(200), deadline=None)
@given(rows=st.lists(st.tuples(st.text(st.sampled_from('",\\a x'), min_size=1), st.text("b'")), min_size=1))
def test_what_pandas_writes_with_a_backslash(rows: list[tuple[str, str]]) -> None:
    text = pd.DataFrame(rows).to_csv(
        index=False, header=False, doublequote=False, escapechar="\\", quoting=csv.QUOTE_ALL
    )
    batch = read("a STRING, b STRING", *(line.encode() for line in text.splitlines()))
    assert not batch.wrong
    assert batch.columns[0].to_pylist() == [a for a, _ in rows]
    assert batch.columns[1].to_pylist() == [b or None for _, b in rows]


UNESCAPED = "t: text behind a closing quote; a quote inside of quotes is doubled or escaped"
HANDLED = {
    "RAISE_ERROR": (None, UNESCAPED),
    "STOP_AT_DELIMITER": ('"a,b"c', None),
    "BACK_TO_DELIMITER": (None, "not 2 columns"),
    "STOP_AT_CLOSING_QUOTE": (None, "t: a quote that is not closed"),
    "SKIP_VALUE": (None, None),
}


@pytest.mark.parametrize("handling", HANDLED)
def test_a_quote_that_is_not_escaped(handling: str) -> None:
    batch = read("t STRING, n INT", b'"a,b"c,1', unescapedQuoteHandling=handling)
    value, why = HANDLED[handling]
    assert (batch.wrong[0].detail if batch.wrong else None) == why
    assert batch.columns[0][0].as_py() == value
    assert handling != "RAISE_ERROR" or read("t STRING, n INT", b'"a,b"c,1').wrong[0].detail == why


@pytest.mark.parametrize(
    ("line", "options", "fields"),
    [
        ('"say ""hi""",x', {}, ['say "hi"', "x"]),
        (r'"say \"hi\"",x', {}, ['say "hi"', "x"]),
        (r'"C:\\",x', {}, ["C:\\", "x"]),
        (r'"C:\",x', {"escape": '"'}, ["C:\\", "x"]),
        (r'"C:\dir",x', {}, ["C:\\dir", "x"]),
        ('5" pipe,6"', {}, ['5" pipe', '6"']),
        ('"a" ,"b"\t', {}, ["a", "b"]),
        (' "a",b', {}, [' "a"', "b"]),
        (' "a " , b ', {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}, ["a ", "b"]),
        ("a||b|c", {"sep": "||"}, ["a", "b|c"]),
        ("a\tb", {"sep": r"\t"}, ["a", "b"]),
        ('"",', {}, [None, None]),
        ('"",', {"nullValue": "NA"}, ["", None]),
        ('"",', {"emptyValue": "none"}, ["none", None]),
        ('"NA",NA', {"nullValue": "NA"}, [None, None]),
        ("'a,b',\"c", {"quote": "'"}, ["a,b", '"c']),
        ('"a",b', {"quote": ""}, ['"a"', "b"]),
        ('"two\r\nlines",b', {}, ["two\r\nlines", "b"]),
        ('"a#"b",c', {"escape": "#"}, ['a"b', "c"]),
        ('"a#\\",c', {"charToEscapeQuoteEscaping": "#"}, ["a\\", "c"]),
    ],
)
def test_rows(line: str, options: dict[str, str], fields: list[str | None]) -> None:
    assert Splitter(CsvOptions.of(options)).split(line).fields == fields
    batch = read("a STRING, b STRING", line.encode(), **options)
    assert [column[0].as_py() for column in batch.columns] == fields and not batch.wrong


def test_bounds() -> None:
    batch = read("s STRING, n INT", b"abc,1", b"abcd,1", b"a,1,2,3", maxColumns="3", maxCharsPerColumn="3")
    assert {at: one.detail for at, one in batch.wrong.items()} == {
        1: "s: more than 3 characters (maxCharsPerColumn)",
        2: "more than 3 columns (maxColumns)",
    }
