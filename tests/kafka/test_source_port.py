"""One suite for every kind of source: what the port promises, with real files, a real broker and a real socket.

A kind is a line of ``STREAMS`` or ``STATICS``; a new one has to pass all of this.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import in_session
from tests.support.streaming import Streaming, make_streaming
from tests.support.topics import Topics
from tidegate.runs.preflight.gather import gather_facts
from tidegate.sources import registry
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.port import SoFar
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.model import models_by_type
from tidegate.spec.models import SourceSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.state.birth import as_read
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import project_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Kind:
    """A source of one kind with a column ``value``, and what it was given."""

    def __init__(self, topics: Topics, root: Path) -> None:
        self.topics, self.root, self.given = topics, root, 0
        self.begin()

    def begin(self) -> None:
        """Make the source, empty."""

    def spec(self) -> dict[str, Any]:
        """Its keys in a spec."""
        raise NotImplementedError

    def put(self, count: int) -> None:
        """Give it so many more values: "0", "1", ..."""
        values = [str(number) for number in range(self.given, self.given + count)]
        self.given += count
        self.send(values)

    def send(self, values: list[str]) -> None:
        """Give it these values."""
        raise NotImplementedError

    def expected(self, flow: Streaming) -> Counter[str]:
        """The values that the table has to hold."""
        return Counter(str(number) for number in range(self.given))

    def end(self) -> None:
        """Take the source away."""


class Files(Kind):
    """A file of lines for each time."""

    def spec(self) -> dict[str, Any]:
        return {"type": "files", "path": "data/in", "format": "text"}

    def begin(self) -> None:
        (self.root / "data/in").mkdir(parents=True)

    def send(self, values: list[str]) -> None:
        hidden = self.root / "data/in" / f".{self.given}"
        hidden.write_text("".join(f"{value}\n" for value in values))
        hidden.rename(hidden.with_name(f"{self.given}.txt"))


class Kafka(Kind):
    """A topic with two partitions."""

    def begin(self) -> None:
        self.topic = self.topics.create(partitions=2)

    def spec(self) -> dict[str, Any]:
        return {"type": "kafka", "topics": [self.topic], "format": "text"}

    def send(self, values: list[str]) -> None:
        for partition in (0, 1):
            self.topics.send(self.topic, values[partition::2], partition=partition)


class Socket(Kind):
    """A peer that sends to whoever connects what it was given since, and closes the connection."""

    def begin(self) -> None:
        self.waiting: list[str] = []
        self.server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            with closing(peer):
                told, self.waiting = self.waiting, []
                peer.sendall("".join(f"{line}\n" for line in told).encode())

    def spec(self) -> dict[str, Any]:
        return {"type": "socket", "options": {"host": "127.0.0.1", "port": self.server.getsockname()[1]}}

    def send(self, values: list[str]) -> None:
        self.waiting += values

    def end(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


class Rate(Kind):
    """Rows that come with time: as many as the table has, each number once."""

    def spec(self) -> dict[str, Any]:
        return {"type": "rate", "options": {"rowsPerSecond": 5}}

    def send(self, values: list[str]) -> None:
        time.sleep(1)

    def expected(self, flow: Streaming) -> Counter[str]:
        return Counter(str(number) for number in range(len(flow.rows("value"))))


STREAMS: list[type[Kind]] = [Files, Kafka, Socket, Rate]
STATICS: list[type[Kind]] = [Files, Kafka]


@pytest.fixture
def make(
    spark: SparkSession, topics: Topics, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., tuple[Kind, Streaming]]]:
    """A kind of source in a project whose pipeline ``flow`` reads it; it is taken away at the end."""
    made: list[Kind] = []

    def begin(kind: type[Kind], rest: str = "", transform: str | None = None, **more: Any) -> tuple[Kind, Streaming]:
        one = kind(topics, tmp_path)
        made.append(one)
        spec = f"sources:\n  feed: {json.dumps({**one.spec(), **more})}\n{rest}"
        flow = make_streaming(tmp_path, spark, spec, transform)
        kafka = f"kafka: {{bootstrap_servers: '{topics.address}'}}\n"
        (tmp_path / "tidegate.yaml").write_text((tmp_path / "tidegate.yaml").read_text() + kafka)
        return one, flow

    yield begin
    for one in made:
        one.end()


def found(flow: Streaming) -> Counter[str]:
    """The values in the table."""
    return Counter(str(value) for (value,) in flow.rows("value"))


def test_every_type_of_source_has_a_line_here() -> None:
    assert {kind.__name__.lower() for kind in STREAMS} == set(models_by_type(SourceSpec))


@pytest.mark.parametrize("kind", STREAMS)
def test_each_record_once_and_nothing_is_left(kind: type[Kind], make: Callable[..., tuple[Kind, Streaming]]) -> None:
    source, flow = make(kind)
    for count in (3, 4):
        source.put(count)
        report = flow.run()
        assert report["rows"]["read"] == report["rows"]["published"] > 0
        assert found(flow) == source.expected(flow)
    assert list((flow.state / "intake/feed").glob("*")) == []
    assert list((flow.state / "spool/feed").glob("*.json")) == []


@pytest.mark.parametrize("kind", [kind for kind in STREAMS if kind is not Rate])
def test_nothing_new_is_said_without_spark(kind: type[Kind], make: Callable[..., tuple[Kind, Streaming]]) -> None:
    source, flow = make(kind)
    source.put(3)
    flow.run()

    def submit(plan: SubmitPlan) -> int:
        raise AssertionError("nothing is new")

    from tidegate.runs.steps import run_pipeline

    assert run_pipeline(flow.project, "flow", "idle", submit=submit)["rows"]["read"] == 0
    (row,) = project_status(flow.project, "flow")
    assert not row["errors"] and row["pending"] is False


@pytest.mark.parametrize("kind", STREAMS)
def test_a_look_ahead_says_what_comes_and_takes_nothing(
    kind: type[Kind], make: Callable[..., tuple[Kind, Streaming]]
) -> None:
    source, flow = make(kind)
    source.put(3)
    first, second = plan_pipeline(flow.project, "flow"), plan_pipeline(flow.project, "flow")
    assert first == second and not first["errors"]
    listens = kind in (Socket, Rate)
    assert first["has_new"] != listens
    assert any("receives" in note for note in first["notes"]) == listens
    flow.run()
    assert found(flow) == source.expected(flow)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("at", ["before", "after"])
def test_a_run_that_is_killed_is_finished_by_the_next(
    kind: type[Kind], at: str, make: Callable[..., tuple[Kind, Streaming]]
) -> None:
    """Before Spark has begun, when the source was looked at; after it has staged all."""
    from tidegate.runs.steps import run_pipeline

    source, flow = make(kind)
    source.put(3)
    flow.run()
    source.put(3)

    class Killed(BaseException):
        pass

    def submit(plan: SubmitPlan) -> int:
        if at == "after":
            in_session(flow.spark)(plan)
        raise Killed

    with pytest.raises(Killed):
        run_pipeline(flow.project, "flow", "killed", submit=submit)
    flow.run()
    source.put(2)
    flow.run()
    assert found(flow) == source.expected(flow) and len(found(flow)) >= source.given


@pytest.mark.parametrize("kind", STREAMS)
def test_what_a_batch_takes_is_what_it_staged(kind: type[Kind], make: Callable[..., tuple[Kind, Streaming]]) -> None:
    """By the checkpoint, as a second look at the batch reads it."""
    from tidegate.runs.steps import run_pipeline
    from tidegate.spark.reading.frames import Frames

    source, flow = make(kind)
    source.put(5)
    taken: list[Counter[str]] = []

    def submit(plan: SubmitPlan) -> int:
        code = in_session(flow.spark)(plan)
        project = flow.project
        paths = project.paths("flow").pinned()
        spec = as_read(load_pipeline(project, "flow"), paths)
        facts = gather_facts(paths, spec)
        assert facts.birth is not None
        stream = registry.open_sources(project, paths, spec)["feed"]
        frames = Frames(flow.spark, project, paths, "feed", spec.sources["feed"])
        ranges = stream.range_of(0)
        taken.append(Counter(str(row["value"]) for row in frames.taken(ranges).collect()))
        assert frames.empty().columns == frames.taken(ranges).columns == frames.empty_stream().columns
        return code

    run_pipeline(flow.project, "flow", "looked", submit=submit)
    assert taken == [found(flow)] and taken[0]


@pytest.mark.parametrize("kind", STREAMS)
def test_a_look_counts_what_waits_and_finds_no_loss(
    kind: type[Kind], make: Callable[..., tuple[Kind, Streaming]]
) -> None:
    source, flow = make(kind)
    source.put(4)
    project = flow.project
    paths = project.paths("flow").pinned()
    spec = as_read(load_pipeline(project, "flow"), paths)
    facts = gather_facts(paths, spec)
    so_far = SoFar(None, facts.checkpoint, facts.in_flight)
    with open_ledger(paths, create=True) as ledger:
        stream = registry.open_sources(project, paths, spec, registry.Connections(ledger=ledger))["feed"]
        if stream.listens:
            assert stream.receive()
        arrival = stream.look(so_far)
    assert arrival.has_new and arrival.bytes > 0 and arrival.find_loss() is None
    assert (arrival.files, arrival.offsets) == ((0, 4) if kind is Kafka else (1, 0))
    assert bool(arrival.start) == bool(arrival.next_start) == stream.keeps_start
    assert json.loads(json.dumps(arrival.summary)) == arrival.summary
    if stream.keeps_start:
        assert stream.find_gone(arrival.start) == []
        assert arrival.start == stream.resolve_start()


@pytest.mark.parametrize("kind", STREAMS)
def test_its_identity_is_json_and_stays(kind: type[Kind], make: Callable[..., tuple[Kind, Streaming]]) -> None:
    source, flow = make(kind)
    spec = load_pipeline(flow.project, "flow")
    identity = spec.sources["feed"].identity()
    assert identity["type"] == source.spec()["type"] and json.loads(json.dumps(identity)) == identity
    assert as_read(spec, flow.project.paths("flow")).sources["feed"].identity() == identity


@pytest.mark.parametrize("kind", STREAMS)
def test_a_sample_is_read_by_the_keys_that_it_gives(
    kind: type[Kind], make: Callable[..., tuple[Kind, Streaming]], tmp_path: Path
) -> None:
    source, flow = make(kind)
    source.put(4)
    project = flow.project
    paths = project.paths("flow")
    stream = registry.open_sources(project, paths, as_read(load_pipeline(project, "flow"), paths))["feed"]
    keys, _ = stream.sample(tmp_path / "sampled", 2)
    feed = {**source.spec(), **keys}
    (tmp_path / "jobs/flow/pipeline.yaml").write_text(
        f"version: 1\nname: flow\nschedule: null\nsources:\n  feed: {json.dumps(feed)}\n"
    )
    flow.run()
    assert found(flow) and set(found(flow)) <= set(source.expected(flow))


_JOIN = """\
def transform(ticks, feed):
    return ticks.select(F.col('value').alias('tick')).crossJoin(feed.select('value'))
