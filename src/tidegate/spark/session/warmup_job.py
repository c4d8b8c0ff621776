"""A small job that walks the way of a real ingest, so that the JVM's class list can be taken from it (see ``jvm``).

``spark-submit warmup_job.py FOLDER``. Reads files of JSON lines as a stream of parts, observes counts,
applies a rule and writes partitioned parquet from foreachBatch, twice: the second, empty run loads what only a restart
from a checkpoint needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.spark.reading.parts import read_parts
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.models import FilesSource

SCHEMA = (
    "id STRING, number BIGINT, small INT, amount DECIMAL(12,2), share DOUBLE, flag BOOLEAN, at TIMESTAMP, on DATE, "
    "place STRUCT<country: STRING, lines: ARRAY<STRING>>, tags MAP<STRING, STRING>"
)
LINES = (
    '{"id":"a-1","number":1,"small":2,"amount":3.50,"share":0.5,"flag":true,"at":"2026-03-02T01:02:03.004Z",'
    '"on":"2026-03-02","place":{"country":"DE","lines":["x"]},"tags":{"k":"v"}}\n'
    '{"id":"a-2","number":-1,"small":"x"}\n'
    '{"id":"a-3"\n'
)


def count_if(condition: Column) -> Column:
    """The number of rows that meet the condition."""
    return F.count_if(F.coalesce(condition, F.lit(False)))


def read_records(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of the records, read by parts."""
    keys = {"type": "files", "path": "in", "format": "json", "schema": SCHEMA}
    lines = spark.readStream.text(str(folder / "batches"))
    return read_parts(lines, folder / "in", FilesSource.read(keys))


def run_query(parsed: DataFrame, folder: Path) -> None:
    """One AvailableNow run over ``parsed``."""
    malformed, origin = F.col("_malformed"), F.struct("_position", "_raw")
    observed = parsed.observe(
        "read",
        F.count(F.lit(1)).alias("rows"),
        count_if(malformed).alias("malformed"),
        F.max_by(F.when(malformed, origin), F.when(malformed, F.lit(1)), 10).alias("captured"),
    )
    columns = [column.name for column in parse_ddl(SCHEMA)]
    rows = observed.where(~malformed).select(*(F.col(f"`{name}`") for name in columns), origin.alias("_tidegate"))
    breaks = (F.col("number") < 0) | ~F.col("id").rlike("^a-[0-9]+$") | (F.length("id") > 9) | ~F.col("id").isin("a-1")
    ruled = rows.withColumn("day", F.to_date("at")).observe("rules", count_if(breaks).alias("rejected"))

    def write(batch: DataFrame, batch_id: int) -> None:
        kept = batch.where(~F.coalesce(breaks, F.lit(False)))
        kept.drop("_tidegate").write.mode("overwrite").partitionBy("day").parquet(str(folder / "out" / str(batch_id)))

    query = (
        ruled.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    """Two runs of the query."""
    folder = Path(sys.argv[1])
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "first.json").write_text(LINES)
    (folder / "batches").mkdir()
    (folder / "batches" / "0.jsonl").write_text('{"link":"first.json","begin":0,"end":null}\n')
    spark = SparkSession.builder.appName("tidegate-warmup").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for _ in range(2):
        run_query(read_records(spark, folder), folder)
    spark.stop()


if __name__ == "__main__":
    main()
