"""JSON with freedoms: what each option allows is read, and is refused without it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sources.readers.json_lines import JsonReader
from tidegate.sources.readers.json_text import read_object
from tidegate.sources.readers.records import Batch
from tidegate.sources.readers.values import Fault, Number, Pairs
from tidegate.sources.readers.ways import Switches, Ways
from tidegate.spec.ddl import parse_ddl, read_columns

DDL = "i INT, s STRING, d DOUBLE, c DECIMAL(10,2), n STRUCT<x: INT>, a ARRAY<INT>, m MAP<STRING, STRING>"


def _read(options: dict[str, str], *texts: str) -> Batch:
    lines = [text.encode() for text in texts]
    return JsonReader(read_columns(parse_ddl(DDL)), ways=Ways.of(options)).read(lines, b"\n".join(lines))


def _row(batch: Batch) -> dict[str, Any]:
    names = [column.name for column in parse_ddl(DDL)]
    values = {name: column[0].as_py() for name, column in zip(names, batch.columns, strict=True)}
    return {name: value for name, value in values.items() if value is not None}


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("allowComments", '/*a*/{"i"/*b*/:/*{*/1/*"*/,"s":"/*x*/"}// c', {"i": 1, "s": "/*x*/"}),
    ("allowComments", '{"a":[1,/*2,*/3]} /* d */', {"a": [1, 3]}),
    ("allowNumericLeadingZeros", '{"i":007,"c":-00.50,"s":00123,"d":00}', {"i": 7, "c": -0.5, "s": "00123", "d": 0.0}),
    ("allowNumericLeadingZeros", '{"s":{"q":[007,-00.5]}}', {"s": '{"q":[7,-0.5]}'}),
    ("allowSingleQuotes", "{'i':1,'s':'it\\'s \"x\"'}", {"i": 1, "s": 'it\'s "x"'}),
    ("allowSingleQuotes", "{'n':{'x':1},'a':[1],\"m\":{'k':\"v\"}}", {"n": {"x": 1}, "a": [1], "m": [("k", "v")]}),
    (
        "allowUnquotedFieldNames",
        '{i:1,n:{x:2},m:{$a-b:"v",1:null}}',
        {"i": 1, "n": {"x": 2}, "m": [("$a-b", "v"), ("1", None)]},
    ),
    ("allowBackslashEscapingAnyCharacter", '{"s":"a\\qb\\$\\n\\u0041"}', {"s": "aqb$\nA"}),
    ("allowUnquotedControlChars", '{"s":"a\tb\u0001"}', {"s": "a\tb\u0001"}),
]


@pytest.mark.parametrize(("option", "text", "wanted"), CASES)
def test_what_an_option_allows(option: str, text: str, wanted: dict[str, Any]) -> None:
    batch = _read({option: "true"}, text)
    assert not batch.wrong and not batch.unknown
    found = _row(batch)
    assert {**found, **({"c": float(found["c"])} if "c" in found else {})} == wanted
    [wrong] = _read({}, text).wrong.values()
    control = "s: the control character U+0009 has to be escaped in JSON, as \\t"
    assert wrong.detail in ("not valid JSON", "not a JSON object", "text after the JSON object", control)
    assert _read({option: "false", "allowSingleQuotes": "false"}, text).wrong


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{'i':'x','z':1}", "i: not an INT"),
        ("{'i':1,'i':2}", "i: this key is there twice"),
        ("{'s':'\\ud800'}", "s: half of a surrogate pair, which is not a character"),
        ("{'i':1", "not valid JSON"),
        ("{'i':1,}", "not valid JSON"),
        ("{'i':}", "not valid JSON"),
        ("{'i' 1}", "not valid JSON"),
        ("{'s':'\\x'}", "not valid JSON"),
        ("{'s':'\\u00g0'}", "not valid JSON"),
        ("{'s':'a\tb'}", "not valid JSON"),
        ("{'a':[1 2]}", "not valid JSON"),
        ("{'i':01}", "not valid JSON"),
        ("{'i':tru}", "not valid JSON"),
        ("{'i':1} {'i':2}", "text after the JSON object"),
        ("{'i':1} // x", "text after the JSON object"),
        ("['i']", "not a JSON object"),
        ("  ", "empty"),
        ("{'a':" + "[" * 5000 + "]" * 5000 + "}", "more levels than can be read"),
    ],
)
def test_faults_beside_what_is_allowed(text: str, wanted: str) -> None:
    [wrong] = _read({"allowSingleQuotes": "true"}, text).wrong.values()
    assert wrong.detail == wanted and wrong.raw == text.encode()


def test_unknown_fields_are_named() -> None:
    batch = _read({"allowUnquotedFieldNames": "true"}, "{i:1,new:2,n:{x:1,y:{z:1}}}")
    assert batch.unknown == {0: ["new", "n.y"]} and not batch.wrong


def test_surrogates_are_one_character() -> None:
    assert _row(_read({"allowSingleQuotes": "true"}, "{'s':'\\ud83d\\ude00'}")) == {"s": "\U0001f600"}


def test_with_any_option_single_quotes_may_be_there_as_in_spark() -> None:
    assert not _read({"allowComments": "true"}, "{'i':1 /*c*/}").wrong
    assert _read({"allowComments": "true", "allowSingleQuotes": "false"}, "{'i':1 /*c*/}").wrong
    assert _read({"dateFormat": "dd/MM/yyyy"}, "{'i':1}").wrong


def test_numbers_that_are_none() -> None:
    texts = ['{"d":NaN}', '{"d":-Infinity}', '{"d":+INF}', '{"d":"NaN"}', '{"d":"-INF"}', '{"s":"NaN"}', '{"d":1.5}']
    assert not _read({}, *texts).wrong and math.isnan(_row(_read({}, texts[0]))["d"])
    found = _read({"allowNonNumericNumbers": "false"}, *texts).wrong
    assert {at: wrong.detail for at, wrong in found.items()} == {
        **dict.fromkeys(range(3), "not valid JSON"),
        **dict.fromkeys(range(3, 5), "d: not a DOUBLE"),
    }
    assert _row(_read({"allowSingleQuotes": "true"}, "{'d':-INF}")) == {"d": -math.inf}
    assert _read({"allowSingleQuotes": "true", "allowNonNumericNumbers": "false"}, "{'d':-INF}").wrong


_ALL = Switches(True, True, True, True, True, True, True)
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@given(value=st.dictionaries(st.text(), _VALUES, max_size=3), spaces=st.sampled_from([None, 1]))
def test_json_proper_is_the_same_with_every_freedom(value: dict[str, Any], spaces: int | None) -> None:
    text = json.dumps(value, indent=spaces)
    assert read_object("/**/" + text, _ALL) == read_object(text, Switches())


@given(value=st.dictionaries(st.text(), _VALUES, max_size=3))
def test_what_python_writes_is_read(value: dict[str, Any]) -> None:
    found = read_object(f"/* {{ */ {json.dumps(value)} // }}", _ALL)
    assert _plain(found) == json.loads(json.dumps(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Pairs):
        return {name: _plain(one) for name, one in value}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return json.loads(value) if isinstance(value, Number) else value


@given(text=st.text(st.sampled_from("{}[]:,'\"\\/*ab01.-eNu \n"), max_size=30))
def test_no_text_is_an_error(text: str) -> None:
    found = read_object("{" + text, _ALL)
    assert isinstance(found, (Fault, Pairs))
