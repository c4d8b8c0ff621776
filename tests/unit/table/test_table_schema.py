"""What may change in a table's schema, and how a refusal reads. Pure."""

from __future__ import annotations

import json
from typing import cast

import pytest

from tests.support.staged import make_schema
from tidegate.core.errors import UsageError
from tidegate.table.schema import (
    DataType,
    Field,
    StructType,
    check_partition_columns,
    column_texts,
    describe_columns,
    extend_schema,
    fields_of,
    merge_schemas,
    normalise_schema,
    type_text,
)

TABLE = make_schema(id="long", city="string")


def refusal(table: str, new: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        extend_schema(table, new, "doors")
    return caught.value


def test_the_same_schema_adds_nothing() -> None:
    assert extend_schema(TABLE, TABLE, "doors") == TABLE


def test_the_order_of_columns_is_no_difference() -> None:
    assert extend_schema(TABLE, make_schema(city="string", id="long"), "doors") == TABLE


def test_new_columns_are_added_nullable_wherever_they_stand() -> None:
    new = json.loads(make_schema(note="string", id="long", city="string", n="integer"))
    new["fields"][0]["nullable"] = False
    assert fields_of(extend_schema(TABLE, json.dumps(new), "doors")) == [
        *fields_of(TABLE),
        {"name": "note", "type": "string", "nullable": True, "metadata": {}},
        {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
    ]


def test_every_difference_is_listed_with_what_to_do() -> None:
    error = refusal(
        make_schema(id="long", city="string", n="integer"), make_schema(id="string", City="string", x="date")
    )
    assert error.code == "SCHEMA_CHANGE"
    assert error.exit_code == 64
    assert "`tidegate refresh doors`" in str(error.fix) and "`tidegate repair doors --rebuild`" in str(error.fix)
    assert "column 'id' is BIGINT in the table and STRING in the new rows" in error.message
    assert "column 'city' of the table is now spelt 'City'" in error.message
    assert "column 'n' of the table is missing in the new rows (keep it, if need be as CAST(NULL AS INT) AS n)" in (
        error.message
    )
    assert "'x'" not in error.message


def struct(**columns: DataType) -> StructType:
    fields: list[Field] = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()
    ]
    return {"type": "struct", "fields": fields}


def array(element: DataType) -> DataType:
    return {"type": "array", "elementType": element, "containsNull": True}


def by_text(value: DataType) -> DataType:
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}


def test_fields_are_added_at_any_depth_wherever_they_stand() -> None:
    old = struct(actor=struct(id="long"), items=array(by_text(struct(sku="string", n="long"))))
    new = struct(
        actor=struct(kind="string", id="long"), items=array(by_text(struct(n="long", at="date", sku="string")))
    )
    assert json.loads(extend_schema(json.dumps(old), json.dumps(new), "doors")) == struct(
        actor=struct(id="long", kind="string"), items=array(by_text(struct(sku="string", n="long", at="date")))
    )


def test_the_table_s_own_marks_stay_inside_of_columns_too() -> None:
    old, new = struct(a=struct(x="long")), struct(a=struct(x="long", y="long"))
    inner = cast(StructType, old["fields"][0]["type"])["fields"][0]
    inner["nullable"], inner["metadata"] = False, {"comment": "key"}
    (column,) = fields_of(extend_schema(json.dumps(old), json.dumps(new), "doors"))
    assert cast(StructType, column["type"])["fields"][0] == inner


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (struct(x="integer"), struct(x="long"), "column 'a.x' is INT in the table and BIGINT in the new rows"),
        (array(struct(x="date")), array(struct(x="long")), "column 'a.element.x' is DATE in the table"),
        (by_text(struct(x="date")), by_text(struct(x="long")), "column 'a.value.x' is DATE in the table"),
        (by_text("date"), by_text("long"), "column 'a.value' is DATE in the table and BIGINT in the new rows"),
        (struct(x="long"), array("long"), "column 'a' is STRUCT<x: BIGINT> in the table and ARRAY<BIGINT> in the new"),
        (struct(x="long", y="date"), struct(x="long"), "field 'a.y' of the table is missing in the new rows"),
        (struct(x="long"), struct(X="long"), "column 'a.x' of the table is now spelt 'a.X' (keep the old spelling)"),
    ],
)
def test_other_changes_inside_of_a_column_are_refused_with_its_path(old: DataType, new: DataType, words: str) -> None:
    message = refusal(json.dumps(struct(a=old)), json.dumps(struct(a=new))).message
    assert words in message and ";" not in message


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
    assert merge_schemas([TABLE, TABLE, wider], "doors") == normalise_schema(wider)
    with pytest.raises(UsageError, match="SCHEMA_CHANGE"):
        merge_schemas([wider, TABLE], "doors")


def test_types_read_as_in_spark_sql() -> None:
    array = {"type": "array", "elementType": {"type": "map", "keyType": "string", "valueType": "long"}}
    assert type_text(array) == "ARRAY<MAP<STRING, BIGINT>>"
    assert type_text("decimal(10,2)") == "DECIMAL(10,2)"


def test_an_order_of_fields_is_no_change_of_columns() -> None:
    def of(*names: str, kind: str = "string") -> str:
        struct: StructType = {"type": "struct", "fields": [_field(name, kind) for name in names]}
        array: DataType = {"type": "array", "elementType": struct, "containsNull": True}
        by_key: DataType = {"type": "map", "keyType": "string", "valueType": struct, "valueContainsNull": True}
        fields = [_field("actor", struct), _field("all", array), _field("by", by_key)]
        return json.dumps({"type": "struct", "fields": fields})

    before = of("city", "zip")
    for after, changes in (
        (of("zip", "city"), 0),
        (of("new", "zip", "city"), 3),
        (of("zip"), 3),
        (of("zip", "city", kind="long"), 3),
    ):
        shown = describe_columns(column_texts(before), column_texts(after, before))
        assert shown.count(" becomes ") == changes, shown


def _field(name: str, kind: DataType) -> Field:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}
