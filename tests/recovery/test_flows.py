"""Queries with state of every kind, stopped as the pipeline of the other sweeps is: update and complete mode, a join,
windows behind a deduplication, a state of the transform's own.

A batch of these depends on the state that earlier ones left, and Spark goes on with that state and a watermark of its
own. So beside each kind of step there are the moments between Spark's writes and tidegate's. `make test` takes one
pipeline for each of them, in turns, and with TIDEGATE_SWEEP every pipeline.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

from tests.recovery.flows import FLOWS, make_flow
from tests.recovery.frozen import freeze_overtake_thaw
from tests.recovery.random_kill import SEEDS, kill_at_random
from tests.recovery.two_runs import run_two
from tests.recovery.views import send_all, wait_for_sleeper
from tests.support.project import in_session
from tests.support.scene import NAME, Scene, Snapshot, kill_when
from tests.support.sweep import sweep
from tidegate.spark.driver.progress import READING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IN_FULL = os.environ.get("TIDEGATE_SWEEP", "0") != "0"
_MANIFEST = r"manifests/[^/]*/\."
_OFFSETS = r"checkpoint/offsets/\."


class Flows:
    """Of each pipeline one that has published two offers, made when it is first asked for."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._made: dict[str, Snapshot] = {}
        self.seconds: dict[str, float] = {}
        """How long a run takes."""

    def published(self, kind: str) -> Snapshot:
        if kind not in self._made:
            folder = self._factory.mktemp(kind)
            scene = make_flow(folder / "live", FLOWS[kind])
            scene.offer()
            scene.offer()
            began = time.monotonic()
            scene.tidegate("run", NAME, "--run-id", "first")
            self.seconds[kind] = time.monotonic() - began
            scene.check_complete()
            self._made[kind] = scene.save(folder / "published")
        return self._made[kind]

    def offered(self, kind: str, offers: int) -> Scene:
        """With so many offers more."""
        scene = self.published(kind).restore()
        for _ in range(offers):
            scene.offer()
        return scene


@pytest.fixture(scope="session")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Flows:
    """The prepared scenes."""
    return Flows(tmp_path_factory)


def go_on(scene: Scene, spark: SparkSession, where: str, run_id: str | None = None) -> None:
    """What was offered is all there, without anything new coming; and what comes next finds the state as it should."""
    try:
        scene.check_readers_now()
        scene.catch_up(spark, run_id=run_id)
        scene.offer()
        scene.run(submit=in_session(spark))
        scene.check_complete(spark)
    except AssertionError as error:
        raise AssertionError(f"{where}\n{error}") from error


# name: (what is about to happen when the run is killed, as a pattern of steps (faults/sitecustomize.py); how many
# offers there are; the pipelines that have it, those of the sample first)
STEPS = {
    "state written, no manifest": (rf"^fsync .*/{_MANIFEST}", 3, "join pandas complete update windows", 3),
    "manifest, not committed": (rf"^unlink .*/{_MANIFEST}", 1, "windows join update pandas complete", 2),
    "closing batch staged, not committed": (rf"^unlink .*/{_MANIFEST}0+3\.", 1, "windows", 0),
    "all read, no closing batch planned": (rf"^fsync .*/{_OFFSETS}", 1, "join", 1),
    "closing batch planned by tidegate, not run": (rf"^unlink .*/{_OFFSETS}", 1, "join", 0),
    "folded, not judged": (r"^fsync .*/verdicts/\.", 3, "update", 0),
    "replaced files hidden in the log, in sight": (r"^unlink data/warehouse/orders/", 3, "update", 0),
    "replaced files out of sight, new ones not in": (r"^rename .*/staging/.*/rows/", 3, "update", 0),
    "some new files in": (r"^rename .*/staging/.*/merge-", 3, "update", 1),
    "new files in, log not written": (r"^fsync data/warehouse$", 3, "complete windows update join pandas", 1),
    "log written, reports not": (r"^unlink .*/intents/table-", 3, "pandas join update windows complete", 1),
}


def _cases(table: Mapping[str, tuple[Any, int, str, int]]) -> list[tuple[str, str]]:
    return [
        (kind, point)
        for point, (_, _, kinds, sampled) in table.items()
        for kind in (kinds.split() if _IN_FULL else kinds.split()[:sampled])
    ]


