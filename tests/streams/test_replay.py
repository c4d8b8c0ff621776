"""Quarantined records put through again, in Spark: what they become is in the table, and in quarantine no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.project import in_session
from tests.support.readers import read_agreed
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.quarantine.filters import QuarantineFilter
from tidegate.quarantine.read import show_quarantine
from tidegate.replay.choose import Selection
from tidegate.replay.command import replay_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = "sources:\n" + source("events", "id INT, day DATE, n INT") + "table: {partition_by: [day]}\n"
POSITIVE = """name: flow
expectations:
  - {type: expect_column_values_to_be_between, kwargs: {column: n, min_value: 0}, severity: critical,
     meta: {rule: positive, on_failure: quarantine}}
"""


def event(id_: int, n: object = 1, day: str = "2026-01-01", **more: Any) -> dict[str, Any]:
    return {"id": id_, "day": day, "n": n, **more}


def replay(flow: Streaming, run_id: str = "again", edits: dict[str, str] | None = None, **wanted: Any) -> Any:
    selection = Selection(QuarantineFilter(**wanted), edits)
    return replay_records(flow.project, "flow", run_id, selection, submit=in_session(flow.spark))


def records(flow: Streaming) -> list[dict[str, Any]]:
    return [dict(one) for one in show_quarantine(flow.quarantine, None, 1000)]


def rewrite(flow: Streaming, schema: str) -> None:
    path = flow.root / "jobs/flow/pipeline.yaml"
    path.write_text(path.read_text().replace("n INT", schema))


def test_records_are_put_through_after_the_schema_was_corrected(tmp_path: Path, spark: SparkSession) -> None:
    flow = make_streaming(tmp_path, spark, EVENTS)
    flow.offer("events", event(1), event(2, 1 << 40), event(3, "x"))
    flow.offer("events", event(4, 1 << 41, "2026-01-02"))
    flow.run()
    assert len(records(flow)) == 3
    rewrite(flow, "n BIGINT")
    flow.write("jobs/flow/pipeline.yaml", (flow.root / "jobs/flow/pipeline.yaml").read_text())
    before = {one["position"]["line"]: one for one in records(flow) if "x" in one["raw"]}
    report = replay(flow)
    assert (report["mode"], report["outcome"], report["error"]) == ("replay", "published", None)
    rows = report["rows"]
    assert (rows["read"], rows["malformed"], rows["entered"], rows["published"]) == (3, 1, 2, 2)
    assert report["sources"] == {"events": {"rows": 3, "malformed": 1}}
    flow.expect("id n", [(1, 1), (2, 1 << 40), (4, 1 << 41)])
    [left] = records(flow)
    assert left["raw"] == json.dumps(event(3, "x")) and left["run_id"] == "again"
    assert left["position"] == before[3]["position"]
    assert read_agreed(flow.quarantine, spark)
    # A second one of the same: what is left breaks again, once; a retry says the same.
    assert replay(flow) == report
    second = replay(flow, "once more")
    assert (second["rows"]["published"], second["rows"]["malformed"]) == (0, 1)
    flow.expect("id n", [(1, 1), (2, 1 << 40), (4, 1 << 41)])
    assert len(records(flow)) == 1
    flow.offer("events", event(5))
    assert flow.run()["rows"]["published"] == 1
