"""Values of a partition column that are hard to keep apart in folder names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.streaming import make_streaming, source
from tidegate.core.hive_names import NULL_NAME
from tidegate.spark.ingest.plan import mark_texts, unmark_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_null_the_empty_text_and_the_name_of_nulls_folder_in_one_batch(spark: SparkSession, tmp_path: Path) -> None:
    """The empty text is NULL in every partitioned table (Hive, Spark, Delta); the name is a text like any other."""
    spec = "table: {partition_by: [k]}\nsources:\n" + source("events", "id STRING, k STRING")
    flow = make_streaming(tmp_path, spark, spec)
    texts = [None, "", NULL_NAME, f"{NULL_NAME}~", "x"]
    flow.offer("events", *({"id": str(number), "k": text} for number, text in enumerate(texts)))
    flow.run()
    expected = [(str(number), text or None) for number, text in enumerate(texts)]
    flow.expect("id k", expected)
    back = unmark_texts(mark_texts(spark.createDataFrame(expected, "id STRING, k STRING"), ["K"]), ["k"])
    assert sorted((row.id, row.k) for row in back.collect()) == expected
