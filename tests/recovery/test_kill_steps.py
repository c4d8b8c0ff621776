"""Each step is killed at its N-th rename, link, unlink or fsync, for all N (a sample unless TIDEGATE_SWEEP=all).

Nothing here knows tidegate's own names: the steps are counted from outside (faults/sitecustomize.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.recovery.conftest import count_steps
from tests.support.scene import NAME, Snapshot
from tests.support.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _sweep_command(start: Snapshot, command: tuple[str, ...], sample: int, spark: SparkSession) -> None:
    total = count_steps(start, command)
    for number in sweep(total, sample):
        scene = start.restore()
        scene.tidegate(*command, fault=f"{number}|kill", expect=None)
        scene.wait_until_gone()
        assert len(scene.steps()) >= number, f"step {number} of {total} was not reached"
        scene.check_readers_now()
        try:
            scene.catch_up(spark, run_id="second")
        except AssertionError as error:
            raise AssertionError(f"killed at step {number} of {total}: {scene.steps()[number - 1]}\n{error}") from error


def test_ingest(offered: Snapshot, spark: SparkSession) -> None:
    _sweep_command(offered, ("ingest", NAME, "--run-id", "second"), 3, spark)


def test_audit(staged: Snapshot, spark: SparkSession) -> None:
    _sweep_command(staged, ("audit", NAME, "--run-id", "second"), 4, spark)


def test_publish(audited: Snapshot, spark: SparkSession) -> None:
    _sweep_command(audited, ("publish", NAME, "--run-id", "second"), 8, spark)
