"""Csv files through the door for Spark: headers, parts, encodings, and every record with its line."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.parts import lines_of
from tidegate.sources.readers import csv_file, lines, part_readers
from tidegate.sources.readers.csv_lines import CsvReader
from tidegate.sources.readers.csv_rows import RowReader
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.sources.readers.worker import PartsReader, TextsReader

DDL = "id STRING NOT NULL, amount INT, note STRING, day DATE"
HEADER = "id,amount,note,day\n"


def _read(path: Path, text: str | bytes, ddl: str = DDL, cuts: tuple[int, ...] = (), **options: str) -> list[Any]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    batches = list(PartsReader(Form("csv", ddl, options=options))(iter([lines_of(path, 0, *cuts, None)])))
    return [row for batch in batches for row in batch.to_pylist()]


def _lines(rows: list[Any]) -> list[int]:
    return [int(row["_position"].rpartition("+")[2]) for row in rows]


def test_records_with_their_lines(tmp_path: Path) -> None:
    """As tests/e2e/test_files_csv.py has it."""
    faults = {
        "too,few": "not 4 columns",
        "too,1,many,,columns": "not 4 columns",
        "wrong type,one,,": "amount: not an INT",
        "overflow,2147483648,,": "amount: not an INT",
        ",1,no id,": "id: missing or null, but NOT NULL",
        "no day,1,,2026-02-30": "day: not a DATE",
        "far day,1,,+12345-01-01": "day: DATE outside the years 1 to 9999",
        'open,1,"quote,': "note: a quote that is not closed",
    }
    texts = ["# a comment, and a blank line", "", 'a,1,"with, comma and ""quotes""",', *faults, "last,1,é日本,"]
    for name, text in {
        "a.csv": "\n".join(texts).encode(),
        "b.csv.gz": gzip.compress(("\r\n".join(texts) + "\r\n").encode()),
    }.items():
        for more in ({}, {"multiLine": "true"}):
            rows = _read(tmp_path / name, text, comment="#", escape='"', **more)
            assert _lines(rows) == list(range(3, len(texts) + 1))
            assert {row["_raw"]: row["_detail"] for row in rows if row["_malformed"]} == faults
            assert [row["note"] for row in rows if not row["_malformed"]] == ['with, comma and "quotes"', "é日本"]


SAME = {
    "plain": HEADER + "a,1,,\n",
    "quoted": '"id","amount","note","day"\na,1,,',
    "mark": "\ufeff" + HEADER + "a,1,,\n",
    "upper": HEADER.upper() + "a,1,,\n",
    "crlf": (HEADER + "a,1,,\n").replace("\n", "\r\n"),
    "blank lines": "\n \n" + HEADER + "\na,1,,\n",
    "separator": "sep=;\r\n" + HEADER.replace(",", ";") + "a;1;;\n",
    "at the end": "id,amount,note,day,\na,1,,,\n",
    "both": "SEP=|\n" + HEADER.replace(",", "|").replace("\n", "|\n") + "a|1|||\n",
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("more", [{}, {"multiLine": "true"}, {"lineSep": "\n"}])
def test_headers(tmp_path: Path, name: str, more: dict[str, str]) -> None:
    [row] = _read(tmp_path / "a.csv", SAME[name], header="true", **more)
    assert (row["id"], row["amount"], row["note"], row["day"], row["_malformed"]) == ("a", 1, None, None, False)


@pytest.mark.parametrize("header", ["id,,note,", "id,_c1,note,_c3", "ID,_C1,NOTE,"])
def test_columns_without_a_name_are_called_as_spark_calls_them(tmp_path: Path, header: str) -> None:
    ddl = "id STRING, _c1 INT, note STRING, _c3 STRING"
    rows = _read(tmp_path / "a.csv", f"{header}\na,1,,x\na,1,,\na,1,\n", ddl, header="true")
    assert [(row["_c1"], row["_c3"], row["_detail"]) for row in rows] == [
        (1, "x", None),
        (1, None, None),
        (None, None, "not 4 columns"),
    ]
    with pytest.raises(PartUnreadable, match=r"its header is id, , note, ; the schema wants id, _c2, note, _c3"):
        _read(tmp_path / "b.csv", "id,,note,\na,1,,x\n", "id STRING, _c2 INT, note STRING, _c3 STRING", header="true")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id,note,amount,day\nx,1,2,\n", "its header is id, note, amount, day; the schema wants id, amount, note, day"),
        ("id,amount,note\nx,1,2\n", "its header is id, amount, note; the schema wants id, amount, note, day"),
        (
            "id,amount,note,day,more\n",
            "its header is id, amount, note, day, more; the schema wants id, amount, note, day",
        ),
        ("x,1,,\n", "its header is x, 1, , ; the schema wants id, amount, note, day"),
        ('id,"amount,note,day\nx,1,,\n', "its header has a quote that is not closed"),
    ],
)
def test_another_header_is_a_fault_of_the_file(tmp_path: Path, text: str, why: str) -> None:
    for more in ({}, {"multiLine": "true"}):
        with pytest.raises(PartUnreadable) as caught:
            _read(tmp_path / "a.csv", text, header="true", **more)
        assert (caught.value.path, caught.value.reason) == (str(tmp_path / "a.csv"), why)


