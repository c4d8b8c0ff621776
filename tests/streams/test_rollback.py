"""A table that goes back to an earlier version, and checkpoints that start anew, with Spark itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import in_session
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import UsageError
from tidegate.rework.backfill.command import backfill_table
from tidegate.rework.backfill.span import Wanted
from tidegate.runs.restart.recorded import Then
from tidegate.runs.restart.repair import reset_pipeline
from tidegate.runs.rollback import roll_back

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING, at TIMESTAMP, n INT"
SPEC = "table: {partition_by: [day]}\nsources:\n" + source("events", SCHEMA)
WRONG = "def transform(events):\n    return events.withColumn('day', F.to_date('at'))\n"
RIGHT = (
    "def transform(events):\n    return events.withColumn('day', F.to_date('at')).withColumn('n', F.col('n') * 10)\n"
)
COUNTS = (
    "def transform(events):\n"
    "    out = events.groupBy(F.window('at', '10 minutes')).agg(F.count('*').alias('count'))\n"
    "    return out.select('window.start', 'count')\n"
)


def event(name: str, n: int, minute: int = 0) -> dict[str, Any]:
    return {"id": name, "at": f"2026-01-01T12:{minute:02d}:00Z", "n": n}


def change(flow: Streaming, transform: str) -> None:
    flow.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{transform}")


def back(flow: Streaming, version: int, then: Then, run_id: str = "back") -> dict[str, Any]:
    return dict(roll_back(flow.project, flow.name, version, then, run_id))


def test_read_again_with_the_corrected_transform(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, SPEC, WRONG)
    flow.offer("events", event("a", 1))
    good = flow.run()["table"]["version"]
    for name, n in (("b", 2), ("c", 3)):
        flow.offer("events", event(name, n), {"id": f"not {name}", "at": "no time", "n": 1})
        flow.run()
    flow.expect("id n", [("a", 1), ("b", 2), ("c", 3)])
    change(flow, RIGHT)
    report = back(flow, good, "reread")
    assert report["outcome"] == "published" and report["table"]["rows_removed"] == 2
    flow.expect("id n", [("a", 1)])
    flow.offer("events", event("d", 4))
    again = flow.run()
    assert (again["rows"]["read"], again["rows"]["malformed"]) == (5, 2)
    flow.expect("id n", [("a", 1), ("b", 20), ("c", 30), ("d", 40)])
    assert len(flow.quarantined()["malformed"]) == 2, "each once"
    assert flow.run()["outcome"] == "nothing_new"


def test_what_is_left_out_no_backfill_brings_back(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, SPEC, WRONG)
    flow.offer("events", event("a", 1))
    good = flow.run()["table"]["version"]
    flow.offer("events", event("b", 2))
    flow.run()
    report = back(flow, good, "leave-out")
    assert (report["table"]["left_out"]["records"], report["table"]["left_out"]["rows"]) == (1, 1)
    flow.offer("events", event("c", 3))
    assert flow.run()["rows"]["read"] == 1
    flow.expect("id n", [("a", 1), ("c", 3)])
    change(flow, RIGHT)
    wanted = Wanted("2026-01-01", "2026-01-01")
    backfill_table(flow.project, flow.name, "again", wanted, submit=in_session(flow.spark))
    flow.expect("id n", [("a", 10), ("c", 30)])


@pytest.mark.parametrize("mode", ["append", "complete"])
def test_a_query_with_state(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """It has counted what came in between: that is left out where rows are only added, and never read twice."""
    watermark = {"event_time": "at", "watermark": "0 seconds"} if mode == "append" else {}
    spec = f"output_mode: {mode}\nsources:\n" + source("events", SCHEMA, **watermark)
    flow = make_streaming(tmp_path, spark, spec, COUNTS)
    for minute in (0, 20, 40):
        flow.offer("events", event("a", 1, minute), event("b", 1, minute))
        flow.run()
    version = 1 if mode == "append" else 0
    before = flow.rows("count")
    with pytest.raises(UsageError) as refused:
        back(flow, version, "reread", "one")
    assert refused.value.code == "STATE_NEEDED"
    if mode == "append":
        back(flow, version, "leave-out", "two")
        assert len(flow.rows("count")) == len(before) - 1
    else:
        with pytest.raises(UsageError) as refused:
            back(flow, version, "leave-out", "two")
        assert refused.value.code == "STATE_NEEDED"
    with pytest.raises(UsageError, match="the query keeps state") as refused:
        reset_pipeline(flow.project, flow.name, from_beginning=False, dry_run=True, confirm=None)
    assert refused.value.code == "STATE_NEEDED"
    done = reset_pipeline(flow.project, flow.name, from_beginning=True, dry_run=False, confirm=flow.name)
    assert done["code"] == "REBUILD"
    flow.run()
    assert sorted(flow.rows("count")) == sorted(before)
