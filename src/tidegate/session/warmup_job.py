"""A small job that walks the way of a real ingest, so that the JVM's class list can be taken from it (see ``jvm``).

``spark-submit warmup_job.py FOLDER``. Reads text files as a stream, parses JSON, observes counts, applies a rule and
writes partitioned parquet from foreachBatch, twice: the second, empty run loads what only a restart from a checkpoint
needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = (
    "id STRING, number BIGINT, small INT, amount DECIMAL(12,2), share DOUBLE, flag BOOLEAN, at TIMESTAMP, on DATE, "
    "place STRUCT<country: STRING, lines: ARRAY<STRING>>, tags MAP<STRING, STRING>, _corrupt_record STRING"
)
LINES = (
    '{"id":"a-1","number":1,"small":2,"amount":3.50,"share":0.5,"flag":true,"at":"2026-03-02T01:02:03.004Z",'
    '"on":"2026-03-02","place":{"country":"DE","lines":["x"]},"tags":{"k":"v"}}\n'
    '{"id":"a-2","number":-1,"small":"x"}\n'
    '{"id":"a-3"\n'
)


def count_if(condition: Column) -> Column:
    """How many rows meet the condition."""
    return F.count_if(F.coalesce(condition, F.lit(False)))


def run_query(spark: SparkSession, folder: Path) -> None:
    """One AvailableNow run over the files in ``folder/in``."""
    lines = spark.readStream.format("text").load(str(folder / "in"))
    parsed = lines.select(
        F.from_json("value", SCHEMA, {"columnNameOfCorruptRecord": "_corrupt_record"}).alias("row"),
        F.struct(F.col("_metadata.file_path").alias("file"), F.col("value").alias("raw")).alias("_tidegate"),
    )
    malformed = F.col("row._corrupt_record").isNotNull()
    observed = parsed.observe(
        "read",
        F.count(F.lit(1)).alias("rows"),
        count_if(malformed).alias("malformed"),
        F.max_by(F.when(malformed, F.col("_tidegate")), F.when(malformed, F.lit(1)), 10).alias("captured"),
    )
    rows = observed.where(~F.coalesce(malformed, F.lit(False))).select("row.*", "_tidegate").drop("_corrupt_record")
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
    """Two runs of the same query."""
    folder = Path(sys.argv[1])
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "first.json").write_text(LINES)
    spark = SparkSession.builder.appName("tidegate-warmup").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for _ in range(2):
        run_query(spark, folder)
    spark.stop()


if __name__ == "__main__":
    main()
