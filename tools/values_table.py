"""Values as they are written, and what becomes of them: held, or malformed with the reason.

    python -m tools.values_table          writes docs/reference/values.md

tests/unit/sources/readers/test_values_table.py compares the page with what it finds, and judges every value by Python's
own readers.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.sax.saxutils import escape

from tests.support import avro_files
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.unreadable import PartUnreadable

if TYPE_CHECKING:
    import pyarrow as pa

PAGE = Path(__file__).resolve().parents[1] / "docs/reference/values.md"

DECIMALS = (
    *("0", "-0", "7", "-7", "12.3", "12.34", "-12.34", "0.05", "1.20", "1.200", "1.2000000", "9999999999.99", "0.00"),
    *("1.2345", "1.239", "-0.001", "0.005", "0.004", "2.675", "1.005", "9999999999.994", "9999999999.999"),
    *("1e2", "1E2", "1e-2", "1.5e-1", "12e-3", "1e-400", "-1e-400", "1e-30", "100e-1", "1230e-2", "1234e-3", "0e-9"),
    *("10000000000", "10000000000.00", "1e10", "1e400", "123456789012345678901234567890.12"),
)
DECIMAL_TEXTS = (
    *("00012.50", "1,23", "1.234,56", "-1,5", "1,234.56", "1,234", "1,2,3", ",5", "5,", "12,", "1'234", "1_000", "$5"),
    *("1 234", "5 €"),
    *("+5", "+5.25", ".5", "5.", "-.5", "--5", "5-", "(5)", "0x10", "1d", "1f", "NaN", "Infinity", "٣", "１"),
    *("½", "−5"),
)
FLOATS = (
    *("0", "-0.0", "1", "0.1", "2.5", "-1.5e3", "1e308", "1.7976931348623157e308", "5e-324", "0.30000000000000004"),
    *("1e-400", "-1e-400", "2e-324", "1e400", "-1e400", "9007199254740992", "9007199254740993", "-9007199254740993"),
    *("123456789012345678", "999999999999999999", "100000000000000000", "16777217"),
    *("1234567890123456789", "18446744073709551615", "-18446744073709551614", "100000000000000000000"),
    *("123456789012345" + "0" * 22, "1234567890123456" + "0" * 4, "1" + "0" * 23),
)
FLOAT_TEXTS = ("NaN", "Infinity", "-Infinity", "1d", "1.5f", "0x1p3", "1,5", "1_000", "abc", "1.5e", "१", "")
SINGLES = (
    *("0", "0.1", "1.5", "16777216", "16777217", "-16777217", "1e-50", "1e38", "1e39", "33554433", "123456789"),
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
    *("2026", "2026-01", "2026-01-31T10:00:00", "2026-01-31T", "2026-01-31Tx", "20260131", "31.01.2026"),
    *("2026-01-31Z", "now", "today", "epoch", "1"),
    *("2026-01-31 ", "2026-01-31 10:00"),
)
TIMES = (
    *("2026-01-31T10:20:30Z", "2026-01-31 10:20:30", "2026-01-31T10:20:30.5Z", "2026-01-31T10:20:30.123456Z"),
    *("2026-01-31T10:20:30.1234567Z", "2026-01-31T10:20:30.123456789Z", "2026-01-31T10:20:30.123456000Z"),
    *("2026-01-31T10:20:30.000000001", "2026-01-31T10:20:30+02:00", "2026-01-31T10:20:30-11:30", "2026-01-31T10:20Z"),
    *("2026-01-31", "2026-01", "2026", "10:20:30", "T10:20:30", "10:20", "2026-01-31T10", "2026-01-31T24:00:00"),
    *("2026-01-31T23:59:60Z", "2026-01-31T10:20:30 Europe/Paris", "2026-02-30T00:00:00Z", "now", "epoch", "1700000000"),
    *("2026-01-31T10:20:30.", "2026-01-31T10:20:30Zx", "2026-1-3T1:2:3Z", "2026-03-29T02:30:00 Europe/Paris"),
    *("2026-10-25T02:30:00 Europe/Paris", "12026-01-31T10:20:30Z"),
)
PLAIN_TIMES = (*TIMES[:9], "2026-01-31", "2026-01-31T10:20:30.123456", "2026-03-29T02:30:00", "12026-01-31T10:20:30")
WHOLES = (
    *("0", "-0", "1", "-2147483648", "2147483647", "2147483648", "-2147483649", "1.0", "1.5", "1e2", "1e-400"),
    *("12345678901234567890", "9223372036854775807", "9223372036854775808", "9007199254740993"),
)
WHOLE_TEXTS = ("1,000", "+5", "1_000", "0x10", "٣", "1L", "--1", "true", "007", "-007", "1 000", " 5", "5 ", "")
TINY = ("127", "-128", "128", "-129")
SMALL = ("32767", "-32768", "32768", "-32769")
BYTES = ("YWJj", "YWI=", "YWI", "!!", "YW Jj", "é", "")

COLUMNS = {
    "dec": "DECIMAL(12,2)", "whole": "DECIMAL(5,0)", "dbl": "DOUBLE", "flt": "FLOAT", "text": "STRING", "day": "DATE",
    "at": "TIMESTAMP", "ntz": "TIMESTAMP_NTZ", "tiny": "TINYINT", "small": "SMALLINT", "num": "INT", "big": "BIGINT",
    "yes": "BOOLEAN",
}  # fmt: skip
NOT_IN_CSV = {
    "bytes": "BINARY", "o": "STRUCT<c: DECIMAL(12,2), s: STRING, n: STRUCT<c: DECIMAL(12,2)>>",
    "list": "ARRAY<DECIMAL(12,2)>", "rows": "ARRAY<STRUCT<c: DECIMAL(12,2), t: TIMESTAMP>>",
    "names": "ARRAY<STRING>", "by": "MAP<STRING, STRING>", "sums": "MAP<STRING, DECIMAL(12,2)>",
}  # fmt: skip
INNER = {
    "o.c": "DECIMAL(12,2)", "o.n.c": "DECIMAL(12,2)", "list[]": "DECIMAL(12,2)", "rows[].c": "DECIMAL(12,2)",
    "sums{}": "DECIMAL(12,2)", "rows[].t": "TIMESTAMP", "o.s": "STRING", "names[]": "STRING", "by{}": "STRING",
}  # fmt: skip
TYPES = {**COLUMNS, **NOT_IN_CSV, **INNER}
"""The type at each path."""
_OF_CSV = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
_OF_ALL = ", ".join([_OF_CSV, *(f"{name} {type_}" for name, type_ in NOT_IN_CSV.items())])
DDL = {"json": _OF_ALL, "csv": _OF_CSV, "xml": _OF_ALL}
CSV_OPTIONS = {"sep": ";"}
_OPTIONS = {"json": {}, "csv": CSV_OPTIONS, "xml": {"rowTag": "r"}}
_NESTED_DECIMALS = ("1.20", "1.2345", "1,23", "1e-400", "12.34")
_NESTED_TEXTS = ("1.10", "1", "1e5")


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


def _quoted(texts: Iterable[str]) -> tuple[str, ...]:
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
        "ntz": _quoted(PLAIN_TIMES),
        "tiny": TINY,
        "small": SMALL,
        "num": (*WHOLES, *_quoted(WHOLE_TEXTS)),
        "big": WHOLES,
        "yes": ("true", "false", "null", "1", "0", '"true"', '"yes"'),
        "bytes": (*_quoted(BYTES), "5"),
        "o": ("{}", "null", '{"c":null}', "[]", "5", '"x"', "true"),
        "list": ("[]", "null", "[1,null]", "{}", "5", '"[1]"'),
        "by": ("{}", "null", '{"k":null}', "[]", "5", '[["k","v"]]'),
    }
    cases = [
        Case("json", column, token, f'{{"{column}":{token}}}')
        for column, tokens in by_column.items()
        for token in tokens
    ]
    inside = {
        "o.c": '{{"o":{{"c":{}}}}}', "o.n.c": '{{"o":{{"n":{{"c":{}}}}}}}', "list[]": '{{"list":[1,{}]}}',
        "rows[].c": '{{"rows":[{{"c":1}},{{"c":{}}}]}}', "sums{}": '{{"sums":{{"k":{}}}}}',
        "rows[].t": '{{"rows":[{{"t":{}}}]}}', "o.s": '{{"o":{{"s":{}}}}}', "names[]": '{{"names":["a",{}]}}',
        "by{}": '{{"by":{{"k":{}}}}}',
    }  # fmt: skip
    tokens_of = {
        "DECIMAL(12,2)": [f'"{text}"' if "," in text else text for text in _NESTED_DECIMALS],
        "TIMESTAMP": _quoted(TIMES[3:6]),
        "STRING": [*_NESTED_TEXTS, '"1.10"', '"\\ud800"'],
    }
    cases += [
        Case("json", path, token, form.format(token))
        for path, form in inside.items()
        for token in tokens_of[INNER[path]]
    ]
    twice = {
        "num": '{"num":1,"num":2}', "text": '{"text":"a","num":1,"text":"a"}', "o.c": '{"o":{"c":1,"s":"","c":1}}',
        "o.n.c": '{"o":{"n":{"c":1,"c":2}}}', "rows[].c": '{"rows":[{"c":1},{"c":1,"c":2}]}',
        "by": '{"by":{"k":"1","k":"2"}}', "sums": '{"sums":{"k":1,"l":2,"k":3}}', "other": '{"other":1,"other":1}',
        "dec": '{"dec":1,"\\u0064ec":2}',
    }  # fmt: skip
    return cases + [Case("json", path, record, record) for path, record in twice.items()]


_OF_TEXTS = {
    "dec": (*DECIMALS, *DECIMAL_TEXTS),
    "dbl": (*FLOATS, *FLOAT_TEXTS),
    "flt": SINGLES,
    "day": DATES,
    "at": TIMES,
    "ntz": PLAIN_TIMES,
    "tiny": TINY,
    "small": SMALL,
    "num": (*WHOLES, *WHOLE_TEXTS),
    "big": WHOLES,
    "yes": ("true", "TRUE", "false", "yes", "1", "0"),
}
"""By column: texts of csv and of xml."""


def csv_cases() -> list[Case]:
    """Rows of csv with one value each."""
    texts = ("1.10", "12345678901234567890.10", "é", "\ufffd", '"a;b"', "1,23", " a ", "007")
    order = list(COLUMNS)
    return [
        Case("csv", column, token, ";".join(token if name == column else "" for name in order))
        for column, tokens in {**_OF_TEXTS, "text": texts}.items()
        for token in dict.fromkeys((*tokens, ""))
    ]


def xml_cases() -> list[Case]:
    """Elements of xml with one value each, at the top and inside."""
    texts = ("1.10", "12345678901234567890.10", "é", "a < b", " a ", "007", "")
    inside = {
        "o.c": "<o><c>{}</c></o>", "o.n.c": "<o><n><c>{}</c></n></o>", "list[]": "<list>1</list><list>{}</list>",
        "rows[].c": "<rows><c>1</c></rows><rows><c>{}</c></rows>", "sums{}": "<sums><k>{}</k></sums>",
        "rows[].t": "<rows><t>{}</t></rows>", "o.s": "<o><s>{}</s></o>",
        "names[]": "<names>a</names><names>{}</names>", "by{}": "<by><k>{}</k></by>",
    }  # fmt: skip
    forms = {name: f"<{name}>{{}}</{name}>" for name in (*COLUMNS, *NOT_IN_CSV)} | inside
    of_inside = {"DECIMAL(12,2)": _NESTED_DECIMALS, "TIMESTAMP": TIMES[3:6], "STRING": _NESTED_TEXTS}
    by_path = {**_OF_TEXTS, "text": texts, "bytes": BYTES, "o": (), "list": (), "by": ()}
    by_path |= {path: of_inside[INNER[path]] for path in inside}
    cases = [
        Case("xml", path, token, f"<r>{forms[path].format(escape(token))}</r>")
        for path, tokens in by_path.items()
        for token in dict.fromkeys((*tokens, ""))
    ]
    cases.append(Case("xml", "text", "a<b>1</b>", "<r><text>a<b>1</b></text></r>"))
    twice = {
        "num": "<num>1</num><num>2</num>", "o.c": "<o><c>1</c><c>1</c></o>",
        "rows[].c": "<rows><c>1</c><c>2</c></rows>", "by": "<by><k>1</k><k>2</k></by>",
    }  # fmt: skip
    return cases + [Case("xml", path, record, f"<r>{record}</r>") for path, record in twice.items()]


def parse(cases: list[Case]) -> list[dict[str, Any]]:
    """The records of ``cases``, which are of one format, as they are read."""
    import pyarrow as pa

    from tidegate.sources.readers.worker import TextsReader

    kind = cases[0].format
    texts = pa.RecordBatch.from_pydict({"_raw": [case.record for case in cases], "_position": [""] * len(cases)})
    form = Form(kind, DDL[kind], options=_OPTIONS[kind])
    return [row for batch in TextsReader(form)(iter([texts])) for row in batch.to_pylist()]


def value_at(row: dict[str, Any], path: str) -> Any:
    """The value at ``path``: of an array the last, of a map the first."""
    value: Any = row
    for step in re.findall(r"\w+|\[\]|\{\}", path):
        value = value[-1] if step == "[]" else value[0][1] if step == "{}" else value[step]
    return value


class FileType(NamedTuple):
    """A type of files that have types: what holds it in Arrow, its schema in Avro, and values as Arrow takes them.
    Days and times are numbers, as years after 9999 are among them."""

    arrow: pa.DataType
    avro: Any
    values: tuple[Any, ...]
    in_orc: bool = True


_AT = 1_769_854_830_123_456  # 2026-01-31T10:20:30.123456
_FAR = 253_402_300_800_000_000  # 10000-01-01
_ZONED = {"type": "long", "logicalType": "timestamp-micros"}
_UNZONED = {"type": "long", "logicalType": "local-timestamp-micros"}
_DATE = {"type": "int", "logicalType": "date"}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 15, "scale": 3}


@cache
def file_types() -> dict[str, FileType]:
    """The types of files that are tried."""
    import pyarrow as pa

    decimals = tuple(map(Decimal, ("7.000", "1.200", "1.234", "10000000000.000")))
    inner = avro_files.record({"c": "long"}, "inner")
    return {
        "boolean": FileType(pa.bool_(), "boolean", (True, False)),
        "int8": FileType(pa.int8(), None, (127, -128)),
        "int16": FileType(pa.int16(), None, (7, 300)),
        "int32": FileType(pa.int32(), "int", (7, 70_000, 16_777_217)),
        "int64": FileType(pa.int64(), "long", (7, 2**31, 2**53 + 1, 10**10)),
        "uint8": FileType(pa.uint8(), None, (7, 255), in_orc=False),
        "uint64": FileType(pa.uint64(), None, (7, 2**64 - 1), in_orc=False),
        "float": FileType(pa.float32(), "float", (1.5, 0.10000000149011612)),
        "double": FileType(pa.float64(), "double", (1.5, 0.1, 1e300)),
        "decimal(15,3)": FileType(pa.decimal128(15, 3), _DECIMAL, decimals),
        "string": FileType(pa.string(), "string", (b"7", b"\xc3\xa9", b"\xff")),
        "binary": FileType(pa.binary(), "bytes", (b"7", b"\xc3\xa9", b"\xff")),
        "date": FileType(pa.date32(), _DATE, (20_484, -719_162, 2_932_897)),
        "time": FileType(pa.time64("us"), None, (37_230_123_456,), in_orc=False),
        "timestamp without a zone": FileType(pa.timestamp("us"), _UNZONED, (_AT, _FAR)),
        "timestamp of an instant": FileType(pa.timestamp("us", "UTC"), _ZONED, (_AT, _FAR)),
        "timestamp in nanoseconds": FileType(pa.timestamp("ns"), None, (_AT * 1000, _AT * 1000 + 1)),
        "struct<c: int64>": FileType(pa.struct([("c", pa.int64())]), inner, ({"c": 7}, {"c": 2**31})),
        "list<int64>": FileType(pa.list_(pa.int64()), {"type": "array", "items": "long"}, ([], [7], [7, 2**31])),
        "map<string, int64>": FileType(
            pa.map_(pa.string(), pa.int64()), {"type": "map", "values": "long"}, ({}, {"k": 7}, {"k": 2**31})
        ),
    }


FILE_COLUMNS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(12,2)", "STRING", "BINARY"),
    *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRUCT<c: INT>", "ARRAY<INT>", "MAP<STRING, INT>"),
)


class Tried(NamedTuple):
    """A file of the type ``of_file``, each value a row, read as a column ``v`` of the type ``declared``: the rows, or
    why the file as a whole cannot be read."""

    format: str
    of_file: str
    declared: str
    found: list[dict[str, Any]] | str


def _write_file(path: Path, type_: FileType) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import orc

    values: Any = type_.values
    if path.suffix == ".avro":
        if type_.avro is _DECIMAL:
            values = [int(value.scaleb(3)).to_bytes(8, signed=True) for value in values]
        path.write_bytes(avro_files.pack(avro_files.record({"v": type_.avro}), [{"v": value} for value in values]))
        return
    if pa.types.is_map(type_.arrow):
        values = [list(value.items()) for value in values]
    is_text = pa.types.is_string(type_.arrow)  # which may have other bytes than UTF-8
    array = pa.array(values, pa.binary()).view(type_.arrow) if is_text else pa.array(values, type_.arrow)
    write = pq.write_table if path.suffix == ".parquet" else orc.write_table
    write(pa.table({"v": array}), str(path))


def try_files() -> Iterator[Tried]:
    """Each type of parquet, orc and avro read as each type that a column may have."""
    import pyarrow as pa

    from tidegate.sources.readers.worker import PartsReader

    with tempfile.TemporaryDirectory() as folder:
        for kind, (name, type_) in itertools.product(("parquet", "orc", "avro"), file_types().items()):
            if (kind == "orc" and not type_.in_orc) or (kind == "avro" and type_.avro is None):
                continue
            path = Path(folder) / f"one.{kind}"
            _write_file(path, type_)
            line = json.dumps({"link": str(path), "begin": 0, "end": None})
            part = pa.RecordBatch.from_pydict({"value": [line]})
            for declared in FILE_COLUMNS:
                found: list[dict[str, Any]] | str
                try:
                    batches = list(PartsReader(Form(kind, f"v {declared}"))(iter([part])))
                    found = [row for batch in batches for row in batch.to_pylist()]
                except PartUnreadable as refused:
                    found = refused.reason
                yield Tried(kind, name, declared, found)


_TOP = """\
# Values

