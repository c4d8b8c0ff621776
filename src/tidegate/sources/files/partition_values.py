"""Types of the values in ``k=v`` folder names, which are texts: inferred once, and held against the schema afterwards.

Spark fails the whole query over a value that is not of its column's type, so such a file must not reach it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date

from tidegate.hive_names import NULL_NAME, escape_name

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


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """``k=v/...`` as Spark reads it back; "" without partitions. A value of None or "" is Hive's default partition.

    Closing braces are escaped too, which Hive leaves: nothing of the name is part of a pattern.
    """
    folders = (f"{escape_name(key)}={escape_name(value or NULL_NAME)}" for key, value in partition.items())
    return "/".join(folders).replace("}", "%7D")
