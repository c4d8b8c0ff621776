"""The days of a backfill are read together, and judged one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.keyed import Keyed
from tests.support.staged import Stager
from tidegate.runs.gate.increment import Rebuilt, judge_staged
from tidegate.runs.opening import recover_run
from tidegate.runs.recovery.context import RunContext
from tidegate.state.manifest import BatchManifest
from tidegate.table.log.state import list_data_files

SUITE = """name: orders
expectations:
  - type: expect_table_row_count_to_be_between
    kwargs: {min_value: 1, max_value: 2}
    severity: critical
    meta: {rule: few}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: id}, severity: critical, meta: {rule: has_id}}
"""


def test_a_rule_on_an_increment_holds_for_each_day(tmp_path: Path) -> None:
    """All rows together are too many, and a null of one day is not one of another."""
    keyed = Keyed(tmp_path, partition_by=["city"], mode="append")
    ids = {"Oslo": [1, 2], "Bonn": [None, None], "Rome": [None, 6]}
    keyed.stage([{"id": one, "city": city, "n": 0} for city, some in ids.items() for one in some])
    context = keyed.context("r")
    path = context.project.suite_path("orders")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SUITE)
    staged = recover_run(context).unpublished
    assert [one.partition(" ")[0] for one in judge_staged(context, staged).reasons] == ["few:", "has_id:"]
    verdict = judge_staged(context, staged, rebuilt=Rebuilt(days={f"city={city}": {"city": [city]} for city in ids}))
    assert verdict.reasons == ["has_id: 3 rows break it (city=Bonn, city=Rome)"]
    few, has_id = verdict.quality["results"]
    assert (few["success"], few["observed_value"]) == (True, 2)
    assert (has_id["success"], has_id["unexpected_count"]) == (False, 3)
    assert judge_staged(context, staged, rebuilt=Rebuilt(days={"city=Oslo": {"city": ["Oslo"]}})).passed


def row(id_: int, city: str) -> dict[str, Any]:
    return {"id": id_, "city": city, "n": 0}


def stage(keyed: Keyed, rows: list[dict[str, Any]], **queries: str) -> tuple[RunContext, list[BatchManifest]]:
    """Stage rows, with a suite of custom SQL."""
    context = keyed.context("r")
    path = context.project.suite_path("orders")
    path.parent.mkdir(parents=True, exist_ok=True)
    rules = [
        {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": query}, "meta": {"rule": rule}}
        for rule, query in queries.items()
    ]
    path.write_text(json.dumps({"name": "orders", "expectations": rules}))
    keyed.stage(rows)
    return context, list(recover_run(context).unpublished)


def test_custom_sql_reads_each_day_and_the_table_with_all_days(tmp_path: Path) -> None:
    """The table of a query has the days that are rebuilt together, and none of the rows that they replace."""
    keyed = Keyed(tmp_path, partition_by=["city"], mode="append")
    keyed.stage([row(1, "Oslo"), row(7, "Bern"), row(8, "Bern")])
    keyed.run("first")
    context, staged = stage(
        keyed,
        [row(1, "Oslo"), row(2, "Oslo"), row(3, "Bonn"), row(4, "Bonn"), row(4, "Rome"), row(7, "Rome")],
        several="SELECT 1 FROM {batch} HAVING count(*) <> 2",
        once="SELECT id FROM {table} WHERE id IN (SELECT id FROM {batch}) GROUP BY id HAVING count(*) > 1",
        all_once="SELECT id FROM {table} GROUP BY id HAVING count(*) > 1",
        all_rows="SELECT count(*) FROM {table} HAVING count(*) <> 8",
    )
    days = {city: {"city": [city]} for city in ("Oslo", "Bonn", "Rome")}
    others = [file for file in list_data_files(keyed.paths.table) if file.partition["city"] == "Bern"]
    verdict = judge_staged(context, staged, rebuilt=Rebuilt(others, days))
    assert verdict.reasons == ["once: 3 rows break it (Bonn, Rome)", "all_once: 2 rows break it"]
    assert [one["rule"] for one in verdict.quality["results"]] == ["several", "once", "all_once", "all_rows"]
    empty = judge_staged(context, staged, rebuilt=Rebuilt(others, {**days, "Lund": {"city": ["Lund"]}}))
    assert empty.reasons[0] == "several: 1 row breaks it (Lund)"


def test_custom_sql_on_a_table_whose_columns_a_rebuild_replaces(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, mode="append")
    keyed.stage([row(1, "Oslo")])
    keyed.run("first")
    keyed.stager = Stager(keyed.paths, {"name": "string", "n": "string"}, [])
    query = "SELECT 1 FROM (SELECT * FROM {table}) AS t WHERE t::VARCHAR <> '{{''name'': a, ''n'': x}}'"
    context, staged = stage(keyed, [{"name": "a", "n": "x"}], columns=query)
    assert judge_staged(context, staged, rebuilt=Rebuilt()).passed


def test_custom_sql_on_days_with_a_column_that_the_table_lacks(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, partition_by=["city"], mode="append")
    keyed.stage([row(1, "Bern")])
    keyed.run("first")
    keyed.stager = Stager(keyed.paths, {**keyed.columns, "v": "double"}, ["city"])
    rows = [{**row(2, "Oslo"), "v": 0.5}, {**row(3, "Bonn"), "v": 1.5}]
    context, staged = stage(keyed, rows, sums="SELECT sum(v), (SELECT 1 FROM {batch}) FROM {table} HAVING sum(v) <> 2")
    days = {city: {"city": [city]} for city in ("Oslo", "Bonn")}
    assert judge_staged(context, staged, rebuilt=Rebuilt(list_data_files(keyed.paths.table), days)).passed
