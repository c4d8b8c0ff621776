"""The reading of DDL without a JVM against Spark's own: the same columns and types; what we write, Spark reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tidegate.spec.ddl import DdlError, parse_ddl, quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = [
    "dt TIMESTAMP, amount INT, price DOUBLE",
    "a DECIMAL(12,2) NOT NULL, b decimal, c NUMERIC(5), d DEC(38, 38)",
    "a LONG, b BYTE, c SHORT, d REAL, e TINYINT, f SMALLINT, g INTEGER, h BIGINT, i FLOAT, j BOOLEAN",
    "a INT COMMENT 'x, y ''z''', b STRING COMMENT \"q\"",
    "`b c` STRING, `x``y` DATE, 1b BINARY, _x INT",
    "a TIMESTAMP WITHOUT TIME ZONE, b TIMESTAMP WITH LOCAL TIME ZONE, c TIMESTAMP_NTZ, d TIMESTAMP_LTZ",
    "s STRUCT<`x-y`: INT NOT NULL COMMENT 'c', z ARRAY<MAP<STRING, STRUCT<q: BIGINT>>>>, t STRUCT<select INT>",
    "date DATE, timestamp TIMESTAMP, select INT, not INT, from STRING, comment STRING, array ARRAY<INT>",
]
BAD = ["a INTT", "a", "a INT b INT", "a-b INT", "é INT", "a DECIMAL(50)", "a DECIMAL(3,5)", "a ARRAY<INT", "a ARRAY"]
BAD += ["a INT(5)", "a INT NOT", "a INT COMMENT x", "`a INT", "a INT,", "a INT DEFAULT 5", "a DOUBLE PRECISION"]


def read_with_spark(text: str) -> list[tuple[str, str, bool]]:
    from pyspark.sql.types import StructType

    return [(field.name, field.dataType.simpleString(), field.nullable) for field in StructType.fromDDL(text)]


@pytest.mark.parametrize("text", GOOD)
def test_the_same_columns(spark: SparkSession, text: str) -> None:
    columns = parse_ddl(text)
    theirs = read_with_spark(text)
    assert [(column.name, column.nullable) for column in columns] == [(name, null) for name, _, null in theirs]
    again = read_with_spark(", ".join(f"{quote_name(column.name)} {column.type}" for column in columns))
    assert [kind for _, kind, _ in again] == [kind for _, kind, _ in theirs]


@pytest.mark.parametrize("text", BAD)
def test_both_refuse(spark: SparkSession, text: str) -> None:
    with pytest.raises(DdlError):
        parse_ddl(text)
    with pytest.raises(Exception, match=r"PARSE_SYNTAX_ERROR|DATATYPE|DECIMAL|IDENTIFIER|INCOMPLETE_TYPE"):
        read_with_spark(text)
