"""The yardstick for keys of state: a plain hand-written AvailableNow job that counts by key, without any check.

``spark-submit plain_keys_job.py INPUT OUTPUT CHECKPOINT``. What a tutorial shows, with Spark's default settings.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

source, target, checkpoint = sys.argv[1:4]
spark = SparkSession.builder.appName("plain-keys").getOrCreate()


def write(counts: DataFrame, batch_id: int) -> None:
    """Changed counts, a folder a batch."""
    counts.write.parquet(f"{target}/{batch_id}")


counts = spark.readStream.schema("id LONG").json(source).groupBy("id").count()
query = (
    counts.writeStream.outputMode("update")
    .foreachBatch(write)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