@pytest.mark.parametrize(("kind", "point"), _cases(STEPS))
def test_killed_at_a_step(kind: str, point: str, flows: Flows, spark: SparkSession) -> None:
    pattern, offers, _, _ = STEPS[point]
    scene = flows.offered(kind, offers)
    scene.tidegate("run", NAME, "--run-id", "second", fault=f"{pattern}|kill", expect=-signal.SIGKILL)
    scene.wait_until_gone()
    if point == "manifest, not committed":
        lines = (scene.state / "runs/second.progress.jsonl").read_text().splitlines()
        # How far a batch is read is written every few seconds: on a busy machine also here.
        events = [event for event in map(json.loads, lines) if event["event"] != READING]
        batch = max(int(path.stem) for path in (scene.state / "manifests").glob("*/[0-9]*.json"))
        assert [(event["event"], event.get("batchId")) for event in events] == [("session", None), ("staged", batch)]
        assert events[1]["stateOperators"] and events[1]["rows"] > 0
    go_on(scene, spark, f"{point}: {scene.steps()[-1]}", run_id="second")


def _exists(scene: Scene, *names: str) -> bool:
    return all((scene.state / "checkpoint" / name).exists() for name in names)


# name: (what has happened in Spark when the run is killed, how many offers, the pipelines that have it, the sample)
MOMENTS = {
    "batch planned, not committed": (lambda scene: _exists(scene, "offsets/2"), 1, "join windows", 0),
    "state being written": (
        lambda scene: any((scene.state / "checkpoint/state").rglob("3.*")), 1, "windows join", 0
    ),
    "data committed, nothing closed": (lambda scene: _exists(scene, "commits/2"), 1, "windows", 1),
    "closing batch planned by Spark, not run": (lambda scene: _exists(scene, "offsets/3"), 1, "windows", 0),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "moment"), _cases(MOMENTS))
def test_killed_at_a_moment(kind: str, moment: str, flows: Flows, spark: SparkSession) -> None:
    """Polled for: a moment that is missed is a kill at another one, a little later."""
    appeared, offers, _, _ = MOMENTS[moment]
    scene = flows.offered(kind, offers)
    assert kill_when(scene, scene.start("run", NAME, "--run-id", "second"), lambda: appeared(scene))
    go_on(scene, spark, moment, run_id="second")


@pytest.mark.parametrize("kind", FLOWS)
@pytest.mark.skipif(not _IN_FULL, reason="every pipeline's every step: TIDEGATE_SWEEP")
def test_killed_at_every_step(kind: str, flows: Flows, spark: SparkSession) -> None:
    scene = flows.offered(kind, 3)
    scene.tidegate("run", NAME, "--run-id", "second", fault="1000000|kill")
    total = len(scene.steps())
    for number in sweep(total, 2):
        scene = flows.offered(kind, 3)
        scene.tidegate("run", NAME, "--run-id", "second", fault=f"{number}|kill", expect=None)
        scene.wait_until_gone()
        assert len(scene.steps()) >= number, f"step {number} of {total} was not reached"
        go_on(scene, spark, f"killed at step {number} of {total}: {scene.steps()[-1]}", run_id="second")


# As STEPS: where a run falls asleep.
SLEEPS = {
    "state written, no manifest": (rf"^fsync .*/{_MANIFEST}", 1, "windows join update pandas complete", 1),
    "manifest, not committed": (rf"^unlink .*/{_MANIFEST}", 1, "join update windows", 0),
    "closing batch not planned": (rf"^link .*/{_OFFSETS}", 1, "join", 0),
    "some new files in": (r"^rename .*/staging/.*/merge-", 3, "update", 0),
}


@pytest.mark.parametrize(("kind", "point"), _cases(SLEEPS))
def test_frozen(kind: str, point: str, flows: Flows, spark: SparkSession) -> None:
    """Another run takes over and completes while the first one sleeps; when it wakes, nothing changes."""
    pattern, offers, _, _ = SLEEPS[point]
    scene = flows.offered(kind, offers)
    process = scene.start("run", NAME, "--run-id", "second", fault=f"{pattern}|freeze")
    try:
        assert wait_for_sleeper(scene, process), f"{point} was not reached"
        freeze_overtake_thaw(scene, process, "rival", spark)
    except AssertionError as error:
        raise AssertionError(f"frozen: {point}: {scene.steps()[-1]}\n{error}") from error
    finally:
        send_all(scene.processes(), signal.SIGKILL)


@pytest.mark.parametrize("kind", FLOWS if _IN_FULL else ["update"])
def test_two_at_once(kind: str, flows: Flows, spark: SparkSession) -> None:
    run_two(flows.offered(kind, 3), spark)


_SEEDED = [(kind, seed) for seed in SEEDS for kind in FLOWS]


@pytest.mark.parametrize(("kind", "seed"), _SEEDED if _IN_FULL else _SEEDED[:1])
def test_random_kills(kind: str, seed: int, flows: Flows, spark: SparkSession) -> None:
    scene = flows.offered(kind, 1)
    kill_at_random(scene, seed, 4 if _IN_FULL else 2, flows.seconds[kind], spark)
