"""Converts columns of csv texts to the Arrow types of a schema.

This is the fast path, for texts in the common form. Other texts are doubtful, and their records are read by the
functions that define values (:mod:`tidegate.sources.readers.csv_values`).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.readers.columns import Doubts, Texts, arrow_type, find_doubtful
from tidegate.sources.readers.csv_options import CsvOptions
from tidegate.sources.readers.ways import Ways
from tidegate.spec.ddl_tree import Node, digits_of_decimal

ToArrow = Callable[[pa.Array], tuple[pa.Array, Doubts]]
"""(texts and nulls) -> (the column, which has any value in the place of a doubtful text; the doubtful positions)."""

_DIGITS_OF_ARROW = 38
_DIGITS_HELD = {"tinyint": 2, "smallint": 4, "int": 9, "bigint": 18}


def make_column_reader(node: Node, options: CsvOptions, ways: Ways) -> ToArrow:
    """How texts become a column of the type ``node``."""
    kind = node.kind
    if kind == "string":
        return lambda texts: (texts, set())
    if kind == "boolean":
        return _read_booleans
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return Texts(node, ways).read_texts
    if kind in ("float", "double"):
        return _floating(node, options)
    if kind == "decimal":
        return _decimal(node, ways)
    return _whole(node)


def _read_booleans(texts: pa.Array) -> tuple[pa.Array, Doubts]:
    is_true = pc.equal(texts, "true")
    doubtful = pc.invert(pc.or_(is_true, pc.equal(texts, "false")))
    return is_true, find_doubtful(doubtful)


def _cast(texts: pa.Array, type_: pa.DataType, plain: str) -> tuple[pa.Array, Doubts]:
    """``texts`` cast at once where all of them can be, else those that match the regular expression ``plain``."""
    try:
        return texts.cast(type_), set()
    except pa.ArrowInvalid:
        return _cast_plain(texts, type_, plain)


def _cast_plain(texts: pa.Array, type_: pa.DataType, plain: str) -> tuple[pa.Array, Doubts]:
    fits = pc.match_substring_regex(texts, plain)
    if pc.all(fits).as_py() is not False:
        return texts.cast(type_), set()
    return pc.if_else(fits, texts, None).cast(type_), find_doubtful(pc.invert(fits))


def _whole(node: Node) -> ToArrow:
    type_, plain = arrow_type(node), f"^-?[0-9]{{1,{_DIGITS_HELD[node.kind]}}}$"

    def read(texts: pa.Array) -> tuple[pa.Array, Doubts]:
        if pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():  # 0x10 is a number to Arrow
            return _cast_plain(texts, type_, plain)
        return _cast(texts, type_, plain)

    return read


def _decimal(node: Node, ways: Ways) -> ToArrow:
    type_, (digits, scale) = arrow_type(node), digits_of_decimal(node.type)
    # Arrow does not notice an overflow of its 128 bits, so the regular expression limits the digits.
    whole = f"[0-9]{{1,{digits - scale}}}" if digits > scale else "0"
    zeros = f"0{{0,{_DIGITS_OF_ARROW - digits}}}"
    decimals = f"[0-9]{{1,{scale}}}{zeros}" if scale else zeros
    plain = f"^[+-]?(?:{whole}(?:[.](?:{decimals})?)?{f'|[.]{decimals}' if scale else ''})$"
    if ways.symbols is None:
        return lambda texts: _cast_plain(texts, type_, plain)
    localized, decimal, group = ways.symbols.match_plain(scale), ways.symbols.decimal, ways.symbols.group

    def read(texts: pa.Array) -> tuple[pa.Array, Doubts]:
        is_plain = pc.match_substring_regex(texts, localized)
        texts = pc.replace_substring(pc.replace_substring(texts, group, ""), decimal, ".")
        column, doubts = _cast_plain(pc.if_else(is_plain, texts, None), type_, plain)
        return column, doubts | find_doubtful(pc.invert(is_plain))

    return read


def _floating(node: Node, options: CsvOptions) -> ToArrow:
    type_ = arrow_type(node)
    words = pa.array({options.nan, *options.infinities} - {"NaN", "Inf", "-Inf"}, pa.string())
    # Below it every whole number is held; above it what was written has to be looked at.
    bound = 1e6 if node.kind == "float" else 1e15

    def read(texts: pa.Array) -> tuple[pa.Array, Doubts]:
        doubles, doubts = _cast(texts, pa.float64(), "^-?[0-9]{1,15}(?:[.][0-9]{1,30})?$")
        sizes = pc.abs(doubles)
        is_common = pc.and_(pc.less(sizes, bound), pc.greater_equal(sizes, 1e-30))
        if pc.all(is_common).as_py() is False:
            # 1e-400 is not 0, but -0 is.
            is_common = pc.or_(is_common, pc.match_substring_regex(texts, "^(?:0+|0*[.]0+)$"))
            doubts = doubts | find_doubtful(pc.invert(is_common))
        if len(words):  # which may be written as a number
            doubts = doubts | find_doubtful(pc.is_in(texts, words))
        return doubles.cast(type_, safe=False), doubts

    return read
