"""``tidegate.testing``: a pipeline on rows of a test, as its users write it."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidegate.core.errors import UsageError
from tidegate.testing import HeldDelivery, run_on_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPEC = """\
version: 1
name: prices
schedule: null
sources:
  trades:
    type: kafka
    topics: [trades]
    format: json
    schema: id BIGINT NOT NULL, at TIMESTAMP, price DECIMAL(10,2), tags ARRAY<STRING>
    metadata: true
    options: {maxOffsetsPerTrigger: 100}
transform: transform.sql
table: {partition_by: [day]}
sinks: [{type: kafka, topic: never}]
"""
_TRANSFORM = "SELECT id, price, tags, to_date(at) AS day, CAST(_key AS STRING) AS key FROM trades"
_SUITE = """\
name: prices
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: price, min_value: 0}
    severity: critical
    meta: {rule: not_negative, on_failure: quarantine}
  - type: expect_column_values_to_be_unique
    kwargs: {column: id}
    severity: critical
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that reads Kafka, with quarantine and a gate."""
    (tmp_path / "jobs/prices").mkdir(parents=True)
    (tmp_path / "expectations").mkdir()
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (tmp_path / "jobs/prices/pipeline.yaml").write_text(_SPEC)
    (tmp_path / "jobs/prices/transform.sql").write_text(_TRANSFORM)
    (tmp_path / "expectations/prices.yaml").write_text(_SUITE)
    return tmp_path


def test_each_delivery_has_its_rows(spark: SparkSession, project: Path) -> None:
    at = dt.datetime(2026, 3, 2, 8, 30, tzinfo=dt.UTC)
    first, second, idle = run_on_rows(
        "prices",
        [
            {
                "trades": [
                    {"id": 1, "at": at, "price": Decimal("1.50"), "tags": ["a"], "_key": b"k"},
                    {"id": 2, "price": Decimal(-1)},
                ]
            },
            {"trades": [{"id": 3}]},
            {},
        ],
        project,
    )
    assert [row | {"price": str(row["price"])} for row in first.rows] == [
        {"id": 1, "price": "1.50", "tags": ["a"], "day": dt.date(2026, 3, 2), "key": "k"}
    ]
    assert [record["reason"] for record in first.quarantined] == ["not_negative"]
    assert first.report["rows"]["rejected"] == 1 and first.report["sinks"] == []
    assert [row["id"] for row in second.rows] == [3] and second.quarantined == []
    assert (idle.rows, idle.report["outcome"]) == ([], "nothing_new")
    assert sorted(path.name for path in project.iterdir()) == ["expectations", "jobs", "tidegate.yaml"]


def test_a_delivery_that_the_gate_holds(spark: SparkSession, project: Path) -> None:
    given = [{"id": 1, "tags": ["a"]}, {"id": 1, "tags": ["b"]}, {"id": 2, "price": Decimal(-1)}]
    with pytest.raises(HeldDelivery, match="unique") as raised:
        run_on_rows("prices", [{"trades": [{"id": 1}]}, {"trades": given}], project)
    held = raised.value.delivery
    assert [(row["id"], row["tags"]) for row in held.rows] == [(1, ["a"]), (1, ["b"])]
    assert [record["reason"] for record in held.quarantined] == ["not_negative"]
    assert (held.report["outcome"], held.report["rows"]["published"]) == ("held", 0)
    # nothing that a test does not have: a run id, a command that decides, a next run
    assert "where: delivery 1" in str(raised.value)
    assert not re.search("tidegate |delivery-|next run", str(raised.value))


_WHOLE = """\
  - type: unexpected_rows_expectation
    kwargs:
      unexpected_rows_query: SELECT day FROM {table} WHERE list_contains(tags, 'x') GROUP BY day HAVING count(*) > 1
    meta: {rule: one_x_a_day}
    severity: warning
  - {type: expect_table_row_count_to_be_between, kwargs: {min_value: 50}, meta: {rule: volume}}
  - type: expect_column_values_to_be_in_set
    kwargs: {column: key, value_set: [k], mostly: 0.9}
    meta: {rule: mostly_k}
  - type: expect_column_quantile_values_to_be_between
    kwargs: {column: price, quantile_ranges: {quantiles: [0.5], value_ranges: [[10, 20]]}}
    meta: {rule: median}
