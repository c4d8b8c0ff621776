"""Values as they are written, and what becomes of them: held, or malformed with the reason.

    python -m tools.values_table          writes docs/reference/values.md

tests/unit/sources/readers/test_values_table.py compares the page with what it finds, and judges every value by Python's
own readers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/values.md"

DECIMALS = (
    *("0", "-0", "7", "-7", "12.3", "12.34", "-12.34", "0.05", "1.20", "1.200", "1.2000000", "9999999999.99", "0.00"),
    *("1.2345", "1.239", "-0.001", "0.005", "0.004", "2.675", "1.005", "9999999999.994", "9999999999.999"),
    *("1e2", "1E2", "1e-2", "1.5e-1", "12e-3", "1e-400", "-1e-400", "1e-30", "100e-1", "1230e-2", "1234e-3", "0e-9"),
    *("10000000000", "10000000000.00", "1e10", "1e400", "123456789012345678901234567890.12"),
)
DECIMAL_TEXTS = (
    *(
        "00012.50",
        "1,23",
        "1.234,56",
        "-1,5",
        "1,234.56",
        "1,234",
        "1,2,3",
        ",5",
        "5,",
        "12,",
        "1 234",
        "1'234",
        "1_000",
        "$5",
        "5 €",
    ),
    *(
        "+5",
        "+5.25",
        ".5",
        "5.",
        "-.5",
        "--5",
        "5-",
        "(5)",
        "0x10",
        "1d",
        "1f",
        "NaN",
        "Infinity",
        "٣",
        "１",
        "½",
        "−5",
    ),
)
FLOATS = (
    *("0", "-0.0", "1", "0.1", "2.5", "-1.5e3", "1e308", "1.7976931348623157e308", "5e-324", "0.30000000000000004"),
    *("1e-400", "-1e-400", "2e-324", "1e400", "-1e400", "9007199254740992", "9007199254740993", "-9007199254740993"),
    *("123456789012345678", "999999999999999999", "100000000000000000", "16777217"),
    *("1234567890123456789", "18446744073709551615", "-18446744073709551614", "100000000000000000000"),
    *("123456789012345" + "0" * 22, "1234567890123456" + "0" * 4, "1" + "0" * 23),
)
FLOAT_TEXTS = ("NaN", "1d", "1.5f", "0x1p3", "1,5", "1_000", "", "abc", "1.5e", "१")
SINGLES = (
    "0",
    "0.1",
    "1.5",
    "16777216",
    "16777217",
    "-16777217",
    "1e-50",
    "1e38",
    "1e39",
    "33554433",
    "123456789",
    "1" + "0" * 20,
)
NUMBERS_AS_TEXT = (
    *("1", "-1", "0", "-0", "1.10", "1.0", "10.00", "1e5", "1E5", "1E+2", "1e-7", "0.1", "123.456", "-0.0"),
    *("12345678901234567890", "12345678901234567890.10", "123456789012345678901234567890123456789012345.6", "1e400"),
    *("0.1000000000000000055511151231257827", "1e-400", "9007199254740993", "3.141592653589793238462643383279"),
)
STRINGS = (
    *('""', '" "', '"a"', '"1,23"', '"12345678901234567890.10"', '"é"', '"\\u00e9"', '"😀"', '"\\ud83d\\ude00"'),
    *('"\\ud800"', '"x\\udc00y"', '"\\ude00\\ud83d"', '"\\ud83d\\ud83d\\ude00"', '"\\\\ud800"', '"\\\\\\ud800"'),
    *('"\\ud83dx"', '"\\uD800\\u0041"', '"\\u0000"', '"\\n\\t\\"\\\\\\/"', '"\\"id\\": 1.10, "', '": 1.10"', '"null"'),
    *('"\ufffd"', '"\\ufdd0"', '"\\ufdd01.10"', "true", "false", "null"),
)
DOCUMENTS = (
    *("{}", "[]", '{"a":1}', '{"a":"1.10"}', "[1,2]", '{"a":{"b":[true,null]}}', '{"a":0.1}', '{"a":"\\ud800"}'),
    *('{"a":12345678901234567890.10}', "[0.1000000000000000055511151231257827]", '{"a":1e400}', '{"a":1e-400}'),
    *('{"a":0.30000000000000004}', '{"dec":1}', '{"text":1.5}', '{"a":12345678901234567890}'),
)
DATES = (
    *("2026-01-31", "0001-01-01", "9999-12-31", "2024-02-29", "2026-1-3", "2026-02-30", "2026-13-01", "12024-01-01"),
    *(
        "2026",
        "2026-01",
        "2026-01-31T10:00:00",
        "2026-01-31 10:00",
        "2026-01-31T",
        "2026-01-31Tx",
        "20260131",
        "31.01.2026",
    ),
    *("2026-01-31Z", "now", "today", "epoch", "1", "2026-01-31 "),
)
TIMES = (
    *("2026-01-31T10:20:30Z", "2026-01-31 10:20:30", "2026-01-31T10:20:30.5Z", "2026-01-31T10:20:30.123456Z"),
    *("2026-01-31T10:20:30.1234567Z", "2026-01-31T10:20:30.123456789Z", "2026-01-31T10:20:30.123456000Z"),
    *("2026-01-31T10:20:30.000000001", "2026-01-31T10:20:30+02:00", "2026-01-31T10:20:30-11:30", "2026-01-31T10:20Z"),
    *("2026-01-31", "2026-01", "2026", "10:20:30", "T10:20:30", "10:20", "2026-01-31T10", "2026-01-31T24:00:00"),
    *("2026-01-31T23:59:60Z", "2026-01-31T10:20:30 Europe/Paris", "2026-02-30T00:00:00Z", "now", "epoch", "1700000000"),
    *("2026-01-31T10:20:30.", "2026-01-31T10:20:30Zx", "2026-1-3T1:2:3Z"),
)
WHOLES = (
    *("0", "-0", "1", "-2147483648", "2147483647", "2147483648", "-2147483649", "1.0", "1.5", "1e2", "1e-400"),
    *("12345678901234567890", "9223372036854775807", "9223372036854775808", "9007199254740993"),
)
WHOLE_TEXTS = ("1,000", "1 000", "+5", " 5", "5 ", "1_000", "0x10", "٣", "1L", "--1", "", "true", "007", "-007")

COLUMNS = {
    "dec": "DECIMAL(12,2)", "whole": "DECIMAL(5,0)", "dbl": "DOUBLE", "flt": "FLOAT", "text": "STRING", "day": "DATE",
    "at": "TIMESTAMP", "ntz": "TIMESTAMP_NTZ", "num": "INT", "big": "BIGINT", "yes": "BOOLEAN",
}  # fmt: skip
NESTED = {
    "o": "STRUCT<c: DECIMAL(12,2), s: STRING, n: STRUCT<c: DECIMAL(12,2)>>",
    "list": "ARRAY<DECIMAL(12,2)>", "rows": "ARRAY<STRUCT<c: DECIMAL(12,2), t: TIMESTAMP>>",
    "names": "ARRAY<STRING>", "by": "MAP<STRING, STRING>", "sums": "MAP<STRING, DECIMAL(12,2)>",
}  # fmt: skip
INNER = {
    "o.c": "DECIMAL(12,2)", "o.n.c": "DECIMAL(12,2)", "list[]": "DECIMAL(12,2)", "rows[].c": "DECIMAL(12,2)",
    "sums{}": "DECIMAL(12,2)", "rows[].t": "TIMESTAMP", "o.s": "STRING", "names[]": "STRING", "by{}": "STRING",
}  # fmt: skip
_DDL = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
DDL = {"json": ", ".join([_DDL, *(f"{name} {type_}" for name, type_ in NESTED.items())]), "csv": _DDL}
CSV_OPTIONS = {"sep": ";"}


class Case(NamedTuple):
    """A value as it is written, in a record; ``path`` is what a fault in it is reported with."""

    format: str
    path: str
    written: str
    record: str

    @property
    def column(self) -> str:
        """The column that holds the value."""
        return self.path.split(".")[0].split("[")[0].split("{")[0]


def _quoted(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f'"{text}"' for text in texts)


def json_cases() -> list[Case]:
    """Records of JSON with one value each, at the top and inside."""
    by_column = {
        "dec": (*DECIMALS, *_quoted(DECIMALS), *_quoted(DECIMAL_TEXTS)),
        "whole": ("1", "99999", "1.0", "1.5", "100000", '"1,5"', "1e3", "1.5e1", "15e-1"),
        "dbl": (*FLOATS, *_quoted(FLOAT_TEXTS)),
        "flt": SINGLES,
        "text": (*NUMBERS_AS_TEXT, *STRINGS, *DOCUMENTS),
        "day": (*_quoted(DATES), "20260131"),
        "at": (*_quoted(TIMES), "1700000000", "-1", "1.5", "1700000000.5"),
        "ntz": _quoted(TIMES[:9]),
        "num": (*WHOLES, *_quoted(WHOLE_TEXTS)),
        "big": WHOLES,
        "yes": ("true", "false", "null", "1", "0", '"true"', '"yes"'),
    }
    cases = [
        Case("json", column, token, f'{{"{column}":{token}}}')
        for column, tokens in by_column.items()
        for token in tokens
    ]
    inner = ("1.20", "1.2345", '"1,23"', "1e-400", "12.34")
    cases += [Case("json", "o.c", token, f'{{"o":{{"c":{token}}}}}') for token in inner]
    cases += [Case("json", "o.n.c", token, f'{{"o":{{"n":{{"c":{token}}}}}}}') for token in inner]
    cases += [Case("json", "list[]", token, f'{{"list":[1,{token}]}}') for token in inner]
    cases += [Case("json", "rows[].c", token, f'{{"rows":[{{"c":1}},{{"c":{token}}}]}}') for token in inner]
    cases += [Case("json", "sums{}", token, f'{{"sums":{{"k":{token}}}}}') for token in inner]
    cases += [Case("json", "rows[].t", token, f'{{"rows":[{{"t":{token}}}]}}') for token in _quoted(TIMES[3:6])]
    texts = ("1.10", "1", "1e5", '"1.10"', '"\\ud800"')
    cases += [Case("json", "o.s", token, f'{{"o":{{"s":{token}}}}}') for token in texts]
    cases += [Case("json", "names[]", token, f'{{"names":["a",{token}]}}') for token in texts]
    cases += [Case("json", "by{}", token, f'{{"by":{{"k":{token}}}}}') for token in texts]
    twice = {
        "num": '{"num":1,"num":2}', "text": '{"text":"a","num":1,"text":"a"}', "o.c": '{"o":{"c":1,"s":"","c":1}}',
        "o.n.c": '{"o":{"n":{"c":1,"c":2}}}', "rows[].c": '{"rows":[{"c":1},{"c":1,"c":2}]}',
        "by": '{"by":{"k":"1","k":"2"}}', "sums": '{"sums":{"k":1,"l":2,"k":3}}', "other": '{"other":1,"other":1}',
        "dec": '{"dec":1,"\\u0064ec":2}',
    }  # fmt: skip
    return cases + [Case("json", path, "the same key twice", record) for path, record in twice.items()]


def csv_cases() -> list[Case]:
    """Rows of csv with one value each."""
    by_column = {
        "dec": (*DECIMALS, *DECIMAL_TEXTS),
        "dbl": (*FLOATS, *FLOAT_TEXTS),
        "flt": SINGLES,
        "text": ("1.10", "12345678901234567890.10", "é", "\ufffd", '"a;b"', "1,23"),
        "day": DATES,
        "at": TIMES,
        "num": (*WHOLES, *WHOLE_TEXTS),
        "yes": ("true", "TRUE", "yes", "1"),
    }
    order = list(COLUMNS)
    return [
        Case("csv", column, token, ";".join(token if name == column else "" for name in order))
        for column, tokens in by_column.items()
        for token in tokens
        if token
    ]


def parse(cases: list[Case]) -> list[dict[str, Any]]:
    """The records of ``cases``, which are of one format, as they are read."""
    import pyarrow as pa

    from tidegate.sources.readers.form import Form
    from tidegate.sources.readers.worker import TextsReader

    kind = cases[0].format
    texts = pa.RecordBatch.from_pydict({"_raw": [case.record for case in cases], "_position": [""] * len(cases)})
    form = Form(kind, DDL[kind], options=CSV_OPTIONS if kind == "csv" else {})
    return [row for batch in TextsReader(form)(iter([texts])) for row in batch.to_pylist()]


def value_at(row: dict[str, Any], path: str) -> Any:
    """The value at ``path``: of an array the last, of a map the first."""
    value: Any = row
    for step in re.findall(r"\w+|\[\]|\{\}", path):
        value = value[-1] if step == "[]" else value[0][1] if step == "{}" else value[step]
    return value


def _type_of(case: Case) -> str:
    inner = INNER.get(case.path) or NESTED.get(case.path, "")
    return COLUMNS.get(case.path) or f"{inner} (`{case.path}`)".strip()


_TOP = """\
# Values

