"""Sources for trying out: each row that was made or received is in the table once, over several runs."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.conftest import Pipeline
from tests.support.readers import read_agreed
from tests.support.scene import NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _make(tmp_path: Path, spark: SparkSession, source: str) -> Pipeline:
    pipeline = Pipeline(tmp_path / "project", spark=spark)
    pipeline.create()
    lines = f"version: 1\nname: {NAME}\nschedule: null\nsources:\n  ticks: {source}\n"
    pipeline.write(f"jobs/{NAME}/pipeline.yaml", lines)
    return pipeline


def _check_report(pipeline: Pipeline, report: dict[str, Any], rows: int) -> None:
    assert report["outcome"] == "published"
    assert report["rows"]["published"] == rows
    assert report["sources"]["ticks"]["replayable"] is False
    assert any(note.startswith("source ticks is not replayable: ") for note in report["notes"])
    assert list((pipeline.state / "spool/ticks").iterdir()) == []
    assert "vanished" not in report["sources"]["ticks"]


def test_rate_counts_on_from_run_to_run(tmp_path: Path, spark: SparkSession) -> None:
    pipeline = _make(tmp_path, spark, "{type: rate, event_time: timestamp, options: {rowsPerSecond: 50}}")
    pipeline.tidegate("validate", "--spark")
    plan = pipeline.report("plan", NAME)
    assert plan["summary"] == "the next run receives first"
    assert plan["sources"]["ticks"]["replayable"] is False
    assert not (pipeline.state / "spool").exists()
    total = 0
    for number in range(3):
        report = pipeline.run()
        _check_report(pipeline, report, report["rows"]["read"])
        assert report["rows"]["read"] == 50 or number > 0
        total += report["rows"]["read"]
        time.sleep(1)
    rows = sorted(read_agreed(pipeline.table), key=lambda row: row["value"])
    assert [row["value"] for row in rows] == list(range(total))
    steps = {later["timestamp"] - row["timestamp"] for row, later in itertools.pairwise(rows)}
    assert {step.total_seconds() for step in steps} == {0.02}


def test_socket_lines_of_three_runs(tmp_path: Path, spark: SparkSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        options = f"{{host: 127.0.0.1, port: {port}, includeTimestamp: true, timeout: 1 second}}"
        pipeline = _make(tmp_path, spark, f"{{type: socket, options: {options}}}")
        sent: list[str] = []
        for number, is_silent in enumerate((False, True, False)):
            lines = [f"{number}-{line} ä" for line in range(100)]
            held: list[socket.socket] = []
            thread = threading.Thread(target=_send, args=(server, lines, is_silent, held), daemon=True)
            thread.start()
            _check_report(pipeline, pipeline.run(), len(lines))
            thread.join()
            for connection in held:
                connection.close()
            sent += lines
    rows = read_agreed(pipeline.table)
    assert sorted(row["value"] for row in rows) == sorted(sent)
    assert all(row["timestamp"] is not None for row in rows)
    failed = pipeline.report("run", NAME, expect=75)
    assert failed["error"]["code"] == "SOCKET_AWAY"
    assert f"nothing is listening at 127.0.0.1:{port}: " in failed["error"]["message"]


def _send(server: socket.socket, lines: list[str], is_silent: bool, held: list[socket.socket]) -> None:
    connection, _ = server.accept()
    connection.sendall("".join(f"{line}\n" for line in lines).encode())
    if is_silent:
        held.append(connection)
    else:
        connection.close()
