"""State, table and quarantine on small file systems of their own that fill up: DISK_FULL, and nothing is lost.

Each is a real tmpfs, so a publish also crosses from one device to another. Needs the right to mount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.recovery.small_disk import fill, on_its_own_device
from tests.support.scene import NAME, Scene, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDERS = ("warehouse", "quarantine", "state")


@pytest.fixture(scope="session")
def many_offered(published: Snapshot) -> Snapshot:
    """Three larger files more than are published."""
    scene = published.restore()
    for _ in range(3):
        scene.offer(40)
    return scene.save(published.folder.with_name("offered-to-full-disks"))


@pytest.fixture(scope="session")
def judged(many_offered: Snapshot) -> Snapshot:
    """The same, staged and audited: what is left is to move files across devices."""
    scene = many_offered.restore()
    scene.tidegate("ingest", NAME, "--run-id", "second")
    scene.tidegate("audit", NAME, "--run-id", "second")
    return scene.save(many_offered.folder.with_name("judged-on-full-disks"))


def _expect_full(scene: Scene, *command: str) -> bool:
    """Run on a full disk: DISK_FULL and 75, or it found room enough; False then."""
    process = scene.start(*command)
    out, err = process.communicate(timeout=180)
    said = f"{out.decode()}\n{err.decode()}"
    assert process.returncode in (0, 75), f"{command} exited {process.returncode}\n{said}"
    assert process.returncode == 0 or "DISK_FULL" in said, said
    scene.wait_until_gone()
    return process.returncode == 75


def _fill_up(scene: Scene, folder: str, leave_kib: list[int], command: tuple[str, ...], spark: SparkSession) -> None:
    """Stopped by a full disk again and again, each time with a little more room; then with room enough."""
    refused = 0
    place = scene.root / "data" / folder
    with on_its_own_device(place):
        for kib in leave_kib:
            ballast = fill(place, kib * 1024)
            refused += _expect_full(scene, *command)
            scene.check_readers_now()
            ballast.unlink()
        scene.catch_up(spark, run_id="second")
        scene.offer()
        scene.catch_up(spark)
    assert refused, "the disk was never full"


@pytest.mark.usefixtures("can_mount")
def test_state(many_offered: Snapshot, spark: SparkSession) -> None:
    """Lease, ledger, order, checkpoint, staging, manifest, verdict: wherever it ends."""
    _fill_up(many_offered.restore(), "state", [0, 60, 140], ("run", NAME, "--run-id", "second"), spark)


@pytest.mark.usefixtures("can_mount")
def test_table(judged: Snapshot, spark: SparkSession) -> None:
    _fill_up(judged.restore(), "warehouse", [0, 8, 16, 24], ("publish", NAME, "--run-id", "second"), spark)


@pytest.mark.usefixtures("can_mount")
def test_quarantine(many_offered: Snapshot, spark: SparkSession) -> None:
    _fill_up(many_offered.restore(), "quarantine", [0, 8], ("run", NAME, "--run-id", "second"), spark)


@pytest.mark.usefixtures("can_mount")
def test_state_while_publishing(judged: Snapshot, spark: SparkSession) -> None:
    """The intent and the report need room in the state folder too."""
    _fill_up(judged.restore(), "state", [0, 8, 16], ("publish", NAME, "--run-id", "second"), spark)
