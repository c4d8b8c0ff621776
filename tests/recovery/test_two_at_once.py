"""Two runs of one pipeline at the same moment: one works, the other says who holds the lease, and nothing is lost."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tests.recovery.two_runs import end, run_two
from tests.support.project import in_session
from tests.support.scene import NAME, Snapshot
from tidegate.runs.steps import ingest_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_two_runs(published: Snapshot, spark: SparkSession) -> None:
    scene = published.restore()
    for _ in range(3):
        scene.offer()
    run_two(scene, spark)


def test_one_run_id_twice(published: Snapshot, spark: SparkSession) -> None:
    """A scheduler that starts the same run twice."""
    scene = published.restore()
    scene.offer()
    processes = [scene.start("run", NAME, "--run-id", "same", "--json") for _ in range(2)]
    codes = [end(process)[0] for process in processes]
    assert sorted(codes) == [0, 75]
    again = scene.report("run", NAME, "--run-id", "same")
    assert again["outcome"] == "published" and again["rows"]["published"] == 6
    scene.check_complete(spark)


def test_eight_idle_runs(published: Snapshot) -> None:
    """Short ones, so that taking and giving back the lease meet: each is done or refused, none fails otherwise."""
    scene = published.restore()
    ended = [end(process) for process in [scene.start("run", NAME) for _ in range(8)]]
    assert {code for code, _ in ended} <= {0, 75}, ended
    assert any(code == 0 for code, _ in ended)
    assert all("LEASE_HELD" in err for code, err in ended if code == 75), ended
    scene.check_complete()


def test_scheduled_steps_against_a_run_and_what_people_do(published: Snapshot, spark: SparkSession) -> None:
    """Between its tasks a scheduled run keeps the lease, for itself alone: runs, repair and decisions wait too."""
    scene = published.restore()
    for _ in range(3):
        scene.offer()
    ingest_run(scene.project, NAME, "scheduled", submit=in_session(spark))
    code, err = end(scene.start("run", NAME, "--run-id", "by-hand"))
    assert code == 75 and "LEASE_HELD" in err
    assert re.search(r"waiting for the next step of run scheduled \(tidegate ingest, pid \d+@.+\) since 20", err), err
    for command in (
        ("publish", NAME, "--run-id", "by-hand"),
        ("repair", NAME),
        ("release", NAME, "scheduled-2", "--reason", "because"),
        ("discard", NAME, "scheduled-2", "--reason", "because"),
    ):
        error = json.loads(scene.call(*command, "--json", expect=75))["error"]
        assert error["code"] == "LEASE_HELD", f"{command}: {error}"
    scene.check_readers_now()
    scene.tidegate("audit", NAME, "--run-id", "scheduled")
    code, err = end(scene.start("run", NAME, "--run-id", "by-hand"))
    assert code == 75 and "LEASE_HELD" in err
    scene.call("publish", NAME, "--run-id", "scheduled")
    scene.check_complete(spark)
    assert scene.run("by-hand", submit=in_session(spark))["outcome"] == "nothing_new"
    assert json.loads(scene.call("publish", NAME, "--run-id", "scheduled", "--json"))["outcome"] == "published"
