"""A run that is killed at a random moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.recovery.scene import NAME, Scene
from tests.recovery.views import send_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FIRST = int(os.environ.get("TIDEGATE_FIRST_SEED", "1"))


SEEDS = range(_FIRST, _FIRST + int(os.environ.get("TIDEGATE_SEEDS", "1")))


def _pick(scene: Scene, process: subprocess.Popen[bytes], what: str) -> list[int]:
    """The processes to stop."""
    tree = scene.processes()
    if what == "everything":
        return tree
    if what == "the command":
        return [process.pid]
    named = {"the JVM": "java", "the driver": "python"}[what]
    found = [pid for pid in tree if pid != process.pid and named in _program(pid)]
    return found or [process.pid]


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(Path(f"/proc/{pid}/exe")))
    except OSError:
        return ""


def kill_at_random(scene: Scene, seed: int, kills: int, run_seconds: float, spark: SparkSession) -> None:
    """Runs killed at random moments, with new files in between; then everything must be there."""
    draw = random.Random(seed)
    history = []
    for _ in range(kills):
        for _ in range(draw.choice([0, 1, 1, 3])):
            scene.offer(draw.randrange(0, 12))
        what = draw.choice(["the command", "the command", "the JVM", "the driver", "everything"])
        delay = draw.uniform(0, 1.1 * run_seconds)
        process = scene.start("run", NAME)
        time.sleep(delay)
        left = process.poll() is None
        history.append(f"{what} after {delay:.2f} s of {run_seconds:.1f}{'' if left else ' (too late)'}")
        send_all(_pick(scene, process, what), signal.SIGKILL)
        process.communicate(timeout=60)
        try:
            scene.wait_until_gone()
            scene.check_readers_now()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: killed {'; '.join(history)}\n{error}") from error
    try:
        scene.catch_up(spark)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: killed {'; '.join(history)}\n{error}") from error
