"""Values of partition columns on their way through the names of staged folders.

Spark calls the folder of NULL ``k=__HIVE_DEFAULT_PARTITION__``, and the folder of that very text as well: alone, the
text would come back as NULL; together with a NULL the batch could not be written at all, because both have one file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tidegate.core.hive_names import NULL_NAME
from tidegate.spec.ddl import quote_column
from tidegate.state.files import TEXT_MARK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def mark_texts(frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """``frame`` with a mark behind texts that begin like the name of NULL's folder, to be written by Spark.

    :func:`tidegate.state.files.partition_value` takes it away, and so does :func:`unmark_texts`.
    """
    return _change(frame, partition_by, lambda text: F.concat(text, F.lit(TEXT_MARK)))


def unmark_texts(frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Rows as they were before :func:`mark_texts`, read by Spark from folders of such names."""
    return _change(frame, partition_by, lambda text: F.substring(text, 1, F.length(text) - len(TEXT_MARK)))


def _change(frame: DataFrame, partition_by: Sequence[str], change: Callable[[Column], Column]) -> DataFrame:
    wanted = {name.lower() for name in partition_by}
    changed = {}
    for one in frame.schema:
        if one.name.lower() in wanted and isinstance(one.dataType, StringType):
            text = F.col(quote_column(one.name))
            changed[one.name] = F.when(text.startswith(NULL_NAME), change(text)).otherwise(text)
    return frame.withColumns(changed) if changed else frame
