"""The state in a bucket of a real S3 server: real Spark queries that move from machine to machine between runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest

from tests.streams.windows import SCHEMA, TIMED, TUMBLING, at, row
from tests.support.object_servers import Bucket
from tests.support.readers import read_with_deltalake
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.storage.mirror import mirror_of
from tidegate.spark.driver.jvm_archive import SWITCH
from tools.object_servers import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Move = Callable[[str], None]


@pytest.fixture
def move_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Move:
    """Continue on the machine of this name, in a new process."""

    monkeypatch.setenv(SWITCH, "off")  # each machine would build its class archive first

    def move(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "machines" / name))
        mirror_of.cache_clear()

    return move


def make(root: Path, spark: SparkSession, bucket: Bucket, spec: str, transform: str | None = None) -> Streaming:
    flow = make_streaming(root / "project", spark, spec, transform)
    with (flow.root / "tidegate.yaml").open("a") as settings:
        settings.write(f"state: {bucket.url}/state\n")
    return flow


def test_a_query_without_state(spark: SparkSession, tmp_path: Path, s3_bucket: Bucket, move_to: Move) -> None:
    """It continues: machines that take turns need no new query each time."""
    flow = make(tmp_path, spark, s3_bucket, "sources:\n" + source("trades", "id STRING, n INT"))
    for number, machine in enumerate("aba"):
        move_to(machine)
        flow.offer("trades", {"id": f"{number}", "n": number}, {"id": f"{number} not an INT", "n": "x"})
        report = flow.run()
        assert (report["outcome"], report["rows"]["published"], report["notes"]) == ("published", 1, [])
    flow.expect("id n", [(f"{number}", number) for number in range(3)])
    assert len(flow.aside("malformed")) == 3
    queries = {path.name for path in flow.project.paths("flow").queries.glob("*")}
    assert queries == set(), "each run has continued the first query"
    move_to("d")
    assert flow.run()["outcome"] == "nothing_new"


def test_windows_that_are_open(spark: SparkSession, tmp_path: Path, s3_bucket: Bucket, move_to: Move) -> None:
    flow = make(tmp_path, spark, s3_bucket, "sources:\n" + source("trades", SCHEMA, **TIMED), TUMBLING)
    move_to("a")
    flow.offer("trades", row("a", "10:01"), row("b", "10:09"), row("c", "10:11"))
    flow.run()
    move_to("b")
    flow.offer("trades", row("d", "10:02"), row("e", "10:31"))
    flow.run()
    flow.expect("start end count sum", [(at("10:00"), at("10:10"), 3, 3)])
    move_to("a")
    flow.offer("trades", row("f", "11:00"))
    flow.run()
    flow.expect("start count", [(at("10:00"), 3), (at("10:10"), 1), (at("10:30"), 1)])
    move_to("c")
    assert flow.run()["outcome"] == "nothing_new"


def test_requests_of_an_idle_run(spark: SparkSession, tmp_path: Path, s3_bucket: Bucket, move_to: Move) -> None:
    flow = make(tmp_path, spark, s3_bucket, "sources:\n" + source("trades", "id STRING, n INT"))
    move_to("a")
    flow.offer("trades", {"id": "1", "n": 1})
    flow.run()
    flow.run()
    requests = s3_bucket.server.count_requests(s3_bucket.name)  # type: ignore[union-attr]
    assert flow.run()["outcome"] == "nothing_new"
    assert sum(requests.counts().values()) <= 9, "with those of a source and a table an idle tick has twelve"
    blobs = [one for page in obstore.list(s3_bucket.client, "state/flow/blobs") for one in page]
    assert blobs == [], "what was staged is gone when it is published"


def test_a_large_file_is_uploaded_once(spark: SparkSession, tmp_path: Path, s3_bucket: Bucket, move_to: Move) -> None:
    """As an object of the state; the publish copies that one within the store."""
    spec = "sources:\n" + source("trades", "id STRING, n INT")
    flow = make(tmp_path, spark, s3_bucket, spec)
    with (flow.root / "tidegate.yaml").open("a") as settings:
        settings.write(f"warehouse: {s3_bucket.url}/tables\n")
    assert isinstance(s3_bucket.server, S3Server)
    move_to("a")
    asked = list[Counter[str]]()
    for characters in (10, 10, 3_000_000):  # the first run is another one
        text = "".join(f"{number:x}" for number in random.Random(1).choices(range(16), k=characters))
        flow.offer("trades", {"id": text, "n": 1})
        requests = s3_bucket.server.count_requests(s3_bucket.name)
        assert flow.run()["rows"]["published"] == 1
        asked.append(requests.counts())
    small, large = asked[1:]
    assert (small["CopyObject"], large["CopyObject"]) == (1, 2)
    assert small["PutObject"] == large["PutObject"], "the object of the state instead of the one of the table"
    rows = read_with_deltalake(flow.project.paths("flow").table)
    assert [len(row["id"]) for row in rows].count(3_000_000) == 1 and len(rows) == 3
