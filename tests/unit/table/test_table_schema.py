"""What may change in a table's schema, and how a refusal reads. Pure."""

from __future__ import annotations

import json

import pytest

from tests.support.staged import make_schema
from tidegate.core.errors import UsageError
from tidegate.table.schema import (
    check_partition_columns,
    check_schema_change,
    merge_schemas,
    normalise_schema,
    type_text,
)

TABLE = make_schema(id="long", city="string")


def refusal(table: str, new: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        check_schema_change(table, new)
    return caught.value


def test_the_same_schema_adds_nothing() -> None:
    assert check_schema_change(TABLE, TABLE) == []


def test_the_order_of_columns_is_no_difference() -> None:
    assert check_schema_change(TABLE, make_schema(city="string", id="long")) == []


def test_new_columns_are_added_nullable_wherever_they_stand() -> None:
    new = json.loads(make_schema(note="string", id="long", city="string", n="integer"))
    new["fields"][0]["nullable"] = False
    assert check_schema_change(TABLE, json.dumps(new)) == [
        {"name": "note", "type": "string", "nullable": True, "metadata": {}},
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
    ]


def test_every_difference_is_listed_with_what_to_do() -> None:
    error = refusal(
        make_schema(id="long", city="string", n="integer"), make_schema(id="string", City="string", x="date")
    )
    assert error.code == "SCHEMA_CHANGE"
    assert error.exit_code == 64
    assert "column 'id' is BIGINT in the table and STRING in the new rows" in error.message
    assert "column 'city' of the table is now spelt 'City'" in error.message
    assert "column 'n' of the table is missing in the new rows (keep it, if need be as CAST(NULL AS INT) AS n)" in (
        error.message
    )
    assert "'x'" not in error.message


def test_a_changed_struct_is_another_type() -> None:
    def nested(**columns: str) -> str:
        inner = json.loads(make_schema(**columns))
        fields = [{"name": "place", "type": inner, "nullable": True, "metadata": {}}]
        return json.dumps({"type": "struct", "fields": fields})

    assert check_schema_change(nested(city="string"), nested(city="string")) == []
    message = refusal(nested(city="string"), nested(city="string", zip="long")).message
    assert "STRUCT<city: STRING> in the table and STRUCT<city: STRING, zip: BIGINT> in the new rows" in message


def test_spark_s_marks_are_taken_off_and_comments_kept() -> None:
    spark = {
        "type": "struct",
        "fields": [
            {"name": "at", "type": "timestamp", "nullable": False, "metadata": {"spark.watermarkDelayMs": 1}},
            {"name": "c", "type": "varchar(9)", "nullable": True, "metadata": {"comment": "why", "x": 1}},
            {
                "name": "l",
                "type": {"type": "array", "elementType": "string", "containsNull": False},
                "nullable": True,
                "metadata": {},
            },
        ],
    }
    fields = json.loads(normalise_schema(json.dumps(spark)))["fields"]
    assert fields[0] == {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}
    assert fields[1] == {"name": "c", "type": "string", "nullable": True, "metadata": {"comment": "why"}}
    assert fields[2]["type"]["containsNull"] is True
    assert normalise_schema(normalise_schema(json.dumps(spark))) == normalise_schema(json.dumps(spark))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (make_schema(a="void"), "column 'a' has type void"),
        (make_schema(a="timestamp_ntz"), "cast it to TIMESTAMP"),
        (make_schema(a="interval day to second"), "interval"),
        (make_schema(**{"a b": "long"}), "column name 'a b'"),
        (make_schema(a="long", A="long"), "differ by case only"),
        (make_schema(), "no column at all"),
    ],
)
def test_what_a_table_cannot_hold_is_refused_by_name(schema: str, words: str) -> None:
    with pytest.raises(UsageError, match="SCHEMA_UNSUPPORTED") as caught:
        normalise_schema(schema)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("partition_by", "table_has", "words"),
    [
        (["nope"], None, "no column 'nope' (they have id, city, at)"),
        (["at"], None, "column 'at' is TIMESTAMP"),
        (["id", "city", "at"], None, "every column is a partition column"),
        (["city"], [], "the table is partitioned by [], the spec says ['city']"),
    ],
)
def test_partition_columns_that_cannot_be(partition_by: list[str], table_has: list[str] | None, words: str) -> None:
    with pytest.raises(UsageError, match="PARTITION_BY") as caught:
        check_partition_columns(partition_by, make_schema(id="long", city="string", at="timestamp"), table_has)
    assert words in caught.value.message


def test_a_column_of_many_values_is_no_partition_column() -> None:
    with pytest.raises(UsageError, match="PARTITION_BY") as caught:
        check_partition_columns(["tags"], make_schema(id="long", tags="headers"), None)
    assert "column 'tags' is ARRAY<STRUCT<" in caught.value.message


def test_partition_columns_are_found_whatever_their_case() -> None:
    check_partition_columns(["CITY"], TABLE, ["city"])
    with pytest.raises(UsageError, match="SCHEMA_UNSUPPORTED"):
        check_partition_columns(["city"], make_schema(id="void", city="string"), None)


def test_leftovers_must_lead_to_the_newest_schema() -> None:
    wider = make_schema(id="long", city="string", note="string")
    assert merge_schemas([TABLE, TABLE, wider]) == normalise_schema(wider)
    with pytest.raises(UsageError, match="SCHEMA_CHANGE"):
        merge_schemas([wider, TABLE])


def test_types_read_as_in_spark_sql() -> None:
    array = {"type": "array", "elementType": {"type": "map", "keyType": "string", "valueType": "long"}}
    assert type_text(array) == "ARRAY<MAP<STRING, BIGINT>>"
    assert type_text("decimal(10,2)") == "DECIMAL(10,2)"
