"""Joins across runs: two streams with watermarks, and a stream with a table that is read afresh in each run."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.streams.joins import TIMED, event
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import DefectError, SourceLostError, UsageError
from tidegate.sources.bounds import LONGEST_RECORD_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAIR = """\
def transform(shown, clicked):
    shown = shown.select(F.col('id').alias('ad'), F.col('dt').alias('shown_at'))
    clicked = clicked.select(F.col('id').alias('clicked_ad'), F.col('dt').alias('clicked_at'))
    near = F.expr('ad = clicked_ad AND clicked_at BETWEEN shown_at AND shown_at + INTERVAL 1 HOUR')
    return shown.join(clicked, near, '{how}')
"""


def pair(root: Path, spark: SparkSession, how: str, more: str = "") -> Streaming:
    both = source("shown", "id STRING, dt TIMESTAMP", **TIMED) + source("clicked", "id STRING, dt TIMESTAMP", **TIMED)
    return make_streaming(root, spark, f"sources:\n{both}{more}", _PAIR.replace("{how}", how))


@pytest.mark.parametrize(
    ("how", "columns", "wanted"),
    [
        ("inner", "ad clicked_ad", [("a", "a"), ("b", "b")]),
        ("left", "ad clicked_ad", [("a", "a"), ("b", "b"), ("lonely", None)]),
        ("right", "ad clicked_ad", [("a", "a"), ("b", "b"), (None, "stray")]),
        ("full", "ad clicked_ad", [("a", "a"), ("b", "b"), ("lonely", None), (None, "stray")]),
        ("left_semi", "ad", [("a",), ("b",)]),
    ],
)
def test_each_kind_of_join(
    spark: SparkSession, tmp_path: Path, how: str, columns: str, wanted: list[tuple[Any, ...]]
) -> None:
    flow = pair(tmp_path, spark, how)
    flow.offer("shown", event("a", "10:00"), event("b", "10:10"), event("lonely", "10:05"))
    flow.offer("clicked", event("a", "10:30"), event("stray", "10:20"))
    flow.run()
    flow.offer("clicked", event("b", "10:40"))
    flow.run()
    flow.expect(columns, [row for row in wanted if row in [("a", "a"), ("b", "b"), ("a",), ("b",)]])
    flow.offer("shown", event("c", "14:00"))
    flow.offer("clicked", event("d", "14:00"))
    flow.run()
    flow.expect(columns, wanted)
    assert flow.run()["outcome"] == "nothing_new"


def test_the_watermark_of_two_sources_is_not_stuck(spark: SparkSession, tmp_path: Path) -> None:
    """Runs in which only one source has something new: plain Spark would never move the watermark in them."""
    flow = pair(tmp_path, spark, "left")
    flow.offer("clicked", event("x", "14:00"))
    flow.offer("shown", event("a", "10:00"))
    flow.run()
    for clock in ("11:00", "12:00"):  # no clicks in these runs
        flow.offer("shown", event(f"at {clock}", clock))
        flow.run()
    assert flow.reports[-1]["watermark"] == "2026-01-01T11:30:00.000+00:00"
    flow.expect("ad clicked_ad", [("a", None)])
    flow.offer("shown", event("late", "11:00"), event("end", "13:31"))
    report = flow.run()
    assert report["sources"]["shown"]["late"] == 1 and flow.aside("late") == [event("late", "11:00")]
    flow.expect("ad clicked_ad", [("a", None), ("at 11:00", None), ("at 12:00", None)])


def test_late_records_of_one_side_that_cannot_be_told_are_said(spark: SparkSession, tmp_path: Path) -> None:
    """Though those of the other side can."""
    flow = pair(tmp_path, spark, "inner")
    path = tmp_path / "jobs/flow/transform.py"
    path.write_text(path.read_text().replace("clicked.select(", "clicked.repartition(2).select("))
    flow.offer("shown", event("a", "10:00"), event("b", "14:00"))
    flow.offer("clicked", event("a", "10:00"), event("b", "14:00"))
    flow.run()
    flow.offer("shown", event("late", "10:00"))
    flow.offer("clicked", event("late", "10:00"), event("late too", "10:00"))
    report = flow.run()
    assert report["sources"]["shown"]["late"] == 1 and flow.aside("late") == [event("late", "10:00")]
    assert [note for note in report["notes"] if "came too late and were dropped" in note]


def test_the_faster_watermark(spark: SparkSession, tmp_path: Path) -> None:
    """watermark_policy: max goes with the source that is ahead; changing it later is refused."""
    from tidegate.core.errors import DisagreementError

    flow = pair(tmp_path, spark, "left", "watermark_policy: max\n")
    flow.offer("shown", event("a", "10:00"))
    flow.offer("clicked", event("x", "14:00"))
    assert flow.run()["watermark"] == "2026-01-01T13:30:00.000+00:00"
    flow.expect("ad clicked_ad", [("a", None)])
    spec = tmp_path / "jobs/flow/pipeline.yaml"
    spec.write_text(spec.read_text().replace("watermark_policy: max\n", ""))
    flow.offer("shown", event("b", "14:30"))
    with pytest.raises(DisagreementError, match='watermark_policy: "max" -> "min"'):
        flow.run()


_STATIC = "def transform(orders, names):\n    return orders.join(names, 'id', '{how}')\n"


def static(root: Path, spark: SparkSession, how: str) -> Streaming:
    sources = source("orders", "id STRING, n INT") + source("names", "id STRING, name STRING", static=True)
    return make_streaming(root, spark, f"sources:\n{sources}", _STATIC.replace("{how}", how))


def replace_names(flow: Streaming, **names: str) -> None:
    folder = flow.root / "data/in/names"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.json"):
        path.unlink()
    flow.offer("names", *({"id": key, "name": name} for key, name in names.items()))


@pytest.mark.parametrize(
    ("how", "columns", "wanted"),
    [
        ("inner", "id n name", [("a", 1, "Ann"), ("a", 3, "Anna"), ("b", 4, "Bob")]),
        ("left", "id n name", [("a", 1, "Ann"), ("b", 2, None), ("a", 3, "Anna"), ("b", 4, "Bob")]),
        ("left_semi", "id n", [("a", 1), ("a", 3), ("b", 4)]),
        ("left_anti", "id n", [("b", 2)]),
    ],
)
def test_a_static_source_is_read_afresh(
    spark: SparkSession, tmp_path: Path, how: str, columns: str, wanted: list[tuple[Any, ...]]
) -> None:
    flow = static(tmp_path, spark, how)
    replace_names(flow, a="Ann")
    flow.offer("orders", {"id": "a", "n": 1}, {"id": "b", "n": 2})
    first = flow.run()
    replace_names(flow, a="Anna", b="Bob")
    assert flow.run()["outcome"] == "nothing_new", "a change of the static side alone is nothing new"
    flow.offer("orders", {"id": "a", "n": 3}, {"id": "b", "n": 4})
    second = flow.run()
    flow.expect(columns, wanted)
    assert first["sources"]["names"]["static"] != second["sources"]["names"]["static"]


@pytest.mark.parametrize("how", ["right", "full"])
def test_outer_joins_with_a_static_source_are_refused(spark: SparkSession, tmp_path: Path, how: str) -> None:
    flow = static(tmp_path, spark, how)
    replace_names(flow, a="Ann")
    flow.offer("orders", {"id": "a", "n": 1})
    with pytest.raises(UsageError, match="a join cannot work") as caught:
        flow.run()
    assert str(caught.value.where).endswith("transform.py:5") and not (flow.state / "checkpoint").exists()


def test_a_static_source_that_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    flow = static(tmp_path, spark, "inner")
    flow.offer("orders", {"id": "a", "n": 1})
    with pytest.raises(SourceLostError, match="names of pipeline flow has no folder"):
        flow.run()
    (tmp_path / "data/in/names").mkdir()
    with pytest.raises(SourceLostError, match="has no file, or only empty ones"):
        flow.run()
    replace_names(flow, a="Ann")
    flow.run()
    flow.expect("id n name", [("a", 1, "Ann")])


def test_a_batch_that_is_run_again_sees_the_same_static_version(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = static(tmp_path, spark, "left")
    replace_names(flow, a="Ann")
    flow.offer("orders", {"id": "a", "n": 1})

    def stopped(*args: Any) -> bool:
        raise RuntimeError("stopped here")

    with monkeypatch.context() as patch:
        patch.setattr("tidegate.spark.ingest.stage.write_manifest", stopped)
        with pytest.raises(DefectError, match="stopped here"):
            flow.run()
    replace_names(flow, a="Anna")
    flow.run()
    flow.expect("id n name", [("a", 1, "Ann")])
    flow.offer("orders", {"id": "a", "n": 2})
    flow.run()
    flow.expect("id n name", [("a", 1, "Ann"), ("a", 2, "Anna")])


def test_a_malformed_record_of_a_static_source(spark: SparkSession, tmp_path: Path) -> None:
    flow = static(tmp_path, spark, "inner")
    flow.write("data/in/names/names.json", '{"id": "a", "name": "Ann"}\n{"id": torn\n')
    flow.offer("orders", {"id": "a", "n": 1})
    with pytest.raises(UsageError, match="1 records of the static source names do not fit its schema"):
        flow.run()
    replace_names(flow, a="Ann")
    flow.run()
    flow.expect("id n name", [("a", 1, "Ann")])


def test_a_file_of_a_static_source_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """Refused before a batch is planned, so that the corrected file is read, not the copy of the other one."""
    flow = static(tmp_path, spark, "inner")
    flow.offer("orders", {"id": "a", "n": 1})
    names = tmp_path / "data/in/names"
    names.mkdir(parents=True)
    torn = names / "names.json.gz"
    torn.write_bytes(gzip.compress(b'{"id": "a", "name": "Ann"}\n' * 100)[:-12])
    with pytest.raises(UsageError, match=r"names.json.gz of the static source names cannot be read: .*gzip") as caught:
        flow.run()
    assert caught.value.code == "STATIC_UNREADABLE" and not (flow.state / "checkpoint").exists()
    torn.unlink()
    (names / "names.json").write_text('{"id": "a", "name": "%s"}\n' % ("x" * LONGEST_RECORD_BYTES))
    with pytest.raises(UsageError, match=r"a line of 8,388,\d+ bytes; the limit is 8,388,608 bytes") as caught:
        flow.run()
    assert caught.value.where == "data/in/names/names.json"
    replace_names(flow, a="Ann")
    flow.run()
    flow.expect("id n name", [("a", 1, "Ann")])


def test_a_file_of_a_static_source_with_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Refused before a batch is planned too."""
    sources = source("orders", "id STRING, n INT") + source(
        "names", "id STRING, name STRING", format="parquet", static=True
    )
    flow = make_streaming(tmp_path, spark, f"sources:\n{sources}", _STATIC.replace("{how}", "inner"))
    flow.offer("orders", {"id": "a", "n": 1})
    names = tmp_path / "data/in/names/names.parquet"
    names.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["a"], "name": [date(2026, 1, 1)]}), names)
    with pytest.raises(
        UsageError, match=r"names.parquet of the static source names cannot be read: name is date32"
    ) as caught:
        flow.run()
    assert "/state/" not in caught.value.message, caught.value.message
    assert not (flow.state / "checkpoint").exists()
    pq.write_table(pa.table({"id": ["a"], "name": ["Ann"]}), names)
    flow.run()
    flow.expect("id n name", [("a", 1, "Ann")])


