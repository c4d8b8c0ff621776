"""What becomes of one record's text: each quirk of parsers that would lose or change a value in silence."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidegate.sources.bounds import MANY_VALUES
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.worker import TextsReader

DDL = (
    "i INT, l BIGINT, s STRING, d DOUBLE, f FLOAT, c DECIMAL(10,2), t TIMESTAMP, e DATE, b BOOLEAN, "
    "n STRUCT<x: INT, y: STRUCT<z: INT, t: TIMESTAMP>>, a ARRAY<INT>, z TINYINT, mm MAP<STRING, INT>, "
    "md MAP<STRING, DATE>, y BINARY, p TIMESTAMP_NTZ"
)

GOOD: dict[str, dict[str, Any]] = {
    "{}": {},
    '{"i": 1, "l": 9223372036854775807, "s": "x"}': {"i": 1, "l": 2**63 - 1, "s": "x"},
    '{"i":1}   ': {"i": 1},
    '{"i":null}': {},
    '{"i":-2147483648}': {"i": -(2**31)},
    '{"s":5}': {"s": "5"},
    '{"s":{"q":1}}': {"s": '{"q":1}'},
    '{"s":"} { ]"}': {"s": "} { ]"},
    '{"s":"é\\u00e9 😀"}': {"s": "éé 😀"},
    '{"c":12.3}': {"c": Decimal("12.30")},
    '{"d":"Infinity"}': {"d": float("inf")},
    '{"d":-INF}': {"d": float("-inf")},
    '{"t":"2026-01-01T00:00:00.000064Z"}': {"t": dt.datetime(2026, 1, 1, 0, 0, 0, 64)},
    '{"t":1700000000}': {"t": dt.datetime(2023, 11, 14, 22, 13, 20)},
    '{"t":"9999-12-31T23:59:59.999999Z"}': {"t": dt.datetime(9999, 12, 31, 23, 59, 59, 999999)},
    '{"e":"0001-01-01"}': {"e": dt.date(1, 1, 1)},
    '{"p":"2026-01-01T00:00:00"}': {"p": dt.datetime(2026, 1, 1)},
    '{"a":[1,null]}': {"a": [1, None]},
    '{"i":-2147483648, "l": 9223372036854775807}': {"i": -(2**31), "l": 2**63 - 1},
    '{"s":{"q": [1.10, null]}}': {"s": '{"q":[1.10,null]}'},
    '{"d":-INF,"s":"INF"}': {"d": -math.inf, "s": "INF"},
    '{"t":"2026-01-31 10:20:30 Europe/Paris"}': {"t": dt.datetime(2026, 1, 31, 9, 20, 30)},
    '{"t":"2026-01-31T10:20:30+02:00"}': {"t": dt.datetime(2026, 1, 31, 8, 20, 30)},
    '{"t":"2026-1-31T10:20:30.5-11:30:15"}': {"t": dt.datetime(2026, 1, 31, 21, 50, 45, 500000)},
    '{"t":"2026-01-31T10:20:30 UTC+18:00"}': {"t": dt.datetime(2026, 1, 30, 16, 20, 30)},
    '{"d":0.0,"f":-0.0}': {"d": 0.0, "f": -0.0},
    '{"y":"YWJj"}': {"y": b"abc"},
}

_YEARS = "outside the years 1 to 9999"
BAD = {
    None: "null value (tombstone)",
    "": "empty",
    "   ": "empty",
    "null": "not a JSON object",
    "5": "not a JSON object",
    '"x"': "not a JSON object",
    "[]": "not a JSON object",
    '[{"i":1}]': "not a JSON object",
    '[{"i":1},{"i":2}]': "not a JSON object",
    '{"i":1': "not valid JSON",
    '{"i":1,}': "not valid JSON",
    "{i:1}": "not valid JSON",
    '{"i":01}': "not valid JSON",
    '{"s":"a\tb"}': "s: the control character U+0009 has to be escaped in JSON, as \\t",
    '{"i":1,"n":{"q":[0,{"x":"\\t a\u0001\t"}]}}': (
        "n.q[].x: the control character U+0001 has to be escaped in JSON, as \\u0001"
    ),
    '{"i":1,\u0000"s":"x"}': "not valid JSON: the control character U+0000 has to be escaped in JSON, as \\u0000",
    '{"s":"a\tb': "not valid JSON: the control character U+0009 has to be escaped in JSON, as \\t",
    '{"i":1} xx': "text after the JSON object",
    '{"i":1}{"i":2}': "text after the JSON object",
    '{"i":1} {"i":2}': "text after the JSON object",
    '{"i":1}]': "text after the JSON object",
    '{"i":1},': "text after the JSON object",
    '{"i":1}}': "text after the JSON object",
    '{"i":1}} {"i":2}': "text after the JSON object",
    '{"i":3000000000}': "i: not an INT",
    '{"i":"12"}': "i: not an INT",
    '{"i":1.0}': "i: not an INT",
    '{"i":1e2}': "i: not an INT",
    '{"i":""}': "i: not an INT",
    '{"i":true}': "i: not an INT",
    '{"z":300}': "z: not a TINYINT",
    '{"l":99999999999999999999}': "l: not a BIGINT",
    '{"d":"5"}': "d: not a DOUBLE",
    '{"d":1e400}': "d: too large for DOUBLE",
    '{"f":-1e39}': "f: too large for FLOAT",
    '{"f":1e39,"s":"info"}': "f: too large for FLOAT",
    '{"c":123456789012.3}': "c: not a DECIMAL(10,2)",
    '{"c":12.345}': "c: more decimals than DECIMAL(10,2) holds",
    '{"b":"true"}': "b: not a BOOLEAN",
    '{"b":1}': "b: not a BOOLEAN",
    '{"t":"2026-13-01"}': "t: not a TIMESTAMP",
    '{"t":"2026-01-01T25:00:00"}': "t: not a TIMESTAMP",
    '{"t":1700000000000}': "t: TIMESTAMP outside the years 1 to 9999",
    '{"t":"+12345-01-01T00:00:00Z"}': "t: TIMESTAMP outside the years 1 to 9999",
    '{"p":"+12345-01-01T00:00:00"}': "p: TIMESTAMP_NTZ outside the years 1 to 9999",
    '{"e":"2026-02-30"}': "e: not a DATE",
    '{"e":19000}': "e: not a DATE",
    '{"e":"12024-01-01"}': "e: DATE outside the years 1 to 9999",
    '{"y":"!!"}': "y: not a BINARY",
    '{"n":5}': "n: not a STRUCT<x: INT, y: STRUCT<z: INT, t: TIMESTAMP>>",
    '{"n":{"x":"q"}}': "n.x: not an INT",
    '{"n":{"y":{"z":"q"}}}': "n.y.z: not an INT",
    '{"n":{"x":1.5,"y":[1]}}': "n.x: not an INT; n.y: not a STRUCT<z: INT, t: TIMESTAMP>",
    '{"a":[1,"x"]}': "a[]: not an INT",
    '{"a":{}}': "a: not an ARRAY<INT>",
    '{"mm":{"a":1,"b":"x"}}': "mm{}: not an INT",
    '{"n":{"x":99999999999},"i":"z"}': "n.x: not an INT; i: not an INT",
    '{"i":"z","s":"kept","e":"nope"}': "i: not an INT; e: not a DATE",
    '{"d":1e400,"f":1e39}': "d: too large for DOUBLE; f: too large for FLOAT",
    '{"d":1e400,"t":1700000000000}': "d: too large for DOUBLE; t: TIMESTAMP outside the years 1 to 9999",
    '{"i":"z","d":1e400}': "i: not an INT; d: too large for DOUBLE",
    '{"c":12.345,"d":1e400}': "c: more decimals than DECIMAL(10,2) holds; d: too large for DOUBLE",
    '{"e":"20260105"}': "e: not a date alone (year-month-day)",
    '{"e":"365"}': "e: not a date alone (year-month-day)",
    '{"d":1e400': "not valid JSON",
    '{"a":' + "[" * 100_000 + "]" * 100_000 + "}": "more levels than can be read",
    '{"c":" 1.5"}': "c: not written as a plain number; with commas or groups it needs the option locale",
    '{"c":"\u0663"}': "c: not written as a plain number; with commas or groups it needs the option locale",
    '{"c":"5 "}': "c: not a DECIMAL(10,2)",
    '{"c":1e999999999999}': "c: not a DECIMAL(10,2)",
    '{"t":9223372036854775807}': f"t: TIMESTAMP {_YEARS}",
    '{"t":288230376151711744}': f"t: TIMESTAMP {_YEARS}",
    '{"t":"2026-01-31T10:20:30+18:30"}': "t: not a TIMESTAMP",
    '{"t":"2026-01-31T10:20:30+01:60"}': "t: not a TIMESTAMP",
    '{"t":"' + "9" * 5000 + '-01-01T00:00:00Z"}': "t: not a TIMESTAMP",
    '{"t":"0001-01-01T00:00:00+01:00"}': f"t: TIMESTAMP {_YEARS}",
    '{"d":0.' + "0" * 240 + "1e-90}": "d: too small for DOUBLE",
    '{"more":{"\\ud800":1}}': "more: half of a surrogate pair, which is not a character",
    '{"\\ud800":1}': "half of a surrogate pair, which is not a character",
    '{"md":{"\\ud800":"2026-01-01"}}': "md{}: half of a surrogate pair, which is not a character",
    '{"new":"\\ud800"}': "new: half of a surrogate pair, which is not a character",
    '{"n":{"y":{"t":1767225600000}}}': f"n.y.t: TIMESTAMP {_YEARS}",
    '{"n":{"y":{"t":"10000-01-01T00:00:00Z"}}}': f"n.y.t: TIMESTAMP {_YEARS}",
    '{"md":{"a":"0000-12-31"}}': f"md{{}}: DATE {_YEARS}",
    '{"q":{"u":1,"u":2}}': "q: this key is there twice",
}


class Row(SimpleNamespace):
    """A record, its columns as attributes."""

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]


def parse(
    *texts: str | bytes | None, ddl: str = DDL, fmt: str = "json", policy: str = "report", **more: str
) -> list[Row]:
    raws = [text.encode() if isinstance(text, str) else text for text in texts]
    batch = pa.RecordBatch.from_pydict({"_raw": pa.array(raws, pa.binary()), "_position": [""] * len(raws)})
    found = TextsReader(Form(fmt, ddl, policy, more))(iter([batch]))
    return [Row(**row) for one in found for row in one.to_pylist()]


def test_good_records_keep_their_values() -> None:
    for row, (text, wanted) in zip(parse(*GOOD), GOOD.items(), strict=True):
        values = {
            name: value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value
            for name, value in vars(row).items()
            if value is not None and name not in ("_raw", "_position", "_malformed")
        }
        assert (text, row._malformed, values) == (text, False, wanted)
        assert row._raw == text


def test_each_fault_is_named_and_the_raw_text_kept() -> None:
    rows = parse(*BAD)
    assert all(row._malformed for row in rows)
    assert {row._raw: row._detail for row in rows} == BAD


def test_a_value_several_levels_down_is_named_by_its_path() -> None:
    ddl = (
        "a STRUCT<b: ARRAY<STRUCT<c: STRUCT<d: ARRAY<STRUCT<e: INT, t: TIMESTAMP, day: DATE, m: DECIMAL(4,2)>>>>>>, "
        "by MAP<STRING, STRUCT<`x y`: DOUBLE>>, s ARRAY<STRING>"
    )

    def deep(**leaf: Any) -> str:
        return json.dumps({"a": {"b": [{"c": None}, {"c": {"d": [{"e": 1}, leaf]}}]}})

    wanted = {
        deep(e="x"): "a.b[].c.d[].e: not an INT",
        deep(t="soon"): "a.b[].c.d[].t: not a TIMESTAMP",
        deep(day="2026-12-31", e=1.5): "a.b[].c.d[].day: not a DATE; a.b[].c.d[].e: not an INT",
        deep(day="31.12.2026", m=12345.6): "a.b[].c.d[].m: not a DECIMAL(4,2)",
        deep(day=True): "a.b[].c.d[].day: not a DATE",
        '{"by":{"k":{"x y":"1"},"l":{"x y":2}},"s":[1,{"q":2}]}': "by{}.x y: not a DOUBLE",
        '{"a":{"b":[5]},"by":7}': "a.b[]: not a STRUCT<c: STRUCT<d: ARRAY<STRUCT<"
        "e: INT, t: TIMESTAMP, day: DATE, m: DECIMAL(4,2)>>>>; by: not a MAP<STRING, STRUCT<`x y`: DOUBLE>>",
    }
    options = {"dateFormat": "dd.MM.yyyy"}
    assert [row._detail for row in parse(*wanted, ddl=ddl, **options)] == [*wanted.values()]


def test_epoch_microseconds_that_overflow_never_pass() -> None:
    # Numbers whose 10^6-fold, cut to 64 bits, is a time in this century: a look at the year alone would let them pass.
    landing = [1_767_225_600_000_064 + 64_000_128 * number for number in range(200)]
    numbers = [(micros // 64) * pow(15625, -1, 2**58) % 2**58 for micros in landing]
    assert all((number * 1_000_000) % 2**64 == micros for number, micros in zip(numbers, landing, strict=True))
    rows = parse(*(f'{{"t": {number}}}' for number in numbers), ddl="t TIMESTAMP")
    assert {row._detail for row in rows} == {"t: TIMESTAMP outside the years 1 to 9999"}
    assert all(row.t is None for row in rows)


@pytest.mark.parametrize("zone", ["BST", "AST", "PST", "EST5EDT", "Nowhere/Here"])
def test_a_zone_that_is_no_one_zone_is_refused(zone: str) -> None:
    [row] = parse(f'{{"t":"2026-07-01T12:00:00 {zone}"}}', ddl="t TIMESTAMP")
    assert row._detail == "t: its time zone is ambiguous or unknown: write +02:00 or Europe/Paris"


def test_times_that_a_zone_has_twice_or_never() -> None:
    texts = [f'{{"t":"2026-{day}T02:30:00 Europe/Berlin"}}' for day in ("03-29", "10-25", "10-26")]
    assert [row._detail for row in parse(*texts, ddl="t TIMESTAMP")] == [
        "t: a time that does not exist in its time zone: the clock was put forward",
        "t: ambiguous: its time zone has this time twice, as the clock was put back",
        None,
    ]


def test_invalid_utf8_is_kept_as_base64() -> None:
    for fmt in ("json", "csv", "text"):
        (row,) = parse(b'{"s":"\xff"}', ddl="s STRING", fmt=fmt)
        assert (row._malformed, row._detail, row._raw) == (True, "not valid UTF-8", "eyJzIjoi/yJ9")


def test_unknown_fields_by_policy() -> None:
    texts = ['{"i":1}', '{"x":{"k":[1,"a"]},"i":2,"it\'s":"é"}', '{"I":3}', '{"i":"bad","x":1}']
    report = parse(*texts, ddl="i INT")
    assert [row._unknown for row in report] == [None, ["x", "it's"], ["I"], None]
    assert [row._malformed for row in report] == [False, False, False, True]
    held = parse(*texts, ddl="i INT", policy="quarantine")
    assert [row._malformed for row in held] == [False, True, True, True]
    assert held[1]._detail == "fields that the schema lacks: x, it's"


def test_unknown_fields_inside_are_named_by_path() -> None:
    ddl = "id INT, a STRUCT<b: INT>, rows ARRAY<STRUCT<p: INT>>, by MAP<STRING, STRUCT<`x y`: INT>>, s STRING"
    texts = [
        '{"id":1,"a":{"b":1,"lost":"x"}}',
        '{"rows":[{"p":1},{"p":2,"lost2":5.10},{"lost2":6}],"top":true,"s":"\\"a\\":1"}',
        '{"by":{"k":{"x y":1,"z":{"deep":1}}}}',
        '{"a":{"b":1},"rows":[{"p":1}],"by":{"k":{"x y":1}},"s":{"free":1},"id":2}',
        '{"a":null,"rows":[null],"by":{"k":null}}',
    ]
    wanted = [["a.lost"], ["rows[].lost2", "top"], ["by{}.z"], None, None]
    assert [row._unknown for row in parse(*texts, ddl=ddl)] == wanted
    held = parse(*texts, ddl=ddl, policy="quarantine")
    assert [row._detail for row in held] == [
        *(names and f"fields that the schema lacks: {', '.join(names)}" for names in wanted)
    ]


def test_parser_options_hold_for_unknown_fields_and_reasons_too() -> None:
    rows = parse('{"d":NaN,"q":1}', "{'d':1 /*c*/}", ddl="d DOUBLE", allowComments="true")
    assert [(row._malformed, row._unknown) for row in rows] == [(False, ["q"]), (False, None)]
    rows = parse('{"e":"31.12.2026"}', '{"e":"2026-12-31"}', ddl="e DATE", dateFormat="dd.MM.yyyy")
    assert rows[0].e == dt.date(2026, 12, 31)
    assert (rows[1]._malformed, rows[1]._detail) == (True, "e: not a DATE")


def test_not_null_columns_must_be_there() -> None:
    rows = parse('{"i":1}', '{"i":null}', "{}", ddl="i INT NOT NULL, s STRING")
    assert [row._detail for row in rows] == [None, *["i: missing or null, but NOT NULL"] * 2]
    texts = ('{"i":"x"}', '{"i":1}', '{"i":"x","d":1e400,"new":1}', "{}", '{"i"')
    rows = parse(*texts, ddl="i INT NOT NULL, j INT NOT NULL, d DOUBLE", policy="quarantine")
    assert [row._detail for row in rows] == [
        "i: not an INT; j: missing or null, but NOT NULL",
        "j: missing or null, but NOT NULL",
        "i: not an INT; d: too large for DOUBLE; j: missing or null, but NOT NULL",
        "i: missing or null, but NOT NULL; j: missing or null, but NOT NULL",
        "not valid JSON",
    ]
    rows = parse("x,,1e400", "1,", ddl="i INT, j INT NOT NULL, d DOUBLE", fmt="csv")
    assert [row._detail for row in rows] == [
        "i: not an INT; d: too large for DOUBLE; j: missing or null, but NOT NULL",
        "not 3 columns",
    ]


def test_of_many_faults_some_are_named() -> None:
    ddl = ", ".join(f"c{n} INT, d{n} DOUBLE NOT NULL" for n in range(70))
    as_text = json.dumps({f"c{n}": "x" for n in range(70)} | {f"d{n}": 1 for n in range(70)})
    for text, fmt in ((as_text, "json"), ("x,1," * 69 + "x,1", "csv")):
        (row,) = parse(text, ddl=ddl, fmt=fmt)
        assert row._detail.startswith("c0: not an INT; c1: not an INT; ")
        assert row._detail.endswith("; c63: not an INT; and 6 more")
    (row,) = parse("{}", ddl=ddl)
    assert row._detail.endswith("; d63: missing or null, but NOT NULL; and 6 more")


def test_a_record_of_too_many_values_is_not_parsed() -> None:
    inside, beyond = (f'{{"n": [{",".join("1" * count)}]}}' for count in (MANY_VALUES + 1, MANY_VALUES + 2))
    text = json.dumps({"n": [], "t": "x" * MANY_VALUES})
    rows = parse(inside, beyond, text, ddl="n ARRAY<INT>, t STRING")
    assert [(row._malformed, row.n and len(row.n)) for row in rows] == [
        (False, MANY_VALUES + 1),
        (True, None),
        (False, []),
    ]
    assert rows[1]._detail == "2,000,001 commas, too many values for one record; the limit is 2,000,000"


def test_odd_names() -> None:
    ddl = "`a.b` INT, `it's` INT, `q\"q` DOUBLE, `back\\slash` INT, `m` INT, `s` INT, `$x` INT"
    good = {"a.b": 1, "it's": 2, 'q"q': 1.5, "back\\slash": 3, "m": 4, "s": 5, "$x": 6}
    rows = parse(json.dumps(good), json.dumps({**good, "it's": "x", "m": "y", "new": 1}), ddl=ddl)
    assert (rows[0]._malformed, rows[0]._unknown) == (False, None)
    assert {name: rows[0][name] for name in good} == good
    assert rows[1]._detail == "it's: not an INT; m: not an INT"


def test_names_that_mean_something_to_a_pattern() -> None:
    for name in ("a^b", "x]y", "p.q", "$", "c[d"):
        rows = parse(f'{{"{name}":1e400}}', f'{{"{name}":"Infinity"}}', f'{{"{name}":2.5}}', ddl=f"`{name}` DOUBLE")
        details = [row["_detail"] for row in rows]
        assert details == [f"{name}: too large for DOUBLE", None, None]


def test_records_that_are_written_otherwise_are_judged_by_what_they_hold() -> None:
    """A key of a map with the name of a STRING column, texts and keys in single quotes, keys with escapes."""
    of_map = '{"id":"a","m":{"id":5},"x":{"a":1,"b":2}}'
    kept = '{"id":1.50,"m":{"k":5}}'
    row, other = parse(of_map, kept, ddl="id STRING, m MAP<STRING,INT>, x STRUCT<a: INT>")
    assert (row._detail, row._unknown, row.m) == (None, ["x.b"], [("id", 5)])
    assert (other._detail, other.id, other.m) == (None, "1.50", [("k", 5)])
    ddl = "id STRING, d DATE, t TIMESTAMP, n DECIMAL(10,2), s STRUCT<a: STRING>"
    good = {
        "{'id':'x1','d':'2024-01-02','t':'2024-01-02T10:00:00Z','n':'1.50'}": "x1",
        """{"id":1.50,"s":{"a":"\\u0041, it's"}}""": "1.50",
        "{'id':1.50}": "1.50",
        '{"\\u0069d":1.50}': "1.50",
    }
    bad = {"{'n':1.555}": "n: more decimals than DECIMAL(10,2) holds"}
    assert {row._detail for row in parse("{'id':'x1'}", "{'id':1.50}", ddl=ddl)} == {"not valid JSON"}
    rows = parse(*good, *bad, ddl=ddl, allowSingleQuotes="true")
    assert [(row._detail, row.id) for row in rows[: len(good)]] == [(None, wanted) for wanted in good.values()]
    assert rows[0].n == Decimal("1.50") and rows[0].d == dt.date(2024, 1, 2)
    assert [row._detail for row in rows[len(good) :]] == list(bad.values())


def test_csv() -> None:
    wanted = {
        "1,a,2.5": (False, None),
        '1,"a\nb",3': (False, None),
        "1,a,": (False, None),
        "1,a,2.5\n": (False, None),
        "1,a,2.5\r\n": (False, None),
        "x,a,2.5": (True, "i: not an INT"),
        "1,a": (True, "not 3 columns"),
        "1,a,2,3": (True, "not 3 columns"),
        '1,"a,3': (True, "s: a quote that is not closed"),
        "3000000000,a,1": (True, "i: not an INT"),
        "1,a,1e400": (True, "d: too large for DOUBLE"),
        "1,a,2\n3,b,4": (True, "a line break outside of quotes"),
        "": (True, "empty"),
        "  ": (True, "empty"),
        None: (True, "null value (tombstone)"),
    }
    rows = parse(*wanted, ddl="i INT, s STRING, d DOUBLE", fmt="csv")
    assert {row._raw: (row._malformed, row._detail) for row in rows} == wanted
    assert (rows[1].s, rows[2].d) == ("a\nb", None)
    (row,) = parse("1;a;2", ddl="i INT, s STRING, d DOUBLE", fmt="csv", sep=";")
    assert (row.i, row.s, row.d, row._malformed) == (1, "a", 2.0, False)


def test_text() -> None:
    rows = parse("line", "", None, ddl="line STRING", fmt="text")
    assert [(row._malformed, row._detail) for row in rows] == [
        *((False, None), (False, None), (True, "null value (tombstone)"))
    ]
    assert [row.line for row in rows[:2]] == ["line", ""]
