"""Names of partition folders, as Spark writes them: ``day=2026-01-01``, ``k=a%2Fb``, ``k=__HIVE_DEFAULT_PARTITION__``."""

from __future__ import annotations

from urllib.parse import unquote

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = {chr(code) for code in (*range(1, 32), 127)} | set("\"#%'*/:=?\\{[]^")


def partition_folder(partition_by: list[str], partition: dict[str, str | None]) -> str:
    """The folder of a partition relative to the table, ``""`` when the table is not partitioned.

    ``partition`` has every column's value in Delta's string form; null and the empty string are one in every reader.
    """
    return "/".join(
        f"{escape_name(name)}={_escape_value(partition[name])}" for name in partition_by
    )


def _escape_value(value: str | None) -> str:
    return NULL_FOLDER if value is None or value == "" else escape_name(value)


def escape_name(text: str) -> str:
    """``text`` with the characters percent-escaped that Spark and Hive escape in folder names."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def parse_partition(folder: str) -> dict[str, str | None]:
    """The partition values behind a relative folder (or a file's path in it); other folder names are passed over."""
    values: dict[str, str | None] = {}
    for part in folder.split("/"):
        name, equals, value = part.partition("=")
        if equals:
            values[unquote(name)] = None if value == NULL_FOLDER else unquote(value)
    return values
