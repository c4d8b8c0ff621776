"""Queries with state over a source for trying out, across runs."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import in_session
from tests.support.streaming import make_streaming
from tidegate.core.errors import TryAgainError
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spark.inspection.show_state import read_state
from tidegate.views.stream import stream_pipeline

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


def test_a_stream_keeps_the_connection_of_a_socket(spark: SparkSession, tmp_path: Path) -> None:
    """The peer accepts once, and sends between two runs and while one is on: each line is in the table once."""
    sent: list[str] = []
    reports: list[dict[str, Any]] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = f"{{host: 127.0.0.1, port: {server.getsockname()[1]}}}"
        flow = make_streaming(tmp_path, spark, f"sources:\n  lines: {{type: socket, options: {options}}}\n")
        peers: list[socket.socket] = []

        def send(count: int) -> None:
            lines = [f"line {len(sent) + number}" for number in range(count)]
            sent.extend(lines)
            peers[0].sendall("".join(f"{line}\n" for line in lines).encode())

        def begin() -> None:
            peers.append(server.accept()[0])
            server.close()
            send(20)

        def submit(plan: SubmitPlan) -> int:
            send(5)  # while a run is on, which has handed over what it will read
            return in_session(spark)(plan)

        def tell(report: dict[str, Any]) -> None:
            reports.append(report)
            if sum(one["rows"]["published"] for one in reports) >= 50:
                raise TryAgainError("STOPPED", "enough")
            if len(reports) == 1:
                send(20)

        threading.Thread(target=begin, daemon=True).start()
        with pytest.raises(TryAgainError, match="enough"):
            stream_pipeline(flow.project, "flow", every_seconds=None, submit=submit, on_report=tell, on_error=_never)
        peers[0].close()
    while len(flow.rows("value")) < len(sent):  # what the last run was too early for is in the spool
        flow.run()
    flow.expect("value", [(line,) for line in sent])


def _never(error: TryAgainError) -> None:
    raise AssertionError(error)


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
