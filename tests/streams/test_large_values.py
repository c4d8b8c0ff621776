"""Values of parquet and orc files that no driver could hold: the file is kept and named, the others are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from tests.support.readers import read_agreed
from tests.support.streaming import make_streaming, source
from tidegate.sources.bounds import LONGEST_RECORD_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_giant_array_in_a_small_file(spark: SparkSession, tmp_path: Path) -> None:
    """[7, 7, ...] of 8 Mi numbers takes a few hundred bytes in a file and 32 MiB wherever it is read."""
    kinds = ("parquet", "orc")
    sources = "".join(source(kind, "id STRING, numbers ARRAY<INT>", format=kind) for kind in kinds)
    (tmp_path / "jobs/flow").mkdir(parents=True, exist_ok=True)
    flow = make_streaming(
        tmp_path,
        spark,
        f"transform: transform.sql\nsources:\n{sources}",
    )
    flow.write("jobs/flow/transform.sql", "SELECT * FROM parquet UNION ALL SELECT * FROM orc\n")
    for kind in kinds:
        folder = tmp_path / "data/in" / kind
        folder.mkdir(parents=True)
        for name, numbers in (("fits", [[1], None]), ("giant", [[1], [7] * LONGEST_RECORD_BYTES])):
            table = pa.table({"id": [kind, "last"], "numbers": pa.array(numbers, pa.list_(pa.int32()))})
            path = folder / f"{name}.{kind}"
            pq.write_table(table, path) if kind == "parquet" else orc.write_table(table, str(path))
    report = flow.run()
    assert (report["rows"]["read"], report["rows"]["malformed"], report["rows"]["published"]) == (8, 2, 6)
    flow.expect("id", [("parquet",), ("orc",), ("parquet",), ("orc",), ("last",), ("last",)])
    rows = read_agreed(tmp_path / "data/quarantine/flow", spark)
    why = "numbers: has 33,554,432 bytes; the limit is 8,388,608 bytes; the file is kept as unreadable/"
    assert len(rows) == 2 and all(row["detail"].startswith(why) and "/giant." in row["position"] for row in rows)
    assert all('"row": 2' in row["position"] for row in rows)
    assert {file.stat().st_size for file in (flow.state / "unreadable").iterdir()} == {
        file.stat().st_size for file in tmp_path.glob("data/in/*/giant.*")
    }


def test_a_quote_that_is_not_closed(spark: SparkSession, tmp_path: Path) -> None:
    options = {"header": "true", "multiLine": "true"}
    sources = source("events", "id STRING, n INT", format="csv", options=options)
    flow = make_streaming(tmp_path, spark, f"sources:\n{sources}")
    line = "swallowed" * 100 + ",1\n"
    count = LONGEST_RECORD_BYTES // len(line) + 1
    flow.write("data/in/events/open.csv", f'id,n\nbefore,1\n"open,2\n{line * count}')
    flow.write("data/in/events/good.csv", 'id,n\n"two\nlines",3\n')
    report = flow.run()
    assert (report["rows"]["malformed"], report["rows"]["published"]) == (1, count + 2)
    assert flow.rows("id", "n")[0] == ("before", 1) and ("two\nlines", 3) in flow.rows("id", "n")
    [row] = read_agreed(tmp_path / "data/quarantine/flow", spark)
    assert (row["raw"], row["detail"]) == ('"open,2', "id: a quote that is not closed")
    assert json.loads(row["position"]) == {"file": "data/in/events/open.csv", "line": 3}
