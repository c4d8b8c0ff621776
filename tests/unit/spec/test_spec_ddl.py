"""Spark's DDL without a JVM."""

from __future__ import annotations

import pytest

from tidegate.spec.ddl import Column, DdlError, parse_ddl, quote_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dt TIMESTAMP, amount INT", [("dt", "timestamp", True), ("amount", "int", True)]),
        ("a DECIMAL(12,2) NOT NULL", [("a", "decimal(12,2)", False)]),
        ("a decimal", [("a", "decimal(10,0)", True)]),
        ("a NUMERIC(5)", [("a", "decimal(5,0)", True)]),
        ("a LONG, b BYTE, c SHORT, d REAL", [("a", "bigint", True), ("b", "tinyint", True), ("c", "smallint", True), ("d", "float", True)]),  # noqa: E501
        ("a INT COMMENT 'x, y ''z'''", [("a", "int", True)]),
        ("`b c` STRING, `x``y` DATE", [("b c", "string", True), ("x`y", "date", True)]),
        ("a TIMESTAMP WITHOUT TIME ZONE", [("a", "timestamp_ntz", True)]),
        ("s STRUCT<`x-y`: INT NOT NULL COMMENT 'c', z ARRAY<MAP<STRING, STRUCT<q: BIGINT>>>>", [("s", "struct<`x-y`:int,z:array<map<string,struct<q:bigint>>>>", True)]),  # noqa: E501
        ("a TIMESTAMP WITH LOCAL TIME ZONE, 1b DATE", [("a", "timestamp", True), ("1b", "date", True)]),
        ("\n  a INT,\n  b STRING\n", [("a", "int", True), ("b", "string", True)]),
        ("date DATE, timestamp TIMESTAMP", [("date", "date", True), ("timestamp", "timestamp", True)]),
    ],
)  # fmt: skip
def test_good_schemas(text, expected):
    assert parse_ddl(text) == expected


def test_the_result_can_be_read_again():
    columns = parse_ddl("s STRUCT<`a b`: ARRAY<DECIMAL(3,1)>, c: MAP<INT, DATE>>, `t u` BINARY")
    again = parse_ddl(", ".join(f"{quote_name(column.name)} {column.type}" for column in columns))
    assert again == columns
    assert isinstance(again[0], Column)


@pytest.mark.parametrize(
    ("text", "column", "message", "fix"),
    [
        ("a INTT", "a", "there is no type 'INTT'", "write INT"),
        ("a", "a", "the end where a type belongs", "write NAME TYPE, for example id BIGINT"),
        ("a INT b INT", "a", "'b' after the type", "put a comma between columns"),
        ("a: INT", "a", "a colon between name and type", "write a TYPE, without the colon"),
        ("a INT, A INT", "A", "'a' and 'A' are one name to Spark", "give each its own name"),
        ("a STRUCT<x: INT, X: INT>", "a", "'x' and 'X' are one name to Spark", "give each its own name"),
        ("a-b INT", None, "'-' in a name that begins with 'a'", "put the whole name in backticks"),
        ("é INT", None, "the name 'é'", "put it in backticks: `é`"),
        ("a VARCHAR(10)", "a", "the type VARCHAR cannot be used", "write STRING, and limit its length"),
        ("a bool", "a", "the type BOOL cannot be used", "write BOOLEAN"),
        ("a INTERVAL DAY", "a", "the type INTERVAL cannot be used", "write STRING or BIGINT"),
        ("a DECIMAL(50)", "a", "DECIMAL(50,0) has 50 digits", "use 1 to 38"),
        ("a DECIMAL(3,5)", "a", "DECIMAL(3,5) has more digits after the point", "write DECIMAL(5,5)"),
        ("a DECIMAL(x)", "a", "'x' where a number of digits belongs", "write DECIMAL(precision, scale)"),
        ("a ARRAY<INT", "a", "the end where the end of ARRAY<...> belongs", "write '>' there"),
        ("a ARRAY", "a", "the end where what the ARRAY holds belongs", "write '<' there"),
        ("a MAP<MAP<INT,INT>,INT>", "a", "a MAP cannot be the key of a MAP", "write a plain type as the key"),
        ("a STRUCT<>", "a", "STRUCT<> has no fields", "write its fields"),
        ("a INT(5)", "a", "INT takes nothing in (...", "write INT alone"),
        ("a STRING COLLATE UTF8_LCASE", "a", "a collation", "write STRING alone"),
        ("a TIMESTAMP WITHOUT ZONE", "a", "the type is not complete: TIME is missing", "write TIMESTAMP"),
        ("1 INT", None, "the name '1'", "put it in backticks: `1`"),
        ("a INT NOT", "a", "NOT without NULL", "write NOT NULL"),
        ("a INT COMMENT x", "a", "COMMENT without a text", "write COMMENT 'a text in quotes'"),
        ("a INT DEFAULT 5", "a", "'DEFAULT' after the type", "remove it"),
        ("`a INT", None, "'`' where the name of column 1 belongs", "write the columns"),
        ("a INT,", None, "the end where the name of column 2 belongs", "write the columns"),
        ("", None, "there is no column", "write the columns: id BIGINT, name STRING"),
        ("a " + "ARRAY<" * 60 + "INT" + ">" * 60, "a", "types nested too deep", "write STRING"),
    ],
)
def test_bad_schemas(text, column, message, fix):
    with pytest.raises(DdlError) as caught:
        parse_ddl(text)
    assert caught.value.column == column
    assert caught.value.message.startswith(message)
    assert caught.value.fix.startswith(fix)
