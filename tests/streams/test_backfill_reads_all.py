"""A backfill reads all that the day had: whole files, what was in quarantine, and no file that changes meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.support.project import in_session
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import TidegateError
from tidegate.rework.backfill.command import backfill_table, refresh_table
from tidegate.rework.backfill.span import Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def backfill(flow: Streaming, first: str, last: str, run_id: str) -> dict[str, Any]:
    return dict(backfill_table(flow.project, flow.name, run_id, Wanted(first, last), submit=in_session(flow.spark)))


def spec(kind: str) -> str:
    return "quality: {max_quarantine_share: 1}\ntable: {partition_by: [day]}\nsources:\n" + source(
        "events", f"id STRING, day STRING, n {kind}", format="parquet"
    )


TRANSFORM = "def transform(events):\n    return events.withColumn('n', F.col('n').cast('double'))\n"


@pytest.mark.parametrize("then", ["the schema as it was", "the new schema"])
def test_rows_of_a_sound_file_after_a_backfill_that_did_not_come_to_its_end(
    spark: SparkSession, tmp_path: Path, then: str
) -> None:
    flow = make_streaming(tmp_path, spark, spec("DOUBLE"), TRANSFORM)
    folder = flow.root / "data/in/events"
    folder.mkdir(parents=True)
    for number, day in enumerate(("2026-01-01", "2026-01-01", "2026-01-02")):
        rows = {"id": [f"r{number}"] * 3, "day": [day] * 3, "n": [1.5] * 3}
        pq.write_table(pa.table(rows), folder / f"{number}.parquet")
        flow.run()
    before = [(f"r{number}",) for number in (0, 1, 2) for _ in range(3)]
    flow.expect("id", before)
    # A schema by mistake: the files do not fit it.
    path = flow.root / "jobs/flow/pipeline.yaml"
    good, bad = path.read_text(), path.read_text().replace("n DOUBLE", "n INT")
    path.write_text(bad)
    submit = in_session(spark)

    def beside_another_program(plan: Any) -> int:
        code = submit(plan)
        write_deltalake(str(flow.table), pa.table({"id": ["x"], "day": ["2026-01-09"], "n": [0.0]}), mode="append")
        return code

    with pytest.raises(TidegateError) as stopped:
        backfill_table(
            flow.project, flow.name, "one", Wanted("2026-01-01", "2026-01-01"), submit=beside_another_program
        )
    assert stopped.value.code == "BACKFILL_TABLE_CHANGED", stopped.value
    flow.expect("id", [*before, ("x",)])
    if then == "the schema as it was":
        path.write_text(good)
    backfill(flow, "2026-01-01", "2026-01-01", "two")
    if then == "the schema as it was":
        flow.expect("id", [*before, ("x",)])
        assert not flow.quarantined()
    else:
        flow.expect("id", [("r2",)] * 3 + [("x",)])
        assert len(flow.quarantined()["malformed"]) == 2


JSON = "table: {partition_by: [day]}\nquality: {max_quarantine_share: 1}\nsources:\n"
DAYS = """def transform(events):
    return events.withColumn('day', F.to_date('at')).withColumn('n', F.col('n').cast('double'))
"""
LIMIT = """name: flow
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: n, max_value: %s}
    severity: critical
    meta: {rule: not_too_large, on_failure: quarantine}
