"""The yardstick for windows: a plain hand-written AvailableNow job over NDJSON trades, without any check.

``spark-submit plain_window_job.py INPUT OUTPUT CHECKPOINT``. What a tutorial shows, with Spark's default settings.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, target, checkpoint = sys.argv[1:4]
spark = SparkSession.builder.appName("plain-windows").getOrCreate()

trades = spark.readStream.schema("dt TIMESTAMP, amount INT, price DOUBLE").json(source)
prices = (
    trades.withWatermark("dt", "20 minutes")
    .groupBy(F.window("dt", "10 minutes", "5 minutes"))
    .agg(
        F.try_divide(F.sum(F.col("amount") * F.col("price")), F.sum("amount")).alias("average_price"),
        F.count("*").alias("trades"),
        F.sum("amount").alias("amount"),
    )
    .select("window.start", "window.end", "average_price", "trades", "amount")
)
query = (
    prices.writeStream.format("parquet")
    .option("path", target)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