A value is held exactly in its column, or its record is malformed and goes to quarantine, with the path of the value and
the reason. This holds for every format, at the top level and inside STRUCT, ARRAY and MAP. The tables show {count:,}
values that were tried. `python -m tools.values_table` makes this page.

`written` → `held` shows what a column holds where that is not what is written.

- DOUBLE and FLOAT hold the nearest value to a number with decimals or an exponent, as everywhere: `0.1` is held. A
  whole number of up to 18 digits must be held as it is. A longer one may have 15 digits (FLOAT: 6) and zeros behind
  them.
- A number of JSON in a STRING keeps its digits. An object or an array of JSON in a STRING is kept as a JSON text
  without blanks, in which numbers keep their digits too.
- Decimal commas, groups of digits and a minus behind the number need the option `locale`.
- A time with digits finer than a microsecond is malformed, unless these are zeros. A `timestampFormat` or
  `timestampNTZFormat` with 7 to 9 S drops them; a BIGINT column holds the nanoseconds of parquet, since 1970.
- Without `dateFormat`, `timestampFormat` and `timestampNTZFormat`, dates and times are year-month-day and
  hour:minute:second; with one of them its pattern decides. A TIMESTAMP without a time zone is in the zone of the
  option `timeZone`, or else in UTC. A time zone is `Z`, an offset, or a region such as `Europe/Paris`. A time that a
  region has twice or never is malformed.
