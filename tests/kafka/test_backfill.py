"""Days rebuilt from topics: exactly the offsets that runs have taken, and what retention has taken is named."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import in_session
from tests.support.streaming import Streaming, make_streaming
from tidegate.core.errors import SourceLostError
from tidegate.rework.backfill.command import backfill_table, preview_backfill, refresh_table
from tidegate.rework.backfill.span import Wanted
from tidegate.runs.restart.repair import repair_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.topics import Topics

TRANSFORM = (
    "def transform(events):\n    return events.withColumn('day', F.to_date('at')).withColumn('n', F.col('n') * {})\n"
)


def record(name: str, day: int, n: int = 1) -> str:
    return json.dumps({"id": name, "at": f"2026-01-{day:02d}T08:00:00Z", "n": n})


def make(topics: Topics, spark: SparkSession, root: Path, topic: str, **more: Any) -> Streaming:
    schema = "id STRING, at TIMESTAMP, n INT"
    kafka = json.dumps({"type": "kafka", "topics": [topic], "format": "json", "schema": schema, **more})
    flow = make_streaming(root, spark, f"table: {{partition_by: [day]}}\nsources:\n  events: {kafka}\n", "pass\n")
    flow.write(
        "tidegate.yaml",
        f'version: 1\nspark: {{master: "local[2]"}}\nkafka: {{bootstrap_servers: "{topics.address}"}}\n',
    )
    change(flow, 1)
    return flow


def change(flow: Streaming, factor: int) -> None:
    flow.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{TRANSFORM.format(factor)}")


def backfill(flow: Streaming, first: int, last: int, run_id: str) -> dict[str, Any]:
    wanted = Wanted(f"2026-01-{first:02d}", f"2026-01-{last:02d}")
    return dict(backfill_table(flow.project, flow.name, run_id, wanted, submit=in_session(flow.spark)))


def test_the_offsets_that_runs_have_taken(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create(partitions=2)
    flow = make(topics, spark, tmp_path, topic)
    topics.send(topic, [record("a", 1), record("b", 1), "broken"], partition=0)
    topics.send(topic, [record("c", 1)], partition=1)
    flow.run()
    topics.send(topic, [record("d", 2), record("late", 1)], partition=0)
    flow.run()
    topics.send(topic, [record("e", 3)], partition=1)
    flow.run()
    topics.send(topic, [record("waits", 1)], partition=1)  # the next run's
    looked = preview_backfill(flow.project, "flow", Wanted("2026-01-01", "2026-01-01"))
    assert looked["intervals"][0]["offsets"] == 6 and looked["intervals"][0]["stays_in_quarantine"] == 1
    change(flow, 10)
    report = backfill(flow, 1, 1, "first")
    assert (report["rows"]["read"], report["rows"]["malformed"], report["rows"]["published"]) == (5, 0, 4)
    flow.expect("id n", [("a", 10), ("b", 10), ("c", 10), ("late", 10), ("d", 1), ("e", 1)])
    assert len(flow.quarantined()["malformed"]) == 1
    change(flow, 1)
    flow.run()
    flow.expect("id n", [("a", 10), ("b", 10), ("c", 10), ("late", 10), ("d", 1), ("e", 1), ("waits", 1)])
    change(flow, 3)
    backfill(flow, 1, 3, "all")
    flow.expect("id n", [(one, 3) for one in ("a", "b", "c", "late", "d", "e", "waits")])


WINDOWS = (
    "def transform(events):\n    windows = events.where('n >= {}').groupBy(F.window('at', '6 hours'))\n"
    "    out = windows.agg(F.sum('n').alias('n'))\n    return out.select('n', F.to_date('window.start').alias('day'))\n"
)


def test_windows_over_a_topic(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """The runs with records of the day are read as one batch, whatever a run's limit is, and not what came since."""
    topic = topics.create(partitions=2)
    more = {"event_time": "at", "watermark": "1 hour", "options": {"maxOffsetsPerTrigger": 2}}
    flow = make(topics, spark, tmp_path, topic, **more)
    flow.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{WINDOWS.format(0)}")
    topics.send(topic, [record("a", 1), record("b", 1, -2)], partition=0)
    topics.send(topic, [record("c", 1, 4)], partition=1)
    flow.run()
    topics.send(topic, [record("d", 2, 8), record("late", 1, 1000)], partition=0)
    flow.run()
    topics.send(topic, [record("e", 3, 16), record("late", 1, 1000)], partition=0)
    flow.run()
    topics.send(topic, [record("f", 4, 32)], partition=1)
    flow.run()
    late = len(flow.quarantined()["late"])
    assert late >= 1
    flow.expect("n day", [(5 + 1000 * (2 - late), date(2026, 1, 1)), (8, date(2026, 1, 2)), (16, date(2026, 1, 3))])
    topics.send(topic, [record("g", 5, 64)], partition=1)  # the next run's
    looked = preview_backfill(flow.project, "flow", Wanted("2026-01-01", "2026-01-01"))
    assert looked["intervals"][0]["offsets"] == 7 and looked["intervals"][0]["hindrance"] is None
    flow.write("jobs/flow/transform.py", f"from pyspark.sql import functions as F\n\n\n{WINDOWS.format(-9)}")
    backfill(flow, 1, 1, "first")
    first = (3 + 1000 * (2 - late), date(2026, 1, 1))
    flow.expect("n day", [first, (8, date(2026, 1, 2)), (16, date(2026, 1, 3))])
    flow.run()
    flow.expect("n day", [first, *((8 << day, date(2026, 1, day + 2)) for day in range(3))])


