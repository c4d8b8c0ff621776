"""A driver that has too little memory for a row: what the run says, and that nothing is lost by it."""

from __future__ import annotations

from tests.e2e.conftest import MakePipeline
from tests.support.scene import NAME

_SOURCE = "path: data/inbox\nformat: json\nschema: id STRING"
_TRANSFORM = (
    "from pyspark.sql import functions as F\n\n\n"
    "def transform(orders):\n    return orders.select('id', F.length(F.repeat('id', 400_000_000)).alias('letters'))\n"
)


def test_too_little_memory_is_named_with_the_batch_and_the_setting(make_pipeline: MakePipeline) -> None:
    few = "spark: {conf: {spark.driver.memory: 512m}}\n"
    pipeline = make_pipeline(_SOURCE, more=few, transform=_TRANSFORM)
    path = pipeline.put("a.json", '{"id": "x"}\n')
    failed = pipeline.report("run", NAME, expect=64)["error"]
    assert failed["code"] == "OUT_OF_MEMORY"
    assert "ran out of memory: the driver had 512m, and was reading batch 0 (orders: 1 file " in failed["message"]
    assert f"{path} of 12 bytes" in failed["message"]
    assert "spark.driver.memory: 1024m" in failed["fix"] and "log: " in failed["where"]
    pipeline.write_transform(_TRANSFORM.replace("400_000_000", "4"))
    pipeline.expect_rows([{"id": "x", "letters": 4}])
    pipeline.run()
    pipeline.check()
