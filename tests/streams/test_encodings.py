"""Files in wide encodings, and compressed ones: every row once, what cannot be read by name."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.support.readers import read_agreed
from tests.support.streaming import make_streaming, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_csv_in_wide_characters(spark: SparkSession, tmp_path: Path) -> None:
    """U+0A0D and U+010A hold the bytes of line breaks."""
    made = {"wide": ("UTF-16", False), "le": ("UTF-16LE", False), "four": ("UTF-32", True)}
    keys = {
        name: {"format": "csv", "settle": "0 seconds", "options": {"encoding": encoding, "header": header}}
        for name, (encoding, header) in made.items()
    }
    specs = "".join(source(name, "id STRING, n INT", **more) for name, more in keys.items())
    transform = "def transform(wide, le, four):\n    return wide.unionByName(le).unionByName(four)\n"
    flow = make_streaming(tmp_path, spark, "sources:\n" + specs, transform)
    for name, (encoding, header) in made.items():
        folder = tmp_path / "data/in" / name
        folder.mkdir(parents=True)
        text = ("id,n\r\n" if header else "") + f"{name}\u0a0d\u010a,1\r\nb,2\r\nc,x\r\nd,4"
        (folder / "a.csv").write_bytes(text.encode(encoding))
    rows = flow.run()["rows"]
    assert (rows["read"], rows["malformed"], rows["published"]) == (12, 3, 9)
    flow.expect("id n", [row for name in made for row in ((f"{name}\u0a0d\u010a", 1), ("b", 2), ("d", 4))])


def test_csv_in_one_byte_encodings(spark: SparkSession, tmp_path: Path) -> None:
    made: dict[str, tuple[str, dict[str, Any]]] = {
        "west": ("windows-1252", {"header": True, "sep": ";"}),
        "euro": ("ISO-8859-15", {}),
        "many": ("windows-1252", {"header": True, "multiLine": True}),
    }
    specs = "".join(
        source(name, "id STRING, n INT", format="csv", settle="0 seconds", options={"encoding": encoding, **more})
        for name, (encoding, more) in made.items()
    )
    transform = "def transform(west, euro, many):\n    return west.unionByName(euro).unionByName(many)\n"
    flow = make_streaming(tmp_path, spark, "sources:\n" + specs, transform)
    for name, (encoding, more) in made.items():
        folder = tmp_path / "data/in" / name
        folder.mkdir(parents=True)
        comma = more.get("sep", ",")
        lines = [f"{name} ÄÖÜ äöüß €{comma}1", f"é{comma}2", f"x{comma}x"]
        lines = [f"id{comma}n", *lines] if more.get("header") else lines
        (folder / "a.csv").write_bytes("\n".join(lines).encode(encoding))
    rows = flow.run()["rows"]
    assert (rows["read"], rows["malformed"], rows["published"]) == (9, 3, 6)
    flow.expect("id n", [row for name in made for row in ((f"{name} ÄÖÜ äöüß €", 1), ("é", 2))])


@pytest.mark.parametrize("more", [{}, {"options": {"multiLine": True}}], ids=["lines", "documents"])
def test_compressed_files(spark: SparkSession, tmp_path: Path, more: dict[str, Any]) -> None:
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("docs", "id STRING", **more))
    folder = tmp_path / "data/in/docs"
    folder.mkdir(parents=True)

    def text(*ids: str) -> bytes:
        return "".join(f'{{"id": "{one}"}}\n' for one in ids).encode()

    packed = pa.compress(text("c", "d"), "zstd", asbytes=True)
    (folder / "two_streams.json.bz2").write_bytes(bz2.compress(text("a")) + bz2.compress(text("b")))
    (folder / "whole.json.zst").write_bytes(packed)
    (folder / "torn.json.zst").write_bytes(packed[:-9])
    rows = flow.run()["rows"]
    assert (rows["read"], rows["malformed"], rows["published"]) == (5, 1, 4)
    flow.expect("id", [("a",), ("b",), ("c",), ("d",)])
    (aside,) = read_agreed(tmp_path / "data/quarantine/flow", spark)
    assert json.loads(aside["position"]) == {"file": "data/in/docs/torn.json.zst"}


def test_json_and_text_in_other_encodings(spark: SparkSession, tmp_path: Path) -> None:
    """U+0A0D, U+010A and U+0A00 U+4E00 hold the bytes of line breaks; what an encoding does not have is malformed."""
    made: dict[str, tuple[str, dict[str, Any]]] = {
        "le": ("UTF-16LE", {}),
        "bars": ("UTF-32", {"lineSep": "|"}),
        "docs": ("UTF-16", {"multiLine": True}),
        "old": ("windows-1252", {}),
    }
    names = ", ".join(made)
    specs = "".join(
        source(name, "id STRING, n INT", settle="0 seconds", options={"encoding": encoding, **more})
        for name, (encoding, more) in made.items()
    )
    specs += source("lines", "value STRING", format="text", settle="0 seconds", options={"encoding": "utf-16le"})
    specs += source("guess", "infer", settle="0 seconds", options={"encoding": "UTF-16", "timeZone": "UTC"})
    union = f"lines.select(F.col('value').alias('id'), F.lit(0).alias('n')), guess, {names}"
    transform = f"def transform({names}, lines, guess):\n    first, *rest = [{union}]\n"
    transform += "    for one in rest:\n        first = first.unionByName(one)\n    return first\n"
    flow = make_streaming(tmp_path, spark, "sources:\n" + specs, transform)
    rows, bad = [], {}
    for name, (encoding, more) in made.items():
        folder = tmp_path / "data/in" / name
        folder.mkdir(parents=True)
        odd = "€é" if name == "old" else "\u0a0d\u010a\u0a00\u4e00\U0001f600"
        end = more.get("lineSep", "\r\n")
        mark = "\ufeff" if name == "le" else ""  # Python's UTF-16 and UTF-32 write one
        lines = [mark + json.dumps({"id": f"{name}{odd}", "n": 1}, ensure_ascii=False), "", '{"id": "x", "n": "x"}']
        (folder / "a.json").write_bytes((end.join(lines) + end).encode(encoding))
        rows += [(f"{name}{odd}", 1)]
        bad[f"{name}/a.json", lines[2]] = 3
        if name in ("le", "old"):
            wrong = b"{\0}\0\0\xd8" if name == "le" else b'{"id": "\x81"}'
            (folder / "b.json").write_bytes(wrong + "\n{}\n".encode(encoding) + (b"{" if name == "le" else b""))
            rows += [(None, None)]
            bad[f"{name}/b.json", base64.b64encode(wrong).decode()] = 1
            if name == "le":
                bad[f"{name}/b.json", base64.b64encode(b"{").decode()] = 3
    for name, content in {
        "lines/a.txt": "\ufefft\u0a0d\n\nu\rv".encode("utf-16-le"),
        "guess/a.json": '{"id": "g", "n": 7}\n{"id": "h"}'.encode("utf-16"),
    }.items():
        (tmp_path / "data/in" / name).parent.mkdir()
        (tmp_path / "data/in" / name).write_bytes(content)
    rows += [("t\u0a0d", 0), ("", 0), ("u", 0), ("v", 0), ("g", 7), ("h", None)]
    report = flow.run()["rows"]
    assert (report["read"], report["malformed"]) == (len(rows) + len(bad), len(bad))
    flow.expect("id n", rows)
    aside = read_agreed(tmp_path / "data/quarantine/flow", spark)
    places = [(json.loads(row["position"]), row) for row in aside]
    found = {(place["file"].removeprefix("data/in/"), row["raw"]): place.get("line") for place, row in places}
    assert found == bad
    told = {row["detail"] for row in aside}
    assert told == {"n: not an INT", "not valid UTF-16LE", "not valid windows-1252"}


def test_a_wide_file_may_be_torn(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("docs", "id STRING", options={"encoding": "UTF-16"}))
    folder = tmp_path / "data/in/docs"
    folder.mkdir(parents=True)
    packed = gzip.compress('{"id": "a"}\n{"id": "b"}\n'.encode("utf-16"))
    (folder / "packed.json.gz").write_bytes(packed)
    (folder / "torn.json.gz").write_bytes(packed[:-9])
    rows = flow.run()["rows"]
    assert (rows["read"], rows["malformed"], rows["published"]) == (3, 1, 2)
    flow.expect("id", [("a",), ("b",)])
    [row] = read_agreed(tmp_path / "data/quarantine/flow", spark)
    assert "breaks off" in row["detail"] and "torn.json.gz" in row["position"]