"""


@pytest.mark.parametrize("what", ["malformed", "rejected"])
def test_a_record_that_a_refresh_took_out_of_quarantine_and_a_backfill_of_its_day(
    spark: SparkSession, tmp_path: Path, what: str
) -> None:
    """No crash, no second process: three commands that each say that all went well."""
    wrong, right = (JSON + source("events", f"id STRING, at TIMESTAMP, n {kind}") for kind in ("INT", "DOUBLE"))
    flow = make_streaming(tmp_path, spark, wrong if what == "malformed" else right, DAYS)
    if what == "rejected":
        flow.write("expectations/flow.yaml", LIMIT % 10)
    flow.offer(
        "events",
        {"id": "a", "at": "2026-01-01T12:00:00Z", "n": 1},
        {"id": "b", "at": "2026-01-02T12:00:00Z", "n": 1.5 if what == "malformed" else 100},
    )
    flow.run()
    flow.offer("events", {"id": "c", "at": "2026-01-02T12:00:00Z", "n": 3})
    flow.run()
    flow.expect("id", [("a",), ("c",)])
    assert {reason: len(texts) for reason, texts in flow.quarantined().items()}
    # Corrected, and the whole table rebuilt:
    if what == "malformed":
        path = flow.root / "jobs/flow/pipeline.yaml"
        path.write_text(path.read_text().replace("n INT", "n DOUBLE"))
    else:
        flow.write("expectations/flow.yaml", LIMIT % 1000)
    report = refresh_table(flow.project, flow.name, "fresh", submit=in_session(spark))
    assert report["outcome"] == "published"
    flow.expect("id", [("a",), ("b",), ("c",)])
    assert not flow.quarantined()
    # Later, for whatever reason, one day:
    report = backfill(flow, "2026-01-02", "2026-01-02", "day")
    assert report["outcome"] == "published"
    flow.expect("id", [("a",), ("b",), ("c",)])


@pytest.mark.parametrize("kind", ["backfill", "refresh"])
@pytest.mark.parametrize("what", ["shrunk", "rewritten", "deleted"])
def test_a_file_that_changes_while_the_jvm_starts(spark: SparkSession, tmp_path: Path, kind: str, what: str) -> None:
    """It was compared with the ledger just before; nothing compares it with the ledger after it was read."""
    flow = make_streaming(tmp_path, spark, JSON + source("events", "id STRING, at TIMESTAMP, n DOUBLE"), DAYS)
    file = flow.offer("events", *({"id": name, "at": "2026-01-01T12:00:00Z", "n": 1} for name in "abc"))
    flow.run()
    flow.offer("events", {"id": "d", "at": "2026-01-02T12:00:00Z", "n": 3})
    flow.run()
    before = [("a",), ("b",), ("c",), ("d",)]
    flow.expect("id", before)
    submit = in_session(spark)

    def change_and_submit(plan: Any) -> int:
        if what == "deleted":
            file.unlink(missing_ok=True)
        elif what == "shrunk":
            file.write_text(file.read_text().split("\n")[0] + "\n")
        else:
            file.write_text(file.read_text().replace('"b"', '"x"'))
        return submit(plan)

    def rebuild() -> str:
        if kind == "backfill":
            wanted = Wanted("2026-01-01", "2026-01-01")
            report = backfill_table(flow.project, flow.name, "day", wanted, submit=change_and_submit)
        else:
            report = refresh_table(flow.project, flow.name, "fresh", submit=change_and_submit)
        return str(report["outcome"])

    if what == "deleted":  # its link was there
        assert rebuild() == "published"
    else:
        with pytest.raises(TidegateError, match="BACKFILL_GONE"):
            rebuild()
    flow.expect("id", before)


def test_a_whole_file_that_a_refresh_took_out_of_quarantine_and_a_backfill_of_its_day(
    spark: SparkSession, tmp_path: Path
) -> None:
    head = "quality: {max_quarantine_share: 1}\ntable: {partition_by: [day]}\nsources:\n"
    wrong = head + source("events", "id STRING, day STRING, m INT", format="parquet")
    flow = make_streaming(tmp_path, spark, wrong, "def transform(events):\n    return events.select('id', 'day')\n")
    folder = flow.root / "data/in/events"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["a"], "day": ["2026-01-01"]}), folder / "0.parquet")
    pq.write_table(pa.table({"id": ["b"], "day": ["2026-01-01"], "m": ["text"]}), folder / "1.parquet")
    flow.run()
    flow.expect("id", [("a",)])
    assert {reason: len(texts) for reason, texts in flow.quarantined().items()} == {"malformed": 1}
    path = flow.root / "jobs/flow/pipeline.yaml"
    path.write_text(path.read_text().replace("m INT", "m STRING"))
    assert refresh_table(flow.project, flow.name, "fresh", submit=in_session(spark))["outcome"] == "published"
    flow.expect("id", [("a",), ("b",)])
    assert not flow.quarantined()
    assert backfill(flow, "2026-01-01", "2026-01-01", "day")["outcome"] == "published"
    flow.expect("id", [("a",), ("b",)])
