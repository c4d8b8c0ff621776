"""The days of a backfill are read together, and judged one by one."""

from __future__ import annotations

from pathlib import Path

from tests.support.keyed import Keyed
from tidegate.runs.gate.increment import judge_staged
from tidegate.runs.opening import recover_run

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
    verdict = judge_staged(context, staged, days={f"city={city}": {"city": [city]} for city in ids})
    assert verdict.reasons == ["has_id: 3 rows break it (city=Bonn, city=Rome)"]
    few, has_id = verdict.quality["results"]
    assert (few["success"], few["observed_value"]) == (True, 2)
    assert (has_id["success"], has_id["unexpected_count"]) == (False, 3)
    assert judge_staged(context, staged, days={"city=Oslo": {"city": ["Oslo"]}}).passed
