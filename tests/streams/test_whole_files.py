"""A file that went to quarantine whole is read again once its schema is corrected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.project import in_session
from tests.support.streaming import make_streaming, source
from tidegate.core.errors import HeldError
from tidegate.runs.decide import reread_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_corrected_type(spark: SparkSession, tmp_path: Path) -> None:
    wrong, right = (
        f"sources:\n{source('events', f'id STRING, n {kind}', format='parquet')}" for kind in ("INT", "DOUBLE")
    )
    flow = make_streaming(tmp_path, spark, wrong)
    folder = tmp_path / "data/in/events"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["a"] * 200, "n": [1.5] * 200}), folder / "1.parquet")
    with pytest.raises(HeldError):
        flow.run("first")
    assert flow.quarantined() == {}, "nobody has decided yet"
    (folder / "1.parquet").unlink()

    flow.write("jobs/flow/pipeline.yaml", f"version: 1\nname: flow\nschedule: null\n{right}")
    report = reread_run(flow.project, "flow", "first", reason="n has decimals", submit=in_session(spark))
    assert (report["outcome"], report["rows"]["read"], report["rows"]["malformed"]) == ("published", 200, 0)
    flow.expect("id n", [("a", 1.5)] * 200)
    assert flow.quarantined() == {}
