"""Types of the values in ``k=v`` folder names: inferred once, and checked against the schema afterwards.

A file below a folder whose value does not have its column's type is skipped and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from tidegate.core.hive_names import NULL_NAME, escape_name
from tidegate.spec.ddl import read_type

if TYPE_CHECKING:
    from tidegate.sources.readers.csv_values import Read

_PLAIN_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def infer_value_type(values: Iterable[str | None]) -> str:
    """Infer the type of a column from values in folder names: INT, BIGINT, DATE, else STRING.

    ``07`` is a text, since a number would lose its zero.
    """
    texts = [value for value in values if value]
    if texts and all(_PLAIN_WHOLE.fullmatch(text) for text in texts):
        fitting = [kind for kind in ("int", "bigint") if all(fits_value(text, kind) for text in texts)]
        return fitting[0].upper() if fitting else "STRING"
    if texts and all(_DATE.fullmatch(text) and fits_value(text, "date") for text in texts):
        return "DATE"
    return "STRING"


def fits_value(value: str | None, kind: str) -> bool:
    """Return whether the readers accept ``value`` as the DDL type ``kind``; "" is any type."""
    return not value or not kind or _reader_of(kind)(value)[1] is None


@cache
def _reader_of(kind: str) -> Read:
    from tidegate.sources.readers.csv_values import (
        CsvOptions,  # most sources have no such folders
        make_field_reader,
    )

    return make_field_reader(read_type(kind), CsvOptions())


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """``k=v/...`` as Spark reads it back; "" without partitions. A value of None or "" is Hive's default partition.

    Closing braces are escaped too, unlike in Hive, so that the name is not a pattern.
    """
    folders = (f"{escape_name(key)}={escape_name(value or NULL_NAME)}" for key, value in partition.items())
    return "/".join(folders).replace("}", "%7D")
