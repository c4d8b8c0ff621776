"""The yardstick for Kafka: a plain hand-written AvailableNow job over JSON messages, without any check.

``spark-submit --jars ... plain_kafka_job.py BOOTSTRAP TOPIC OUTPUT CHECKPOINT``, with Spark's default settings.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = (
    "click_id STRING, user_id BIGINT, clicked_at TIMESTAMP, url STRING, referrer STRING, "
    "device STRING, duration_ms INT, campaign STRUCT<source: STRING, medium: STRING>"
)

bootstrap_servers, topic, target, checkpoint = sys.argv[1:5]
spark = SparkSession.builder.appName("plain-clicks").getOrCreate()

messages = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap_servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
)
clicks = (
    messages.select(
        F.from_json(F.col("value").cast("string"), SCHEMA).alias("click"),
        F.col("key").cast("string").try_cast("bigint").alias("key_user_id"),
    )
    .select("click.*", "key_user_id")
    .withColumn("host", F.regexp_extract("url", "^https?://([^/:?#]+)", 1))
)
query = (
    clicks.writeStream.format("parquet")
    .option("path", target)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
