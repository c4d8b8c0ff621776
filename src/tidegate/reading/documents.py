"""JSON over several lines: the text of a file taken apart into the texts of its records.

Spark's own reader (``multiLine``) gives columns and no texts: of a number in a STRING, an unknown field or a record
that does not fit there is nothing left to look at, a fault in one record costs all of its file, and a second object in
the file is dropped in silence. Here the texts are cut out as they stand, and read like lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DEPTH = 64
"""Levels of objects and arrays in a record; a file with more is one record, which does not fit."""

# Possessive throughout: Java's matcher then neither goes back nor recurses, but for the levels.
_TEXT = r'"(?:[^"\\]++|\\.)*+"'
_BOM = "\ufeff"


def _nested(depth: int) -> str:
    pattern = r'[{\[](?:[^"{}\[\]]++|' + _TEXT + r")*+[}\]]"
    for _ in range(depth - 1):
        pattern = r'[{\[](?:[^"{}\[\]]++|' + _TEXT + "|" + pattern + r")*+[}\]]"
    return pattern


_VALUE = rf'(?:{_nested(_DEPTH)}|{_TEXT}|[^\s,"{{}}\[\]{_BOM}]++)'
_ARRAY = rf"(?s)\A{_BOM}?+\s*+\[\s*+(?:{_VALUE}\s*+(?:,\s*+{_VALUE}\s*+)*+)?+\]\s*+\z"
_SEQUENCE = rf"(?s)\A{_BOM}?+\s*+(?:{_VALUE}\s*+)*+\z"
_INSIDE = rf"(?s)\A{_BOM}?+\s*+\[(.*)\]\s*+\z"


def split_documents(frame: DataFrame, text: str) -> DataFrame:
    """``frame`` with a row for each record of the files in column ``text``: the elements of an array, or the values
    that stand one after the other, mostly one. A text that cannot be taken apart, or is not UTF-8, stays one record."""
    others = [F.col(name) for name in frame.columns if name != text]
    return frame.select(F.explode(_records(F.col(text))).alias(text), *others)


def _records(text: Column) -> Column:
    whole = F.array(text)
    value = F.lit(f"(?s){_VALUE}")
    inside = F.regexp_extract(text, _INSIDE, 1)
    return (
        F.when(~F.is_valid_utf8(text), whole)
        .when(text.rlike(_ARRAY), F.regexp_extract_all(inside, value, F.lit(0)))
        .when(text.rlike(_SEQUENCE), F.regexp_extract_all(text, value, F.lit(0)))
        .otherwise(whole)
    )
