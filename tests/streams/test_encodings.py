"""Files in wide encodings, and compressed ones: every row once, what cannot be read by name."""

from __future__ import annotations

import bz2
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.readers import read_agreed
from tests.streaming import make_streaming, source

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
