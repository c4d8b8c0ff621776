"""Queries with state over a source for trying out, across runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.streaming import make_streaming
from tidegate.ingest.show_state import read_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COUNTS = """\
def transform(ticks):
    seconds = ticks.groupBy(F.window('timestamp', '1 second'))
    return seconds.agg(F.count('*').alias('n'), F.min('value').alias('first')).select('window.start', 'n', 'first')
"""


def test_as_many_partitions_as_are_wanted(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(
        tmp_path, spark, "sources:\n  ticks: {type: rate, options: {rowsPerSecond: 20, numPartitions: 3}}\n"
    )
    rows = 0
    for _ in range(2):
        report = flow.run()
        rows += report["rows"]["read"]
        assert report["table"]["files_added"] == 3 and report["rows"]["published"] == report["rows"]["read"]
        time.sleep(1)
    flow.expect("value", [(value,) for value in range(rows)])


def test_windows_over_rate(spark: SparkSession, tmp_path: Path) -> None:
    """Each second that is closed has its rows once, also those that two runs received."""
    options = "{rowsPerSecond: 20, numPartitions: 3}"
    source = f"{{type: rate, event_time: timestamp, watermark: 0 seconds, options: {options}}}"
    flow = make_streaming(tmp_path, spark, f"sources:\n  ticks: {source}\n", _COUNTS)
    read = 0
    for _ in range(3):
        report = flow.run()
        read += report["rows"]["read"]
        assert report["sources"]["ticks"]["replayable"] is False
        time.sleep(1.3)
    rows = flow.rows("start", "n", "first")
    assert len(rows) >= 2 and [n for _, n, _ in rows[1:]] == [20] * (len(rows) - 1)
    assert [first for *_, first in rows] == [0, *range(rows[0][1], sum(n for _, n, _ in rows), 20)]
    still_open = read_state(flow.project, "flow", spark=spark)["operators"][0]["rows"]
    assert read == sum(n for _, n, _ in rows) + sum(row["value"]["count"] for row in still_open)