- An empty field of csv is null. So is an empty element of xml, except where the type is STRING, STRUCT, ARRAY or MAP.
- Attributes of xml and texts next to elements: [files](../how-to/files.md).
- parquet, orc and avro have types of their own. Where the type in the file suits the column, each value is looked at:
  int64 in a file suits an INT column, and a record whose value is too large is malformed. The tables name each type
  that suits a column; a file with another one is quarantined as a whole.
- Inside STRUCT, ARRAY and MAP a reason begins with the path of the value: `rows[].c: more decimals than DECIMAL(12,2)
  holds`.

"""
_SECTIONS = {
    "BOOLEAN": ("BOOLEAN",), "TINYINT, SMALLINT, INT, BIGINT": ("TINYINT", "SMALLINT", "INT", "BIGINT"),
    "FLOAT, DOUBLE": ("FLOAT", "DOUBLE"), "DECIMAL": ("DECIMAL",), "STRING": ("STRING",), "BINARY": ("BINARY",),
    "DATE": ("DATE",), "TIMESTAMP, TIMESTAMP_NTZ": ("TIMESTAMP", "TIMESTAMP_NTZ"),
    "STRUCT, ARRAY, MAP": ("STRUCT", "ARRAY", "MAP"),
}  # fmt: skip
_FILES = "parquet, orc, avro"


class Row(NamedTuple):
    """A row of the page without its values; ``section`` is a key of ``_SECTIONS``."""

    section: str
    type: str
    fate: str
    place: str
    format: str


def render() -> str:
    """The page."""
    values: dict[Row, dict[str, None]] = {}
    count = 0
    for row, written in (*_of_texts(), *_of_files()):
        values.setdefault(row, {})[written] = None
        count += 1
    rows = {row: ", ".join(written) for row, written in values.items()}
    rows = _join(_join(rows, "format"), "place")
    lines = [_TOP.format(count=count).rstrip()]
    for section in _SECTIONS:
        lines += ["", f"## {section}", "", "| type | format | what becomes of it | written |", "|---|---|---|---|"]
        mine = [row for row in rows if row.section == section]
        types = list(dict.fromkeys(row.type for row in mine))
        for row in sorted(mine, key=lambda one: (types.index(one.type), one.format == _FILES, one.fate != "held")):
            type_ = f"{row.type} at {row.place}" if row.place else row.type
            lines.append(f"| {' | '.join(map(_visible, (type_, row.format, row.fate, rows[row])))} |")
    return "\n".join(lines) + "\n"


def _join(rows: dict[Row, str], field: str) -> dict[Row, str]:
    """``rows`` that differ in ``field`` alone as one row."""
    alike: dict[tuple[Row, str], list[str]] = {}
    for row, written in rows.items():
        alike.setdefault((row._replace(**{field: ""}), written), []).append(getattr(row, field))
    return {row._replace(**{field: ", ".join(found)}): written for (row, written), found in alike.items()}


def _section_of(type_: str) -> str:
    kind = re.split("[(<]", type_)[0]
    return next(section for section, kinds in _SECTIONS.items() if kind in kinds)


def _tell_fate(row: dict[str, Any]) -> str:
    return f"malformed: {row['_detail'].partition(': ')[2]}" if row["_malformed"] else "held"


def _of_texts() -> Iterator[tuple[Row, str]]:
    for cases in (json_cases(), csv_cases(), xml_cases()):
        for case, row in zip(cases, parse(cases), strict=True):
            type_ = TYPES.get(case.path, "a field that the schema lacks")
            section = "STRUCT, ARRAY, MAP" if case.path in INNER or case.path not in TYPES else _section_of(type_)
            place = f"`{case.path}`" if case.path in INNER else ""
            is_held = not row["_malformed"]
            written = _show_held(case.written, value_at(row, case.path), type_) if is_held else _code(case.written)
            yield Row(section, type_, _tell_fate(row), place, case.format), written


def _of_files() -> Iterator[tuple[Row, str]]:
    for _, of_file, declared, found in try_files():
        if isinstance(found, str):
            continue
        type_ = file_types()[of_file]
        for value, row in zip(type_.values, found, strict=True):
            path = row["_detail"].partition(": ")[0] if row["_malformed"] else "v"
            place = "" if path == "v" else f"`{path}`"
            shown = _show_raw(type_.arrow, value)
            written = _code(shown) if row["_malformed"] else _show_held(shown, row["v"], declared)
            yield Row(_section_of(declared), declared, _tell_fate(row), place, _FILES), f"{of_file} {written}"


def _show_raw(type_: pa.DataType, value: Any) -> str:
    """A value of a file, days and times of any year."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_date(type_):
        return str(np.datetime64(value, "D"))
    if pa.types.is_time(type_):
        return str(pa.scalar(value, type_).as_py())
    if pa.types.is_timestamp(type_):
        return f"{np.datetime64(value, type_.unit)}{'Z' if type_.tz else ''}"
    if pa.types.is_string(type_) and value != b"\xff":
        return str(value.decode())
    return _show(value)


