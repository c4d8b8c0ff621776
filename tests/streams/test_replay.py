"""Quarantined records put through again, in Spark: what they become is in the table, and in quarantine no more."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.project import in_session
from tests.support.readers import read_agreed
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import UsageError
from tidegate.rework.backfill.command import backfill_table
from tidegate.rework.backfill.span import Wanted
from tidegate.rework.replay.choose import Selection
from tidegate.rework.replay.command import preview_replay, replay_records
from tidegate.sources.readers import kafka_worker
from tidegate.sources.readers.kafka_records import Records
from tidegate.spark.reading.frames import form_of_records, parse_topic_texts, read_texts
from tidegate.spark.reading.parts import read_lines
from tidegate.spark.reading.sending import show_parts
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN
from tidegate.spec.models import KafkaSource
from tidegate.state.topics import FilePart
from tidegate.table.quarantine.filters import QuarantineFilter
from tidegate.table.quarantine.read import show_quarantine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = "sources:\n" + source("events", "id INT, day DATE, n INT") + "table: {partition_by: [day]}\n"
WIDENED = 'def transform(events):\n    return events.select("id", "day", F.col("n").cast("bigint").alias("n"))\n'
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


def backfill(flow: Streaming, day: str, run_id: str = "rebuilt") -> Any:
    return backfill_table(flow.project, "flow", run_id, Wanted(day, day), submit=in_session(flow.spark))


def records(flow: Streaming) -> list[dict[str, Any]]:
    return [dict(one) for one in show_quarantine(flow.quarantine, None, 1000)]


def rewrite(flow: Streaming, before: str, after: str) -> None:
    path = flow.root / "jobs/flow/pipeline.yaml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def test_records_are_put_through_after_the_schema_was_corrected(tmp_path: Path, spark: SparkSession) -> None:
    """And a backfill of a day that the replay gave rows to neither loses nor doubles one."""
    flow = make_streaming(tmp_path, spark, EVENTS, WIDENED)
    flow.offer("events", event(1), event(2, 1 << 40), event(3, "x"))
    flow.offer("events", event(4, 1 << 41, "2026-01-02"))
    flow.run()
    assert len(records(flow)) == 3
    rewrite(flow, "n INT", "n BIGINT")
    [before] = [one for one in records(flow) if "x" in one["raw"]]
    report = replay(flow)
    assert (report["mode"], report["outcome"], report["error"]) == ("replay", "published", None)
    rows = report["rows"]
    assert (rows["read"], rows["malformed"], rows["entered"], rows["published"]) == (3, 1, 2, 2)
    assert report["sources"] == {"events": {"rows": 3, "malformed": 1}}
    whole = [(1, 1), (2, 1 << 40), (4, 1 << 41)]
    flow.expect("id n", whole)
    [left] = records(flow)
    assert left["raw"] == json.dumps(event(3, "x")) and left["run_id"] == "again"
    assert left["position"] == before["position"]
    assert len(read_agreed(flow.quarantine, spark)) == 1
    # A retry says the same; of a second one what is left breaks again, once.
    assert replay(flow) == report
    second = replay(flow, "once more")
    assert (second["rows"]["published"], second["rows"]["malformed"]) == (0, 1)
    flow.expect("id n", whole)
    assert len(records(flow)) == 1
    for day in ("2026-01-02", "2026-01-01"):
        backfill(flow, day, f"rebuilt-{day}")
        flow.expect("id n", whole)
        assert [one["raw"] for one in records(flow)] == [left["raw"]]
    flow.offer("events", event(5))
    assert flow.run()["rows"]["published"] == 1
    flow.expect("id n", [*whole, (5, 1)])


def test_rows_that_break_a_rule_go_back_and_edited_ones_come_in(tmp_path: Path, spark: SparkSession) -> None:
    flow = make_streaming(tmp_path, spark, EVENTS)
    flow.write("expectations/flow.yaml", POSITIVE)
    flow.offer("events", event(1), event(2, -2), event(3, -3), event(4, "x"))
    flow.offer("events", event(5, day="2026-01-02"))
    flow.run()
    assert sorted(one["reason"] for one in records(flow)) == ["malformed", "positive", "positive"]
    flow.write("expectations/flow.yaml", POSITIVE.replace("min_value: 0", "min_value: -2"))
    report = replay(flow)
    rows = report["rows"]
    assert (rows["read"], rows["malformed"], rows["transformed"], rows["rejected"], rows["published"]) == (
        3,
        1,
        2,
        1,
        1,
    )
    flow.expect("id n", [(1, 1), (2, -2), (5, 1)])
    left = {json.loads(one["raw"])["id"]: one for one in records(flow)}
    assert left.keys() == {3, 4} and left[3]["reason"] == "positive" and left[3]["position"]["line"] == 3
    backfill(flow, "2026-01-01", "before edits")
    flow.expect("id n", [(1, 1), (2, -2), (5, 1)])
    assert len(records(flow)) == 2
    [four] = [one for one in records(flow) if one["reason"] == "malformed"]
    report = replay(flow, "edited", {four["id"]: json.dumps(event(4, 44))})
    assert report["rows"]["published"] == 1
    flow.expect("id n", [(1, 1), (2, -2), (4, 44), (5, 1)])
    assert [one["reason"] for one in records(flow)] == ["positive"]
    # The source does not have it so: reading it again would lose the row, and bring the old text into quarantine.
    with pytest.raises(
        UsageError, match=r"BACKFILL_REPLAYED: rebuilding day=2026-01-01 .*edited \(1 record edited by hand\)"
    ):
        backfill(flow, "2026-01-01", "refused")
    flow.expect("id n", [(1, 1), (2, -2), (4, 44), (5, 1)])


def test_texts_of_every_kind_come_in_as_they_came(tmp_path: Path, spark: SparkSession) -> None:
    """Lines of csv and text, values in folders, and what no text can bring: named, with the reason."""
    spec = "sources:\n"
    spec += source("lines", "id INT, note STRING, day DATE", format="csv", values="exact")
    spec += source("whole", "id INT, note STRING", format="csv", options={"header": True})
    transform = """def transform(lines, whole):
    no_day = F.lit(None).cast("date").alias("day")
    return lines.select("id", "note", "day").unionByName(whole.select("id", "note", no_day))
