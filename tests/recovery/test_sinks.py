"""Publish and delivery killed, and frozen and overtaken, at each step: every row is fed, at most one version again.

The sink writes down what it is given with a file of its own per row, so it cannot lose or merge anything itself.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.recovery.conftest import count_steps
from tests.recovery.frozen import take_over, thaw
from tests.recovery.views import freeze_tree, send_all, view_of, wait_for_sleeper
from tests.support.project import in_session
from tests.support.scene import NAME, Scene, Snapshot, make_scene
from tests.support.sweep import sweep
from tidegate.runs.gate_steps import audit_run, publish_run
from tidegate.runs.steps import ingest_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITER = """\
import json
from pathlib import Path
from uuid import uuid4

FED = Path(__file__).parent / "fed"

class Writer:
    def process(self, row):
        FED.mkdir(exist_ok=True)
        (FED / uuid4().hex).write_text(json.dumps([row.id, row._version, row._run_id]))
"""
_SINKS = 'sinks: [{type: foreach, writer: "sinks.py:Writer"}]\n'
_PUBLISH = ("publish", NAME, "--run-id", "second")
_DELIVER = ("deliver", NAME, "--run-id", "second")


def _fed(scene: Scene) -> list[tuple[str, int, str]]:
    return [tuple(json.loads(path.read_text())) for path in (scene.root / "jobs" / NAME / "fed").iterdir()]


def _check_fed(scene: Scene) -> None:
    """Every row of the table was fed, always with one version and run; rows of one version at most came again."""
    fed = _fed(scene)
    counts = Counter(key for key, _, _ in fed)
    assert set(counts) == set(scene.good)
    places = {key: {(version, run_id) for other, version, run_id in fed if other == key} for key in counts}
    assert all(len(place) == 1 for place in places.values())
    again = {next(iter(places[key]))[0] for key, count in counts.items() if count > 1}
    assert len(again) <= 1, f"versions {again} came again"


@pytest.fixture(scope="module")
def audited_with_sink(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Snapshot:
    """One version published and fed, a second one audited."""
    folder = tmp_path_factory.mktemp("sinks")
    scene = make_scene(folder / "live")
    job = scene.root / "jobs" / NAME
    (job / "pipeline.yaml").write_text((job / "pipeline.yaml").read_text() + _SINKS)
    (job / "sinks.py").write_text(_WRITER)
    scene.offer()
    submit = in_session(spark)
    scene.run("first", submit=submit)
    scene.offer()
    ingest_run(scene.project, NAME, "second", submit=submit)
    audit_run(scene.project, NAME, "second")
    return scene.save(folder / "audited")


@pytest.fixture(scope="module")
def owed(audited_with_sink: Snapshot) -> Snapshot:
    """Both versions published, the second one not fed."""
    scene = audited_with_sink.restore()
    assert publish_run(scene.project, NAME, "second")["sinks"][0]["behind"] == 1
    return scene.save(audited_with_sink.folder.with_name("owed"))


def test_killed_between_publish_and_delivery(audited_with_sink: Snapshot, spark: SparkSession) -> None:
    total = count_steps(audited_with_sink, _PUBLISH)
    for number in sweep(total, 4):
        scene = audited_with_sink.restore()
        scene.tidegate(*_PUBLISH, fault=f"{number}|kill", expect=None)
        scene.wait_until_gone()
        assert len(scene.steps()) >= number, f"step {number} of {total} was not reached"
        assert scene.run("second", submit=in_session(spark))["outcome"] == "published"
        scene.catch_up(spark)
        _check_fed(scene)


def test_killed_while_it_delivers(owed: Snapshot, spark: SparkSession) -> None:
    """Three runs each: two are killed at the same step, the third ends."""
    total = count_steps(owed, _DELIVER)
    assert total > 5, "the steps were not counted"
    for number in sweep(total, 6):
        scene = owed.restore()
        for attempt in range(2):
            scene.tidegate(*_DELIVER, fault=f"{number}|kill", expect=None)
            scene.wait_until_gone()
            # What the first one did is not done again: the second may have fewer steps.
            assert attempt or len(scene.steps()) >= number, f"step {number} of {total} was not reached"
        report = scene.report(*_DELIVER)
        assert report["outcome"] == "published" and report["sinks"][0]["behind"] == 0
        _check_fed(scene)
        scene.catch_up(spark)
        _check_fed(scene)


def test_a_delivery_that_was_frozen_and_overtaken(owed: Snapshot, spark: SparkSession) -> None:
    """Another run publishes and feeds a version more; the one that wakes sets nothing back."""
    total = count_steps(owed, _DELIVER)
    for number in sweep(total, 3):
        scene = owed.restore()
        process = scene.start(*_DELIVER, fault=f"{number}|freeze")
        try:
            assert wait_for_sleeper(scene, process), f"step {number} of {total} was not reached"
            frozen = freeze_tree(scene)
            scene.offer()
            take_over(scene, "rival", spark)
            _check_fed(scene)
            seen = view_of(scene)
            thaw(scene, process, frozen)
            assert view_of(scene) == seen, "the thawed run changed what a reader sees"
            _check_fed(scene)
            fed = sorted(_fed(scene))
            scene.catch_up(spark)
            assert sorted(_fed(scene)) == fed, f"frozen at step {number}: rows came again after it woke"
        finally:
            send_all(scene.processes(), signal.SIGKILL)
