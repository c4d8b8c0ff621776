"""Hundreds of values that are hard to read: each is in the table exactly as it was written, or malformed with its path.

What is exact is judged by Python's own ``json`` and ``decimal``, never by Spark.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from decimal import Context, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.reading.files import read_links
from tidegate.spec.models import FilesSource
from tools.values_table import (
    COLUMNS,
    DDL,
    INNER,
    PAGE,
    Case,
    csv_cases,
    differences,
    json_cases,
    parse,
    render,
    value_at,
)

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

REFUSED = object()
"""What a value is worth that its type cannot hold, or that is no value of its type."""

_MANY = Context(prec=1000, Emax=100_000, Emin=-100_000)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?")


class Number(str):
    """A number of JSON, as it is written."""


def _read_json(text: str) -> Any:
    """With numbers as they are written, and objects as tuples of pairs: a key that comes twice is there twice."""
    return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=tuple)


def _has_twice(value: Any) -> bool:
    if isinstance(value, tuple):
        names = [name for name, _ in value]
        return len(names) != len(set(names)) or any(_has_twice(inner) for _, inner in value)
    return isinstance(value, list) and any(_has_twice(inner) for inner in value)


def _decimal(text: str, digits: int, scale: int) -> Any:
    if not _NUMBER.fullmatch(text):
        return REFUSED
    value = Decimal(text, _MANY)
    if value != value.quantize(Decimal(1).scaleb(-scale), context=_MANY) or abs(value) >= 10 ** (digits - scale):
        return REFUSED
    return value


def _double(text: str, *, single: bool) -> Any:
    if text in ("NaN", "nan"):
        return "nan"
    if not _NUMBER.fullmatch(text):
        return REFUSED
    value = float(text)
    if single:
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            return REFUSED
    lost = math.isinf(value) or (value == 0 and Decimal(text, _MANY) != 0)
    if lost or (re.fullmatch("-?[0-9]{1,18}", text) and int(value) != int(text)):
        return REFUSED
    if re.fullmatch("-?[0-9]{19,}", text):
        if len(text.strip("-0")) > (6 if single else 15):
            return REFUSED
        assert single or Decimal(repr(value)) == Decimal(text), "what is taken comes out as it went in"
    return value


def _same_document(text: str) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def _string(value: Any, written: str) -> Any:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, str):
        return REFUSED if value and not _is_text(value) else value
    for number in re.findall(r"-?[0-9.]+(?:[eE][+-]?[0-9]+)?", re.sub(r'"(?:[^"\\]|\\.)*"', "", written)):
        is_whole = re.fullmatch("-?[0-9]+", number)
        if not is_whole and (math.isinf(float(number)) or Decimal(repr(float(number))) != Decimal(number)):
            return REFUSED
    return ("document", _same_document(written)) if _is_text(json.dumps(value, ensure_ascii=False)) else REFUSED


def _is_text(value: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _date(text: str) -> Any:
    match = re.fullmatch(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})\s*", text)
    try:
        return str(dt.date(*(int(part) for part in match.groups()))) if match else REFUSED
    except ValueError:
        return REFUSED


def _time(text: str, *, zoned: bool) -> Any:
    match = re.fullmatch(
        r"(\d{4}-\d{1,2}-\d{1,2})(?:[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.](\d*))?)?\s*(.*))?", text
    )
    if match is None or _date(match[1]) is REFUSED or (match[5] or "").rstrip("0")[6:]:
        return REFUSED
    hour, minute, second = (int(part or 0) for part in match.group(2, 3, 4))
    if hour > 23 or second > 59:
        return REFUSED
    value = dt.datetime.fromisoformat(_date(match[1]))
    value = value.replace(hour=hour, minute=minute, second=second, microsecond=int((match[5] or "").ljust(6, "0")[:6]))
    if match[6] and match[6] != "Z":
        offset = {"+02:00": 120, "-11:30": -690, "Europe/Paris": 60}.get(match[6])
        if offset is None:
            return REFUSED
        value -= dt.timedelta(minutes=offset)
    return value if zoned or not match[6] else REFUSED


def judge_value(type_: str, value: Any, written: str) -> Any:
    """What the declared type has to hold for ``value``, a token of JSON or the text of a csv field."""
    kind, _, rest = type_.partition("(")
    if value is None:
        return None
    if kind == "STRING":
        return _string(value, written)
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else REFUSED
    if not isinstance(value, str):
        return REFUSED
    if kind == "DECIMAL":
        return _decimal(value, *(int(part) for part in rest.rstrip(")").split(",")))
    if kind in ("DOUBLE", "FLOAT"):
        return _double(value, single=kind == "FLOAT")
    if kind in ("INT", "BIGINT"):
        bits = 31 if kind == "INT" else 63
        whole = re.fullmatch(r"[+-]?\d+", value)  # digits of any script
        return int(value) if whole and -(2**bits) <= int(value) < 2**bits else REFUSED
    if kind == "DATE":
        return _date(value)
    if isinstance(value, Number):
        epoch = re.fullmatch("-?[0-9]+", value)
        return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=int(value)) if epoch else REFUSED
    return _time(value, zoned=kind == "TIMESTAMP")


def judge(case: Case) -> Any:
    """The value that the table has to hold for ``case``, or REFUSED."""
    if case.format == "csv":
        text = case.written.strip('"')
        if COLUMNS[case.column] == "BOOLEAN":
            return {"true": True}.get(text.lower(), REFUSED)
        return judge_value(COLUMNS[case.column], text, text)
    if _has_twice(_read_json(case.record)):
        return REFUSED
    return judge_value(COLUMNS.get(case.path) or INNER[case.path], _read_json(case.written), case.written)


def held(case: Case, row: Row) -> Any:
    """What the table holds for ``case``."""
    type_ = COLUMNS.get(case.path)
    if type_ == "DATE":
        return row[f"{case.path}_as_text"]
    if type_ in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        text = row[f"{case.path}_as_text"]
        return None if text is None else dt.datetime.fromisoformat(text)
    value = value_at(row, case.path)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value


def agrees(want: Any, value: Any) -> bool:
    """Whether the table holds what it should."""
    if isinstance(want, tuple):
        return bool(_same_document(value) == want[1])
    return want is not REFUSED and type(want) is type(value) and bool(want == value)


@pytest.fixture(scope="module")
def tried(spark: SparkSession) -> dict[str, tuple[list[Case], list[Row], list[Row]]]:
    """By format: the cases, and what they become with as_spark and with exact."""
    return {
        cases[0].format: (cases, parse(spark, cases, "as_spark"), parse(spark, cases, "exact"))
        for cases in (json_cases(), csv_cases())
    }


def test_a_value_is_held_exactly_or_malformed(tried: dict[str, tuple[list[Case], list[Row], list[Row]]]) -> None:
    wrong = []
    for cases, as_spark, exact in tried.values():
        for case, theirs, ours in zip(cases, as_spark, exact, strict=True):
            want = judge(case)
            if not ours._malformed:
                if not agrees(want, held(case, ours)):
                    wrong.append((case, "published", held(case, ours), "instead of", want))
            elif not (ours._detail or "").startswith((f"{case.path}: ", f"{case.column}: ")):
                wrong.append((case, "without its path", ours._detail))
            elif not theirs._malformed and want is not REFUSED and agrees(want, held(case, theirs)):
                wrong.append((case, "refused though Spark reads it exactly", ours._detail))
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(len(cases) for cases, _, _ in tried.values()) >= 300


CSV_FILE = (
    b"id,d'ec,dbl,at,text\n"
    b'1,1.20,0.5,2026-01-31T10:20:30Z,"two\nlines"\n'
    b'2,"1,23",,,\n'
    b"3,1.2345,,,\n"
    b"4,,9007199254740993,,\n"
    b"5,,,2026-01-31T10:20:30.1234567Z,\n"
    b"6,one,,,\n"
    b"7,,,,caf\xe9\n"
    b"8,,,,\n"
    b"9,99999999999.1,,,\n"
    b"10,,,,caf\xc3\xa9\n"
    b"11,1,2\n"
    b"12,one,x,2026-01-31T10:20:30.1234567Z,\n"
    b"x,one,0.5,,\n"
)


def test_csv_files_that_are_not_read_by_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_bytes(CSV_FILE)
    ddl = "id INT, `d'ec` DECIMAL(12,2), dbl DOUBLE, at TIMESTAMP, text STRING"
    options = {"header": True, "multiLine": True}
    read = {}
    for values in ("exact", "as_spark"):
        spec = FilesSource.model_validate(
            {"type": "files", "path": "x", "format": "csv", "schema": ddl, "values": values, "options": options}
        )
        rows = read_links(spark, tmp_path, ["one.csv"], spec, []).collect()
        read[values] = {row.id: row for row in rows}
    exact = read["exact"]
    assert {number: row._detail for number, row in exact.items()} == {
        1: None,
        2: "d'ec: not written as a plain number; with commas or groups it needs the option locale",
        3: "d'ec: more decimals than DECIMAL(12,2) holds",
        4: "dbl: a whole number with more digits than DOUBLE holds",
        5: "at: finer than a microsecond",
        6: "d'ec: not a DECIMAL(12,2)",
        7: "not valid UTF-8, or with U+FFFD, which stands for such bytes",
        8: None,
        9: "d'ec: not a DECIMAL(12,2)",
        10: None,
        11: "not 5 columns",
        12: "d'ec: not a DECIMAL(12,2); dbl: not a DOUBLE; at: finer than a microsecond",
        None: "id: not an INT; d'ec: not a DECIMAL(12,2)",
    }
    one = exact[1]
    assert (one["d'ec"], one.dbl, one.text) == (Decimal("1.20"), 0.5, "two\nlines")
    assert (exact[10].text, exact[8]["d'ec"]) == ("café", None)
    assert exact[2]._raw == '2,"1,23",,,', "quarantine has the line as it was written"
    assert (read["as_spark"][2]["d'ec"], read["as_spark"][7]._malformed) == (Decimal("123.00"), False)


def test_the_page_is_what_was_tried(tried: dict[str, tuple[list[Case], list[Row], list[Row]]]) -> None:
    assert PAGE.read_text(encoding="utf-8") == render([row for found in tried.values() for row in differences(*found)])


def test_csv_files_whose_texts_the_options_explain(spark: SparkSession, tmp_path: Path) -> None:
    """With a format for each column that is looked at closely nothing is inexact."""
    (tmp_path / "one.csv").write_text("id,d,e\n1,31.12.2026,30.12.2026\n2,2026-12-31,x\n3,,\n")
    options = {"header": True, "dateFormat": "dd.MM.yyyy"}
    spec = FilesSource.model_validate(
        {"type": "files", "path": "x", "format": "csv", "schema": "id INT, d DATE, e DATE", "options": options}
    )
    rows = read_links(spark, tmp_path, ["one.csv"], spec, []).collect()
    assert {row.id: row._detail for row in rows} == {1: None, 2: "d: not a DATE; e: not a DATE", 3: None}


def test_a_file_with_a_header_is_judged_as_one_without(
    spark: SparkSession, tmp_path: Path, tried: dict[str, tuple[list[Case], list[Row], list[Row]]]
) -> None:
    """Spark's own reader of csv files stands behind the one, its parser of texts behind the other."""
    order = list(COLUMNS)
    infinite = [(column, text) for column in ("dbl", "flt") for text in ("Inf", "-Infinity", "+inf", "1e999")]
    more = [Case("csv", name, text, ";".join(text if one == name else "" for one in order)) for name, text in infinite]
    read, _, exact = tried["csv"]
    cases, plain = [*read, *more], [*exact, *parse(spark, more, "exact")]
    lines = [";".join(order), *(case.record for case in cases)]
    (tmp_path / "one.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    spec = FilesSource.model_validate(
        {"type": "files", "path": "x", "format": "csv", "schema": DDL["csv"], "options": {"sep": ";", "header": True}}
    )
    shown = [f"CAST(`{name}` AS STRING) AS `{name}_as_text`" for name in order]
    frame = read_links(spark, tmp_path, ["one.csv"], spec, []).coalesce(1)
    rows = frame.selectExpr("*", *shown).drop("day", "at", "ntz").collect()
    wrong = []
    for case, one, other in zip(cases, plain, rows, strict=True):
        fates = [None if row._malformed else (row[f"{case.column}_as_text"],) for row in (one, other)]
        if fates[0] != fates[1] and case.written != "\ufffd":  # no line is at hand that says which bytes it was
            wrong.append((case.record, one._detail, fates[0], other._detail, fates[1]))
    assert not wrong, "\n".join(map(str, wrong))
