"""A run is frozen at its N-th step, another one takes over and completes, then the first is thawed: nothing changes.

The whole tree is frozen: the command, the JVM, the driver. Nobody tells the sleeper anything; it must find out by
itself that its lease is gone, and end.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.recovery.conftest import count_steps
from tests.recovery.frozen import freeze_overtake_thaw
from tests.recovery.views import send_all, wait_for_sleeper
from tests.support.scene import NAME, Snapshot
from tests.support.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _sweep_command(start: Snapshot, command: tuple[str, ...], sample: int, spark: SparkSession) -> None:
    total = count_steps(start, command)
    for index, number in enumerate(sweep(total, sample)):
        scene = start.restore()
        process = scene.start(*command, fault=f"{number}|freeze")
        try:
            assert wait_for_sleeper(scene, process), "the step was not reached"
            # In turns a retry of the same run and another one, which has to wait for a minute at the first and the
            # last steps: there the lease is kept for the next step of the sleeper.
            is_parked = number < 5 or number > total - 3
            run_id = "second" if is_parked or index % 2 else "rival"
            # Only a sleeper of the ingest step had a hand in what the next batch reads.
            next_batch = command[0] == "ingest" or index == 0 or "TIDEGATE_SWEEP" in os.environ
            freeze_overtake_thaw(scene, process, run_id, spark, next_batch=next_batch)
        except AssertionError as error:
            raise AssertionError(
                f"frozen at step {number} of {total}: {scene.steps()[number - 1 :]}\n{error}"
            ) from error
        finally:
            send_all(scene.processes(), signal.SIGKILL)


def test_ingest(offered: Snapshot, spark: SparkSession) -> None:
    _sweep_command(offered, ("ingest", NAME, "--run-id", "second"), 2, spark)


def test_audit(staged: Snapshot, spark: SparkSession) -> None:
    _sweep_command(staged, ("audit", NAME, "--run-id", "second"), 2, spark)


def test_publish(audited: Snapshot, spark: SparkSession) -> None:
    _sweep_command(audited, ("publish", NAME, "--run-id", "second"), 3, spark)
