"""Types of the values in ``k=v`` folder names, which are texts: inferred once, and held against the schema afterwards.

Spark fails the whole query over a value that is not of its column's type, so such a file must not reach it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import TYPE_CHECKING

from tidegate.sources.files.line_numbers import line_number as line_number
from tidegate.sources.files.line_numbers import line_numbers as line_numbers

if TYPE_CHECKING:
    pass

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_PLAIN_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SPARK_DATE = re.compile(r"[+-]?[0-9]{4,7}(-[0-9]{1,2}(-[0-9]{1,2}([ T].*)?)?)?")


def infer_value_type(values: Iterable[str | None]) -> str:
    """The type of a column whose values stand in folder names: INT, BIGINT, DATE, else STRING.

    A number is one only if it is written as numbers are: ``07`` stays a text, since its zero would be lost.
    """
    texts = [value for value in values if value]
    if texts and all(_PLAIN_WHOLE.fullmatch(text) for text in texts):
        fitting = [kind for kind in ("int", "bigint") if all(fits_value(text, kind) for text in texts)]
        return fitting[0].upper() if fitting else "STRING"
    if texts and all(_DATE.fullmatch(text) and fits_value(text, "date") for text in texts):
        return "DATE"
    return "STRING"


def fits_value(value: str | None, kind: str) -> bool:
    """Whether Spark can read ``value`` as the DDL type ``kind``. Types that are rare in folder names are left to it."""
    if not value:
        return True
    if kind in _BITS:
        least = -(1 << (_BITS[kind] - 1))
        return _WHOLE.fullmatch(value) is not None and least <= int(value) < -least
    if kind == "date":
        return _SPARK_DATE.fullmatch(value) is not None and (not _DATE.fullmatch(value) or _is_day(value))
    return True


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"


# What Hive escapes in a k=v folder name, and what Spark reads back; bytes that are not Unicode are escaped with them.
_HIVE_SPECIAL = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^\udc80-\udcff]")


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """``k=v/...`` as Spark reads it back; "" without partitions. A value of None or "" is Hive's default partition."""
    return "/".join(f"{escape_hive(key)}={escape_hive(value or DEFAULT_PARTITION)}" for key, value in partition.items())


def escape_hive(text: str) -> str:
    """A partition key or value as part of a folder name."""
    return _HIVE_SPECIAL.sub(lambda match: "".join(f"%{byte:02X}" for byte in os.fsencode(match[0])), text)


def unescape_hive(text: str) -> str:
    """What :func:`escape_hive`, Hive or Spark wrote; a stray ``%`` stays."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)
