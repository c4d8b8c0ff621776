"""What Kafka lost of a batch in flight: named whole before Spark starts, and accepted without losing anything else.
A source that the spec leaves out for a while continues where it was."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_kafka import NAME, FakeBroker, FakeSpark, make_project
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tidegate.core import storage
from tidegate.core.errors import DisagreementError, SourceLostError, TidegateError, TryAgainError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.steps import ingest_run, run_pipeline
from tidegate.sources.kafka import offsets
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.state.batch_files import BatchFiles
from tidegate.state.birth import new_birth, read_birth, replace_birth, write_birth
from tidegate.state.checkpoint import read_checkpoint
from tidegate.views.outlook import plan_pipeline


@dataclass
class Flow:
    """A Kafka pipeline on a topic of two partitions, of which 0..99 are published."""

    project: Project
    broker: FakeBroker
    spark: FakeSpark
    runs: int = 0

    @property
    def paths(self) -> PipelinePaths:
        return self.project.paths(NAME)

    def run(self, accept: str | None = None) -> dict[str, Any]:
        self.runs += 1
        return run_pipeline(self.project, NAME, f"r{self.runs}", submit=self.spark, accept_loss=accept)

    def plan_batch(self, *ends: int, until: str = "planned") -> None:
        """New records arrive, and a driver dies after it has planned them, or has staged them."""
        self.broker.end = {"t": dict(enumerate(ends))}
        self.spark.stops = until
        with pytest.raises(TryAgainError):
            self.run()
        self.spark.stops = ""

    def keep_state(self) -> None:
        """From now on the query keeps state."""
        self.spark.keeps_state = True
        birth = read_birth(self.paths)
        assert birth is not None
        replace_birth(self.paths, replace(birth, state=[{"operator": "Aggregate", "keys": [], "values": []}]))

    def refused(self, code: str, accept: str | None = None) -> TidegateError:
        """The error of a run that must not start Spark; plan and status tell the same."""
        starts = self.spark.starts
        with pytest.raises(TidegateError) as told:
            self.run(accept)
        assert (told.value.code, self.spark.starts) == (code, starts)
        errors = plan_pipeline(self.project, NAME)["errors"]
        assert (code, told.value.message) in [(error["code"], error["message"]) for error in errors], errors
        return told.value

    def check(self, lost: Callable[[int, int], bool]) -> None:
        """Every record that was offered is staged once, except those that are lost."""
        offered = {("t", n, at) for n, end in self.broker.end["t"].items() for at in range(end) if not lost(n, at)}
        assert self.spark.staged == dict.fromkeys(offered, 1)

    def rename(self, old: str, new: str) -> None:
        """Give the source another name."""
        self.paths.spec.write_text(self.paths.spec.read_text().replace(f"  {old}: ", f"  {new}: "))
        self.spark.source = new

    def read_files(self, name: str) -> str:
        """Let the spec read files, under the name of its source of topics; the spec as it was."""
        topics = self.paths.spec.read_text()
        (self.project.root / "inbox").mkdir()
        head = topics.partition(f"  {name}: ")[0]
        self.paths.spec.write_text(head + "  s: {type: files, path: inbox, format: text}\n")
        return topics

    def record(self) -> dict[str, Any]:
        *_, last = (self.paths.state / "accepted_losses.jsonl").read_text().splitlines()
        value: dict[str, Any] = json.loads(last)
        return value


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    broker = FakeBroker({"t": {0: 0, 1: 0}}, {"t": {0: 100, 1: 100}})
    monkeypatch.setattr(offsets, "Brokers", broker)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    flow = Flow(make_project(tmp_path), broker, FakeSpark(broker))
    assert flow.run()["outcome"] == "published"
    return flow


LOSSES = {
    "inside the batch": (300, 200),
    "the whole batch": (500, 400),
    "beyond the batch": (600, 500),
}


@pytest.mark.parametrize("case", LOSSES)
@pytest.mark.parametrize("with_state", [False, True], ids=["without state", "with state"])
def test_a_loss_in_the_batch_in_flight(flow: Flow, case: str, with_state: bool) -> None:
    begin, count = LOSSES[case]
    if with_state:
        flow.keep_state()
    flow.plan_batch(500, 500)
    flow.broker.begin["t"][0] = begin
    flow.broker.end["t"] = {0: 700, 1: 700}

    error = flow.refused("KAFKA_LOSS")
    assert isinstance(error, SourceLostError) and error.exit_code == 66
    assert f"topic t partition 0 offsets 100 to {begin - 1} ({count}): taken by retention" in error.message
    assert repair_pipeline(flow.project, NAME, dry_run=False)["found"] == "nothing disagrees"

    report = flow.run("retention was too short")
    assert report["outcome"] == "published" and report["rows"]["read"] == 1200 - count
    flow.check(lambda number, at: number == 0 and 100 <= at < begin)
    record = flow.record()
    assert record == report["accepted_loss"] and record["reason"] == "retention was too short"
    assert record["sources"]["s"]["lost_offsets"] == count
    assert record["planned_anew"]["batch_id"] == 1
    assert flow.run()["outcome"] == "nothing_new"


@pytest.mark.parametrize("with_state", [False, True], ids=["without state", "with state"])
def test_a_planned_range_whose_end_was_cut(flow: Flow, with_state: bool) -> None:
    """An unclean election: the partition ends before what was planned."""
    if with_state:
        flow.keep_state()
    flow.plan_batch(500, 500)
    flow.broker.end["t"][0] = 300
    assert "offsets 300 to 499 (200): the partition ends before" in flow.refused("KAFKA_LOSS").message
    flow.run("the broker was killed")
    flow.check(lambda number, at: False)


def test_the_first_batch_in_flight(flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Flow(make_project(tmp_path / "other"), flow.broker, FakeSpark(flow.broker))
    other.plan_batch(500, 500)
    other.keep_state()
    other.broker.begin["t"][1] = 50
    other.refused("KAFKA_LOSS")
    other.run("gone")
    other.check(lambda number, at: number == 1 and at < 50)


def test_a_staged_batch_is_not_read_again(flow: Flow) -> None:
    """It was read before retention took its records; only what comes after it is pending."""
    flow.plan_batch(500, 500, until="staged")
    flow.broker.begin["t"][0] = 600
    flow.broker.end["t"] = {0: 700, 1: 700}
    assert "offsets 500 to 599 (100)" in flow.refused("KAFKA_LOSS").message
    flow.run("gone")
    flow.check(lambda number, at: number == 0 and 500 <= at < 600)
    assert "planned_anew" not in flow.record()


def test_staged_without_its_state(flow: Flow) -> None:
    """Only Spark can finish such a batch, from records that are gone: a rebuild is the one way, and it works."""
    flow.keep_state()
    flow.plan_batch(500, 500, until="staged")
    flow.broker.begin["t"][0] = 300
    for accept in (None, "gone"):
        error = flow.refused("LOSS_IN_BATCH", accept)
        assert isinstance(error, DisagreementError) and "offsets 100 to 299 (200)" in error.message
        assert error.fix is not None and "--rebuild" in error.fix
    repair_pipeline(flow.project, NAME, dry_run=False, rebuild=True)
    flow.spark.staged.clear()
    assert "offsets 0 to 299 (300)" in flow.refused("KAFKA_LOSS").message
    assert flow.run("gone")["outcome"] == "published"
    flow.check(lambda number, at: number == 0 and at < 300)


def test_a_loss_behind_a_batch_without_its_state(flow: Flow) -> None:
    """The batch is finished first; then the loss behind it is accepted like any other."""
    flow.keep_state()
    flow.plan_batch(100, 500, until="staged")
    flow.broker.begin["t"][0] = 200
    flow.broker.end["t"] = {0: 300, 1: 500}
    flow.refused("KAFKA_LOSS")
    with pytest.raises(AssertionError):  # as Spark: it finishes the batch, and fails on the next one
        flow.run("gone")
    assert read_checkpoint(flow.paths.checkpoint).last_commit == 1
    flow.run("gone")
    flow.check(lambda number, at: number == 0 and 100 <= at < 200)


def test_lost_between_the_look_and_the_read(flow: Flow) -> None:
    """Spark fails on its own; the next run names it, and accepting works."""
    flow.broker.end = {"t": {0: 500, 1: 500}}
    flow.spark.before_read = lambda: flow.broker.begin["t"].update({0: 300})
    with pytest.raises(AssertionError):
        flow.run()
    flow.spark.before_read = lambda: None
    assert "offsets 100 to 299 (200)" in flow.refused("KAFKA_LOSS").message
    flow.run("gone")
    flow.check(lambda number, at: number == 0 and 100 <= at < 300)


def test_a_recreated_topic_with_a_batch_in_flight(flow: Flow) -> None:
    flow.plan_batch(500, 500)
    flow.broker.ids["t"] = "another"
    flow.broker.end = {"t": {0: 900, 1: 900}}
    assert "from offset 100 on: the topic was deleted and created again" in flow.refused("KAFKA_LOSS").message
    before = flow.spark.staged.copy()
    flow.run("created again")
    assert (flow.spark.staged - before).total() == 1800


GONE = {
    "created again": ({0: 0, 1: 0}, "partition 0 from offset 100 on: the topic was deleted and created again"),
    "a partition fewer": ({0: 100}, "partition 1 from offset 100 on: the partition is gone"),
    "deleted": (None, "partition 0 from offset 100 on: the topic was deleted"),
}


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("waiting", [False, True])
def test_where_nothing_was_waiting_no_loss_is_claimed(flow: Flow, how: str, waiting: bool) -> None:
    """What was read was all that was known of; of records that came since nobody knows."""
    if waiting:
        flow.plan_batch(500, 500)
    end, told = GONE[how]
    flow.broker.ids["t"] = "another" if how == "created again" else "id-t"
    flow.broker.end = {} if end is None else {"t": end}
    message = flow.refused("KAFKA_LOSS").message
    lost = "Kafka no longer has records that this pipeline has not read yet: "
    none = "every record that tidegate had seen was read, but records that arrived later may be lost: "
    assert message.startswith(lost if waiting else none) and told in message
    assert flow.run("known")["accepted_loss"]["sources"]["s"]["ranges"]


def test_what_the_new_topic_has_lost_already_is_known(flow: Flow) -> None:
    flow.broker.ids["t"] = "another"
    flow.broker.begin, flow.broker.end = {"t": {0: 20, 1: 0}}, {"t": {0: 30, 1: 0}}
    assert flow.refused("KAFKA_LOSS").message.startswith(
        "Kafka no longer has records that this pipeline has not read yet: "
    )


@pytest.mark.parametrize("reason", ["", "  \t", "..."])
def test_a_loss_is_accepted_with_a_reason(flow: Flow, reason: str) -> None:
    for act in (run_pipeline, ingest_run):
        with pytest.raises(UsageError) as told:
            act(flow.project, NAME, "r", submit=flow.spark, accept_loss=reason)
        assert (told.value.code, told.value.exit_code) == ("REASON_MISSING", 64)
    assert not flow.paths.report("r").exists()


def test_the_batch_turns_out_to_be_staged(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver that was believed dead stages it while the loss is accepted: nothing of it is lost, or read again."""
    from tidegate.runs.restart import new_query

    flow.plan_batch(500, 500)
    flow.broker.begin["t"][0] = 300
    replace_query = new_query.replace_query

    def wake_up(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(new_query, "replace_query", replace_query)
        flow.broker.begin["t"][0] = 0
        flow.spark.run_batch(flow.paths, "r2", {})
        flow.broker.begin["t"][0] = 300
        return replace_query(*arguments, **options)

    monkeypatch.setattr(new_query, "replace_query", wake_up)
    report = flow.run("gone")
    assert report["outcome"] == "published" and report["accepted_loss"] is None
    flow.check(lambda number, at: False)
    assert (flow.paths.state / "accepted_losses.jsonl").read_text() == ""


def test_the_planned_end_moves_with_the_start(flow: Flow) -> None:
    """Of a query with state the batches of the checkpoint are moved, each to what is there of it."""
    flow.keep_state()
    flow.plan_batch(500, 500)
    flow.broker.begin["t"][0] = 600
    flow.broker.end["t"] = {0: 700, 1: 700}
    flow.spark.stops = "planned"
    with pytest.raises(TryAgainError):
        flow.run("gone")
    moved = BatchFiles(flow.paths.checkpoint, "s").describe_batch(1)
    assert moved is not None and moved.begins == {("t", 0): 600, ("t", 1): 100}
    assert moved.ends == {("t", 0): 600, ("t", 1): 500}


def test_files_beside_kafka(flow: Flow, tmp_path: Path) -> None:
    """What the old query has staged of the files is not read again by the new one, and the loss is shown as well."""
    files = "  f: {type: files, path: data/inbox, format: csv, schema: value STRING}\ntransform: transform.sql\n"
    broker = FakeBroker({"t": {0: 0}}, {"t": {0: 100}})
    flow.broker.begin, flow.broker.end = broker.begin, broker.end
    mixed = Flow(make_project(tmp_path / "mixed", files), flow.broker, FakeSpark(flow.broker))
    (mixed.paths.job / "transform.sql").write_text("SELECT value FROM s UNION ALL SELECT value FROM f")
    inbox = mixed.project.root / "data/inbox"
    inbox.mkdir(parents=True)
    (inbox / "a.csv").write_text("a\n")
    mixed.run()
    (inbox / "b.csv").write_text("b\n")
    mixed.plan_batch(500, until="staged")
    (inbox / "c.csv").write_text("c\n")
    flow.broker.begin["t"][0], flow.broker.end["t"][0] = 600, 700
    mixed.refused("KAFKA_LOSS")
    report = mixed.run("gone")
    assert (report["outcome"], report["rows"]["read"]) == ("published", 400 + 1 + 100 + 1)
    mixed.check(lambda number, at: 500 <= at < 600)
    assert mixed.run()["outcome"] == "nothing_new"


def test_the_moved_end_is_known_for_good(flow: Flow) -> None:
    """All that was pending is lost, and nothing follows the last batch, which ends where the table's log has it."""
    flow.keep_state()
    flow.broker.begin["t"], flow.broker.end["t"] = {0: 600, 1: 100}, {0: 600, 1: 100}
    flow.refused("KAFKA_LOSS")
    for accept in ("gone", None, None):
        assert flow.run(accept)["outcome"] == "nothing_new"
    assert repair_pipeline(flow.project, NAME, dry_run=True)["found"] == "nothing disagrees"
    path = BatchFiles(flow.paths.checkpoint, "s").path(0)
    path.write_bytes(path.read_bytes().replace(b"600", b"601"))
    flow.refused("CHECKPOINT_TORN")


@pytest.mark.parametrize("with_state", [False, True], ids=["without state", "with state"])
@pytest.mark.parametrize("limit", [1000, 150], ids=["one batch", "several batches"])
def test_accepting_killed_anywhere(
    flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_state: bool, limit: int
) -> None:
    """The next run names the loss again, or goes on behind it; accepted again at the most, each record is read
    once, and the loss is on record."""
    from tidegate.runs import drain

    accept = drain.accept_losses
    if with_state:
        flow.keep_state()
    spec = flow.paths.spec
    spec.write_text(spec.read_text().replace("earliest}", f"earliest, options: {{maxOffsetsPerTrigger: {limit}}}}}"))
    flow.plan_batch(500, 500)
    flow.broker.begin["t"][0] = 300
    root, before = flow.project.root, tmp_path.with_name(f"{tmp_path.name}-before")
    shutil.copytree(root, before)
    for at in itertools.count(1, 3):
        shutil.rmtree(root)
        shutil.copytree(before, root)
        spark = replace(flow.spark, staged=flow.spark.staged.copy())
        one = Flow(load_project(root), flow.broker, spark, flow.runs)

        with monkeypatch.context() as patch:
            calls: list[StorageCalls] = []

            def accept_watched(*arguments: Any, patch: Any = patch, at: int = at, calls: Any = calls) -> bool:
                calls.append(StorageCalls(patch, at, kill) if not calls else calls[0])
                return accept(*arguments)

            patch.setattr(drain, "accept_losses", accept_watched)
            one.spark.before_read = lambda patch=patch: patch.undo()  # type: ignore[misc]
            with contextlib.suppress(KilledHere):
                one.run("gone")
                break
        one.spark.before_read = lambda: None
        storage.remove_tree(one.paths.lease)
        for reason in (None, "gone"):
            with contextlib.suppress(SourceLostError):
                one.run(reason)
        one.check(lambda number, at: number == 0 and 100 <= at < 300)
        assert one.record()["sources"]["s"]["lost_offsets"] == 200
    assert at > 5


def test_a_reason_that_is_no_unicode_is_put_on_record_as_far_as_it_is(flow: Flow) -> None:
    flow.broker.begin = {"t": {0: 150, 1: 150}}
    flow.broker.end = {"t": {0: 200, 1: 200}}
    flow.run(b"gepr\xfcft".decode("utf-8", "surrogateescape"))
    assert flow.record()["reason"] == "gepr?ft"
    flow.check(lambda _, at: 100 <= at < 150)


@pytest.mark.parametrize("between", ["nothing", "repair", "loss"])
def test_a_source_that_was_left_out_continues_where_it_was(flow: Flow, between: str) -> None:
    flow.rename("s", "moved")
    assert flow.run()["outcome"] == "published"
    if between == "repair":
        birth = flow.paths.pinned().birth
        birth.write_text(birth.read_text().replace("append", "complete"))
        repair_pipeline(flow.project, NAME, dry_run=False)
        assert flow.run()["outcome"] == "nothing_new"
    if between == "loss":
        flow.broker.begin, flow.broker.end = {"t": {0: 110, 1: 0}}, {"t": {0: 120, 1: 100}}
        assert flow.run("gone")["outcome"] == "published"
        flow.broker.begin = {"t": {0: 0, 1: 0}}
    flow.rename("moved", "s")
    flow.spark.staged.clear()
    flow.run()
    assert not [one for one in flow.spark.staged if one[2] < 100]


def test_files_under_the_name_of_topics_that_were_left_out_are_refused(flow: Flow) -> None:
    """The birth record keeps one place for a name; under another name both kinds have theirs."""
    flow.rename("s", "moved")
    assert flow.run()["outcome"] == "published"
    topics = flow.read_files("moved")
    with pytest.raises(DisagreementError, match=r"sources\.s\.type: was kafka, is files") as caught:
        flow.run()
    assert caught.value.code == "SPEC_CHANGED"
    flow.paths.spec.write_text(topics.replace("  moved: ", "  s: "))
    flow.spark.source = "s"
    flow.spark.staged.clear()
    flow.broker.end = {"t": {0: 110, 1: 100}}
    assert flow.run()["outcome"] == "published"
    assert sorted(flow.spark.staged) == [("t", 0, offset) for offset in range(100, 110)]


def test_topics_under_the_name_of_files_of_which_nothing_was_read(flow: Flow, tmp_path: Path) -> None:
    """The first run found an empty folder; then the spec was given its topics."""
    other = Flow(make_project(tmp_path / "other"), flow.broker, FakeSpark(flow.broker))
    topics = other.read_files("s")
    assert other.run()["outcome"] == "nothing_new"
    if read_birth(other.paths) is None:
        write_birth(other.paths, new_birth(other.paths, load_pipeline(other.project, NAME), {"s": {}}, {}))
    other.paths.spec.write_text(topics)
    assert other.run()["outcome"] == "published"
    assert len(other.spark.staged) == 200


def test_a_look_ahead_at_another_kind_of_source(flow: Flow) -> None:
    """`plan` and `status` say what a run would refuse with; they ended in a KeyError."""
    flow.read_files("s")
    plan = plan_pipeline(flow.project, NAME)
    assert [error["code"] for error in plan["errors"]] == ["SPEC_CHANGED"] and plan["sources"] == {}
    assert plan["sources_unknown"] == plan["errors"][0]
    assert plan["summary"] == "the next run would refuse"
