"""Texts that have broken readers of partition folders: escapes, globs, hidden names, look-alikes of other types."""

NASTY_TEXTS = [
    "a/b",
    "a b",
    " lead",
    "trail ",
    "100%",
    "a%2Fb",
    "%20",
    "x=y",
    "[a]",
    "{b}",
    "*",
    "?",
    "a?b#c",
    "a:b",
    "'q\"",
    "back\\slash",
    "tab\there",
    "new\nline",
    "+",
    "~",
    "..",
    ".hidden",
    "_hidden",
    "é",
    "e\u0301",
    "日本",
    "😀",
    "a&b;c,d",
    "null",
    "NULL",
    "true",
    "01",
    "7",
    "-5",
    "+5",
    "1.50",
    "1e5",
    "1d",
    ".5",
    " 1",
    "NaN",
    "Infinity",
    "-inf",
    "epoch",
    "now",
    "2026-01-01",
    "2026-1-1",
    "99999999999999999999",
]
NAMED_AS_THEY_ARE = [
    *("2026-11-22", "1970-01-01", "0001-01-01", "1582-10-10", "9999-12-31"),
    *("0", "7", "-5", "20261122", "2147483648", "-2147483649", "9223372036854775807", "-9223372036854775808"),
    *("2026-11", "2026-W47", "2026Q4", "2026-325", "2026-11-22T10", "2026-11-22-10", "2026-11-22 10"),
    *("7a", "4b825dc6", "10.0.0.1", "1_000", "1,000", "1-1", "-", "+", "."),
    *("true", "now", "today", "infinite", "e1", "½"),
]
"""No reader that infers types gives another text back, whatever type it takes: their folders have their names."""

NAMED_WITH_AN_ESCAPE = [
    *("01", "00", "007", "-0", "-05", "+5", "9223372036854775808", "-9223372036854775809", "1" * 42),
    *("1.5", "1.10", "5.", ".5", "1e3", "1E3", "1e400", "1d", "1F", "٣d", "0x10", "0x1p3", "0b1"),
    *("2026-1-1", "2026-01-1", "2026/11/22", "2026 11 22", "2-9-5", "10000-1-1", "2026-11-22 (BC)", "2026-02-30"),
    *("NaN", "nan", "inf", "-inf", "Infinity", "-Infinity", "epoch", "Epoch"),
    *(" 7", "7 ", " 1.5", " 2026-11-22", "2026-11-22 "),
]
"""DuckDB or plain Spark would change them, alone or beside another value of the column."""

MIXED_COLUMNS = [
    *(("2026-11-22", "abc"), ("2026-11-22", "7"), ("2026-11-22", "2026-1-1"), ("2026-11-22", None)),
    *(("7", "abc"), ("7", "01"), ("7", "1.5"), ("7", "1e3"), ("7", "NaN"), ("7", "true"), ("7", None)),
    *(("7", "2147483648"), ("7", "9223372036854775808"), ("9223372036854775807", "abc"), ("7", "2026-11")),
]
"""The values of a column: what a reader takes one for depends on the other."""

"""Not here: ``2026-01-01 00:00:00`` (plain Spark decodes the name before it guesses a timestamp: give it a schema), a
number in other digits than ASCII (Spark takes it for a number, and decodes an escape of it to other characters), and
``__HIVE_DEFAULT_PARTITION__``, which Spark itself writes for null."""
