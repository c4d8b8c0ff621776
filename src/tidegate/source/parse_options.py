"""Which of Spark's parser options a source may set, by format. Spark ignores an unknown option in silence; we refuse it."""

from __future__ import annotations

_TIME = ("dateFormat", "timestampFormat", "timestampNTZFormat", "timeZone", "locale", "enableDateTimeParsingFallback")

JSON_OPTIONS = (
    "primitivesAsString",
    "prefersDecimal",
    "allowComments",
    "allowUnquotedFieldNames",
    "allowSingleQuotes",
    "allowNumericLeadingZeros",
    "allowNonNumericNumbers",
    "allowBackslashEscapingAnyCharacter",
    "allowUnquotedControlChars",
    *_TIME,
)
CSV_OPTIONS = (
    "sep",
    "delimiter",
    "quote",
    "escape",
    "charToEscapeQuoteEscaping",
    "comment",
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
    "nullValue",
    "nanValue",
    "positiveInf",
    "negativeInf",
    "maxColumns",
    "maxCharsPerColumn",
    "emptyValue",
    *_TIME,
)


def parser_options(format_: str) -> tuple[str, ...]:
    """The option names that one record's text of this format may be parsed with."""
    return {"json": JSON_OPTIONS, "csv": CSV_OPTIONS}.get(format_, ())
