"""Values that are hard to read: each is held exactly as it is written, or malformed with its path.

Python's own ``json`` and ``decimal`` are the judges.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest

from tidegate.sources.readers.batches import Batch
from tidegate.sources.readers.json_lines import JsonReader
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.ddl_tree import read_columns

GOOD: dict[str, dict[str, Any]] = {
    "{}": {},
    '{"i":1}   ': {"i": 1},
    '{"i":null}': {},
    '{"i":-2147483648, "l": 9223372036854775807}': {"i": -(2**31), "l": 2**63 - 1},
    '{"s":5}': {"s": "5"},
    '{"s":{"q": [1.10, null]}}': {"s": '{"q":[1.10,null]}'},
    '{"s":"} { ]"}': {"s": "} { ]"},
    '{"s":"\u00e9\\u00e9 \U0001f600"}': {"s": "\u00e9\u00e9 \U0001f600"},
    '{"d":"Infinity"}': {"d": math.inf},
    '{"d":-INF,"s":"INF"}': {"d": -math.inf, "s": "INF"},
    '{"t":"2026-01-01T00:00:00.000064Z"}': {"t": dt.datetime(2026, 1, 1, 0, 0, 0, 64)},
    '{"t":"2026-01-31 10:20:30 Europe/Paris"}': {"t": dt.datetime(2026, 1, 31, 9, 20, 30)},
    '{"t":"2026-01-31T10:20:30+02:00"}': {"t": dt.datetime(2026, 1, 31, 8, 20, 30)},
    '{"t":"2026-1-31T10:20:30.5-11:30:15"}': {"t": dt.datetime(2026, 1, 31, 21, 50, 45, 500000)},
    '{"t":"2026-01-31T10:20:30 UTC+18:00"}': {"t": dt.datetime(2026, 1, 30, 16, 20, 30)},
    '{"d":0.0,"f":-0.0}': {"d": 0.0, "f": -0.0},
    '{"t":1700000000}': {"t": dt.datetime(2023, 11, 14, 22, 13, 20)},
    '{"t":"9999-12-31T23:59:59.999999Z"}': {"t": dt.datetime(9999, 12, 31, 23, 59, 59, 999999)},
    '{"e":"0001-01-01"}': {"e": dt.date(1, 1, 1)},
    '{"p":"2026-01-01T00:00:00"}': {"p": dt.datetime(2026, 1, 1)},
    '{"a":[1,null]}': {"a": [1, None]},
    '{"y":"YWJj"}': {"y": b"abc"},
}

_YEARS = "outside the years 1 to 9999"
BAD = {
    "null": "not a JSON object",
    "5": "not a JSON object",
    '[{"i":1}]': "not a JSON object",
    '{"i":1': "not valid JSON",
    '{"i":1,}': "not valid JSON",
    "{i:1}": "not valid JSON",
    '{"i":01}': "not valid JSON",
    '{"s":"a\tb"}': "not valid JSON",
    '{"i":1} xx': "text after the JSON object",
    '{"i":1}{"i":2}': "text after the JSON object",
    '{"i":1}}': "text after the JSON object",
    '{"a":' + "[" * 100_000 + "]" * 100_000 + "}": "more levels than can be read",
    '{"i":3000000000}': "i: not an INT",
    '{"i":"12"}': "i: not an INT",
    '{"i":1.0}': "i: not an INT",
    '{"i":true}': "i: not an INT",
    '{"z":300}': "z: not a TINYINT",
    '{"d":"5"}': "d: not a DOUBLE",
    '{"d":1e400}': "d: too large for DOUBLE",
    '{"f":1e39,"s":"info"}': "f: too large for FLOAT",
    '{"c":123456789012.3}': "c: not a DECIMAL(10,2)",
    '{"c":12.345}': "c: more decimals than DECIMAL(10,2) holds",
    '{"c":" 1.5"}': "c: not written as a plain number; with commas or groups it needs the option locale",
    '{"c":"\u0663"}': "c: not written as a plain number; with commas or groups it needs the option locale",
    '{"c":"5 "}': "c: not a DECIMAL(10,2)",
    '{"c":1e999999999999}': "c: not a DECIMAL(10,2)",
    '{"b":"true"}': "b: not a BOOLEAN",
    '{"t":"2026-01-01T25:00:00"}': "t: not a TIMESTAMP",
    '{"t":1700000000000}': f"t: TIMESTAMP {_YEARS}",
    '{"t":9223372036854775807}': f"t: TIMESTAMP {_YEARS}",
    '{"t":288230376151711744}': f"t: TIMESTAMP {_YEARS}",
    '{"t":"2026-01-31T10:20:30+18:30"}': "t: not a TIMESTAMP",
    '{"t":"2026-01-31T10:20:30+01:60"}': "t: not a TIMESTAMP",
    '{"t":"' + "9" * 5000 + '-01-01T00:00:00Z"}': "t: not a TIMESTAMP",
    '{"t":"0001-01-01T00:00:00+01:00"}': f"t: TIMESTAMP {_YEARS}",
    '{"d":0.' + "0" * 240 + "1e-90}": "d: too small for DOUBLE",
    '{"more":{"\\ud800":1}}': "more: half of a surrogate pair, which is not a character",
    '{"\\ud800":1}': "half of a surrogate pair, which is not a character",
    '{"mm":{"\\ud800":"2026-01-01"}}': "mm{}: half of a surrogate pair, which is not a character",
    '{"new":"\\ud800"}': "new: half of a surrogate pair, which is not a character",
    '{"p":"+12345-01-01T00:00:00"}': f"p: TIMESTAMP_NTZ {_YEARS}",
    '{"e":"2026-02-30"}': "e: not a DATE",
    '{"e":"12024-01-01"}': f"e: DATE {_YEARS}",
    '{"y":"!!"}': "y: not a BINARY",
    '{"n":5}': "n: not a struct<x:int,y:struct<z:int,t:timestamp>>",
    '{"n":{"y":{"z":"q"}}}': "n.y.z: not an INT",
    '{"n":{"y":{"t":1767225600000}}}': f"n.y.t: TIMESTAMP {_YEARS}",
    '{"n":{"y":{"t":"10000-01-01T00:00:00Z"}}}': f"n.y.t: TIMESTAMP {_YEARS}",
    '{"n":{"x":1.5,"y":[1]}}': "n.x: not an INT; n.y: not a struct<z:int,t:timestamp>",
    '{"a":[1,"x"]}': "a[]: not an INT",
    '{"a":{}}': "a: not an array<int>",
    '{"mm":{"a":"0000-12-31"}}': f"mm{{}}: DATE {_YEARS}",
    '{"q":{"u":1,"u":2}}': "q: this key is there twice",
    '{"i":"z","s":"kept","e":"nope"}': "i: not an INT; e: not a DATE",
}
_TYPES = (
    "i INT, l BIGINT, s STRING, d DOUBLE, f FLOAT, c DECIMAL(10,2), t TIMESTAMP, e DATE, b BOOLEAN, "
    "n STRUCT<x: INT, y: STRUCT<z: INT, t: TIMESTAMP>>, a ARRAY<INT>, z TINYINT, mm MAP<STRING, DATE>, y BINARY, "
    "p TIMESTAMP_NTZ"
)


def _read(ddl: str, *texts: str) -> Batch:
    lines = [text.encode("utf-8", "surrogatepass") for text in texts]
    return JsonReader(read_columns(parse_ddl(ddl))).read(lines, b"\n".join(lines))


def _rows(ddl: str, batch: Batch) -> list[dict[str, Any]]:
    columns = [column.to_pylist() for column in batch.columns]
    names = [column.name for column in parse_ddl(ddl)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def test_good_records_keep_their_values() -> None:
    batch = _read(_TYPES, *GOOD)
    assert not batch.wrong
    for row, (text, wanted) in zip(_rows(_TYPES, batch), GOOD.items(), strict=True):
        values = {name: _plain(value) for name, value in row.items() if value is not None}
        assert (text, values) == (text, wanted)


def test_each_fault_is_named() -> None:
    found = _read(_TYPES, *BAD).wrong
    assert {text: found[at].detail for at, text in enumerate(BAD)} == BAD
    assert all(found[at].raw == text.encode() for at, text in enumerate(BAD))


@pytest.mark.parametrize("zone", ["BST", "AST", "PST", "EST5EDT", "Nowhere/Here"])
def test_a_zone_that_is_no_one_zone_is_refused(zone: str) -> None:
    [wrong] = _read("t TIMESTAMP", f'{{"t":"2026-07-01T12:00:00 {zone}"}}').wrong.values()
    assert wrong.detail == "t: its time zone is ambiguous or unknown: write +02:00 or Europe/Paris"


def test_times_that_a_zone_has_twice_or_never() -> None:
    texts = [f'{{"t":"2026-{day}T02:30:00 Europe/Berlin"}}' for day in ("03-29", "10-25", "10-26")]
    found = _read("t TIMESTAMP", *texts).wrong
    assert {at: wrong.detail for at, wrong in found.items()} == {
        0: "t: a time that does not exist in its time zone: the clock was put forward",
        1: "t: ambiguous: its time zone has this time twice, as the clock was put back",
    }


def test_of_many_faults_some_are_named() -> None:
    ddl = ", ".join(f"c{number} INT" for number in range(70))
    record = "{" + ",".join(f'"c{number}":"x"' for number in range(70)) + "}"
    [wrong] = _read(ddl, record).wrong.values()
    assert wrong.detail.startswith("c0: not an INT; c1: not an INT; ")
    assert wrong.detail.endswith("; c63: not an INT; and 6 more")


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value
