"""Records that are not lines, and files in other encodings, as record batches: each with its line."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.parts import lines_of
from tidegate.sources.readers import lines, part_readers
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.worker import PartsReader


def _read(path: Path, form: Form) -> list[dict[str, Any]]:
    batches = list(PartsReader(form)(iter([lines_of(path, 0, None)])))
    rows = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        row["_position"] = int(row["_position"].removeprefix(f"{path.as_uri()}#0+"))
    return rows


def _seen(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in (*names, "_position", "_detail")) for row in rows]


DOCUMENTS = Form("json", "id STRING, n INT", options={"multiLine": "true"})


def test_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_readers, "_ROWS_AT_MOST", 2)
    path = tmp_path / "a.json.gz"
    text = '[{"id": "a", "n": 1},\n{"id"\n: "b", "n": "x"},\n5, {"id": "c",\n"more": {}},\n\n{"id": "é"}]'
    path.write_bytes(gzip.compress(text.encode()))
    rows = _read(path, DOCUMENTS)
    assert _seen(rows, "id", "n") == [
        ("a", 1, 1, None),
        (None, None, 2, "n: not an INT"),
        (None, None, 4, "not a JSON object"),
        ("c", None, 4, None),
        ("é", None, 7, None),
    ]
    assert rows[1]["_raw"] == '{"id"\n: "b", "n": "x"}' and rows[3]["_unknown"] == ["more"]
    for broken, line in ((text[:-1], 7), (text[:40], 2), (f"{text}\n]", 8)):
        path.write_bytes(gzip.compress(broken.encode()))
        [row] = _read(path, DOCUMENTS)
        assert row["_malformed"] and row["_raw"] == broken and row["_position"] == 1
        assert row["_detail"].startswith(f"not valid JSON from line {line} on: "), "nothing of such a file is read"


@pytest.mark.parametrize(
    ("encoding", "bad"),
    [("UTF-8", b'{"id": "\xff"}'), ("windows-1252", b'{"id": "\x81"}'), ("UTF-16LE", b"{\0}\0\0\xd8")],
)
def test_a_record_with_bytes_that_its_encoding_does_not_have(tmp_path: Path, encoding: str, bad: bytes) -> None:
    before, behind = ('[{"id": "é", "n": 1},\n', ',\n{"id": "€"}]')
    path = tmp_path / "a.json"
    path.write_bytes(before.encode(encoding) + bad + behind.encode(encoding))
    options = {**DOCUMENTS.options, "encoding": encoding.lower()}
    rows = _read(path, Form("json", DOCUMENTS.ddl, options=options))
    assert _seen(rows, "id", "n") == [
        ("é", 1, 1, None),
        (None, None, 2, f"not valid {encoding}"),
        ("€", None, 3, None),
    ]
    assert base64.b64decode(rows[1]["_raw"]) == bad


@pytest.mark.parametrize(("encoding", "ending"), [("UTF-16", None), ("UTF-32LE", "|"), ("windows-1252", None)])
def test_lines_in_other_encodings(tmp_path: Path, encoding: str, ending: str | None) -> None:
    """U+0A0D and U+010A hold the bytes of line ends."""
    odd = "€é" if encoding == "windows-1252" else "\u0a0d\u010a\u0a00\u4e00\U0001f600"
    lines = [json.dumps({"id": odd, "n": 1}, ensure_ascii=False), "", '{"n": "x"}', '{"id": "b"}']
    path = tmp_path / "a.json"
    path.write_bytes((ending or "\r\n").join(lines).encode(encoding))
    form = Form("json", DOCUMENTS.ddl, options={"encoding": encoding} | ({"lineSep": ending} if ending else {}))
    assert _seen(_read(path, form), "id", "n") == [
        (odd, 1, 1, None),
        (None, None, 3, "n: not an INT"),
        ("b", None, 4, None),
    ]


def test_text_in_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufefft\u0a0d\n\nu\rv".encode("utf-16-le") + b"x")
    rows = _read(path, Form("text", "value STRING", options={"encoding": "UTF-16LE"}))
    assert _seen(rows, "value") == [
        ("t\u0a0d", 1, None),
        ("", 2, None),
        ("u", 3, None),
        (None, 4, "not valid UTF-16LE"),
    ]
    assert rows[3]["_raw"] == base64.b64encode(b"v\0x").decode()


WHOLE = Form("text", "value STRING", options={"wholetext": "true"})


@pytest.mark.parametrize("text", ["", "a\n\nb\r\n", "\ufeffé"])
def test_a_text_that_is_one_record(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    assert _seen(_read(path, WHOLE), "value", "_raw") == [(*[text.removeprefix("\ufeff")] * 2, 1, None)]


def test_a_text_that_is_too_long_or_not_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\xff")
    assert _seen(_read(path, WHOLE), "value", "_raw") == [(None, "Yf8=", 1, "not valid UTF-8")]
    monkeypatch.setattr(part_readers, "LONGEST_RECORD_BYTES", 10)
    monkeypatch.setattr(part_readers, "BLOCK_BYTES", 7)
    monkeypatch.setattr(lines, "KEPT_BYTES", 3)
    for size in (10, 11, 100):
        path.write_bytes(b"\xef\xbb\xbf" + b"x" * size)
        detail = f"a file of {size} bytes; the limit is 8,388,608 bytes"
        is_long = size > 10
        wanted = (None, "xxx", 1, detail) if is_long else ("x" * 10, "x" * 10, 1, None)
        assert _seen(_read(path, WHOLE), "value", "_raw") == [wanted]


def test_xml(tmp_path: Path) -> None:
    path = tmp_path / "a.xml.gz"
    text = "<?xml version='1.0'?>\n<all k='v'>\n<o id='1'/>\n<o id='x'>\n</o><o id='2'><m/></o>\n</all>"
    path.write_bytes(gzip.compress(text.encode("utf-16")))
    form = Form("xml", "_id INT", "quarantine", {"rowTag": "o"})
    rows = _read(path, form)
    lacking = "fields that the schema lacks: m"
    assert _seen(rows, "_id") == [(1, 3, None), (None, 4, "_id: not an INT"), (2, 5, lacking)]
    assert rows[1]["_raw"] == "<o id='x'>\n</o>"
    assert [row["_unknown"] for row in rows] == [None, None, ["m", "/all/@k"]]
    path.write_bytes(gzip.compress(text[:-1].encode()))
    [row] = _read(path, form)
    assert row["_raw"] == text[:-1] and row["_detail"].startswith("not well-formed XML: ")
