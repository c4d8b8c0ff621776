"""Two runs of one pipeline at once."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from tests.support.scene import NAME, Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, err = process.communicate(timeout=180)
    return process.returncode, err.decode()


def run_two(scene: Scene, spark: SparkSession) -> None:
    """Two runs at the same moment: one does all there is to do, the other is told who is at it."""
    ids = ("left", "right")
    processes = [scene.start("run", NAME, "--run-id", run_id) for run_id in ids]
    ended = dict(zip(ids, map(end, processes), strict=True))
    assert sorted(code for code, _ in ended.values()) == [0, 75], ended
    winner = next(run_id for run_id, (code, _) in ended.items() if code == 0)
    loser = next(run_id for run_id in ids if run_id != winner)
    pid = dict(zip(ids, processes, strict=True))[winner].pid
    assert "LEASE_HELD" in ended[loser][1]
    assert re.search(
        rf"held by run {winner} \(tidegate run, pid {pid}@.+\), since 20\d\d-\d\d-\d\dT\d\d:\d\d",
        ended[loser][1],
    ), ended[loser][1]
    scene.wait_until_gone()
    scene.check_complete(spark)
    assert scene.report("run", NAME)["outcome"] == "nothing_new"
