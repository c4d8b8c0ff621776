"""``on_row_error: quarantine``: records on which the transform fails go to quarantine, and the others are published."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.project import REPOSITORY, in_session
from tests.support.readers import read_agreed
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import UsageError
from tidegate.spark.ingest import failing_record, plan
from tidegate.spark.ingest.failing_record import _failing
from tidegate.views.trial import try_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id INT, at STRING, by INT"
EVENTS = "on_row_error: quarantine\nsources:\n" + source("events", COLUMNS)
CASTS = 'def transform(events):\n    return events.selectExpr("id", "CAST(at AS INT) AS at")\n'
RUN_AND_DIE = """
import json, os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
from tests.support.streaming import Streaming
from tidegate.spark.ingest import stage

stage.write_manifest = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
spark = SparkSession.builder.master("local[2]").config(map=json.loads(sys.argv[2])).getOrCreate()
Streaming(Path(sys.argv[1]), spark).run()
"""
BY_CAST = "the transform fails on it: [CAST_INVALID_INPUT]"


@pytest.fixture(autouse=True)
def all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not end the search."""
    monkeypatch.setattr(failing_record, "SEARCH_ALL_SECONDS", 3600.0)


def event(number: int, at: str = "1", by: int = 1) -> dict[str, Any]:
    return {"id": number, "at": at, "by": by}


def set_aside(flow: Streaming) -> list[tuple[Any, ...]]:
    """(source, position, parsed raw, detail) of the malformed records, in order."""
    rows = read_agreed(flow.root / "data/quarantine/flow", flow.spark)
    assert {row["reason"] for row in rows} == {"malformed"}
    found = [(row["source"], json.loads(row["position"]), json.loads(row["raw"]), row["detail"]) for row in rows]
    return sorted(found, key=lambda one: (one[0], str(one[1]), one[2]["id"]))


def fails(flow: Streaming) -> str:
    with pytest.raises(UsageError) as caught:
        flow.run()
    assert caught.value.code == "TRANSFORM_FAILED"
    return caught.value.message


