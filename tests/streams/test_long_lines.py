"""A line ten times as long as a record may be: kept, named, and no reason to read the rest any later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.readers import read_agreed
from tests.support.streaming import make_streaming, source
from tidegate.sources.bounds import LONGEST_RECORD_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("schema", ["id STRING, n INT", "infer"])
def test_a_line_without_an_end(spark: SparkSession, tmp_path: Path, schema: str) -> None:
    """Also where Spark reads the file twice, the first time to infer its columns."""
    flow = make_streaming(tmp_path, spark, f"sources:\n{source('events', schema)}", None)
    path = flow.offer("events", {"id": "before", "n": 1})
    with open(path, "ab") as file:
        file.write(b'{"id": "' + b"x" * (10 * LONGEST_RECORD_BYTES) + b'"}\n{"id": "after", "n": 3}\ntorn\n')
    report = flow.run()
    assert (report["rows"]["read"], report["rows"]["malformed"], report["rows"]["published"]) == (4, 2, 2)
    flow.expect("id n", [("before", 1), ("after", 3)])
    rows = read_agreed(tmp_path / "data/quarantine/flow", spark)
    [torn, long] = sorted(rows, key=lambda row: len(row["raw"]))
    assert long["detail"].startswith("a line of 83,886,090 bytes; the limit is 8,388,608 bytes; the file is kept as")
    assert long["raw"] == ('{"id": "' + "x" * 1000)[:1000] and '"line": 2' in long["position"]
    assert '"line": 4' in torn["position"]
    kept = flow.state / "unreadable"
    assert max(file.stat().st_size for file in kept.iterdir()) > 10 * LONGEST_RECORD_BYTES
