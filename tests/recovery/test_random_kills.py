"""Runs are stopped at random moments by seed, whatever they are doing, and new files come in between.

What is stopped is drawn as well: the command, the JVM, the driver, or everything, killed or put to sleep while another
run takes over. ``TIDEGATE_SEEDS`` is a number of seeds, ``TIDEGATE_FIRST_SEED`` the first of them.
"""

from __future__ import annotations

import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.recovery.frozen import freeze_overtake_thaw
from tests.recovery.random_kill import SEEDS, kill_at_random
from tests.recovery.views import send_all
from tests.support.scene import NAME, Snapshot


@pytest.fixture(scope="session")
def run_seconds(published: Snapshot) -> float:
    """How long an undisturbed run takes on this machine, as busy as it is."""
    scene = published.restore()
    scene.offer()
    began = time.monotonic()
    scene.tidegate("run", NAME)
    return time.monotonic() - began


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KILLS_PER_SEED = 4


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kills(seed: int, published: Snapshot, run_seconds: float, spark: SparkSession) -> None:
    kill_at_random(published.restore(), seed, _KILLS_PER_SEED, run_seconds, spark)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_freezes(seed: int, published: Snapshot, run_seconds: float, spark: SparkSession) -> None:
    """The whole tree falls asleep at a random moment, also inside the JVM, and wakes when all is done."""
    draw = random.Random(1_000_000 + seed)
    delay = draw.uniform(0.2, 0.9) * run_seconds
    while True:
        scene = published.restore()
        for _ in range(3):
            scene.offer()
        process = scene.start("run", NAME, "--run-id", "sleeper")
        time.sleep(delay)
        if process.poll() is None:
            break
        process.communicate()
        delay /= 2  # it was over before it could be frozen
    try:
        freeze_overtake_thaw(scene, process, draw.choice(["rival", "sleeper"]), spark)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: frozen after {delay:.2f} s of {run_seconds:.1f}\n{error}") from error
    finally:
        send_all(scene.processes(), signal.SIGKILL)
