"""Checkpoints of version 0.1.0, in which Spark's Kafka source had its offsets, are taken over by the first run."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_kafka import NAME, FakeBroker, FakeSpark, make_project
from tests.support.former import go_back, keep_batch_files
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tidegate.core import storage
from tidegate.core.errors import SourceLostError, TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.steps import run_pipeline
from tidegate.sources.kafka import former, offsets
from tidegate.spec.project import Project
from tidegate.state.birth import read_birth, replace_birth
from tidegate.views.outlook import plan_pipeline

SOURCE = "s"


class Former:
    """A pipeline whose state folder version 0.1.0 has left; ``stops`` is where its last driver was killed."""

    def __init__(
        self, root: Path, broker: FakeBroker, stops: str, *, with_state: bool, patch: pytest.MonkeyPatch
    ) -> None:
        self.project: Project = make_project(root)
        self.paths: PipelinePaths = self.project.paths(NAME)
        self.broker, self.spark = broker, FakeSpark(broker, keeps_state=with_state)
        with patch.context() as keeping:
            keep_batch_files(keeping)
            for number in range(3):
                broker.end["t"] = {0: 100 * number + 100, 1: 10 * number}
                self.spark.stops = stops if number == 2 else ""
                with contextlib.suppress(TryAgainError):
                    run_pipeline(self.project, NAME, f"r{number}", submit=self.spark)
        self.spark.stops = ""
        birth = read_birth(self.paths)
        assert birth is not None
        if with_state:
            replace_birth(self.paths, replace(birth, state=[{"operator": "Aggregate", "keys": [], "values": []}]))
        go_back(self.paths, SOURCE)

    def run(self, run_id: str, accept: str | None = None) -> dict[str, Any]:
        return run_pipeline(self.project, NAME, run_id, submit=self.spark, accept_loss=accept)

    def check(self, total: int) -> None:
        assert set(self.spark.staged.values()) == {1} and self.spark.staged.total() == total


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    broker = FakeBroker({"t": {0: 0, 1: 0}}, {"t": {0: 0, 1: 0}})
    monkeypatch.setattr(offsets, "Brokers", broker)
    return broker


@pytest.mark.parametrize("with_state", [False, True], ids=["without state", "with state"])
@pytest.mark.parametrize("stops", ["", "planned", "staged"])
def test_each_record_is_read_once(
    tmp_path: Path, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, stops: str, with_state: bool
) -> None:
    one = Former(tmp_path / "p", broker, stops, with_state=with_state, patch=monkeypatch)
    broker.end["t"] = {0: 400, 1: 50}
    foreseen = plan_pipeline(one.project, NAME)
    waits = 400 + 50 - (200 + 10 if stops == "planned" or (stops and with_state) else 300 + 20)
    assert foreseen["sources"][SOURCE]["pending_offsets"] == waits and not foreseen["errors"]
    report = one.run("new")
    assert "the checkpoint of version 0.1.0 was taken over: what it reads is in batch files now" in report["notes"]
    one.check(400 + 50)
    broker.end["t"] = {0: 500, 1: 50}
    report = one.run("newer")
    assert not any("0.1.0" in note for note in report["notes"])
    one.check(500 + 50)
    assert one.run("idle")["outcome"] == "nothing_new"


@pytest.mark.parametrize("stops", ["", "planned"])
def test_a_loss_is_found_and_accepted(
    tmp_path: Path, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, stops: str
) -> None:
    one = Former(tmp_path / "p", broker, stops, with_state=True, patch=monkeypatch)
    broker.begin["t"][0], broker.end["t"] = 350, {0: 400, 1: 50}
    with pytest.raises(SourceLostError):
        one.run("new")
    one.run("accepted", "retention was too short")
    one.check(400 + 50 - (150 if stops else 50))


@pytest.mark.parametrize("with_state", [False, True], ids=["without state", "with state"])
def test_killed_anywhere(tmp_path: Path, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, with_state: bool) -> None:
    one = Former(tmp_path / "p", broker, "planned", with_state=with_state, patch=monkeypatch)
    root, before = one.project.root, tmp_path / "before"
    shutil.copytree(root, before)
    take_over, staged = former.take_over_former, one.spark.staged.copy()
    broker.end["t"] = {0: 400, 1: 50}
    for at in itertools.count(1):
        shutil.rmtree(root)
        shutil.copytree(before, root)
        one.spark.staged = staged.copy()
        calls: list[StorageCalls] = []
        with monkeypatch.context() as patch:

            def watched(*arguments: Any, patch: Any = patch, at: int = at, calls: Any = calls) -> None:
                calls.append(StorageCalls(patch, at, kill))
                take_over(*arguments)
                patch.undo()

            patch.setattr(former, "take_over_former", watched)
            with contextlib.suppress(KilledHere):
                one.run("killed")
                break
        storage.remove_tree(one.paths.lease)
        one.run("next")
        one.check(400 + 50)
    one.check(400 + 50)
    assert at > 10


@pytest.mark.parametrize("stops", ["", "planned"])
def test_a_topic_that_joined_with_the_last_batch(
    tmp_path: Path, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, stops: str
) -> None:
    """Spark needs the lists of a source from the first one on."""
    files = "  f: {type: files, path: data/inbox, format: csv, schema: value STRING}\ntransform: transform.sql\n"
    project = make_project(tmp_path / "p", files)
    paths, spark = project.paths(NAME), FakeSpark(broker)
    (paths.job / "transform.sql").write_text("SELECT value FROM s UNION ALL SELECT value FROM f")
    both = paths.spec.read_text()
    alone = [line for line in both.splitlines() if not line.startswith(("  s:", "transform:"))]
    (project.root / "data/inbox").mkdir(parents=True)
    keep_batch_files(monkeypatch)
    for number in range(4):
        (project.root / f"data/inbox/{number}.csv").write_text("a\n")
        paths.spec.write_text("\n".join(alone) if number < 2 else both)
        broker.end["t"] = {0: 100, 1: 10} if number < 3 else {0: 150, 1: 10}
        spark.stops = stops if number == 2 else ""
        if number == 3:
            go_back(paths, SOURCE)
        with contextlib.suppress(TryAgainError):
            run_pipeline(project, NAME, f"r{number}", submit=spark)
    assert (paths.checkpoint / "sources" / SOURCE / "0").exists()
    assert set(spark.staged.values()) == {1} and spark.staged.total() == 150 + 10
