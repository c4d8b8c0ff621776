"""``tidegate try`` where the rows would not fit the table that is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.project import in_session
from tests.support.streaming import make_streaming, source
from tidegate.core.errors import UsageError
from tidegate.views.trial import try_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_a_run_would_refuse_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(
        tmp_path,
        spark,
        f"sources:\n{source('events', 'id STRING, n INT')}",
        "def transform(events):\n    return events\n",
    )
    flow.offer("events", {"id": "a", "n": 1})
    flow.run()
    flow.write(
        "jobs/flow/transform.py", "def transform(events):\n    return events.selectExpr('CAST(n AS STRING) AS n')\n"
    )
    flow.offer("events", {"id": "b", "n": 2})
    with pytest.raises(UsageError) as tried:
        try_pipeline(flow.project, "flow", rows=5, submit=in_session(spark))
    with pytest.raises(UsageError) as ran:
        flow.run()
    assert tried.value.code == ran.value.code == "SCHEMA_CHANGE"
    assert tried.value.message == ran.value.message
    assert "column 'n' is INT in the table and STRING" in tried.value.message
    assert "column 'id' of the table is missing" in tried.value.message
    flow.expect("id n", [("a", 1)])
