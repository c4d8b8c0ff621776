"""A run that is killed at a random moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.recovery.views import send_all
from tests.support.scene import NAME, Scene

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


def _kill_one(scene: Scene, draw: random.Random, run_seconds: float) -> str:
    """A run that is killed before it is over; what was killed, and when. A kill that comes too late is followed by
    another run with news and a kill at half of the time."""
    delay = draw.uniform(0, run_seconds)
    for _ in range(6):
        what = draw.choice(["the command", "the command", "the JVM", "the driver", "everything"])
        process = scene.start("run", NAME)
        time.sleep(delay)
        is_running = process.poll() is None
        send_all(_pick(scene, process, what), signal.SIGKILL)
        process.communicate(timeout=60)
        scene.wait_until_gone()
        if is_running:
            return f"{what} after {delay:.2f} s of {run_seconds:.1f}"
        scene.check_readers_now()
        scene.offer(draw.randrange(0, 12))
        delay /= 2
    raise AssertionError("every kill came too late")


def kill_at_random(scene: Scene, seed: int, kills: int, run_seconds: float, spark: SparkSession) -> None:
    """Runs killed at random moments, with new files in between; then everything must be there."""
    draw = random.Random(seed)
    history = []
    try:
        for _ in range(kills):
            for _ in range(draw.choice([0, 1, 1, 3])):
                scene.offer(draw.randrange(0, 12))
            history.append(_kill_one(scene, draw, run_seconds))
            scene.check_readers_now()
        scene.catch_up(spark)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: killed {'; '.join(history)}\n{error}") from error
