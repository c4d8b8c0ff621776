"""The yardstick: a plain hand-written AvailableNow job over NDJSON files, without any check.

``spark-submit plain_files_job.py INPUT OUTPUT CHECKPOINT``. What a tutorial shows, with Spark's default settings.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = (
    "order_id STRING, customer_id BIGINT, ordered_at TIMESTAMP, promised_at TIMESTAMP, status STRING, "
    "quantity INT, amount DECIMAL(12,2), shipping STRUCT<country: STRING, postcode: STRING>"
)

source, target, checkpoint = sys.argv[1:4]
spark = SparkSession.builder.appName("plain-orders").getOrCreate()

orders = spark.readStream.schema(SCHEMA).json(source)
flat = orders.select(
    "order_id",
    "customer_id",
    "ordered_at",
    "promised_at",
    "status",
    "quantity",
    "amount",
    F.col("shipping.country").alias("country"),
    F.col("shipping.postcode").alias("postcode"),
    F.to_date("ordered_at").alias("day"),
)
query = (
    flat.writeStream.format("parquet")
    .partitionBy("day")
    .option("path", target)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
