"""The names of a table's partition folders, chosen so that no reader infers another type than the column has."""

from __future__ import annotations

import json

from tidegate.core.hive_names import NULL_NAME, escape_name

_RETYPED_WORDS = {"nan", "inf", "infinity", "epoch", "now", "today", "tomorrow", "yesterday"}


def partition_folder(partition_by: list[str], partition: dict[str, str | None], schema_json: str) -> str:
    """The folder of a partition relative to the table, ``""`` when the table is not partitioned.

    ``partition`` has every column's value in Delta's string form; readers do not distinguish null and the empty string.
    Plain parquet readers infer types from the names: ``01`` becomes the number 1. So in a STRING column the first
    character of a value that looks like a number or a date is percent-escaped (``k=%301``): Spark and DuckDB then keep
    it a string, and every reader of Hive folders decodes it.
    """
    types = {field["name"]: field["type"] for field in json.loads(schema_json)["fields"]}
    return "/".join(
        f"{escape_name(name)}={_escape_value(partition[name], types.get(name) == 'string')}" for name in partition_by
    )


def _escape_value(value: str | None, is_string: bool) -> str:
    if value is None or value == "":
        return NULL_NAME
    escaped = escape_name(value)
    if is_string and _is_retyped(value) and not escaped.startswith("%"):
        return "".join(f"%{byte:02X}" for byte in value[0].encode()) + escaped[1:]
    return escaped


def _is_retyped(value: str) -> bool:
    """Whether a reader that infers types may not read the text as a string."""
    bare = value.strip().lstrip("+-.").lower()
    return bare[:1].isdigit() or bare in _RETYPED_WORDS or value == NULL_NAME
