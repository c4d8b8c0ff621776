"""The cluster that a Kafka source was read from is known again; another one is never taken for a loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fake_kafka import NAME, FakeBroker, FakeSpark, make_project
from tidegate.core.errors import UsageError
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.steps import run_pipeline
from tidegate.sources.kafka import brokers, offsets
from tidegate.spec.project import Project
from tidegate.state.birth import read_birth, replace_birth
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import needs_a_person, project_status

TOLD = """\
KAFKA_CLUSTER_CHANGED: the brokers at localhost:9092 are Kafka cluster cluster-2, but this source was read from \
cluster cluster-1 so far: the same topics and offsets contain other records on that cluster
  where: source s of pipeline clicks
  next run: fails again until the address leads to the old cluster; nothing was read, nothing is reported as lost
  fix: correct kafka.bootstrap_servers in tidegate.yaml (or its variable), or kafka.bootstrap.servers of the source. \
If the records have moved to this cluster for good: give the source another name in jobs/clicks/pipeline.yaml and the \
transform, with starting_offsets on this cluster; the table stays"""

OTHERS = {
    "without the topic": {},
    "with a topic of that name": {"t": {0: 700, 1: 700}},
    "with a topic that is shorter": {"t": {0: 3}},
}
"""What the other cluster has."""


class Bench:
    """A pipeline that has read topic ``t`` of cluster-1."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
        self.broker = FakeBroker({"t": {0: 0, 1: 0}}, {"t": {0: 100, 1: 100}})
        monkeypatch.setattr(offsets, "Brokers", self.broker)
        monkeypatch.setattr(brokers, "SurveyedBrokers", self.broker)
        self.project: Project = make_project(root)
        self.spark = FakeSpark(self.broker)
        self.runs = 0
        assert self.run() == "published"

    def run(self, accept: str | None = None) -> str:
        self.runs += 1
        report = run_pipeline(self.project, NAME, f"r{self.runs}", submit=self.spark, accept_loss=accept)
        return str(report["outcome"])

    def known(self, source: str = "s") -> object:
        birth = read_birth(self.project.paths(NAME))
        assert birth is not None
        return birth.sources[source]["cluster_id"]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.mark.parametrize("case", OTHERS)
def test_another_cluster_is_refused_and_nothing_is_taken_for_lost(bench: Bench, case: str) -> None:
    home = bench.broker.end
    bench.broker.cluster, bench.broker.end = "cluster-2", OTHERS[case]
    for accept in (None, "somebody took it for a loss"):
        with pytest.raises(UsageError) as told:
            bench.run(accept)
        assert str(told.value) == TOLD and told.value.exit_code == 64
    assert bench.spark.starts == 1
    assert not bench.project.paths(NAME).losses.exists()
    plan = plan_pipeline(bench.project, NAME)
    assert plan["errors"] == [told.value.to_dict()] and plan["summary"] == "the next run would refuse"
    for one in (NAME, None):
        [row] = project_status(bench.project, one)
        assert row["backlog_unknown"] == told.value.to_dict() and row["errors"] == plan["errors"]
        assert any("KAFKA_CLUSTER_CHANGED" in line for line in needs_a_person([row]))
    bench.broker.cluster, bench.broker.end = "cluster-1", {"t": {0: home["t"][0] + 1, 1: home["t"][1]}}
    assert bench.run() == "published"
    assert bench.spark.staged[("t", 0, 100)] == 1 and bench.spark.staged.total() == 201


def test_records_that_moved_for_good_are_read_under_another_name(bench: Bench) -> None:
    bench.broker.cluster, bench.broker.end = "cluster-2", {"t": {0: 30, 1: 30}}
    spec = bench.project.paths(NAME).spec
    moved = "  moved: {type: kafka, topics: [t], format: text, starting_offsets: {t: {0: 10, 1: 20}}}\n"
    spec.write_text("".join(moved if "kafka" in line else line for line in spec.read_text().splitlines(True)))
    bench.spark.source = "moved"
    bench.spark.staged.clear()
    assert bench.run() == "published"
    assert bench.spark.staged == dict.fromkeys(
        [("t", 0, n) for n in range(10, 30)] + [("t", 1, n) for n in range(20, 30)], 1
    )
    assert bench.known("moved") == "cluster-2" and bench.run() == "nothing_new"


def test_a_birth_without_a_cluster_takes_the_first_that_the_brokers_give(bench: Bench) -> None:
    paths = bench.project.paths(NAME)
    birth = read_birth(paths)
    assert birth is not None
    replace_birth(paths, replace(birth, sources={"s": {**birth.sources["s"], "cluster_id": None}}))
    bench.broker.cluster = None  # a broker that keeps none says nothing
    assert bench.run() == "nothing_new" and bench.known() is None
    bench.broker.cluster = "cluster-3"
    assert bench.run() == "nothing_new" and bench.known() == "cluster-3"
    bench.broker.cluster = None
    assert bench.run() == "nothing_new" and bench.known() == "cluster-3"


def test_what_follows_a_loss_or_a_repair_knows_its_cluster(bench: Bench) -> None:
    bench.broker.begin, bench.broker.end = {"t": {0: 150, 1: 0}}, {"t": {0: 200, 1: 100}}
    assert bench.run("retention was too short") == "published" and bench.known() == "cluster-1"
    birth = bench.project.paths(NAME).pinned().birth
    birth.write_text(birth.read_text().replace("append", "complete"))
    assert repair_pipeline(bench.project, NAME, dry_run=False)["actions"]
    assert bench.known() == "cluster-1"
