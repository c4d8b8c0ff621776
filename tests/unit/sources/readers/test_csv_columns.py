"""Columns of csv texts: the fast way gives what the definition gives, for texts that are hard on it."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.csv_records import read
from tests.support.sweep import examples
from tidegate.sources.readers.csv_lines import make_column_reader
from tidegate.sources.readers.csv_values import CsvOptions, make_field_reader
from tidegate.sources.readers.ways import PLAIN, Ways
from tidegate.spec.ddl import read_type

_DECIMALS = ("10,2", "5,0", "4,4", "1,0", "1,1", "18,6", "20,20", "38,0", "38,2", "38,18", "38,36", "38,38", "37,1")
_TYPES = [
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string"),
    *("date", "timestamp", "timestamp_ntz"),
    *(f"decimal({digits})" for digits in _DECIMALS),
]

_digits = st.text("0123456789", max_size=6) | st.builds(
    lambda digit, count, more: digit * count + more,
    st.sampled_from("0149"),
    st.integers(0, 90),
    st.text("0123456789", max_size=3),
)
_exponents = st.integers(-45, 45) | st.integers(-400, 400) | st.integers(-(10**20), 10**20)
_numbers = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "", "", "-", "+", "--", " ", "\t-"]),
        _digits,
        st.sampled_from(["", ".", ".", ","]),
        _digits,
        st.just("") | st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+"]), _exponents),
        st.sampled_from(["", "", "", "", " ", "d", "f", "L", "\0"]),
    ),
)
_whole = st.integers(-(2**66), 2**66) | st.sampled_from(
    [sign * (1 << bits) + more for bits in (7, 8, 15, 24, 31, 53, 63, 64) for sign in (1, -1) for more in (-1, 0, 1)]
)
_words = st.sampled_from(
    [
        *("inf", "Inf", "-Inf", "+Inf", "INF", "Infinity", "-Infinity", "infinity", "nan", "NaN", "-NaN", "+NaN"),
        *("NAN", "true", "false", "TRUE", "True", "t", "yes", "1", "0", "0x10", "0X1f", "0x1p3", "1_000", "٣", "१"),
        *("½", "−5", "1,5", "1.234,5", "0e0", "-0", "-0.0", "+0", "0e-999", "1e-400", "5e-324", "2e-324", "1e-46"),
        *("3.5e38", "", " ", "-", "+", ".", "e5", "1e", "1e+", ".e1", "1.", ".5", "null", "NULL", "x", "-999", "999"),
        *("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",),
    ]
)
_days = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["2026", "1999", "0001", "0000", "9999", "12026", "-2026", "+2026", "26", "2024", "1900"]),
        st.sampled_from(["-", "-", "/"]),
        st.sampled_from(["01", "02", "1", "12", "13", "00"]),
        st.just("-"),
        st.sampled_from(["01", "28", "29", "30", "31", "32", "00", "3"]),
        st.sampled_from(["", "", "", " ", "T", "Z", "x"]),
    ),
)
_times = st.builds(
    "".join,
    st.tuples(
        _days.map(str.strip),
        st.sampled_from(["T", "T", " ", "  ", "t"]),
        st.sampled_from(["00", "23", "24", "1"]),
        st.just(":"),
        st.sampled_from(["00", "59", "60", "5"]),
        st.sampled_from(["", ":00", ":59", ":60", ":61"]),
        st.just("") | st.text("0123456789", max_size=10).map(lambda digits: "." + digits),
        st.sampled_from(["", "Z", "z", "+00:00", "-18:00", "+17:59", "+18:01", "+0200", "+2", " UTC", " Europe/Paris"]),
    ),
)
_texts = _numbers | _whole.map(str) | _words | st.one_of(_days, _times)

_named = st.sampled_from(["-999", "999", "0", "1e3", "x", "NaN", "inf", "-inf", "nan", " 1", ""])
_options = st.just({}) | st.fixed_dictionaries(
    {}, optional={"nanValue": _named, "positiveInf": _named, "negativeInf": _named}
)
_ways = st.sampled_from(
    [PLAIN, Ways.of({"locale": "de-DE"}), Ways.of({"locale": "en-US"}), Ways.of({"timeZone": "Europe/Paris"})]
)


def _shown(value: Any) -> str:
    return str(value.replace(tzinfo=None)) if isinstance(value, dt.datetime) else repr(value)


def _by_definition(type_: str, options: dict[str, str], ways: Ways, texts: list[str]) -> list[str]:
    """What a column holds, and None where there is a fault."""
    node = read_type(type_)
    read_text = make_field_reader(node, CsvOptions.of(options), ways)
    found = [read_text(text) for text in texts]
    type_held = read_all(type_, {}, PLAIN, [])[0].type
    held = pa.array([None if fault is not None else value for value, fault in found], type_held).to_pylist()
    return ["refused" if fault else _shown(value) for value, (_, fault) in zip(held, found, strict=True)]


def read_all(type_: str, options: dict[str, str], ways: Ways, texts: list[str]) -> tuple[pa.Array, set[int]]:
    """The column as the fast way reads it, and its doubtful positions."""
    return make_column_reader(read_type(type_), CsvOptions.of(options), ways)(pa.array(texts, pa.string()))


@pytest.mark.parametrize("type_", _TYPES)
@settings(max_examples=examples(60), deadline=None)
@given(texts=st.lists(_texts, min_size=1, max_size=4), options=_options, ways=_ways)
@example(texts=["400000000000000000000"], options={}, ways=PLAIN)
@example(texts=["400"], options={}, ways=PLAIN)
@example(texts=["7"], options={}, ways=PLAIN)
@example(texts=["4" + "0" * 38], options={}, ways=PLAIN)
@example(texts=["1." + "0" * 40 + "1"], options={}, ways=PLAIN)
@example(texts=["1e-41"], options={}, ways=PLAIN)
@example(texts=["1e-320"], options={}, ways=PLAIN)
@example(texts=["-999"], options={"nanValue": "-999"}, ways=PLAIN)
@example(texts=["999"], options={"positiveInf": "999"}, ways=PLAIN)
def test_what_is_beyond_doubt_is_as_it_is_defined(
    type_: str, texts: list[str], options: dict[str, str], ways: Ways
) -> None:
    column, doubts = read_all(type_, options, ways, texts)
    wanted = _by_definition(type_, options, ways, texts)
    assert len(column) == len(texts)
    for at, (value, want) in enumerate(zip(column.to_pylist(), wanted, strict=True)):
        assert at in doubts or _shown(value) == want, texts[at]


_FITTING = {
    "decimal(38,18)": ["1.5", "-12345678901234567890.123456789012345678", "+7", ".5", "5.", "0"],
    "decimal(38,38)": ["0.5", ".00000000000000000000000000000000000001", "0"],
    "decimal(10,2)": ["00000012.50", "1.2000000000", "-99999999.99"],
    "double": ["1.5", "-0.25", "0", "1e5"],
}


@pytest.mark.parametrize("type_", _FITTING)
def test_common_numbers_are_beyond_doubt(type_: str) -> None:
    assert read_all(type_, {}, PLAIN, _FITTING[type_])[1] == set()


def test_many_decimals_are_read_fast() -> None:
    texts = [f"{number}.{number % 100:02}" for number in range(200_000)]
    begin = time.process_time()
    column, doubts = read_all("decimal(38,18)", {}, PLAIN, texts)
    assert not doubts and len(column) == len(texts)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("option", ["nanValue", "positiveInf", "negativeInf"])
def test_a_number_that_stands_for_another(option: str) -> None:
    batch = read("v DOUBLE, x STRING", b"-999,x", b"5,x", b"-999.0,x", **{option: "-999"})
    held = {"nanValue": "nan", "positiveInf": "inf", "negativeInf": "-inf"}[option]
    assert [str(value) for value in batch.columns[0].to_pylist()] == [held, "5.0", "-999.0"]


def test_a_decimal_that_is_too_large_is_malformed() -> None:
    batch = read("v DECIMAL(38,18), x STRING", b"400000000000000000000,x", b"4,x")
    assert batch.wrong[0].detail == "v: not a DECIMAL(38,18)" and list(batch.wrong) == [0]
