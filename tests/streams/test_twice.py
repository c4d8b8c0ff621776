"""A source that a transform uses more than once: read once, in both places, across runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.streams.joins import TIMED, event
from tests.streams.windows import at
from tests.support.streaming import Streaming, make_streaming, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ORDERS = "sources:\n" + source("orders", "id STRING, amount INT")
_SIDES = "def transform(orders):\n    return orders.where('amount > 1').union(orders.where('amount < 3'))\n"
_ONCE = "def transform(orders):\n    return orders\n"


def _order(name: str, amount: int) -> dict[str, object]:
    return {"id": name, "amount": amount}


def _check_reads(flow: Streaming, *counts: int) -> None:
    assert [report["rows"]["read"] for report in flow.reports] == list(counts)
    assert [report["sources"]["orders"]["rows"] for report in flow.reports] == list(counts)


@pytest.mark.parametrize("by_sql", [False, True], ids=["python", "sql"])
def test_a_union_with_itself(spark: SparkSession, tmp_path: Path, by_sql: bool) -> None:
    flow = make_streaming(tmp_path, spark, _ORDERS, _SIDES)
    if by_sql:
        spec = tmp_path / "jobs/flow/pipeline.yaml"
        spec.write_text(spec.read_text().replace("transform.py", "transform.sql"))
        (tmp_path / "jobs/flow/transform.py").unlink()
        flow.write(
            "jobs/flow/transform.sql",
            "SELECT * FROM orders WHERE amount > 1 UNION ALL SELECT * FROM orders WHERE amount < 3",
        )
    flow.offer("orders", _order("a", 1), _order("b", 2), {"id": "bad", "amount": "x"})
    flow.run()
    flow.offer("orders", _order("c", 3))
    flow.run()
    flow.offer("orders", _order("d", 2))
    flow.run()
    flow.expect("id amount", [("a", 1), ("b", 2), ("b", 2), ("c", 3), ("d", 2), ("d", 2)])
    _check_reads(flow, 3, 1, 1)
    assert [report["rows"]["malformed"] for report in flow.reports] == [1, 0, 0]
    assert len(flow.quarantined()["malformed"]) == 1


def test_one_use_becomes_two_and_one_again(spark: SparkSession, tmp_path: Path) -> None:
    """The second use begins where the first one stands: nothing is read again."""
    flow = make_streaming(tmp_path, spark, _ORDERS, _ONCE)
    for number, transform in enumerate((_ONCE, _SIDES, _ONCE)):
        flow.write("jobs/flow/transform.py", transform)
        flow.offer("orders", _order(f"at {number}", 2))
        flow.run()
    flow.expect("id amount", [("at 0", 2), ("at 1", 2), ("at 1", 2), ("at 2", 2)])
    _check_reads(flow, 1, 1, 1)


def test_a_join_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Each event with a later one of its name within an hour; those without one come out with the watermark."""
    flow = make_streaming(
        tmp_path,
        spark,
        "sources:\n" + source("orders", "id STRING, dt TIMESTAMP", **TIMED),
        "def transform(orders):\n"
        "    first = orders.select(F.col('id').alias('a'), F.col('dt').alias('first_at'))\n"
        "    then = orders.select(F.col('id').alias('b'), F.col('dt').alias('then_at'))\n"
        "    near = 'a = b AND then_at > first_at AND then_at <= first_at + INTERVAL 1 HOUR'\n"
        "    return first.join(then, F.expr(near), 'left')\n",
    )
    flow.offer("orders", event("x", "10:00"), event("y", "10:10"))
    flow.run()
    flow.offer("orders", event("x", "10:40"))
    flow.run()
    flow.offer("orders", event("end", "14:00"))
    flow.run()
    flow.offer("orders", event("x", "10:50"), event("end", "14:05"))
    report = flow.run()
    rows = [
        ("x", at("10:00"), "x", at("10:40")),
        ("x", at("10:40"), None, None),
        ("y", at("10:10"), None, None),
        ("end", at("14:00"), "end", at("14:05")),
    ]
    flow.expect("a first_at b then_at", rows)
    assert report["sources"]["orders"]["late"] == 1 and flow.aside("late") == [event("x", "10:50")]
    _check_reads(flow, 2, 1, 1, 2)


def test_two_sources_each_used_twice(spark: SparkSession, tmp_path: Path) -> None:
    sources = source("orders", "id STRING, amount INT") + source("more", "id STRING, amount INT")
    both = "orders.union(more).union(orders.where('amount > 1')).union(more.where('amount > 1'))"
    flow = make_streaming(tmp_path, spark, f"sources:\n{sources}", f"def transform(orders, more):\n    return {both}\n")
    wanted: list[tuple[str, int]] = []
    for run in (1, 2, 3):
        for name in ("orders", "more"):
            flow.offer(name, _order(f"{name} {run}", run))
            wanted += [(f"{name} {run}", run)] * (2 if run > 1 else 1)
        report = flow.run()
        assert [report["sources"][name]["rows"] for name in ("orders", "more")] == [1, 1]
    flow.expect("id amount", wanted)
