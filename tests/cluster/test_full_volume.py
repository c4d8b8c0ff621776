"""The volume that all machines share fills up while executors write to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.recovery.small_disk import fill, on_its_own_device
from tests.support.scene import NAME, Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_volume_that_fills_up_under_the_executors(scene: Scene, spark: SparkSession, can_mount: None) -> None:
    scene.offer(rows=60_000)
    with on_its_own_device(scene.root / "data"):
        ballast = fill(scene.root / "data", leave_bytes=400_000)
        process = scene.start("run", NAME)
        said = process.communicate(timeout=240)[1].decode()
        assert process.returncode == 75 and "DISK_FULL" in said, said
        scene.check_readers_now()
        os.unlink(ballast)
        scene.tidegate("run", NAME)
        scene.check_complete(spark)
