"""A transform that fails on a row: the message names the record, or among which records it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.page_outputs import shown
from tests.support.project import in_session
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import UsageError
from tidegate.spark.ingest import failing_record
from tidegate.spark.ingest.failing_record import _describe_parts, _describe_position, _split
from tidegate.state.manifest import Taken
from tidegate.state.topics import OffsetRange, RangePart, TopicPartition
from tidegate.views.trial import try_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = f"sources:\n{source('events', 'id INT, at STRING')}"
SUITE = """
name: flow
expectations:
  - type: expect_column_values_to_be_in_set
    kwargs: {column: converts, value_set: [true]}
    severity: critical
    meta: {rule: converts, on_failure: quarantine}
"""
BY_PYTHON = """
@F.udf("int")
def _strict(text):
    return int(text)


def transform(events):
    return events.where("id > 0").select("id", _strict("at").alias("at"))
"""


@pytest.fixture(autouse=True)
def all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not end the search."""
    monkeypatch.setattr(failing_record, "SEARCH_SECONDS", 3600.0)


def offer(flow: Streaming, *texts: str) -> str:
    return str(flow.offer("events", *({"id": number + 1, "at": text} for number, text in enumerate(texts))))


def fails(flow: Streaming) -> UsageError:
    with pytest.raises(UsageError) as caught:
        flow.run()
    assert caught.value.code == "TRANSFORM_FAILED"
    return caught.value


def test_the_record_is_named_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    transform = 'def transform(events):\n    return events.where("id > 0").selectExpr("id", "CAST(at AS INT) AS at")\n'
    flow = make_streaming(tmp_path, spark, SOURCES, transform)
    offer(flow, "1", "2")
    bad = offer(flow, "1", "2", "3", "soon", "5")
    Path(bad).write_text("torn\n" + Path(bad).read_text())
    offer(flow, "1")
    error = fails(flow)
    begins, ends = shown("a row fails").split("...")
    begins = begins.replace("'n/a'", "'soon'").replace('"DOUBLE"', '"INT"')
    assert f"{error.code}: {error.message}".startswith(begins)
    assert error.message.endswith(
        ends.replace("orders/2026-03-09.csv, line 17", "events/0002.json, line 5").replace("data/inbox", "data/in")
    )
    assert error.message.endswith("; the record: data/in/events/0002.json, line 5")
    assert "try_cast" in str(error.fix)
    assert str(error.fix).endswith("`on_row_error: quarantine` in pipeline.yaml sends such records to quarantine")
    # What docs/how-to/your-own-data.md says to do about it.
    converts = 'try_cast(at AS INT) IS NOT NULL OR at IS NULL AS converts"'
    flow.write(
        "jobs/flow/transform.py",
        transform.replace('CAST(at AS INT) AS at"', f'try_cast(at AS INT) AS at", "{converts}'),
    )
    flow.write("expectations/flow.yaml", SUITE)
    rows = flow.run()["rows"]
    assert (rows["read"], rows["malformed"], rows["rejected"], rows["published"]) == (9, 1, 1, 7)
    assert flow.aside("converts") == [{"id": 4, "at": "soon"}]


def test_a_trial_names_the_files_of_the_project(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, f"transform: transform.sql\n{SOURCES}")
    flow.write("jobs/flow/transform.sql", "SELECT CAST(at AS INT) AS at FROM events")
    offer(flow, "1", "soon")
    with pytest.raises(UsageError) as caught:
        try_pipeline(flow.project, "flow", rows=5, submit=in_session(spark))
    error = caught.value
    assert (error.code, error.where) == ("TRANSFORM_FAILED", str(flow.project.root / "jobs/flow/transform.sql"))
    assert error.message.endswith("; the record: data/in/events/0001.json, line 2")
    assert "`tidegate try flow`" in str(error.fix) and "run flow" not in str(error)
    assert "tidegate-try-" not in str(error) and "writes nothing" in str(error.next_run)
    assert fails(flow).where == error.where, "a run names the file too"


def test_python_code_too(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, SOURCES, BY_PYTHON)
    offer(flow, "1", "two", "3")
    error = fails(flow)
    assert error.message.startswith("Python code of the transform failed on a row: ValueError")
    assert error.message.endswith("; the record: data/in/events/0001.json, line 2")


def test_with_state_the_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    transform = 'def transform(events):\n    return events.selectExpr("CAST(at AS INT) AS at").dropDuplicates()\n'
    flow = make_streaming(tmp_path, spark, SOURCES, transform)
    offer(flow, "1")
    offer(flow, "soon")
    error = fails(flow)
    assert error.message.endswith("; the record is among those of data/in/events/0001.json; data/in/events/0002.json")
    assert "on_row_error" not in str(error.fix)  # it is refused in a query with state


def test_records_of_topics_are_named_by_offset() -> None:
    first, second = RangePart("t", 0, 5, 9), RangePart("t", 2, 0, 2)
    parts = _split({"trades": Taken.of([first, second])})
    assert parts == [("trades", Taken.of([first])), ("trades", Taken.of([second]))]
    assert Taken.join(one for _, one in parts) == Taken.of([first, second])
    assert parts[1][1].offsets == {TopicPartition("t", 2): OffsetRange(0, 2)}
    told = "topic t, partition 0, offsets 5 to 8; topic t, partition 2, offsets 0 to 1"
    assert _describe_parts(parts, str) == told
    assert _describe_position({"topic": "t", "partition": 2, "offset": 1}) == "topic t, partition 2, offset 1"
