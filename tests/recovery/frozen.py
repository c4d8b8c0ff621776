"""A process that is frozen, overtaken, and thawed."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

from tests.recovery.views import freeze_tree, send_all, view_of
from tests.support.project import in_session
from tests.support.scene import Scene
from tidegate.core.errors import TryAgainError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PARKED_SECONDS = 60.0


_ENDS_WITHIN_SECONDS = 30.0


def reports_of(scene: Scene) -> dict[str, bytes]:
    """The report of every run that is over."""
    reports = {path.name: path.read_bytes() for path in (scene.state / "runs").glob("*.json")}
    return {name: report for name, report in reports.items() if b'"outcome": "published"' in report}


def take_over(scene: Scene, run_id: str, spark: SparkSession) -> None:
    """Run until the sleeper's lease has expired; meanwhile the run is refused, and nothing else."""
    until = time.monotonic() + _PARKED_SECONDS + 30
    while True:
        try:
            scene.run(run_id, submit=in_session(spark))
            return
        except TryAgainError as error:
            assert error.code == "LEASE_HELD", error
            assert time.monotonic() < until, f"still refused after the lease expired: {error}"
        time.sleep(0.2)


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
    scene: Scene, process: subprocess.Popen[bytes], run_id: str, spark: SparkSession, *, next_batch: bool = True
) -> None:
    """Another run completes while this one sleeps, with a file more; nothing a reader sees changes when it wakes, nor,
    with ``next_batch``, in what is read after that."""
    frozen = freeze_tree(scene)
    assert process.pid in frozen, "the run was over before it was frozen"
    scene.check_readers_now()
    scene.offer()
    take_over(scene, run_id, spark)
    scene.run(submit=in_session(spark))  # a retry of a run that was published already reads nothing more
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
        assert scene.run(submit=in_session(spark))["outcome"] == "nothing_new"
