"""Each step is killed at its N-th rename, link, unlink or fsync, for all N (a sample unless TIDEGATE_SWEEP=all).

Nothing here knows tidegate's own names: the steps are counted from outside (faults/sitecustomize.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.recovery.conftest import sweep
from tests.recovery.scene import NAME, Scene, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _count_steps(scene: Scene, *command: str) -> int:
    """Run the command to its end, with a fault that is never reached; how many steps it took."""
    scene.run(*command, fault="1000000|kill")
    return len(scene.steps())


def _sweep_command(start: Snapshot, command: tuple[str, ...], sample: int, spark: SparkSession) -> None:
    total = _count_steps(start.restore(), *command)
    assert total > 5, "the steps were not counted"
    for number in sweep(total, sample):
        scene = start.restore()
        scene.run(*command, fault=f"{number}|kill", expect=None)
        scene.wait_until_gone()
        assert len(scene.steps()) >= number, f"step {number} of {total} was not reached"
        scene.check_readers_now()
        try:
            scene.catch_up(spark, run_id="second")
        except AssertionError as error:
            raise AssertionError(f"killed at step {number} of {total}: {scene.steps()[number - 1]}\n{error}") from error


def test_ingest(published: Snapshot, spark: SparkSession) -> None:
    scene = published.restore()
    for _ in range(3):
        scene.offer()
    _sweep_command(scene.save(published.folder.with_name("offered")), ("ingest", NAME, "--run-id", "second"), 5, spark)


def test_audit(staged: Snapshot, spark: SparkSession) -> None:
    _sweep_command(staged, ("audit", NAME, "--run-id", "second"), 4, spark)


def test_publish(audited: Snapshot, spark: SparkSession) -> None:
    _sweep_command(audited, ("publish", NAME, "--run-id", "second"), 8, spark)
