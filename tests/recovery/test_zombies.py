"""A run is frozen at its N-th step, another one takes over and completes, then the first is thawed: nothing changes.

The whole tree is frozen: the command, the JVM, the driver. Nobody tells the sleeper anything; it must find out by
itself that its lease is gone, and end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.recovery.conftest import sweep
from tests.recovery.scene import NAME, Scene, Snapshot
from tests.recovery.views import freeze_tree, send_all, view_of, wait_for_sleeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARKED_SECONDS = 60.0
_ENDS_WITHIN_SECONDS = 30.0


def _count_steps(scene: Scene, command: tuple[str, ...]) -> int:
    scene.run(*command, fault="1000000|kill")
    return len(scene.steps())


def reports_of(scene: Scene) -> dict[str, bytes]:
    """The report of every run that is over."""
    reports = {path.name: path.read_bytes() for path in (scene.state / "runs").glob("*.json")}
    return {name: report for name, report in reports.items() if b'"outcome": "published"' in report}


def take_over(scene: Scene, run_id: str) -> None:
    """Run until the sleeper's lease has expired; meanwhile the run is refused, and nothing else."""
    until = time.monotonic() + _PARKED_SECONDS + 30
    while True:
        process = scene.start("run", NAME, "--run-id", run_id)
        out, err = process.communicate(timeout=180)
        if process.returncode == 0:
            return
        assert process.returncode == 75 and b"LEASE_HELD" in err, f"{out.decode()}\n{err.decode()}"
        assert time.monotonic() < until, f"still refused after the lease expired: {err.decode()}"
        time.sleep(0.5)


def thaw(scene: Scene, process: subprocess.Popen[bytes], frozen: list[int]) -> str:
    """Wake the sleeper and wait for its own end; what it said."""
    send_all(frozen, signal.SIGCONT)
    try:
        out, err = process.communicate(timeout=_ENDS_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        send_all(scene.processes(), signal.SIGKILL)
        raise AssertionError(f"the thawed run did not end within {_ENDS_WITHIN_SECONDS} s") from None
    said = f"{out.decode()}\n{err.decode()}"
    # 75: it lost its lease. 0: it had done its part before it fell asleep, or what it still did was done already.
    assert process.returncode in (0, 75), f"the thawed run exited {process.returncode}\n{said}"
    scene.wait_until_gone()
    return said


def freeze_overtake_thaw(
    scene: Scene, process: subprocess.Popen[bytes], run_id: str, spark: SparkSession | None, *, next_batch: bool = True
) -> None:
    """Another run completes while this one sleeps, with a file more; nothing a reader sees changes when it wakes, nor,
    with ``next_batch``, in what is read after that."""
    frozen = freeze_tree(scene)
    scene.check_readers_now()
    scene.offer()
    take_over(scene, run_id)
    scene.run_beside(spark)  # a retry of a run that was published already reads nothing more
    scene.check_complete()
    seen, reports = view_of(scene), reports_of(scene)
    thaw(scene, process, frozen)
    assert view_of(scene) == seen, "the thawed run changed what a reader sees"
    assert reports_of(scene) == reports, "the thawed run changed a report"
    scene.check_complete(spark)
    if next_batch:
        scene.offer()
        scene.catch_up(spark)
    else:
        assert scene.report("run", NAME)["outcome"] == "nothing_new"


def _sweep_command(start: Snapshot, command: tuple[str, ...], sample: int, spark: SparkSession) -> None:
    total = _count_steps(start.restore(), command)
    assert total > 5, "the steps were not counted"
    slept = 0
    for index, number in enumerate(sweep(total, sample)):
        scene = start.restore()
        process = scene.start(*command, fault=f"{number}|freeze")
        if not wait_for_sleeper(scene, process):
            # A few steps depend on timing.
            process.communicate()
            assert number > total * 0.8, f"step {number} of {total} was not reached"
            continue
        slept += 1
        try:
            # In turns a retry of the same run and another one, which has to wait for a minute at the first and the
            # last steps: there the lease is kept for the next step of the sleeper.
            is_parked = number < 5 or number > total - 3
            run_id = "second" if is_parked or index % 2 else "rival"
            # Only a sleeper of the ingest step had a hand in what the next batch reads.
            next_batch = command[0] == "ingest" or slept == 1 or "TIDEGATE_SWEEP" in os.environ
            freeze_overtake_thaw(scene, process, run_id, spark, next_batch=next_batch)
        except AssertionError as error:
            raise AssertionError(f"frozen at step {number} of {total}: {scene.steps()[number - 1]}\n{error}") from error
        finally:
            send_all(scene.processes(), signal.SIGKILL)
    assert slept, "no run was frozen"


@pytest.fixture(scope="session")
def offered(published: Snapshot) -> Snapshot:
    """Three files more than are published."""
    scene = published.restore()
    for _ in range(3):
        scene.offer()
    return scene.save(published.folder.with_name("offered-to-zombies"))


def test_ingest(offered: Snapshot, spark: SparkSession) -> None:
    _sweep_command(offered, ("ingest", NAME, "--run-id", "second"), 3, spark)


def test_audit(staged: Snapshot, spark: SparkSession) -> None:
    _sweep_command(staged, ("audit", NAME, "--run-id", "second"), 2, spark)


def test_publish(audited: Snapshot, spark: SparkSession) -> None:
    _sweep_command(audited, ("publish", NAME, "--run-id", "second"), 3, spark)
