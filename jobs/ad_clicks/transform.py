"""Impressions and clicks -> each impression with the clicks that came within an hour of it, or with none."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    """The limits on both times are what lets Spark forget an impression, and say that nobody clicked on it."""
    click_time, impression_time = F.col("click.click_time"), F.col("impression.impression_time")
    same = F.col("click.impression_id") == F.col("impression.impression_id")
    within_the_hour = (click_time >= impression_time) & (click_time <= impression_time + F.expr("INTERVAL 1 HOUR"))
    return (
        impressions.alias("impression")
        .join(clicks.alias("click"), same & within_the_hour, "left")
        .select("impression.*", "click.click_id", "click.click_time")
    )
