"""Trades -> one row per window of 10 minutes, every 5 minutes, with the price of the average coin."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(trades: DataFrame) -> DataFrame:
    """Weigh each price by its amount. A window without any amount has no average price: null, not a failed run."""
    return (
        trades.groupBy(F.window("dt", "10 minutes", "5 minutes"))
        .agg(
            F.try_divide(F.sum(F.col("amount") * F.col("price")), F.sum("amount")).alias("average_price"),
            F.count("*").alias("trades"),
            F.sum("amount").alias("amount"),
        )
        .select(
            F.col("window.start").alias("start"),
            F.col("window.end").alias("end"),
            "average_price",
            "trades",
            "amount",
        )
    )
