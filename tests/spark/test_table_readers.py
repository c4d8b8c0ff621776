"""Plain Spark gives the same rows as DuckDB and deltalake, for what Spark itself staged and tidegate published."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from deltalake import DeltaTable

from tests.support.frames import publish, stage
from tests.support.keyed import FakeLease, Keyed
from tests.support.many_commits import add_file, commit, describe, described_here
from tests.support.nasty_values import MIXED_COLUMNS, NAMED_AS_THEY_ARE, NAMED_WITH_AN_ESCAPE, NASTY_TEXTS
from tests.support.readers import canonical, read_agreed
from tests.support.staged import QUERY, publish_columns
from tidegate.runs.recovery.upkeep import maintain_tables
from tidegate.state.lease import Lease
from tidegate.state.manifest import write_manifest
from tidegate.table.log.files import LOG_FOLDER, compactions_of, list_names
from tidegate.table.log.snapshot import read_snapshot
from tidegate.table.log.state import read_table_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def merge(keyed: Keyed, *frames: DataFrame) -> Path:
    """Stage an increment and take it through the gate in update or complete mode."""
    for frame in frames:
        manifest = stage(keyed.root, keyed.next_batch, frame, keyed.partition_by)
        write_manifest(keyed.paths.manifest(QUERY, keyed.next_batch), manifest)
        keyed.next_batch += 1
    assert keyed.run().outcome == "published"
    return keyed.paths.table


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["id"]))


def test_texts_that_look_like_other_types_keep_their_text(spark: SparkSession, tmp_path: Path) -> None:
    """A column for each text, so that no other value keeps a reader from guessing, and one for each pair of values."""
    for number, columns in enumerate(
        ([(text,) for text in [*NAMED_AS_THEY_ARE, *NAMED_WITH_AN_ESCAPE]], MIXED_COLUMNS)
    ):
        table, rows = publish_columns(tmp_path / str(number), columns)
        assert by_id(read_agreed(table, spark)) == rows


def test_nasty_texts_and_null_together(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"id": index, "k": text} for index, text in enumerate([*NASTY_TEXTS, None])]
    table = publish(tmp_path, 0, spark.createDataFrame(rows, "id BIGINT, k STRING"), ["k"])
    assert by_id(read_agreed(table, spark)) == rows


def test_what_deltalake_deletes_and_compacts_is_gone_for_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    texts = [
        text for text in NASTY_TEXTS if "~" not in text
    ]  # deltalake cannot compact those, in its own tables neither
    rows = [{"id": index, "k": text} for index, text in enumerate([*texts, None, *texts, None])]
    frame = spark.createDataFrame(rows, "id BIGINT, k STRING")
    for number, half in enumerate((frame.where("id % 2 = 0"), frame.where("id % 2 = 1"))):
        table = publish(tmp_path, number, half, ["k"])
    DeltaTable(str(table)).delete("id % 3 = 0")
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    left = [row for row in rows if cast(int, row["id"]) % 3]
    assert by_id(read_agreed(table, spark)) == left
    publish(tmp_path, 2, frame.selectExpr("id + 1000 AS id", "k"), ["k"])
    assert by_id(read_agreed(table, spark)) == left + [
        {"id": cast(int, row["id"]) + 1000, "k": row["k"]} for row in rows
    ]


def test_days_and_numbers_as_partitions(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "day": date(2026, 1, 31), "shop": 7},
        {"id": 2, "day": date(1970, 1, 1), "shop": -7},
        {"id": 3, "day": None, "shop": None},
    ]
    table = publish(tmp_path, 0, spark.createDataFrame(rows, "id BIGINT, day DATE, shop INT"), ["day", "shop"])
    assert by_id(read_agreed(table, spark)) == rows
    assert (table / "day=2026-01-31" / "shop=7").is_dir()


def test_every_kind_of_value_and_a_column_added_later(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "id BIGINT, flag BOOLEAN, small SMALLINT, amount DECIMAL(10,2), ratio DOUBLE, at TIMESTAMP, day DATE, "
        "raw BINARY, tags ARRAY<STRING>, place STRUCT<city: STRING, zip: INT>"
    )
    first = (1, True, 3, Decimal("12.30"), 0.1, datetime(2026, 1, 31, 12, 0, 0, 123456, UTC), date(2026, 1, 31))
    more = (bytearray(b"\x00\xff"), ["a", None], ("Oslo", 150))
    empty = (2,) + (None,) * 9
    table = publish(tmp_path, 0, spark.createDataFrame([first + more, empty], columns), [])
    published = read_agreed(table, spark)
    assert by_id(published)[0]["at"] == datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    assert by_id(published)[0]["amount"] == Decimal("12.30")
    assert by_id(published)[0]["place"] == {"city": "Oslo", "zip": 150}

    wider = spark.createDataFrame([(3,) + (None,) * 9 + ("new",)], columns + ", note STRING")
    publish(tmp_path, 1, wider, [])
    rows = by_id(read_agreed(table, spark))
    assert [row["note"] for row in rows] == [None, None, "new"]
    assert canonical([{**row, "note": None} for row in published]) == canonical(rows[:2])


def test_a_watermark_and_constants_leave_no_trace_in_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("id", "timestamp'2026-01-31 12:00:00' AS at").withWatermark("at", "1 minute")
    table = publish(tmp_path, 0, frame, [])
    state = read_table_state(table)
    assert state is not None
    assert '"nullable":false' not in state.schema_json
    assert "watermark" not in state.schema_json
    assert len(read_agreed(table, spark)) == 3


def test_rows_that_replace_others_in_files_that_spark_wrote(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "id BIGINT, shop STRING, small SMALLINT, amount DECIMAL(10,2), huge DECIMAL(38,4), ratio DOUBLE, at TIMESTAMP, "
        "day DATE, raw BINARY, tags ARRAY<STRING>, place STRUCT<city: STRING, zip: INT>, labels MAP<STRING, INT>"
    )

    def row(id_: int | None, shop: str | None, small: int) -> tuple[Any, ...]:
        at = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
        flat = (Decimal("12.30"), Decimal("-0.0001"), 0.1, at, date(1969, 1, 1), bytearray(b"\x00\xff"))
        return (id_, shop, small, *flat, ["a", None], ("Oslo", 150), {"k": small, "z": None})

    def frame(*rows: tuple[Any, ...], more: str = "") -> DataFrame:
        return spark.createDataFrame(list(rows), columns + more)

    keyed = Keyed(tmp_path, keys=["id", "shop"], partition_by=["shop"])
    empty = (7, "01") + (None,) * 10
    merge(keyed, frame(row(1, "01", 0), row(2, "01", 0), empty, row(1, None, 0), row(None, None, 0)))
    merge(keyed, frame(row(2, "01", 1), row(3, "a/b %", 1)), frame(row(2, "01", 2), row(1, None, 2)))
    expected = {(1, "01"): 0, (2, "01"): 2, (7, "01"): None, (1, None): 2, (None, None): 0, (3, "a/b %"): 1}
    rows = read_agreed(keyed.paths.table, spark)
    assert {(r["id"], r["shop"]): r["small"] for r in rows} == expected and len(rows) == 6
    (kept,) = [r for r in rows if (r["id"], r["shop"]) == (1, "01")]
    assert (kept["amount"], kept["huge"]) == (Decimal("12.30"), Decimal("-0.0001"))
    assert kept["at"] == datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    assert (kept["raw"], kept["tags"], dict(kept["labels"])) == (b"\x00\xff", ["a", None], {"k": 0, "z": None})

    merge(keyed, frame((*row(7, "01", 3), "new"), more=", note STRING"))
    notes = {(r["id"], r["shop"]): r["note"] for r in read_agreed(keyed.paths.table, spark)}
    assert notes == dict.fromkeys(expected) | {(7, "01"): "new"}


def test_results_that_replace_the_table(spark: SparkSession, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, keys=[], mode="complete")
    frame = spark.range(3).selectExpr("id", "CAST(id AS STRING) AS city", "id AS n")
    merge(keyed, frame)
    table = merge(keyed, frame.limit(2), frame.where("id > 1"))
    assert read_agreed(table, spark) == [{"id": 2, "city": "2", "n": 2}]
    merge(keyed, frame.where("id > 5"))
    assert read_agreed(table, spark) == []


def test_every_reader_agrees_after_each_twentieth_of_300_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no power cut here: test_log_durability.py has those
    keyed = Keyed(tmp_path)
    both = (keyed.paths.table, keyed.paths.quarantine)
    for number in range(300):
        for table in both:
            commit(table, number, add=[add_file(table, number)] if number % 10 == 4 else [])
        if number % 20 == 19:
            maintain_tables(keyed.paths, keyed.spec, cast(Lease, FakeLease()), read_table_state(keyed.paths.table))
            for table in both:
                assert len(read_agreed(table, spark)) == number // 10 + 1
                assert not list((table / LOG_FOLDER).rglob("*.parquet"))
                assert described_here(table) == describe(table)
    for table in both:
        assert compactions_of(list_names(table)) == [199, 299]  # of three the oldest is gone
        state = read_table_state(table, (QUERY,))
        assert state is not None
        assert (state.txns, state.metadata["tidegate.run_id"]) == ({QUERY: 299}, "run-299")
        for version in (5, 99, 150, 250):  # an older version is read as it was
            assert sorted(read_snapshot(table, version).added) == sorted(
                DeltaTable(str(table), version=version).get_add_actions()["path"].to_pylist()
            )
