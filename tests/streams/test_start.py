"""``start: now`` with Spark: what was there is in no table, whatever is rebuilt later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.streaming import make_streaming, source
from tidegate.runs.restart.repair import repair_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_was_there_is_never_read_and_a_rebuild_leaves_it_out(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("words", "word STRING", start="now"))
    flow.offer("words", {"word": "old"}, {"word": "older"})
    first = flow.run()
    assert first["outcome"] == "nothing_new" and first["sources"]["words"]["before_start"]["files"] == 1
    flow.offer("words", {"word": "new"})
    second = flow.run()
    assert (second["rows"]["read"], second["rows"]["published"]) == (1, 1)
    flow.expect("word", [("new",)])
    repair_pipeline(flow.project, "flow", dry_run=False, rebuild=True)
    flow.offer("words", {"word": "newer"})
    assert flow.run()["rows"]["published"] == 2
    flow.expect("word", [("new",), ("newer",)])
