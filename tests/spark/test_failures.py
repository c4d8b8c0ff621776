"""What Spark throws, told apart by its error conditions and classes: a word in the user's own text decides nothing."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tidegate.core.errors import TidegateError, TryAgainError, UsageError
from tidegate.spark.driver.failures import explain, is_read_fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transform = Callable[["DataFrame"], "DataFrame"]

# What other errors are called, all at once; none of them is what happened.
_MISLEADING = "kafka TimeoutException FAILED_READ_FILE EOFException KAFKA_DATA_LOSS CONCURRENT_STREAM_LOG_UPDATE"


def fail(
    spark: SparkSession, root: Path, transform: Transform, name: str = "a.json", data: bytes = b'{"a": 1}\n'
) -> Any:
    """The error that a stream over one file ends with, as the driver keeps it."""
    source = root / "in"
    source.mkdir()
    (source / name).write_bytes(data)
    kept: list[BaseException] = []

    def take(frame: DataFrame, batch_id: int) -> None:
        try:
            frame.collect()
        except Exception as error:
            kept.append(error)
            raise

    frame = transform(spark.readStream.name("offered").schema("a INT").json(str(source)))
    writer = frame.writeStream.foreachBatch(take).trigger(availableNow=True)
    with pytest.raises(Exception) as caught:
        writer.option("checkpointLocation", str(root / "checkpoint")).start().awaitTermination()
    return kept[-1] if kept else caught.value


def told(spark: SparkSession, root: Path, transform: Transform, **file: Any) -> TidegateError:
    return explain(fail(spark, root, transform, **file), "orders", root / "jobs", root / "state")


def test_an_error_that_the_transform_raises_is_the_transforms(spark: SparkSession, tmp_path: Path) -> None:
    error = told(spark, tmp_path, lambda frame: frame.select(F.raise_error(F.lit(f"no such ad: {_MISLEADING}"))))
    assert isinstance(error, UsageError) and error.code == "TRANSFORM_FAILED"
    assert error.message == f"the transform raised an error for a row: no such ad: {_MISLEADING}"


def test_an_assertion_of_the_transform_is_too(spark: SparkSession, tmp_path: Path) -> None:
    error = told(spark, tmp_path, lambda frame: frame.selectExpr("a", "assert_true(a > 5, 'too small') AS checked"))
    assert (error.code, error.message) == ("TRANSFORM_FAILED", "the transform raised an error for a row: too small")


def test_python_code_that_speaks_of_kafka_is_not_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    @F.udf("int")
    def ask(value: int) -> int:
        raise TimeoutError(_MISLEADING)

    error = fail(spark, tmp_path, lambda frame: frame.select(ask("a")))
    assert not is_read_fault(error)
    known = explain(error, "kafka_orders", tmp_path / "jobs/kafka_orders", tmp_path)
    assert known.code == "TRANSFORM_FAILED" and f"TimeoutError: {_MISLEADING}" in known.message


def test_a_value_that_an_expression_cannot_take(spark: SparkSession, tmp_path: Path) -> None:
    error = told(spark, tmp_path, lambda frame: frame.selectExpr("1 / (a - 1) AS n"))
    assert error.code == "TRANSFORM_FAILED"
    assert error.message.startswith("a row does not fit the transform: [DIVIDE_BY_ZERO]")


def test_a_file_that_cannot_be_read_is_a_read_fault(spark: SparkSession, tmp_path: Path) -> None:
    torn = gzip.compress(b'{"a": 1}\n' * 100_000)[:200]
    assert is_read_fault(fail(spark, tmp_path, lambda frame: frame, name="a.json.gz", data=torn))


def test_a_file_that_vanishes_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"a": 1}\n')
    frame = spark.read.schema("a INT").json(str(tmp_path / "b.json"))
    (tmp_path / "b.json").unlink()
    with pytest.raises(Exception) as caught:
        frame.collect()
    error = explain(caught.value, "orders", tmp_path / "jobs", tmp_path)
    assert isinstance(error, TryAgainError) and error.code == "FILE_VANISHED"


@pytest.mark.parametrize("value", ["x" * 300, "\u00fc" * 130])
def test_a_value_that_cannot_be_the_name_of_a_folder(spark: SparkSession, tmp_path: Path, value: str) -> None:
    frame = spark.createDataFrame([(1, "fine"), (2, value)], "id INT, city STRING")
    with pytest.raises(Exception) as caught:
        frame.write.partitionBy("city").parquet(str(tmp_path / "rows"))
    error = explain(caught.value, "orders", tmp_path / "jobs", tmp_path)
    assert isinstance(error, UsageError) and error.code == "PARTITION_VALUE"
    assert error.message.startswith("a value of the partition column city cannot be a folder name")


def test_memory_is_told_by_the_class_of_the_error(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    with pytest.raises(Exception) as caught:
        jvm.java.nio.ByteBuffer.allocate(2**31 - 1)  # no array is so long: nothing has to be filled first
    error = explain(caught.value, "orders", tmp_path, tmp_path)
    assert isinstance(error, UsageError) and error.code == "OUT_OF_MEMORY"
    assert "spark.driver.memory" in str(error.fix)
    raised = told(spark, tmp_path, lambda frame: frame.select(F.raise_error(F.lit("java.lang.OutOfMemoryError"))))
    assert raised.code == "TRANSFORM_FAILED"


def test_a_checkpoint_that_somebody_else_writes_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    """The commit of the batch is there when the query comes to write it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"a": 1}\n')
    commits = tmp_path / "checkpoint/commits"

    def commit_first(frame: DataFrame, batch_id: int) -> None:
        frame.collect()
        commits.mkdir(exist_ok=True)
        (commits / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    frame = spark.readStream.name("offered").schema("a INT").json(str(tmp_path / "in"))
    writer = frame.writeStream.foreachBatch(commit_first).trigger(availableNow=True)
    with pytest.raises(Exception) as caught:
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    error = explain(caught.value, "orders", tmp_path / "jobs", tmp_path / "state")
    assert (type(error), error.code) == (TryAgainError, "CHECKPOINT_BUSY")