def test_equal_records_and_a_second_batch(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More malformed records than the metrics carry: what a second look writes is what the first pass counted."""
    monkeypatch.setattr(plan, "CAPTURED_AT_MOST", 2)
    spec = EVENTS.replace('"format"', '"options": {"maxFilesPerTrigger": 1}, "format"')
    flow = make_streaming(tmp_path, spark, spec, CASTS)
    first = flow.offer("events", event(1), event(2, "x"), event(2, "x"), event(3), event(4, "y"))
    first.write_text(first.read_text() + "torn\n")
    flow.offer("events", event(5, "x"), event(6))
    report = flow.run()
    flow.expect("id at", [(1, 1), (3, 1), (6, 1)])
    assert (report["rows"]["read"], report["rows"]["malformed"], report["rows"]["published"]) == (8, 5, 3)
    rows = read_agreed(tmp_path / "data/quarantine/flow", spark)
    found = sorted((row["raw"][:8], row["detail"], json.loads(row["position"]).get("line")) for row in rows)
    assert [one[0] for one in found] == ["torn", '{"id": 2', '{"id": 2', '{"id": 4', '{"id": 5']
    assert [one[2] for one in found] == [6, 2, 3, 5, 1]
    assert {one[1] for one in found[1:]} == {BY_CAST}


def test_parquet(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, EVENTS.replace('"json"', '"parquet"'), CASTS)
    rows = [(number, "x" if number in (3, 77) else str(number), 1) for number in range(100)]
    folder = tmp_path / "written"
    spark.createDataFrame(rows, COLUMNS).coalesce(1).write.parquet(str(folder))
    (tmp_path / "data/in/events").mkdir(parents=True)
    next(folder.glob("*.parquet")).rename(tmp_path / "data/in/events/a.parquet")
    flow.run()
    flow.expect("id at", [(number, number) for number in range(100) if number not in (3, 77)])
    place = {"file": "data/in/events/a.parquet"}
    assert set_aside(flow) == [("events", place, event(number, "x"), BY_CAST) for number in (3, 77)]


def test_too_many_end_the_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = make_streaming(tmp_path, spark, EVENTS, CASTS)
    flow.offer("events", event(1), *(event(2, "same") for _ in range(101)))
    assert fails(flow).endswith(
        "; more than 100 records of the batch fail, which is more than on_row_error: quarantine takes; the first that "
        "was found: data/in/events/0001.json, line 2"
    )
    monkeypatch.setattr(failing_record, "FAILING_AT_MOST", 3)
    next((tmp_path / "data/in/events").iterdir()).unlink()
    flow = make_streaming(tmp_path / "other", spark, EVENTS, CASTS)
    flow.offer("events", *(event(number, f"bad {number}") for number in range(4)))
    assert "more than 3 records" in fails(flow)
    # What fails today is in quarantine tomorrow, when it is few enough.
    monkeypatch.setattr(failing_record, "FAILING_AT_MOST", 4)
    assert flow.run()["rows"]["malformed"] == 4


def test_killed_between_the_search_and_the_manifest(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing of the search is kept: the next run searches again, with the transform as it is then."""
    flow = make_streaming(tmp_path, spark, EVENTS, CASTS)
    flow.offer("events", event(1), event(2, "x"), event(3, "0x10"))
    conf = dict(spark.sparkContext.getConf().getAll())
    settings = {key: conf[key] for key in conf if key.startswith(("spark.sql.", "spark.ui.", "spark.driver.extra"))}
    script = [sys.executable, "-c", RUN_AND_DIE, str(tmp_path), json.dumps(settings)]
    died = subprocess.run(script, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=1200)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert "the transform fails on 2 records: to quarantine" in died.stdout
    assert not (tmp_path / "data/warehouse/flow").exists()
    hexadecimal = "CASE WHEN at LIKE '0x%' THEN conv(substr(at, 3), 16, 10) ELSE at END"
    flow.write("jobs/flow/transform.py", f"\n\n\n{CASTS.replace('(at AS', f'({hexadecimal} AS')}")
    flow.run()
    flow.expect("id at", [(1, 1), (3, 16)])
    assert [one[2]["id"] for one in set_aside(flow)] == [2]


def test_only_the_record_is_blamed(spark: SparkSession, tmp_path: Path) -> None:
    """Neither for what a static source does, nor for what only many records together do."""
    rates = source("rates", "id INT, rate STRING", static=True)
    joins = """
def transform(events, rates):
    numbers = F.broadcast(rates.selectExpr("id", "CAST(rate AS INT) AS rate"))
    return events.join(numbers, "id").select("id", "rate")
"""
    flow = make_streaming(tmp_path, spark, EVENTS + rates, joins)
    flow.offer("rates", {"id": 1, "rate": "1"}, {"id": 9, "rate": "none"})
    flow.offer("events", event(1))
    blamed = "; it fails without any record of the streams too"
    assert fails(flow).endswith(f"{blamed}, so no record is put in quarantine")
    spec = flow.root / "jobs/flow/pipeline.yaml"
    spec.write_text(spec.read_text().replace("on_row_error: quarantine", "on_row_error: fail"))
    assert fails(flow).endswith(blamed)
    together = """
def _at_most_one(frames):
    seen = 0
    for frame in frames:
        seen += len(frame)
        assert seen < 2
        yield frame


def transform(events):
    return events.coalesce(1).mapInPandas(_at_most_one, events.schema)
"""
    flow = make_streaming(tmp_path / "other", spark, EVENTS, together)
    flow.offer("events", event(1), event(2))
    assert fails(flow).endswith(
        "; no record fails alone, so none is put in quarantine; it fails among those of data/in/events/0001.json"
    )
    assert flow.quarantined() == {}


def test_a_query_with_state_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, EVENTS, "def transform(events):\n    return events.dropDuplicates()\n")
    flow.offer("events", event(1))
    with pytest.raises(UsageError) as caught:
        flow.run()
    assert caught.value.code == "UNSUPPORTED_OPERATION"
    assert "keeps state" in caught.value.message
    assert "remove on_row_error" in str(caught.value.fix)


def test_try_shows_them(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, EVENTS, CASTS)
    flow.offer("events", event(1), event(2, "x"))
    value = try_pipeline(flow.project, "flow", rows=10, submit=in_session(spark))
    assert value["counts"]["malformed"] == 1
    assert [one["detail"] for one in value["set_aside"]] == [BY_CAST]


def test_the_search_finds_each_number_that_fails_alone() -> None:
    bad = {0, 3, 4, 99}
    asked = []

    def fails(low: int, high: int) -> bool:
        asked.append((low, high))
        return any(low <= one < high for one in bad) or high - low > 50

    assert set(_failing(0, 100, fails)) == bad
    assert len(asked) < 60
    assert list(_failing(0, 100, lambda low, high: high - low > 1, seen=True)) == []