def _show_held(written: str, value: Any, type_: str) -> str:
    """A value as it is written, and what is held where that is another text."""
    shown, plain = _show(value, type_), written.strip('"')
    is_same = shown in (written, plain)
    if isinstance(value, Decimal) and _POINT_NUMBER.fullmatch(plain):
        is_same = Decimal(plain) == value
    if isinstance(value, float) and math.isfinite(value):
        is_same = Decimal(plain) in (Decimal(shown), Decimal(value))
    return _code(written) if is_same else f"{_code(written)} → {_code(shown)}"


_POINT_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?")


def _show(value: Any, type_: str = "") -> str:
    """A value that a column of the type ``type_`` holds."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, bytes):
        return f"0x{value.hex().upper()}"
    if isinstance(value, float):
        return _show_float(value, is_short=type_ == "FLOAT")
    if isinstance(value, dt.datetime):
        return f"{value.replace(tzinfo=None).isoformat()}{'Z' if value.tzinfo else ''}"
    if isinstance(value, dict) or type_.startswith("MAP"):
        return f"{{{', '.join(f'{key}: {_show(one)}' for key, one in dict(value).items())}}}"
    return f"[{', '.join(map(_show, value))}]" if isinstance(value, list) else str(value)


def _show_float(value: float, *, is_short: bool) -> str:
    import numpy as np

    shown = str(np.float32(value)) if is_short else repr(value)
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(shown, shown)


def _code(text: str) -> str:
    return f"`{text}`" if text else "(empty)"


def _visible(text: str) -> str:
    """``text`` in a cell of a table, with what is not printed escaped."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text).replace("|", "\\|")


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
