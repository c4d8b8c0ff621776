"""Orders as the shop sends them -> one flat row per order, with the day it belongs to."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(orders: DataFrame) -> DataFrame:
    """Flatten the shipping address and derive ``day`` (UTC), by which the table is partitioned."""
    return orders.withColumns(
        {
            "country": F.col("shipping.country"),
            "postcode": F.col("shipping.postcode"),
            "day": F.to_date("ordered_at"),
        }
    ).drop("shipping")
