"""The plan of a batch on this Spark: counts and captured records by ``observe``, read while the batch still runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.planned import stream_files
from tidegate.core.errors import UsageError
from tidegate.quality.row_rules import row_rules
from tidegate.quality.suite import load_suite
from tidegate.spark.catalyst.private_api import read_observed_metrics
from tidegate.spark.ingest import plan
from tidegate.spark.ingest.capture import unknown_places
from tidegate.spec.models import FilesSource, PipelineSpec, ProjectSpec
from tidegate.spec.project import Project, load_project
from tidegate.spec.transform import describe_lost_backslashes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SUITE = """\
name: orders
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: amount, max_value: 100}
    severity: critical
    meta: {rule: not_too_large, on_failure: quarantine}
  - type: expect_column_values_to_not_be_null
    kwargs: {column: id}
    severity: critical
    meta: {rule: id_present, on_failure: quarantine}
"""
_SOURCE = {"type": "files", "path": "in", "format": "json", "schema": "id STRING, amount INT"}


@pytest.fixture
def rules(tmp_path: Path) -> Any:
    for folder in ("jobs/orders", "expectations"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (tmp_path / "expectations/orders.yaml").write_text(_SUITE)
    suite = load_suite(load_project(tmp_path), "orders")
    assert suite is not None
    return row_rules(suite)


def _flagged(frame: DataFrame, rules: Any) -> DataFrame:
    good = plan.good_records(plan.observe_source(frame, "orders"), "orders", with_provenance=True)
    return plan.observe_rules(plan.flag_rules(good, rules), rules)


def _run_batches(spark: SparkSession, folder: Path, rules: Any) -> list[tuple[int, int, dict[str, dict[str, Any]]]]:
    """(batch, rows written, metrics) of each batch of a file each, the metrics read before the batch is committed."""
    source = FilesSource(**{**_SOURCE, "options": {"maxFilesPerTrigger": 1}})
    rows = plan.staged_rows(_flagged(stream_files(spark, folder / "intake", source, folder / "checkpoint"), rules))
    assert rows.columns == ["id", "amount"]
    seen = []

    def stage(frame: DataFrame, batch_id: int) -> None:
        target = str(folder / f"out{batch_id}")
        frame.write.parquet(target)
        metrics = read_observed_metrics(spark.streams.active[0])
        seen.append((batch_id, spark.read.parquet(target).count(), metrics))

    query = (
        rows.writeStream.foreachBatch(stage)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    query.awaitTermination()
    return seen


def _offer(folder: Path, number: int, lines: list[str]) -> None:
    path = folder / "intake" / f"{number}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))
    os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first


def test_counts_and_captured_records_of_each_batch(spark: SparkSession, rules: Any, tmp_path: Path) -> None:
    """They are there when the batch's one write has ended, before the batch is committed, and are that batch's own."""
    for number in range(2):
        lines = [json.dumps({"id": f"good{number}-{n}", "amount": n, "new": n}) for n in range(5)]
        lines += ["torn"] * (number + 1) + [json.dumps({"id": f"large{number}", "amount": 101})]
        _offer(tmp_path, number, [*lines, json.dumps({"amount": 500})])
    seen = _run_batches(spark, tmp_path, rules)
    assert [(batch, staged) for batch, staged, _ in seen] == [(0, 5), (1, 5)]
    for batch, _, metrics in seen:
        of_source, of_rules = metrics["source:orders"], metrics["rules"]
        assert (of_source["read"], of_source["malformed"], of_source["with_unknown"]) == (8 + batch, 1 + batch, 5)
        assert [record["raw"] for record in of_source["captured"]] == ["torn"] * (batch + 1)
        assert of_source["captured"][0]["position"].partition("#")[0].endswith(f"/intake/{batch}.json")
        assert list(unknown_places(of_source)) == ["new"]
        assert (of_rules["transformed"], of_rules["rejected"]) == (7, 2)
        assert (of_rules["rule_0"], of_rules["rule_1"]) == (2, 1)
        broken = {(record["reason"], record["detail"]): record["raw"] for record in of_rules["captured"]}
        assert broken == {
            ("not_too_large", "breaks not_too_large"): json.dumps({"id": f"large{batch}", "amount": 101}),
            ("not_too_large", "breaks not_too_large, id_present"): '{"amount": 500}',
        }


def test_columns_of_the_transform_are_not_taken_for_flags(spark: SparkSession, rules: Any) -> None:
    """Whatever their names are: each is staged, with the value it has."""
    columns = "id STRING, amount INT, _rule_0 INT, _rule_mine STRING, _rejected BOOLEAN"
    rows = [("kept", 1, 7, "x", True), ("large", 101, 8, "y", False)]
    flagged = plan.observe_rules(plan.flag_rules(spark.createDataFrame(rows, columns), rules), rules)
    staged = plan.staged_rows(flagged)
    assert staged.columns == ["id", "amount", "_rule_0", "_rule_mine", "_rejected"]
    assert [tuple(row) for row in staged.collect()] == [rows[0]]
    (rejected,) = plan.rejected_rows(flagged, rules).collect()
    assert json.loads(rejected["raw"]) == dict(zip(staged.columns, rows[1], strict=True))


def test_more_than_a_metric_carries(spark: SparkSession, rules: Any, tmp_path: Path) -> None:
    """The counts stay exact; what travels with them is bounded."""
    many = plan.CAPTURED_AT_MOST + 50
    lines = [f"torn {number}" for number in range(many)] + ['{"id": "good", "amount": 1}']
    lines += [json.dumps({"id": f"large{number}", "amount": 101}) for number in range(many)]
    _offer(tmp_path, 0, lines)
    ((_, staged, metrics),) = _run_batches(spark, tmp_path, rules)
    assert (staged, metrics["source:orders"]["malformed"], metrics["rules"]["rejected"]) == (1, many, many)
    for name in ("source:orders", "rules"):
        captured = [record["raw"] for record in metrics[name]["captured"]]
        assert len(set(captured)) == len(captured) == plan.CAPTURED_AT_MOST


def test_what_the_metrics_hold_is_bounded(spark: SparkSession, rules: Any, tmp_path: Path) -> None:
    """Ten times the bounds: a key of its own in each record, long keys, many keys, long records."""
    record = {"id": "a", "amount": 1}
    lines = [json.dumps({**record, f"user_{number}": 1}) for number in range(50_000)]
    lines += [json.dumps({**record, f"{number}" + "x" * 3_000: 1}) for number in range(100)]
    lines += [json.dumps({**record, **{f"many_{number}_{key}": 1 for key in range(640)}}) for number in range(100)]
    lines += ["torn" * 3_000 + str(number) for number in range(640)] + ["torn" * 40_000]
    lines += [json.dumps({"id": "b" * 3_000, "amount": 500 + number}) for number in range(640)]
    _offer(tmp_path, 0, lines)
    ((_, staged, metrics),) = _run_batches(spark, tmp_path, rules)
    of_source, of_rules = metrics["source:orders"], metrics["rules"]
    assert (staged, of_source["with_unknown"], of_source["malformed"]) == (50_200, 50_200, 641)
    assert (len(of_source["captured_long"]), of_source["captured"] or []) == (64, [])
    assert len(of_rules["captured_long"]) == 64 and of_rules["rejected"] == 640
    places = unknown_places(of_source)
    assert len(places) == 64 and max(map(len, places)) <= 256 and all(places.values())
    assert len(json.dumps(metrics)) < 4 << 20 and len(json.dumps(places)) < 40_000


def test_rare_unknown_fields_are_named_beside_frequent_ones(spark: SparkSession, rules: Any, tmp_path: Path) -> None:
    record = {"id": "a", "amount": 1}
    lines = [json.dumps({**record, "frequent": 1})] * 20_000 + [json.dumps({**record, "rare": 1})]
    _offer(tmp_path, 0, [*lines, json.dumps({**record, "frequent": 1, "with_it": 2}), *lines[:1000]])
    ((_, _, metrics),) = _run_batches(spark, tmp_path, rules)
    assert list(unknown_places(metrics["source:orders"])) == ["frequent", "rare", "with_it"]


def test_columns_that_cannot_be_written_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Two of one name in any case, one without a type, and a partition column that is not there."""
    frame = spark.createDataFrame([("a", 1)], "id STRING, amount INT")
    value = {"version": 1, "name": "orders", "sources": {"orders": _SOURCE}}
    for text, more, message in (
        ("SELECT id, amount AS ID FROM orders", {}, "two columns with one name: id"),
        ("SELECT NULL AS nothing FROM orders", {}, "columns without a type: nothing"),
        ("SELECT id, 1 AS _Tidegate_rule_0 FROM orders", {}, "tidegate reserves for its own: _Tidegate_rule_0"),
        ("SELECT id, 1 AS _tidegate FROM orders", {}, "tidegate reserves for its own: _tidegate"),
        (
            "SELECT id FROM orders",
            {"table": {"partition_by": ["day"]}},
            "lack columns that partition_by, keys or order_by name: day",
        ),
        (
            "SELECT id FROM orders",
            {"output_mode": "update", "table": {"keys": ["id"], "order_by": "changed_at"}},
            "lack columns that partition_by, keys or order_by name: changed_at",
        ),
    ):
        (tmp_path / "transform.sql").write_text(text)
        spec = PipelineSpec(**{**value, **more, "transform": "transform.sql"})
        with pytest.raises(UsageError, match=message) as caught:
            plan.transformed_rows(spark, spec, tmp_path, {"orders": frame}, "run")
        assert caught.value.exit_code == 64