_UTF_16 = "its header has NUL characters: for a file in UTF-16 set options: {encoding: UTF-16}"


@pytest.mark.parametrize(
    ("text", "encoding", "why"),
    [
        (HEADER.encode("utf-16"), "UTF-8", _UTF_16),
        (HEADER.encode("utf-16le"), "UTF-8", _UTF_16),
        (HEADER.encode("utf-16be"), "windows-1252", _UTF_16),
        (HEADER.replace("n", "\xe9").encode("latin-1"), "UTF-8", "its header is not valid UTF-8"),
        (HEADER.replace("n", "\xe9").encode("latin-1"), "US-ASCII", "its header is not valid US-ASCII"),
        *(
            (
                HEADER.encode("utf-8-sig"),
                name,
                f"the file begins with the byte order mark of UTF-8, but the option encoding is {name}",
            )
            for name in ("windows-1252", "KOI8-R", "US-ASCII")
        ),
        (
            b"id,\x1b[31m\x07,n\xc2\x85,day\n",
            "UTF-8",
            "its header is id, \\x1b[31m\\x07, n\\x85, day; the schema wants",
        ),
        (b"\xef\xbb\xbfid,x\n", "utf-8", "its header is id, x; the schema wants id"),
        (b"x" * 5000, "UTF-8", f"its header is {'x' * 1000}...; the schema wants id"),
    ],
    ids=lambda one: str(one)[:20],
)
@pytest.mark.parametrize("more", [{}, {"multiLine": "true"}])
def test_a_header_in_another_encoding(
    tmp_path: Path, text: bytes, encoding: str, why: str, more: dict[str, str]
) -> None:
    with pytest.raises(PartUnreadable) as raised:
        _read(tmp_path / "a.csv", text, header="true", encoding=encoding, **more)
    assert raised.value.reason.startswith(why)


@pytest.mark.parametrize("more", [{}, {"multiLine": "true"}])
def test_one_carriage_return_is_of_the_line_end(tmp_path: Path, more: dict[str, str]) -> None:
    """Where a line feed ends lines; whichever way a record is read."""
    text = 'a,1\r\r\nb,2\r\n"c",3\r\r\n"d",4\r\ne,"5"\r\r\nf,6\r\r'
    rows = _read(tmp_path / "a.csv", text, "id STRING, note STRING", lineSep="\n", escape='"', **more)
    assert [row["note"] for row in rows] == ["1\r", "2", "3\r", "4", "5", "6\r"]  # blanks behind a quote are none
    closely = CsvReader.read_closely
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CsvReader, "read", lambda self, lines, block: closely(self, lines))
        assert _read(tmp_path / "a.csv", text, "id STRING, note STRING", lineSep="\n", escape='"', **more) == rows


def test_a_header_alone_or_none(tmp_path: Path) -> None:
    for text in (HEADER, HEADER.strip(), "", "\n\n"):
        assert _read(tmp_path / "a.csv", text, header="true") == []
    with_breaks = 'id,"the\r\nnote"\na,b\n'
    [row] = _read(tmp_path / "a.csv", with_breaks, "id STRING, `the\r\nnote` STRING", header="true", multiLine="true")
    assert (row["the\r\nnote"], _lines([row])) == ("b", [3])


def test_a_separator_that_a_line_tells_is_none_of_one_column(tmp_path: Path) -> None:
    assert [row["v"] for row in _read(tmp_path / "a.csv", "sep=;\nx\n", "v STRING")] == ["sep=;", "x"]