"""
    flow = make_streaming(tmp_path, spark, spec, transform)
    folder = flow.root / "data/in/lines/day=2026-01-03"
    folder.mkdir(parents=True)
    folder.joinpath("a.csv").write_text("1,one\nx,two\n")
    whole = flow.root / "data/in/whole"
    whole.mkdir(parents=True)
    whole.joinpath("b.csv").write_text("id,note\n3,three\ny,four\n")
    flow.run()
    assert sorted(one["raw"] for one in records(flow)) == ["x,two", "y,four"]
    plan = preview_replay(flow.project, "flow", Selection())
    assert (plan["records"], plan["sources"], plan["hindrance"]) == (2, {"lines": 1, "whole": 1}, None)
    assert not plan["stay"]
    ids = {one["raw"]: one["id"] for one in records(flow)}
    report = replay(flow, edits={ids["x,two"]: '22,"tw,o"', ids["y,four"]: "44,four"})
    assert report["rows"]["published"] == 2
    flow.expect("id note", [(1, "one"), (22, "tw,o"), (3, "three"), (44, "four")])
    assert {(id_, str(day)) for id_, day in flow.rows("id", "day")} == {
        (1, "2026-01-03"),
        (22, "2026-01-03"),
        (3, "None"),
        (44, "None"),
    }
    assert not records(flow)


def test_a_query_with_state_cannot_take_a_record_back(tmp_path: Path, spark: SparkSession) -> None:
    spec = "sources:\n" + source("events", "at TIMESTAMP, n INT", event_time="at", watermark="1 minute")
    transform = """def transform(events):
    return events.groupBy(F.window("at", "1 minute")).count().select("window.start", "count")