def test_partitions_without_a_record_and_new_ones(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create(partitions=3)
    flow = make(topics, spark, tmp_path, topic)
    topics.send(topic, [record("a", 1)], partition=1)
    flow.run()
    topics.grow(topic, 5)
    topics.send(topic, [record("unseen", 1)], partition=4)
    change(flow, 10)
    assert backfill(flow, 1, 1, "first")["rows"]["published"] == 1
    flow.expect("id n", [("a", 10)])
    flow.run()
    flow.expect("id n", [("a", 10), ("unseen", 10)])


def test_what_retention_has_taken(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic = topics.create(partitions=1)
    flow = make(topics, spark, tmp_path, topic)
    topics.send(topic, [record("a", 1), record("b", 1)])
    flow.run()
    topics.send(topic, [record("c", 2)])
    flow.run()
    topics.cut(topic, 0, before=1)
    change(flow, 10)
    with pytest.raises(SourceLostError) as gone:
        backfill(flow, 1, 2, "both")
    assert gone.value.code == "BACKFILL_GONE" and "day=2026-01-02" in str(gone.value.fix)
    lost = f"topic {topic} partition 0 offsets 0 to 0 (1): taken by retention"
    assert str(gone.value.message).endswith(f"no longer exist: source events: {lost}")
    rebuilt = repair_pipeline(flow.project, flow.name, dry_run=True, rebuild=True)
    assert rebuilt["next_run"][-1] == f"does not find again: source events: {lost}"
    flow.expect("id n", [("a", 1), ("b", 1), ("c", 1)])
    assert backfill(flow, 2, 2, "possible")["rows"]["published"] == 1
    flow.expect("id n", [("a", 1), ("b", 1), ("c", 10)])
    topics.send(topic, [record("never read", 2), record("d", 2)])
    topics.cut(topic, 0, before=4)
    with pytest.raises(SourceLostError) as more:
        backfill(flow, 2, 2, "nothing")
    assert "partition 0 offsets 2 to 2 (1): taken by retention" in more.value.message, "what was never read is not lost"


def test_a_refresh_keeps_what_retention_has_taken(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """The first run's records are gone in part, and the whole of it stays; the second partition is there from the
    beginning."""
    topic = topics.create(partitions=2)
    flow = make(topics, spark, tmp_path, topic)
    topics.send(topic, [record("a", 1), record("b", 1), "broken"], partition=0)
    topics.send(topic, [record("c", 1)], partition=1)
    flow.run()
    topics.send(topic, [record("d", 2), record("e", 1), "broken too"], partition=0)
    flow.run()
    topics.send(topic, [record("f", 3)], partition=1)
    flow.run()
    topics.send(topic, [record("waits", 1)], partition=1)  # the next run's
    topics.cut(topic, 0, before=1)
    change(flow, 10)

    def refresh(run_id: str, *, keeps_older: bool) -> dict[str, Any]:
        submit = in_session(flow.spark)
        return dict(refresh_table(flow.project, flow.name, run_id, keeps_older=keeps_older, submit=submit))

    with pytest.raises(SourceLostError) as gone:
        refresh("plain", keeps_older=False)
    assert gone.value.code == "BACKFILL_GONE" and "--keep-older" in str(gone.value.fix)
    looked = preview_backfill(flow.project, "flow", None, keeps_older=True)
    older = looked["intervals"][0]["older"]
    assert older is not None and (older["rows"], older["partitions"]) == (3, ["day=2026-01-01"])
    report = refresh("fresh", keeps_older=True)
    assert (report["rows"]["read"], report["rows"]["malformed"], report["rows"]["published"]) == (4, 1, 3)
    flow.expect("id n", [("a", 1), ("b", 1), ("c", 1), ("d", 10), ("e", 10), ("f", 10)])
    assert sorted(map(str, flow.quarantined()["malformed"])) == ["broken", "broken too"]
    flow.run()
    change(flow, 3)
    topics.cut(topic, 0, before=4)  # within what was rebuilt: all of that stays by now
    assert refresh("again", keeps_older=True)["rows"]["read"] == 1
    flow.expect("id n", [("a", 1), ("b", 1), ("c", 1), ("d", 10), ("e", 10), ("f", 10), ("waits", 3)])
    assert len(flow.quarantined()["malformed"]) == 2
