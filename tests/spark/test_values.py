"""Hundreds of values that are hard to read: each is in the table exactly as it was written, or malformed with its path.

What is exact is judged by Python's own ``json`` and ``decimal``, never by Spark.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.judged import REFUSED, agrees, held, judge
from tidegate.reading.files import read_links
from tidegate.spec.models import FilesSource
from tools.values_table import (
    COLUMNS,
    DDL,
    PAGE,
    Case,
    csv_cases,
    differences,
    json_cases,
    parse,
    render,
)

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


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
