"""The table's schema: Spark's schema JSON normalised for a Delta log, and the changes that a commit may make.

Columns and fields inside of them may be added: every reader finds null in older files. No type may change, not even to
a wider one: Spark without Delta fails on files of both types, or reads wrong values (docs/how-to/schema-changes.md).

Spark's ``df.schema.json()`` and Delta's schema string have the same format. Readers match columns by name, so their
order makes no difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date
from typing import Literal, TypedDict, cast

from tidegate.core.errors import UsageError
from tidegate.core.hive_names import NULL_NAME, escape_name
from tidegate.spec.ddl import PARTITION_TYPES
from tidegate.table import errors

_PRIMITIVES = {
    "string",
    "long",
    "integer",
    "short",
    "byte",
    "float",
    "double",
    "boolean",
    "binary",
    "date",
    "timestamp",
}
_ROWS = "the rows that leave the transform"
_FORBIDDEN_IN_NAMES = " ,;{}()\n\t="


class Field(TypedDict):
    """A column, or a field inside one."""

    name: str
    type: DataType
    nullable: bool
    metadata: dict[str, object]


class StructType(TypedDict):
    """Fields by name."""

    type: Literal["struct"]
    fields: list[Field]


class ArrayType(TypedDict):
    """Elements of one type."""

    type: Literal["array"]
    elementType: DataType
    containsNull: bool


class MapType(TypedDict):
    """Values by keys."""

    type: Literal["map"]
    keyType: DataType
    valueType: DataType
    valueContainsNull: bool


class UserType(TypedDict):
    """A user-defined type, which a table cannot hold."""

    type: Literal["udt"]


DataType = str | StructType | ArrayType | MapType | UserType
"""A type in Spark's schema JSON; primitive types are names."""


def normalise_schema(schema_json: str, *, of_table: bool = False) -> str:
    """The schema as it is in the table's log: every field nullable, no field metadata but comments.

    Spark marks watermark columns in field metadata and constants as not nullable; neither belongs in a table. Raises
    UsageError SCHEMA_UNSUPPORTED with every column that a Delta table or a plain reader cannot hold. ``of_table``: the
    schema is that of an existing table, which another program made or changed.
    """
    faults: list[str] = []
    fields = _normalise_fields(fields_of(schema_json), "", faults)
    if not fields:
        faults.append("it has no column at all")
    seen: dict[str, str] = {}
    for field in fields:
        lower = field["name"].lower()
        if lower in seen:
            faults.append(f"columns {seen[lower]!r} and {field['name']!r} differ by case only")
        seen[lower] = field["name"]
    if faults:
        where, subject = _ROWS, "the rows cannot be stored in a table"
        if of_table:
            where = "the log of the table"
            subject = "the table itself has columns that tidegate does not write, whatever the new rows have"
        raise errors.SCHEMA_UNSUPPORTED(where=where, subject=subject, faults="; ".join(faults))
    return json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False)


def fields_of(schema_json: str) -> list[Field]:
    """The fields of a schema in JSON."""
    return cast(StructType, json.loads(schema_json))["fields"]


def is_table_name(name: str) -> bool:
    """Return whether a column, or a field inside one, can have this name."""
    return bool(name) and not any(char in _FORBIDDEN_IN_NAMES for char in name)


def _normalise_fields(fields: list[Field], prefix: str, faults: list[str]) -> list[Field]:
    result: list[Field] = []
    for field in fields:
        name = prefix + field["name"]
        if not is_table_name(field["name"]):
            faults.append(f"column name {name!r} has one of the characters {_FORBIDDEN_IN_NAMES!r}")
        comment = (field.get("metadata") or {}).get("comment")
        result.append(
            {
                "name": field["name"],
                "type": _normalise_type(field["type"], name, faults),
                "nullable": True,
                "metadata": {"comment": comment} if comment else {},
            }
        )
    return result


def _normalise_type(kind: DataType, name: str, faults: list[str]) -> DataType:
    if isinstance(kind, str):
        if kind.startswith(("char(", "varchar(")):
            return "string"
        if kind not in _PRIMITIVES and not kind.startswith("decimal"):
            hint = " (timestamp without time zone: cast it to TIMESTAMP)" if kind == "timestamp_ntz" else ""
            faults.append(f"column {name!r} has type {kind}{hint}")
        return kind
    if kind["type"] == "struct":
        return {
            "type": "struct",
            "fields": _normalise_fields(kind["fields"], name + ".", faults),
        }
    if kind["type"] == "array":
        element = _normalise_type(kind["elementType"], name + ".element", faults)
        return {"type": "array", "elementType": element, "containsNull": True}
    if kind["type"] == "map":
        key = _normalise_type(kind["keyType"], name + ".key", faults)
        value = _normalise_type(kind["valueType"], name + ".value", faults)
        return {
            "type": "map",
            "keyType": key,
            "valueType": value,
            "valueContainsNull": True,
        }
    faults.append(f"column {name!r} has type {kind['type']}")
    return kind