def test_a_file_in_parts_and_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_readers, "_ROWS_AT_MOST", 7)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 300)
    text = "sep=;\nn;note;\n" + "".join(f'{n};"{"x" * (n % 40)};";\r\n' for n in range(300))
    rows = _read(tmp_path / "a.csv", text, "n INT, note STRING", tuple(range(97, len(text), 1013)), header="true")
    assert [(row["n"], row["note"]) for row in rows] == [(n, "x" * (n % 40) + ";") for n in range(300)]
    assert not any(row["_malformed"] for row in rows)


def test_records_over_several_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_readers, "_ROWS_AT_MOST", 3)
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", 50)
    text = HEADER + 'a,1,"two\r\nlines",\nb,1,,\nshort,1\n,1,"no\nid",\n\nc,1,"""\n""",\nd,1,"open,\ne,1,x,\n'
    rows = _read(tmp_path / "a.csv", text, header="true", multiLine="true")
    assert [(row["id"], row["note"]) for row in rows if not row["_malformed"]] == [
        *(("a", "two\r\nlines"), ("b", None), ("c", '"\n"'), ("e", "x"))
    ]
    assert [(row["_raw"], row["_detail"]) for row in rows if row["_malformed"]] == [
        ("short,1", "not 4 columns"),
        (',1,"no\nid",', "id: missing or null, but NOT NULL"),
        ('d,1,"open,', "note: a quote that is not closed"),
    ]
    assert _lines(rows) == [2, 4, 5, 6, 9, 11, 12]


@pytest.mark.parametrize(
    "encoding", ["UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "windows-1252", "ISO-8859-15", "GB18030"]
)
@pytest.mark.parametrize("more", [{}, {"header": "true"}, {"multiLine": "true", "header": "true"}])
def test_other_encodings(tmp_path: Path, encoding: str, more: dict[str, str]) -> None:
    """U+0A0D and U+010A hold the bytes of line breaks."""
    odd = "äÖß €" if encoding[0] in "wI" else "\u0a0d\u010aäÖß €"
    text = ("id,n\r\n" if more else "") + f'{odd},1\r\nb,2\r\n"{odd}",x\r\nd,4'
    rows = _read(tmp_path / "a.csv", text.encode(encoding), "id STRING, n INT", encoding=encoding, **more)
    assert [(row["id"], row["n"]) for row in rows if not row["_malformed"]] == [(odd, 1), ("b", 2), ("d", 4)]
    assert [(row["_raw"], row["_detail"]) for row in rows if row["_malformed"]] == [(f'"{odd}",x', "n: not an INT")]


@pytest.mark.parametrize(
    ("encoding", "bad"),
    [("UTF-8", b"caf\xe9"), ("windows-1252", b"\xe9\x81\x8d"), ("US-ASCII", b"\xc3\xa9"), ("UTF-16LE", b"\x00\xd8a\0")],
)
def test_bytes_that_an_encoding_does_not_have(tmp_path: Path, encoding: str, bad: bytes) -> None:
    comma, end = ",1".encode(encoding), "\n".encode(encoding)
    good = "é".encode(encoding, "replace") + comma
    rows = _read(tmp_path / "a.csv", end.join((good, bad + comma, good)), "id STRING, n INT", encoding=encoding)
    assert [row["_malformed"] for row in rows] == [False, True, False]
    assert (rows[1]["_detail"], base64.b64decode(rows[1]["_raw"])) == (f"not valid {encoding}", bad + comma)


def test_an_empty_batch_of_texts() -> None:
    batch = pa.RecordBatch.from_pydict({"_raw": pa.array([], pa.string()), "_position": pa.array([], pa.string())})
    [read] = TextsReader(Form("csv", "id INT, note STRING"))(iter([batch]))
    assert read.num_rows == 0


def test_very_many_records_with_another_number_of_columns(tmp_path: Path) -> None:
    """An open quote makes every line behind it a record: none of them is read one by one."""
    closely: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        read = RowReader.read
        patch.setattr(RowReader, "read", lambda self, *told: (closely.append(1), read(self, *told))[1])
        text = 'a,"open\n' + "y\n" * 5000 + "1,2,3\n" * 5000 + "b,c\n"
        rows = _read(tmp_path / "a.csv", text, "id STRING, note STRING", multiLine="true")
    assert [row["_detail"] for row in rows[1:-1]] == ["not 2 columns"] * 10_000 and rows[-1]["note"] == "c"
    assert [rows[at]["_raw"] for at in (1, 5001)] == ["y", "1,2,3"] and len(closely) == 1