"""


def test_rules_on_a_whole_increment_run_when_asked_for(spark: SparkSession, project: Path) -> None:
    with (
        (project / "expectations/prices.yaml").open("a") as suite,
        (project / "jobs/prices/pipeline.yaml").open("a") as spec,
    ):
        suite.write(_WHOLE)
        spec.write("quality: {max_quarantine_share: 0.1}\n")
    deliveries = [{"trades": [{"id": 1, "price": Decimal(1), "_key": b"x"}, {"id": 2, "price": Decimal(-1)}]}]
    [delivery] = run_on_rows("prices", deliveries, project)
    assert [row["id"] for row in delivery.rows] == [1]
    ran = {one["rule"] for one in delivery.report["quality"]["results"]}
    assert ran.isdisjoint({"one_x_a_day", "volume", "mostly_k", "median", "max_quarantine_share"}), ran
    with pytest.raises(HeldDelivery) as raised:
        run_on_rows("prices", deliveries, project, whole_suite=True)
    first = {"trades": [{"id": 0, "tags": ["x"]}] * 2}
    with pytest.raises(HeldDelivery) as other:
        run_on_rows("prices", [first], project, whole_suite=True)
    quality = other.value.delivery.report["quality"]
    assert quality is not None
    assert [one["unexpected_count"] for one in quality["results"] if one["rule"] == "one_x_a_day"] == [1]
    for rule in ("volume", "mostly_k", "median", "max_quarantine_share"):
        assert rule in str(raised.value)
    assert [row["id"] for row in raised.value.delivery.rows] == [1]


def test_an_error_names_the_files_of_the_project(spark: SparkSession, project: Path) -> None:
    (project / "jobs/prices/transform.sql").write_text("SELECT prise FROM trades")
    with pytest.raises(UsageError, match="prise") as raised:
        run_on_rows("prices", [{"trades": [{"id": 1}]}], project)
    assert raised.value.where == str(project / "jobs/prices/transform.sql")
    assert "tidegate-test-" not in str(raised.value) and raised.value.next_run is None


def test_settings_of_the_environment_do_not_lead_a_test_to_the_real_tables(
    spark: SparkSession, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("warehouse", "state", "quarantine"):
        monkeypatch.setenv(f"TIDEGATE__{name.upper()}", str(tmp_path / "real" / name))
    monkeypatch.setenv("TIDEGATE__SPARK__MASTER", "spark://127.0.0.1:1")
    [delivery] = run_on_rows("prices", [{"trades": [{"id": 1}]}], project=project)
    assert [row["id"] for row in delivery.rows] == [1]
    assert not (tmp_path / "real").exists()


def test_names_that_are_not_there(spark: SparkSession, project: Path) -> None:
    with pytest.raises(UsageError, match="rows for trade; the sources are: trades"):
        run_on_rows("prices", [{"trade": [{"id": 1}]}], project)
    with pytest.raises(UsageError, match="a row of trades has prise; the columns are: id, at, price, tags, _key"):
        run_on_rows("prices", [{"trades": [{"id": 1, "prise": 1}]}], project)


def test_nothing_of_the_process_changes_and_nothing_set_aside_is_cut(spark: SparkSession, project: Path) -> None:
    import ctypes
    import signal
    import sys

    prctl = ctypes.CDLL(None).prctl
    prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    try:
        before = list(sys.path)
        rows = [{"id": number, "at": dt.datetime(2026, 1, 1), "price": Decimal("-1.00")} for number in range(1200)]
        [delivery] = run_on_rows("prices", [{"trades": rows}], project)
        kept = ctypes.c_int(0)
        prctl(2, ctypes.byref(kept))  # PR_GET_PDEATHSIG
        assert kept.value == signal.SIGTERM
        assert len(delivery.quarantined) == 1200
        assert sys.path == before
    finally:
        prctl(1, 0)


def test_columns_that_only_a_run_infers(spark: SparkSession, project: Path) -> None:
    (project / "jobs/prices/pipeline.yaml").write_text(
        "version: 1\nname: prices\nschedule: null\nsources:\n"
        "  trades: {type: files, path: in, format: json, schema: infer}\n"
    )
    with pytest.raises(UsageError, match="SCHEMA_NOT_INFERRED: the columns of source trades cannot be inferred"):
        run_on_rows("prices", [{"trades": [{"id": 1}]}], project)