def extend_schema(table_schema_json: str, new_schema_json: str, name: str) -> str:
    """The table's schema with the columns, and fields inside of columns, that rows of the new schema add.

    Added ones are null in older rows. Raises UsageError SCHEMA_CHANGE, with every difference, when a column or field is
    missing, or has another type or case, and SCHEMA_UNSUPPORTED. ``name`` is that of the pipeline.
    """
    normalise_schema(table_schema_json, of_table=True)
    faults: list[str] = []
    new = fields_of(normalise_schema(new_schema_json))
    fields = _extend_fields(fields_of(table_schema_json), new, "", faults)
    if faults:
        raise errors.SCHEMA_CHANGE(where=_ROWS, faults="; ".join(faults), name=name)
    return json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False)


def extends(table_schema_json: str, new_schema_json: str) -> bool:
    """Return whether rows of the new schema can be added to the table: it differs only by added columns and fields."""
    try:
        extend_schema(table_schema_json, new_schema_json, "")
    except UsageError:
        return False
    return True


def _extend_fields(table: Sequence[Field], new: Sequence[Field], prefix: str, faults: list[str]) -> list[Field]:
    added = {field["name"]: field for field in new}
    spelt = {field["name"].lower(): field["name"] for field in new}
    extended: list[Field] = []
    for field in table:
        name, spelling = field["name"], spelt.get(field["name"].lower())
        found = None if spelling is None else added.pop(spelling)
        if found is None:
            faults.append(_describe_missing(prefix, field))
        elif found["name"] != name:
            spelling = prefix + found["name"]
            faults.append(f"column {prefix + name!r} of the table is now spelt {spelling!r} (keep the old spelling)")
        else:
            extended.append({**field, "type": _extend_type(field["type"], found["type"], prefix + name, faults)})
    return [*extended, *added.values()]


def _extend_type(table: DataType, new: DataType, name: str, faults: list[str]) -> DataType:
    if not isinstance(table, str) and not isinstance(new, str):
        if table["type"] == "struct" and new["type"] == "struct":
            return {"type": "struct", "fields": _extend_fields(table["fields"], new["fields"], f"{name}.", faults)}
        if table["type"] == "array" and new["type"] == "array":
            element = _extend_type(table["elementType"], new["elementType"], f"{name}.element", faults)
            return {**table, "elementType": element}
        if table["type"] == "map" and new["type"] == "map":
            key = _extend_type(table["keyType"], new["keyType"], f"{name}.key", faults)
            value = _extend_type(table["valueType"], new["valueType"], f"{name}.value", faults)
            return {**table, "keyType": key, "valueType": value}
    if _normalise_type(table, name, []) != new:
        faults.append(
            f"column {name!r} is {type_text(table)} in the table and {type_text(new)} in the new rows, and Spark "
            f"without Delta cannot read files of both types (cast it back in the transform, or give the new type "
            f"another name)"
        )
    return table


def _describe_missing(prefix: str, field: Field) -> str:
    name = prefix + field["name"]
    if prefix:
        return f"field {name!r} of the table is missing in the new rows (keep it, if need be as null)"
    null = f"CAST(NULL AS {type_text(field['type'])}) AS {name}"
    return f"column {name!r} of the table is missing in the new rows (keep it, if need be as {null})"


def check_partition_columns(partition_by: list[str], schema_json: str, table_partition_by: list[str] | None) -> None:
    """Raise UsageError when rows of this schema cannot be partitioned by these columns, or the table is partitioned
    differently.

    ``table_partition_by`` is None when the table does not exist yet. Unsupported types are refused too
    (:func:`normalise_schema`), so that one call before ingest shows whether rows can be published at all.
    """
    types = {field["name"].lower(): field["type"] for field in fields_of(normalise_schema(schema_json))}
    wanted = [name.lower() for name in partition_by]
    faults = []
    for name in wanted:
        if name not in types:
            faults.append(f"the rows have no column {name!r} (they have {', '.join(types)})")
        elif type_text(types[name]).lower() not in PARTITION_TYPES:
            faults.append(
                f"column {name!r} is {type_text(types[name])}: readers disagree on such values in folder names; "
                f"partition by a column of {', '.join(PARTITION_TYPES).upper()}"
            )
    if partition_by and len(set(partition_by)) == len(types):
        faults.append("every column is a partition column: the files would hold nothing")
    if table_partition_by is not None and [name.lower() for name in table_partition_by] != wanted:
        faults.append(f"the table is partitioned by {table_partition_by}, the spec says {partition_by}")
    if faults:
        raise errors.PARTITION_BY(where="pipeline.yaml, table.partition_by", faults="; ".join(faults))


def type_text(kind: DataType) -> str:
    """A Delta type as in Spark SQL."""
    if isinstance(kind, str):
        return {
            "long": "BIGINT",
            "integer": "INT",
            "short": "SMALLINT",
            "byte": "TINYINT",
        }.get(kind, kind.upper())
    if kind["type"] == "struct":
        return "STRUCT<" + ", ".join(f"{f['name']}: {type_text(f['type'])}" for f in kind["fields"]) + ">"
    if kind["type"] == "array":
        return f"ARRAY<{type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"MAP<{type_text(kind['keyType'])}, {type_text(kind['valueType'])}>"
    return kind["type"].upper()