@pytest.mark.parametrize("name", ["transform.py", "transform.sql"])
def test_a_transform_that_is_not_there(spark: SparkSession, tmp_path: Path, name: str) -> None:
    spec = PipelineSpec(version=1, name="orders", sources={"orders": _SOURCE}, transform=name)
    frame = spark.createDataFrame([("a", 1)], "id STRING, amount INT")
    with pytest.raises(UsageError, match=f"{name}, which `transform:` names: is not there") as caught:
        plan.transformed_rows(spark, spec, tmp_path, {"orders": frame}, "run")
    assert "tidegate validate" in str(caught.value.fix)


def test_the_backslashes_that_validate_names_are_those_that_spark_does_not_keep(
    spark: SparkSession, tmp_path: Path
) -> None:
    letters = [chr(code) for code in range(33, 127) if chr(code) not in "`"]
    source = {"type": "files", "path": "in", "format": "text"}
    spec = PipelineSpec(version=1, name="orders", sources={"s": source}, transform="transform.sql")
    project = Project(root=tmp_path, spec=ProjectSpec())
    path = project.paths("orders").job / "transform.sql"
    path.parent.mkdir(parents=True)
    for quote in ("'", '"'):
        selected = ",\n".join(f"{quote}\\{letter}{quote} AS c{index}" for index, letter in enumerate(letters))
        path.write_text(f"SELECT {selected}")
        named = {int(note.split(":")[1]) - 1 for note in describe_lost_backslashes(project, spec)}
        read = spark.sql(path.read_text()).collect()[0]
        changed = {index for index, letter in enumerate(letters) if read[index] != f"\\{letter}"}
        on_purpose = {index for index, letter in enumerate(letters) if letter in "0nrt\\" or letter in "!\"#',/:;<=>@~"}
        assert named == changed - on_purpose - {letters.index("\\")}
