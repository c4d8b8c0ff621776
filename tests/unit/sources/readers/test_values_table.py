"""Values that are hard to read, of every type and format: each is held exactly as it is written, or malformed with its
path.

What is exact is judged by Python's own ``json`` and ``decimal``.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support import parts
from tests.support.judged import REFUSED, agrees, held, judge, judge_of_file, plain, suits
from tools.values_table import (
    COLUMNS,
    CSV_OPTIONS,
    DDL,
    FILE_COLUMNS,
    PAGE,
    TYPES,
    Case,
    csv_cases,
    file_types,
    json_cases,
    parse,
    render,
    try_files,
    xml_cases,
)

CASES = {"json": json_cases(), "csv": csv_cases(), "xml": xml_cases()}


@pytest.mark.parametrize("kind", CASES)
def test_a_value_is_held_exactly_or_malformed(kind: str) -> None:
    cases, wrong = CASES[kind], []
    for case, row in zip(cases, parse(cases), strict=True):
        want = judge(case)
        if not row["_malformed"]:
            if not agrees(want, held(case, row)):
                wrong.append((case, "published", held(case, row), "instead of", want))
        elif not row["_detail"].startswith(f"{case.path}: "):
            wrong.append((case, "without its path", row["_detail"]))
        elif want is not REFUSED:
            wrong.append((case, "refused though it can be held", row["_detail"]))
    assert not wrong, "\n".join(map(str, wrong))
    assert len(cases) >= 250


def test_each_type_is_tried_in_each_format() -> None:
    tried = {kind: {TYPES.get(case.path, "") for case in cases} for kind, cases in CASES.items()}
    kinds = {
        kind: {type_.partition("(")[0].partition("<")[0] for type_ in types} - {""} for kind, types in tried.items()
    }
    of_csv = {type_.partition("(")[0] for type_ in COLUMNS.values()}
    assert kinds == {"csv": of_csv, **dict.fromkeys(("json", "xml"), of_csv | {"BINARY", "STRUCT", "ARRAY", "MAP"})}
    assert {type_.partition("(")[0].partition("<")[0] for type_ in FILE_COLUMNS} == kinds["json"]


def test_a_value_of_a_file_with_types_is_held_exactly_or_malformed() -> None:
    wrong: list[tuple[Any, ...]] = []
    formats: dict[str, int] = {}
    for tried in try_files():
        formats[tried.format] = formats.get(tried.format, 0) + 1
        is_read = not isinstance(tried.found, str)
        if is_read != suits(tried):
            wrong.append((*tried, "suits" if is_read else "does not suit"))
        elif isinstance(tried.found, str):
            if not (tried.found.startswith("v is ") and tried.found.endswith(f", the schema wants {tried.declared}")):
                wrong.append((*tried, "refused without the types"))
        else:
            for value, row in zip(file_types()[tried.of_file].values, tried.found, strict=True):
                want = judge_of_file(tried.of_file, tried.declared, value)
                if not row["_malformed"]:
                    if not agrees(want, plain(row["v"])):
                        wrong.append((*tried[:3], value, "published", row["v"], "instead of", want))
                elif want is not REFUSED or row["_detail"].partition(": ")[0] not in ("v", "v.c", "v[]", "v{}"):
                    wrong.append((*tried[:3], value, "refused", row["_detail"]))
    assert not wrong, "\n".join(map(str, wrong))
    columns = len(FILE_COLUMNS)
    assert formats == {"parquet": 20 * columns, "orc": 17 * columns, "avro": 14 * columns}


def test_the_page_is_what_was_tried() -> None:
    assert PAGE.read_text(encoding="utf-8") == render()


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


def test_csv_files_that_are_not_read_by_line(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_bytes(CSV_FILE)
    ddl = "id INT, `d'ec` DECIMAL(12,2), dbl DOUBLE, at TIMESTAMP, text STRING"
    rows = parts.read(tmp_path / "one.csv", ddl, header="true", multiLine="true")
    finer = "finer than a microsecond; a timestampFormat with 7 to 9 S drops the digits after the sixth"
    assert [row["_detail"] for row in rows] == [
        None,
        "d'ec: not written as a plain number; with commas or groups it needs the option locale",
        "d'ec: more decimals than DECIMAL(12,2) holds",
        "dbl: a whole number with more digits than DOUBLE holds",
        f"at: {finer}",
        "d'ec: not a DECIMAL(12,2)",
        "not valid UTF-8",
        None,
        "d'ec: not a DECIMAL(12,2)",
        None,
        "not 5 columns",
        f"d'ec: not a DECIMAL(12,2); dbl: not a DOUBLE; at: {finer}",
        "id: not an INT; d'ec: not a DECIMAL(12,2)",
    ]
    assert (rows[0]["d'ec"], rows[0]["dbl"], rows[0]["text"]) == (Decimal("1.20"), 0.5, "two\nlines")
    assert (rows[9]["text"], rows[7]["d'ec"]) == ("café", None)
    assert rows[1]["_raw"] == '2,"1,23",,,', "quarantine has the line as it was written"


def test_csv_files_whose_texts_the_options_explain(tmp_path: Path) -> None:
    """With a format for each column nothing is inexact."""
    (tmp_path / "one.csv").write_text("id,d,e\n1,31.12.2026,30.12.2026\n2,2026-12-31,x\n3,,\n")
    rows = parts.read(tmp_path / "one.csv", "id INT, d DATE, e DATE", header="true", dateFormat="dd.MM.yyyy")
    assert [row["_detail"] for row in rows] == [None, "d: not a DATE; e: not a DATE", None]
    assert (rows[0]["d"], rows[0]["e"]) == (dt.date(2026, 12, 31), dt.date(2026, 12, 30))


@pytest.mark.parametrize("more", [{}, {"multiLine": "true"}])
def test_a_file_with_a_header_is_judged_as_texts_at_hand(tmp_path: Path, more: dict[str, str]) -> None:
    order = list(COLUMNS)
    infinite = [(column, text) for column in ("dbl", "flt") for text in ("Inf", "-Infinity", "+inf", "1e999")]
    also = [Case("csv", name, text, ";".join(text if one == name else "" for one in order)) for name, text in infinite]
    cases = [*csv_cases(), *also]
    lines = [";".join(order), *(case.record for case in cases)]
    (tmp_path / "one.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = parts.read(tmp_path / "one.csv", DDL["csv"], header="true", **CSV_OPTIONS, **more)
    wrong = []
    for case, one, other in zip(cases, parse(cases), rows, strict=True):
        found = [(row["_detail"], plain(row[case.column])) for row in (one, other)]
        if found[0] != found[1]:
            wrong.append((case.record, *found))
    assert not wrong, "\n".join(map(str, wrong))