"""


@pytest.mark.parametrize("kind", STATICS)
def test_a_static_source_has_one_version_per_run(kind: type[Kind], make: Callable[..., tuple[Kind, Streaming]]) -> None:
    """The version of a run that was killed is read again, though the source has more by then."""
    from tidegate.runs.steps import run_pipeline

    ticks = "  ticks: {type: files, path: data/ticks, format: text}\n"
    source, flow = make(kind, rest=ticks, transform=_JOIN, static=True)
    tick = flow.write("data/ticks/1.txt", "a\n")
    source.put(2)

    class Killed(BaseException):
        pass

    def submit(plan: SubmitPlan) -> int:
        flow.spark.sparkContext.cancelAllJobs()
        raise Killed

    statics = registry.open_statics(flow.project, flow.project.paths("flow"), load_pipeline(flow.project, "flow"))
    version = statics["feed"].pin(None)
    assert statics["feed"].is_whole(version) and statics["feed"].pin(version) == version
    with pytest.raises(Killed):
        run_pipeline(flow.project, "flow", "killed", submit=submit)
    flow.run()
    assert Counter(flow.rows("tick", "value")) == Counter([("a", "0"), ("a", "1")])
    source.put(1)
    assert statics["feed"].pin(version) != version
    tick.with_name("2.txt").write_text("b\n")
    flow.run()
    assert Counter(flow.rows("tick", "value")) == Counter([("a", "0"), ("a", "1"), ("b", "0"), ("b", "1"), ("b", "2")])