A value is held exactly by its declared type, or its record is malformed: it goes to quarantine with the path of the
value and the reason. This holds for every format and at every depth. `python -m tools.values_table` wrote this page; it
tried the {count} records that the tables below name.

- DOUBLE and FLOAT hold the nearest value to a number with decimals or an exponent, as in every other program: `0.1`
  is exact here. A whole number of up to 18 digits must be held as it is; a longer one may have 15 digits (FLOAT: 6) and
  zeros behind them.
- A number of JSON in a STRING keeps its digits, also within an object or array, which is kept as a document without
  blanks.
- Whole numbers of csv may have leading zeros (`007` is 7), a sign, and digits of any script.
- A TIMESTAMP without a time zone is in the zone of the option `timeZone`, else UTC. A time zone has to be `Z`, an
  offset, or a region such as `Europe/Paris`; a time that a region has twice or never is malformed.
- With `dateFormat`, `timestampFormat` or `timestampNTZFormat` the format decides what is read. Times finer than a
  microsecond and years outside 1 to 9999 are malformed.
- Decimal commas and groups of digits need the option `locale`.
- parquet, orc and avro: the values decide. A BIGINT in a file fits an INT column where each value does; a value that
  does not fit makes its record malformed. A file whose types have nothing in common with the declared ones is
  quarantined whole. Texts that are not UTF-8 and times outside the years 1 to 9999 are malformed.
- xml: as csv, with `1` and `0` for BOOLEAN too; `price@currency` and the like: docs/how-to/files.md.

"""


def render() -> str:
    """The page."""
    tried = [
        (case, row) for cases in (json_cases(), csv_cases()) for case, row in zip(cases, parse(cases), strict=True)
    ]
    fates: dict[tuple[str, str, str], list[str]] = {}
    for case, row in tried:
        reason = "malformed: " + row["_detail"].partition(": ")[2] if row["_malformed"] else "held"
        fates.setdefault((case.format, _type_of(case), reason), []).append(case.written)
    lines = [_TOP.format(count=len(tried)), "| format | type | what becomes of it | written |", "|---|---|---|---|"]
    for (kind, type_, fate), written in fates.items():
        shown = ", ".join(text if "twice" in text else f"`{text}`" for text in dict.fromkeys(written))
        lines.append(f"| {' | '.join(_visible(cell) for cell in (kind, type_, fate, shown))} |")
    return "\n".join(lines) + "\n"


def _visible(text: str) -> str:
    """``text`` in a cell of a table, with what is not printed escaped."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text).replace("|", "\\|")


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
