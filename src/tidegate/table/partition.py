"""The partition folders of a table: names from which no reader guesses another type than the column has."""

from __future__ import annotations

import json

from tidegate.core.hive_names import NULL_NAME, escape_name

_RETYPED_WORDS = {"nan", "inf", "infinity", "epoch", "now", "today", "tomorrow", "yesterday"}


def partition_folder(partition_by: list[str], partition: dict[str, str | None], schema_json: str) -> str:
    """The folder of a partition relative to the table, ``""`` when the table is not partitioned.

    ``partition`` has every column's value in Delta's string form; null and the empty string are one in every reader.
    Plain parquet readers guess a type from the names alone: ``01`` becomes the number 1. In a STRING column a value
    that looks like a number or a date therefore has its first character percent-escaped (``k=%301``): Spark and
    DuckDB then leave it a string, and every reader that knows Hive folders decodes it.
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
    """Whether a reader that guesses types may take the text for something else than a string."""
    bare = value.strip().lstrip("+-.").lower()
    return bare[:1].isdigit() or bare in _RETYPED_WORDS or value == NULL_NAME
