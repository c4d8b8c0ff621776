"""The yardstick for wide records: a plain hand-written AvailableNow job over NDJSON files, without any check.

``spark-submit plain_wide_job.py INPUT OUTPUT CHECKPOINT SCHEMA``; SCHEMA is a file with the columns as Spark DDL. With
Spark's default settings.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

source, target, checkpoint, schema = sys.argv[1:5]
spark = SparkSession.builder.appName("plain-wide").getOrCreate()

records = spark.readStream.schema(Path(schema).read_text()).json(source)
query = (
    records.writeStream.format("parquet")
    .option("path", target)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
