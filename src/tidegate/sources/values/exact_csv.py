"""A close look at csv rows: values that Spark reads without an error and changes.

As for JSON (:mod:`tidegate.sources.values.exact_json`), a row that matches one regular expression made from the schema
is beyond doubt; only others are read a second time, as texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tidegate.sources.values.exact_values import CHECKED, Separators, describe_inexact, literal, plain_pattern
from tidegate.spec.ddl import Column, quote_column
from tidegate.spec.ddl_tree import read_type


def checked_columns(columns: Sequence[Column]) -> list[Column]:
    """The columns whose values Spark may change when it reads them."""
    return [column for column in columns if read_type(column.type).kind in CHECKED]


def plain_row(columns: Sequence[Column], options: Mapping[str, str], separators: Separators) -> str | None:
    """A regular expression of rows whose values are held exactly, beyond doubt; None when options forbid one."""
    separator = options.get("sep", options.get("delimiter", ","))
    quote, escape = options.get("quote", '"'), options.get("escape", "\\")
    if len(separator) != 1 or len(quote) != 1 or len(escape) != 1:
        return None
    plain = "[^" + "".join(rf"\x{{{ord(letter):x}}}" for letter in separator + quote + escape) + "]*+"
    mark = re.escape(quote)
    any_text = f"(?:{plain}|{mark}[^{mark}\\{escape}]*+{mark})"
    fields = []
    for column in columns:
        node = read_type(column.type)
        pattern = plain_pattern(node, options, separators) if node.kind in CHECKED else None
        fields.append(any_text if pattern is None else f"(?:{pattern})?+")
    return rf"\A{re.escape(separator).join(fields)}\r?\z"


def describe_row(
    columns: Sequence[Column], root: str, options: Mapping[str, str], separators: Separators
) -> str | None:
    """SQL: ARRAY<STRUCT<path, fault>> of the values that are not held exactly; ``root`` is the row, as a struct of
    texts. None when there is nothing to look for."""
    by_type: dict[str, list[str]] = {}
    for column in checked_columns(columns):
        by_type.setdefault(column.type, []).append(column.name)
    parts = []
    for number, (type_, names) in enumerate(by_type.items()):
        fault = describe_inexact(read_type(type_), f"c{number}.text", options, separators)
        if fault is None:
            continue
        texts = ", ".join(f"struct({literal(name)} AS path, {root}.{quote_column(name)} AS text)" for name in names)
        told = f"CASE WHEN c{number}.text IS NOT NULL THEN {fault} END"
        parts.append(
            f"filter(transform(array({texts}), c{number} -> struct(c{number}.path AS path, {told} AS fault)), "
            "e -> e.fault IS NOT NULL)"
        )
    return f"concat({', '.join(parts)})" if parts else None
