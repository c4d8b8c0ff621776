"""The second yardstick: the plain job, with Great Expectations on Spark in its driver, as its own guide shows it.

``spark-submit plain_gx_job.py INPUT OUTPUT CHECKPOINT SUITE``. Each micro-batch is validated, then appended.
"""

import sys

import great_expectations as gx
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = (
    "order_id STRING, customer_id BIGINT, ordered_at TIMESTAMP, promised_at TIMESTAMP, status STRING, "
    "quantity INT, amount DECIMAL(12,2), shipping STRUCT<country: STRING, postcode: STRING>"
)

source, target, checkpoint, suite_path = sys.argv[1:5]
spark = SparkSession.builder.appName("plain-orders-gx").getOrCreate()

with open(suite_path) as handle:
    suite = gx.ExpectationSuite(**yaml.safe_load(handle))
context = gx.get_context(mode="ephemeral")
batch_definition = (
    context.data_sources.add_spark("spark").add_dataframe_asset("orders").add_batch_definition_whole_dataframe("batch")
)
context.suites.add(suite)
definition = context.validation_definitions.add(
    gx.ValidationDefinition(name="orders", data=batch_definition, suite=suite)
)


def check_and_write(batch: DataFrame, batch_id: int) -> None:
    """Validate the micro-batch and append it; a failure is printed, as most jobs do."""
    result = definition.run(batch_parameters={"dataframe": batch})
    if not result.success:
        print(f"batch {batch_id}: {result.statistics['unsuccessful_expectations']} expectations failed")
    batch.write.mode("append").partitionBy("day").parquet(target)


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
    flat.writeStream.foreachBatch(check_and_write)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
