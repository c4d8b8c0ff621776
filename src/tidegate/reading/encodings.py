"""Lines and files in other encodings than UTF-8, decoded exactly.

Spark's text source cuts a file at the bytes of line breaks and takes every byte for UTF-8. Where a character is one
byte the lines are right and only to be decoded. UTF-16 and UTF-32 have such bytes within characters, so a file comes
whole and is cut unit by unit. Decoding puts U+FFFD (or worse, a question mark) in place of what the encoding does not
have: a text that does not become the same bytes again is malformed, and its bytes are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.catalyst.settings import with_settings
from tidegate.sources.values.exact_values import literal
from tidegate.spec.encodings import is_wide, line_pattern, unit_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNDECODED = "_tidegate_undecoded"
"""What is said of a text whose bytes its encoding does not have; null where it has."""

_BYTES, _LITTLE = "_tidegate_bytes", "_tidegate_little"
# By these decode replaces what an encoding does not have, where it would end the query, and knows Java's encodings.
_LENIENT = {"spark.sql.legacy.codingErrorAction": "true", "spark.sql.legacy.javaCharsets": "true"}


def decode_texts(frame: DataFrame, name: str, encoding: str, separator: str | None, *, is_whole: bool) -> DataFrame:
    """``frame`` with the column ``name`` decoded, base64 where it cannot be, and :data:`UNDECODED`.

    In a wide encoding the column holds whole files, which become a row a line, or stay one text with ``is_whole``;
    in others what it holds stays as it is divided.
    """
    others = [F.col(column) for column in frame.columns if column != name]
    with with_settings(frame.sparkSession, _LENIENT):
        frame = frame.withColumn(_BYTES, F.col(name).cast("binary"))
        if is_wide(encoding):
            frame = _split_wide(frame, encoding, separator, is_whole=is_whole)
            text, back = (
                f"CASE WHEN {_LITTLE} THEN {function}({{0}}, '{_ordered(encoding, 'LE')}') "
                f"ELSE {function}({{0}}, '{_ordered(encoding, 'BE')}') END"
                for function in ("decode", "encode")
            )
        else:
            text, back = f"decode({{0}}, '{encoding}')", f"encode({{0}}, '{encoding}')"
        frame = frame.select("*", F.expr(text.format(_BYTES)).alias("_tidegate_text"))
        is_sound = f"{back.format('_tidegate_text')} = {_BYTES}"
        return frame.select(
            F.expr(f"CASE WHEN {is_sound} THEN _tidegate_text ELSE base64({_BYTES}) END").alias(name),
            *others,
            F.expr(f"CASE WHEN NOT {is_sound} THEN {literal(f'not valid {encoding}')} END").alias(UNDECODED),
        )


def _split_wide(frame: DataFrame, encoding: str, separator: str | None, *, is_whole: bool) -> DataFrame:
    size = unit_bytes(encoding)
    marks = {order: f"X'{chr(0xFEFF).encode(_ordered(encoding, order)).hex()}'" for order in ("LE", "BE")}
    begin = f"substring({_BYTES}, 1, {size})"
    little = f"{begin} = {marks['LE']}"
    if encoding.endswith(("LE", "BE")):
        little = str(encoding.endswith("LE")).lower()
    frame = frame.withColumn(_LITTLE, F.expr(little))
    mark = f"CASE WHEN {_LITTLE} THEN {marks['LE']} ELSE {marks['BE']} END"
    behind = f"CASE WHEN {begin} = {mark} THEN substring({_BYTES}, {size + 1}) ELSE {_BYTES} END"
    frame = frame.withColumn(_BYTES, F.expr(behind))
    if is_whole:
        return frame
    lines = {
        order: f"regexp_extract_all(decode({_BYTES}, 'ISO-8859-1'), "
        f"{literal(line_pattern(_ordered(encoding, order), separator))}, 1)"
        for order in ("LE", "BE")
    }
    found = f"CASE WHEN {_LITTLE} THEN {lines['LE']} ELSE {lines['BE']} END"
    others = [F.col(column) for column in frame.columns if column != _BYTES]
    # The last match is the empty one behind the last line.
    each = F.expr(f"explode(transform(array({found}), l -> slice(l, 1, size(l) - 1))[0])").alias(_BYTES)
    return frame.select(*others, each).withColumn(_BYTES, F.expr(f"encode({_BYTES}, 'ISO-8859-1')"))


def _ordered(encoding: str, order: str) -> str:
    return encoding if encoding.endswith(("LE", "BE")) else f"{encoding}{order}"
