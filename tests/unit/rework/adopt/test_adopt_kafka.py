"""The checkpoint of a plain job with topics hands over its offsets: the first run goes on behind them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_kafka import NAME, FakeBroker, FakeSpark, make_project
from tests.support.plain_jobs import write_parquet
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tidegate.core.errors import DisagreementError, SourceLostError, TidegateError
from tidegate.rework.adopt.adoption import adopt_table, preview_adoption
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.steps import run_pipeline
from tidegate.sources.kafka import offsets
from tidegate.views.outlook import plan_pipeline

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


class Case:
    """A table in the pipeline's own place, and the checkpoint of a job that read topic ``t`` up to 40 and 60."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, more: str = "") -> None:
        self.broker = FakeBroker({"t": {0: 10, 1: 0}}, {"t": {0: 100, 1: 60}})
        monkeypatch.setattr(offsets, "Brokers", self.broker)
        self.spark = FakeSpark(self.broker)
        self.project = make_project(root / "project", more)
        self.table = self.project.own_table(NAME)
        write_parquet(self.table / "part-00000-a-c000.snappy.parquet", [{"value": "old"}], {"value": "string"})
        self.checkpoint = root / "old"
        self.plan(0, '{"t":{"0":40,"1":60}}')
        self.commit(0)

    def plan(self, batch: int, *ends: str) -> None:
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text('{"id":"old-query"}')
        (self.checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", METADATA, *ends]))

    def commit(self, batch: int) -> None:
        (self.checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def adopt(self, run_id: str = "adopt-1", checkpoint: bool = True) -> Any:
        return adopt_table(self.project, NAME, run_id, self.table, self.checkpoint if checkpoint else None)

    def look(self, checkpoint: bool = True) -> Any:
        return preview_adoption(self.project, NAME, self.table, self.checkpoint if checkpoint else None)

    def run(self, run_id: str) -> Any:
        return run_pipeline(self.project, NAME, run_id, submit=self.spark)

    def staged(self) -> dict[int, list[int]]:
        """The offsets that runs have read, by partition; each once."""
        assert set(self.spark.staged.values()) <= {1}
        return {n: sorted(at for _, m, at in self.spark.staged if m == n) for n in (0, 1, 2)}


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(tmp_path, monkeypatch)


def test_three_runs_after_a_plain_job(case: Case) -> None:
    told = case.look()
    assert told["sources"] == {"s": {"offsets": {"t": {"0": 40, "1": 60}}}}
    assert (told["query_id"], told["batch"]) == ("old-query", 0)
    assert 'source s: continue at {"t": {"0": 40, "1": 60}}' in told["actions"]
    case.adopt()
    assert plan_pipeline(case.project, NAME)["sources"]["s"]["offsets"] == {"t": {"0": [40, 100]}}
    case.run("r1")
    case.broker.end = {"t": {0: 120, 1: 70, 2: 5}}  # and a new partition
    case.broker.begin["t"][2] = 0
    case.run("r2")
    case.run("r3")
    assert case.staged() == {0: list(range(40, 120)), 1: list(range(60, 70)), 2: list(range(5))}


def test_a_partition_that_the_old_job_did_not_know_is_read_from_its_beginning(case: Case) -> None:
    case.broker.end["t"][2], case.broker.begin["t"][2] = 7, 0
    case.adopt()
    case.run("r1")
    assert case.staged()[2] == list(range(7))


def test_what_retention_has_taken_meanwhile_stops_the_first_run(case: Case) -> None:
    case.broker.begin["t"][0] = 55
    case.adopt()
    with pytest.raises(SourceLostError) as lost:
        case.run("r1")
    assert "offsets 40 to 54 (15)" in lost.value.message


def test_another_topic(case: Case) -> None:
    case.plan(1, '{"other":{"0":40}}')
    case.commit(1)
    with pytest.raises(DisagreementError) as refused:
        case.adopt()
    assert refused.value.code == "ADOPT_SOURCES"
    assert "source 0: topics other" in refused.value.message


def test_two_sources_are_matched_by_their_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = "  u: {type: kafka, topics: [u], format: text, starting_offsets: earliest}\ntransform: transform.sql\n"
    case = Case(tmp_path, monkeypatch, second)
    (case.project.jobs / NAME / "transform.sql").write_text("SELECT value FROM s UNION ALL SELECT value FROM u")
    case.broker.end["u"], case.broker.begin["u"] = {0: 9}, {0: 0}
    case.plan(1, '{"u":{"0":4}}', '{"t":{"0":50,"1":60}}')  # in another order than in the spec
    case.commit(1)
    assert case.look()["sources"] == {"s": {"offsets": {"t": {"0": 50, "1": 60}}}, "u": {"offsets": {"u": {"0": 4}}}}
    case.plan(1, '{"t":{"0":50,"1":60}}', '{"t":{"0":50,"1":60}}')
    with pytest.raises(TidegateError) as refused:
        case.look()
    assert refused.value.code == "ADOPT_SOURCES"


def test_without_a_checkpoint_the_offsets_of_the_spec_are_looked_up_once(case: Case) -> None:
    spec = case.project.jobs / NAME / "pipeline.yaml"
    spec.write_text(spec.read_text().replace("earliest", "latest"))
    assert case.look(checkpoint=False)["sources"] == {"s": {"offsets": {"t": {"0": 100, "1": 60}}}}
    case.adopt(checkpoint=False)
    case.broker.end["t"][0] = 103
    case.run("r1")
    assert case.staged()[0] == [100, 101, 102]
    spec.write_text(spec.read_text().replace(", starting_offsets: latest", ""))


def test_without_a_checkpoint_and_without_a_start(case: Case) -> None:
    spec = case.project.jobs / NAME / "pipeline.yaml"
    spec.write_text(spec.read_text().replace(", starting_offsets: earliest", ""))
    with pytest.raises(TidegateError) as refused:
        case.look(checkpoint=False)
    assert refused.value.code == "ADOPT_NO_START"
    assert "sources.s.starting_offsets" in str(refused.value.fix)


def test_killed_at_any_storage_call_and_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        whole = Case(tmp_path / "whole", monkeypatch)
        calls = StorageCalls(patch, -1, kill)
        whole.adopt()
    for at in range(1, calls.count + 1):
        case = Case(tmp_path / str(at), monkeypatch)
        with monkeypatch.context() as patch:
            StorageCalls(patch, at, kill)
            with pytest.raises(KilledHere):
                case.adopt()
        shutil.rmtree(case.project.paths(NAME).lease, ignore_errors=True)
        case.broker.end["t"][0] += 1  # the topic goes on
        try:  # a run in between reads nothing, or the adoption is done
            case.run("between")
        except TidegateError as error:
            assert error.code in ("ADOPTION_UNFINISHED", "FOREIGN_TABLE"), json.dumps(error.to_dict())
        case.adopt(f"adopt-{at}")
        case.run("after")
        assert case.staged() == {0: list(range(40, 101)), 1: [], 2: []}, f"killed at call {at}"


def test_the_birth_record_is_gone(case: Case) -> None:
    """It alone has the offsets at which the pipeline goes on."""
    case.adopt()
    case.project.paths(NAME).birth.unlink()
    with pytest.raises(DisagreementError, match=r"CHECKPOINT_DIVERGED.*: the checkpoint and its birth record are gone"):
        case.run("r1")
    with pytest.raises(DisagreementError, match="the offsets at which source s continues after"):
        repair_pipeline(case.project, NAME, dry_run=False)
