"""Of which queries it is known how the partition of a row is found: two with one rule give a record's rows to the same
partitions, whatever other records there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.streaming import make_streaming, source
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.ingest.query import prepare_query
from tidegate.spark.ingest.read import SourceReader
from tidegate.spec.pipeline import load_pipeline
from tidegate.state.manifest import SPAN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING, at TIMESTAMP, n INT"
TIMED = {"event_time": "at", "watermark": "20 minutes"}
PAIRS = (
    "    r = r.withColumnsRenamed({'id': 'key', 'at': 'seen', 'n': 'm'})\n"
    "    both = l.join(r, F.expr('id = key AND seen >= at AND seen <= at + INTERVAL 1 HOUR'), 'HOW')\n"
    "    return both.withColumn('day', F.to_date('COLUMN'))\n"
)
WINDOW = "l.groupBy(F.window('at', '10 minutes').alias('w')).agg(F.max('at').alias('last'))"


def pairs(how: str, column: str) -> str:
    return PAIRS.replace("HOW", how).replace("COLUMN", column)


CASES = {
    "a window": (f"    return {WINDOW}.withColumn('day', F.to_date('w.start'))\n", True),
    "its last record": (f"    return {WINDOW}.withColumn('day', F.to_date('last'))\n", False),
    "equal in all": ("    return l.dropDuplicates().withColumn('day', F.to_date('at'))\n", True),
    "equal in the key": ("    return l.dropDuplicates(['id', 'at']).withColumn('day', F.to_date('at'))\n", True),
    "equal in another column": ("    return l.dropDuplicates(['id']).withColumn('day', F.to_date('at'))\n", False),
    "both sides of a union": (
        f"    w = {WINDOW}.select(F.to_date('w.start').alias('day'), F.lit(1).alias('n'))\n"
        "    return w.union(l.select(F.to_date('at').alias('day'), 'n'))\n",
        True,
    ),
    "one side of a union": (
        f"    w = {WINDOW}.select(F.to_date('last').alias('day'), F.lit(1).alias('n'))\n"
        "    return w.union(l.select(F.to_date('at').alias('day'), 'n'))\n",
        False,
    ),
    "code in a union": (
        "    own = F.udf(lambda at: at.date(), 'date')\n"
        "    return l.select(own('at').alias('day'), 'n').union(l.select(F.to_date('at').alias('day'), 'n'))\n",
        False,
    ),
    "left of a left join": (pairs("left", "at"), True),
    "right of a left join": (pairs("left", "seen"), False),
    "left of a right join": (pairs("right", "at"), False),
    "right of an inner join": (pairs("inner", "seen"), True),
    "left of a full join": (pairs("full", "at"), False),
}


@pytest.mark.parametrize("case", CASES)
def test_whether_the_partition_is_found_by_a_rule(spark: SparkSession, tmp_path: Path, case: str) -> None:
    body, is_known = CASES[case]
    names = ["l", "r"] if "join" in case else ["l"]
    spec = "table: {partition_by: [day]}\nsources:\n" + "".join(source(name, SCHEMA, **TIMED) for name in names)
    flow = make_streaming(tmp_path, spark, spec, f"def transform({', '.join(names)}):\n{body}")
    for name in names:
        (flow.state / "batches" / name).mkdir(parents=True)
    project = flow.project
    loaded = load_pipeline(project, "flow")
    order = IngestOrder("", "flow", "r", "1")
    reader = SourceReader(spark, project, project.paths("flow"), order, loaded)
    found = prepare_query(spark, project, loaded, order, reader.streams()).partitioned
    assert ("rule" in found) is is_known
    spans = {"a window": ["day", "l", 0, 0], "equal in all": ["day", "l", 0, 0], "equal in the key": ["day", "l", 0, 0]}
    assert (json.loads(found[SPAN]) if SPAN in found else None) == spans.get(case)