def test_the_table_of_another_pipeline_as_a_static_source(spark: SparkSession, tmp_path: Path) -> None:
    """It is read at its newest version: files that a version replaced do not count."""
    flow = static(tmp_path / "one", spark, "left")
    replace_names(flow, a="Ann")
    flow.offer("orders", {"id": "a", "n": 1})
    flow.run()
    keys = {"path": "../one/data/warehouse/flow", "format": "parquet", "static": True}
    sources = source("events", "id STRING") + source("orders", "id STRING, n INT, name STRING", **keys)
    other = make_streaming(
        tmp_path / "two",
        spark,
        f"sources:\n{sources}",
        "def transform(events, orders):\n    return events.join(orders, 'id', 'left')\n",
    )
    other.offer("events", {"id": "a"}, {"id": "z"})
    other.run()
    other.expect("id n name", [("a", 1, "Ann"), ("z", None, None)])


def test_a_source_that_the_rows_do_not_depend_on(spark: SparkSession, tmp_path: Path) -> None:
    spec = "sources:\n" + source("shown", "id STRING") + source("clicked", "id STRING")
    flow = make_streaming(tmp_path, spark, spec, "def transform(shown, clicked):\n    return shown\n")
    flow.offer("shown", {"id": "a"})
    flow.offer("clicked", {"id": "a"})
    with pytest.raises(UsageError, match=r"SOURCE_NOT_USED: .* do not depend on the source clicked"):
        flow.run()
