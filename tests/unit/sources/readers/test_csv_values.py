"""Values of csv, by the definition and by the fast way; test_values_table.py judges hundreds more."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pytest

from tests.support.csv_records import read

TEXTS = {
    "not written as a plain number; with commas or groups it needs the option locale": "1,23 1.234,56 ,5 12, ٣ １",
    "not a DECIMAL(12,2)": "1_000 $5 --5 5- (5) 0x10 1d NaN −5 ½ 10000000000 1e400 1e99999999999999999999",
    "more decimals than DECIMAL(12,2) holds": "1.2345 0.005 12e-3 1e-400 -0.001",
    None: "+5 .5 5. -.5 00012.50 1e2 1.2000000 -0 0e-9",
}


_FINER = "finer than a microsecond; a timestampNTZFormat with 7 to 9 S drops the digits after the sixth"


@pytest.mark.parametrize("text", TEXTS)
def test_decimals(text: str | None) -> None:
    for written in TEXTS[text].split():
        batch = read("d DECIMAL(12,2), x INT", f"{written};".encode(), sep=";")
        assert {at: one.detail for at, one in batch.wrong.items()} == ({} if text is None else {0: f"d: {text}"}), (
            written
        )


@pytest.mark.parametrize(
    ("type_", "written", "value"),
    [
        ("DOUBLE", "Inf", math.inf),
        ("DOUBLE", "-Infinity", -math.inf),
        ("DOUBLE", "+inf", "not a DOUBLE"),
        ("DOUBLE", "1e999", "too large for DOUBLE"),
        ("DOUBLE", "+9007199254740993", "a whole number with more digits than DOUBLE holds"),
        ("DOUBLE", " 1.5 ", 1.5),
        ("DOUBLE", "1.5f", "not a plain number"),
        ("DOUBLE", "0x1p3", "not a plain number"),
        ("DOUBLE", "1.5.2", "not a DOUBLE"),
        ("DOUBLE", "NaN", "nan"),
        ("DOUBLE", "nan", "not a DOUBLE"),
        ("FLOAT", "16777217", "a whole number with more digits than FLOAT holds"),
        ("INT", "٣", 3),
        ("INT", "+7", 7),
        ("INT", "0x10", "not an INT"),
        ("INT", " 7", "not an INT"),
        ("TINYINT", "128", "not a TINYINT"),
        ("BOOLEAN", "TRUE", True),
        ("BOOLEAN", "1", "not a BOOLEAN"),
        ("DATE", "2026-1-3", dt.date(2026, 1, 3)),
        ("DATE", " 2026-01-03", dt.date(2026, 1, 3)),
        ("DATE", "0000-01-01", "DATE outside the years 1 to 9999"),
        ("DECIMAL(4,4)", "0.1234", Decimal("0.1234")),
        ("STRING", " x ", " x "),
        ("STRING", "x\0y", "x\0y"),
        ("TIMESTAMP_NTZ", "2026-01-31T10:20:30.1234567", _FINER),
        ("TIMESTAMP", "10000-01-01T00:00:00Z", "TIMESTAMP outside the years 1 to 9999"),
    ],
)
def test_texts_of_types(type_: str, written: str, value: object) -> None:
    batch = read(f"v {type_}, x INT", f"{written},1".encode())
    if 0 in batch.wrong:
        assert batch.wrong[0].detail == f"v: {value}"
    else:
        held = batch.columns[0][0].as_py()
        assert (type(held), held) == (type(value), value) or (value == "nan" and math.isnan(held))


def test_names_of_what_is_no_number() -> None:
    lines = (b"missing,1", b"oo,2", b"-oo,3", b"NULL,4", b"Inf,5", b"NaN,NULL")
    options = {"nanValue": "missing", "positiveInf": "oo", "negativeInf": "-oo", "nullValue": "NULL"}
    batch = read("d DOUBLE, n INT", *lines, **options)
    assert {at: one.detail for at, one in batch.wrong.items()} == {4: "d: not a DOUBLE"}
    values = batch.columns[0].to_pylist()
    assert math.isnan(values[0]) and values[1:4] == [math.inf, -math.inf, None] and math.isnan(values[5])
    assert batch.columns[1].to_pylist() == [1, 2, 3, 4, None, None]
