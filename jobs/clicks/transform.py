"""Clicks as the web site sends them -> one row per click, with the host, and the user the record was keyed by."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(clicks: DataFrame) -> DataFrame:
    """Derive ``host`` and ``key_user_id`` (null when the key is not a number) and drop Kafka's own columns."""
    key_text = F.col("_key").cast("string")
    return clicks.withColumns(
        {
            "host": F.regexp_extract("url", "^https?://([^/:?#]+)", 1),
            "key_user_id": key_text.try_cast("bigint"),
        }
    ).drop("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