"""
    flow = make_streaming(tmp_path, spark, spec, transform)
    flow.offer("events", {"at": "2026-01-01T00:00:00Z", "n": 1}, {"at": "2026-01-01T01:00:00Z", "n": "x"})
    flow.run()
    before = records(flow)
    assert before
    with pytest.raises(UsageError, match=r"REPLAY_NOT_APPEND: .* the query keeps state"):
        replay(flow)
    plan = preview_replay(flow.project, "flow", Selection())
    assert plan["hindrance"] is not None and plan["hindrance"]["exit_code"] == 64
    assert records(flow) == before


def test_a_transform_that_keeps_state_only_now_is_found_by_the_driver(tmp_path: Path, spark: SparkSession) -> None:
    flow = make_streaming(tmp_path, spark, EVENTS, WIDENED)
    flow.offer("events", event(1), event(2, "x"))
    flow.run()
    flow.write(
        "jobs/flow/transform.py",
        "def transform(events):\n    return events.selectExpr('id', 'day', 'CAST(n AS BIGINT) n').dropDuplicates()\n",
    )
    [one] = records(flow)
    with pytest.raises(UsageError, match=r"REPLAY_NOT_APPEND: .*as it is now keeps state"):
        replay(flow, edits={one["id"]: json.dumps(event(2, 2))})
    assert records(flow) == [one]


def test_more_records_than_metrics_carry(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look at a batch of texts: what goes back has its place and text."""
    flow = make_streaming(tmp_path, spark, EVENTS, WIDENED)
    flow.offer("events", *(event(number, "x") for number in range(40)), event(100))
    flow.run()
    before = sorted((one["raw"], str(one["position"])) for one in records(flow))
    monkeypatch.setattr("tidegate.spark.ingest.plan.CAPTURED_AT_MOST", 8)
    monkeypatch.setattr("tidegate.spark.ingest.stage.CAPTURED_AT_MOST", 8)
    report = replay(flow)
    assert (report["rows"]["malformed"], report["rows"]["published"]) == (40, 0)
    assert sorted((one["raw"], str(one["position"])) for one in records(flow)) == before


def test_a_row_of_several_is_not_put_through(tmp_path: Path, spark: SparkSession) -> None:
    """Also where a filter leaves as many rows as there were records, so that no count tells."""
    spec = "sources:\n" + source("events", "id INT, ns ARRAY<INT>")
    transform = """def transform(events):
    return events.select("id", F.explode("ns").alias("n")).where("n <> 0")
"""
    flow = make_streaming(tmp_path, spark, spec, transform)
    flow.write("expectations/flow.yaml", POSITIVE)
    flow.offer("events", {"id": 1, "ns": [1, -2]}, {"id": 2, "ns": [0]}, {"id": 3, "ns": "x"})
    report = flow.run()
    assert report["rows"]["transformed"] == report["rows"]["entered"] == 2
    before = records(flow)
    with pytest.raises(UsageError, match="REPLAY_SEVERAL_ROWS"):
        replay(flow)
    assert records(flow) == before
    ids = {one["reason"]: one["id"] for one in before}
    replay(flow, "malformed", {ids["malformed"]: json.dumps({"id": 3, "ns": [3, 3]})})
    flow.expect("id n", [(1, 1), (3, 3), (3, 3)])


def as_messages(values: list[bytes]) -> list[Any]:
    """Records as the client gives them."""
    return [SimpleNamespace(value=lambda v=value: v, offset=lambda n=number: n) for number, value in enumerate(values)]


def test_values_of_topics_are_parsed_as_they_were(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the columns that the stream of the topic has: all formats, without a broker."""
    columns, texts = "id INT, note STRING", ['{"id": 1, "note": "a\\nb"}', '{"id": "x"}', "2,two", "x,two", "a\nline"]
    for format_, schema in (("json", columns), ("csv", columns), ("text", None), ("raw", None)):
        origin = KafkaSource.read({"type": "kafka", "topics": ["t"], "format": format_, "schema": schema})
        values = [text.encode() for text in texts] if format_ != "raw" else [b"\x00\xff", b"a\nline"]
        held = texts if format_ != "raw" else [base64.b64encode(value).decode() for value in values]
        places = [f"place {number}" for number in range(len(values))]
        pq.write_table(pa.table({TEXT_COLUMN: held, PLACE_COLUMN: places}), tmp_path / f"{format_}.parquet")
        monkeypatch.setattr(
            kafka_worker, "read_range", lambda *asked, values=values: iter([Records(as_messages(values))])
        )
        read = kafka_worker.RangesReader(form_of_records(origin), {})
        line = json.dumps({"topic": "t", "partition": 0, "begin": 0, "end": len(values)})
        [batch] = read(iter([pa.RecordBatch.from_pydict({"value": [line]})]))
        expected = batch.to_pylist()
        lines = read_lines(spark, show_parts([FilePart(f"{format_}.parquet")], Path(), None), 1)
        frame = parse_topic_texts(read_texts(lines, tmp_path, []), origin)
        found = [row.asDict() for row in frame.orderBy("_position").collect()]
        assert [one.pop("_position") for one in found] == places
        assert [one for one in expected if one.pop("_position")] == found