def column_texts(schema_json: str, like: str | None = None) -> dict[str, str]:
    """{name: type as in Spark SQL} of the columns. Fields inside of columns are in the order of the schema ``like``, if
    one is given: an order is no difference."""
    fields = fields_of(schema_json)
    if like is not None:
        fields = _arrange_fields(fields, fields_of(like))
    return {field["name"]: type_text(field["type"]) for field in fields}


def _arrange_fields(fields: list[Field], like: list[Field]) -> list[Field]:
    """The fields in the order of ``like``, at every depth; those that it lacks at the end."""
    types = {field["name"]: field["type"] for field in like}
    places = {name: place for place, name in enumerate(types)}
    arranged: list[Field] = [{**one, "type": _arrange(one["type"], types.get(one["name"], ""))} for one in fields]
    return sorted(arranged, key=lambda one: places.get(one["name"], len(places)))


def _arrange(kind: DataType, like: DataType) -> DataType:
    if isinstance(kind, str) or isinstance(like, str):
        return kind
    if kind["type"] == "struct" and like["type"] == "struct":
        return {**kind, "fields": _arrange_fields(kind["fields"], like["fields"])}
    if kind["type"] == "array" and like["type"] == "array":
        return {**kind, "elementType": _arrange(kind["elementType"], like["elementType"])}
    if kind["type"] == "map" and like["type"] == "map":
        key, value = _arrange(kind["keyType"], like["keyType"]), _arrange(kind["valueType"], like["valueType"])
        return {**kind, "keyType": key, "valueType": value}
    return kind


def describe_columns(before: dict[str, str], after: dict[str, str]) -> str:
    """Describe how the columns ``before`` differ from those ``after``, both as :func:`column_texts` gives them."""
    changes = [f"{name} {kind} leaves" for name, kind in before.items() if name not in after]
    changes += [f"{name} {kind} is new" for name, kind in after.items() if name not in before]
    kept = [name for name in before if name in after and before[name] != after[name]]
    changes += [f"{name} {before[name]} becomes {after[name]}" for name in kept]
    return "; ".join(changes) or "the same as now"


def merge_schemas(schemas: Sequence[str], name: str) -> str:
    """The newest of the schemas. Raises UsageError SCHEMA_CHANGE where it differs from an older one by more than added
    columns and fields."""
    newest = normalise_schema(schemas[-1])
    for schema in schemas[:-1]:
        extend_schema(schema, newest, name)
    return newest


_ASCII = re.compile("[!-~]")
_WHOLE_NUMBER = re.compile("0|-?[1-9][0-9]{0,18}")
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBER_OR_DATE = re.compile(
    r"[+-]?(0[xXbB].*|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?|\d+([-/\\ ])\d+\4\d+( ?\(BC\)| BC)?)", re.DOTALL
)
"""What DuckDB or Spark takes for a number or a date; a pattern of Unicode digits, as for Spark."""
_RETYPED_WORDS = {"nan", "inf", "infinity", "epoch"}


def partition_folder(partition_by: list[str], partition: dict[str, str | None], schema_json: str) -> str:
    """The folder of a partition relative to the table, ``""`` when the table is not partitioned.

    ``partition`` has every column's value in Delta's string form; readers do not distinguish null and the empty string.
    Plain parquet readers infer types from the names: ``01`` becomes the number 1. So in a STRING column a character of
    a value that such a reader would change is percent-escaped (``k=%301``): Spark and DuckDB then keep it a string, and
    every reader of Hive folders decodes it. Dates and whole numbers keep their text in any type, and their names.

    A table may have several folders of one value, since earlier versions of tidegate escaped more: only the values in
    the log say which partition a file belongs to.
    """
    types = {field["name"]: field["type"] for field in fields_of(schema_json)}
    return "/".join(
        f"{escape_name(name)}={_escape_value(partition[name], types.get(name) == 'string')}" for name in partition_by
    )


def _escape_value(value: str | None, is_string: bool) -> str:
    if value is None or value == "":
        return NULL_NAME
    escaped = escape_name(value)
    if is_string and "%" not in escaped and is_changed_by_readers(value):
        # Spark decodes each escape as a character of its own, so that only ASCII can be escaped.
        return _ASCII.sub(lambda match: f"%{ord(match[0]):02X}", escaped, count=1)
    return escaped


def is_changed_by_readers(text: str) -> bool:
    """Return whether a reader that infers types from folder names may give back another text, alone or because of other
    values of the column: beside 1.5, Spark reads 7 as 7.0."""
    if _WHOLE_NUMBER.fullmatch(text):
        return not -(2**63) <= int(text) < 2**63
    if _DATE.fullmatch(text):
        return not is_date(text)
    bare = text.strip()
    is_typed = _NUMBER_OR_DATE.fullmatch(bare) is not None or bare.lstrip("+-").lower() in _RETYPED_WORDS
    return is_typed or text == NULL_NAME


def is_date(text: str) -> bool:
    """Return whether a text is a date as folder names have it: ``2026-01-31``."""
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False
