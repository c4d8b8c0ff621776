"""A Kafka source that the spec leaves out for a while goes on where it was, whatever happens to the query meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_kafka import NAME, FakeBroker, FakeSpark, make_project
from tidegate.core.errors import DisagreementError
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.steps import run_pipeline
from tidegate.sources.kafka import offsets
from tidegate.spec.pipeline import load_pipeline
from tidegate.state.birth import new_birth, read_birth, write_birth
from tidegate.views.outlook import plan_pipeline


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


def test_files_under_the_name_of_topics_that_were_left_out_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The birth record keeps one place for a name; under another name both kinds have theirs."""
    bench = Bench(tmp_path, monkeypatch)
    assert bench.run() == "published"
    bench.rename("s", "moved")
    assert bench.run() == "published"
    spec = bench.project.paths(NAME).spec
    topics = spec.read_text()
    (tmp_path / "inbox").mkdir()
    head = topics.partition("  moved: ")[0]
    spec.write_text(head + "  s: {type: files, path: inbox, format: text}\n")
    with pytest.raises(DisagreementError, match=r"sources\.s\.type: was kafka, is files") as caught:
        bench.run()
    assert caught.value.code == "SPEC_CHANGED"
    spec.write_text(topics.replace("  moved: ", "  s: "))
    bench.spark.source = "s"
    bench.spark.staged.clear()
    bench.broker.end = {"t": {0: 110, 1: 100}}
    assert bench.run() == "published"
    assert sorted(bench.spark.staged) == [("t", 0, offset) for offset in range(100, 110)]


def test_topics_under_the_name_of_files_of_which_nothing_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run found an empty folder; then the spec was given its topics."""
    bench = Bench(tmp_path, monkeypatch)
    spec = bench.project.paths(NAME).spec
    topics = spec.read_text()
    (tmp_path / "inbox").mkdir()
    spec.write_text(topics.partition("  s: ")[0] + "  s: {type: files, path: inbox, format: text}\n")
    assert bench.run() == "nothing_new"
    paths = bench.project.paths(NAME)
    if read_birth(paths) is None:
        write_birth(paths, new_birth(paths, load_pipeline(bench.project, NAME), {"s": {}}, {}))
    spec.write_text(topics)
    assert bench.run() == "published"
    assert len(bench.spark.staged) == 200


def test_a_look_ahead_at_another_kind_of_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan` and `status` say what a run would refuse with; they ended in a KeyError."""
    bench = Bench(tmp_path, monkeypatch)
    assert bench.run() == "published"
    spec = bench.project.paths(NAME).spec
    topics = spec.read_text()
    (tmp_path / "inbox").mkdir()
    spec.write_text(topics.partition("  s: ")[0] + "  s: {type: files, path: inbox, format: text}\n")
    plan = plan_pipeline(bench.project, NAME)
    assert [error["code"] for error in plan["errors"]] == ["SPEC_CHANGED"] and plan["sources"] == {}
    assert plan["sources_unknown"] == plan["errors"][0]
    assert plan["summary"] == "the next run would refuse"
