"""A Kafka source that the spec leaves out for a while goes on where it was, whatever happens to the query meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_kafka import NAME, FakeBroker, FakeSpark, make_project
from tidegate.restart.repair import repair_pipeline
from tidegate.run.steps import run_pipeline
from tidegate.sources.kafka import offsets


class Bench:
    """A pipeline with one Kafka source, which can be given another name."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
        self.broker = FakeBroker({"t": {0: 0, 1: 0}}, {"t": {0: 100, 1: 100}})
        monkeypatch.setattr(offsets, "Brokers", self.broker)
        self.project = make_project(root)
        self.spark = FakeSpark(self.broker)
        self.runs = 0

    def run(self, accept: str | None = None) -> str:
        self.runs += 1
        return str(run_pipeline(self.project, NAME, f"r{self.runs}", submit=self.spark, accept_loss=accept)["outcome"])

    def rename(self, old: str, new: str) -> None:
        spec = self.project.paths(NAME).spec
        spec.write_text(spec.read_text().replace(f"  {old}: ", f"  {new}: "))
        self.spark.source = new


@pytest.mark.parametrize("between", ["nothing", "repair", "loss"])
def test_a_source_that_was_left_out_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    bench = Bench(tmp_path, monkeypatch)
    assert bench.run() == "published"
    bench.rename("s", "moved")
    assert bench.run() == "published"
    if between == "repair":
        birth = bench.project.paths(NAME).pinned().birth
        birth.write_text(birth.read_text().replace("append", "complete"))
        repair_pipeline(bench.project, NAME, dry_run=False)
        assert bench.run() == "nothing_new"
    if between == "loss":
        bench.broker.begin, bench.broker.end = {"t": {0: 110, 1: 0}}, {"t": {0: 120, 1: 100}}
        assert bench.run("gone") == "published"
        bench.broker.begin = {"t": {0: 0, 1: 0}}
    bench.rename("moved", "s")
    bench.spark.staged.clear()
    bench.run()
    assert not [one for one in bench.spark.staged if one[2] < 100]
