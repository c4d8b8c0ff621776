"""Writes the rows of a batch to a new folder of the staging, wherever the tasks run."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.core import storage
from tidegate.spark.catalyst.private_api import Metrics, read_frame_metrics
from tidegate.spec.ddl import quote_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidegate.core.storage.mirror import Mirror

_AT_ONCE = 8
_COMPRESSIONS = {"uncompressed": "none", "lz4_raw": "lz4"}
"""How pyarrow names what Spark names otherwise."""


def write_rows(rows: DataFrame, folder: Path, partition_by: Sequence[str], unseen: Mirror | None) -> Metrics | None:
    """Write ``rows`` as parquet files into the new ``folder``.

    Where tasks do not see it, as one of the working copy ``unseen``, they upload the files, and this process fetches
    them; the metrics of the pass are returned then. Raises StoreError.
    """
    if unseen is not None:
        return _upload_rows(rows, folder, partition_by, unseen)
    rows.write.mode("error").partitionBy(*partition_by).parquet(str(folder))
    return None


def _upload_rows(rows: DataFrame, folder: Path, partition_by: Sequence[str], unseen: Mirror) -> Metrics:
    from tidegate.spark.ingest.upload import PLACE, WRITTEN, RowUploader  # pyarrow, which other drivers load later

    conf = rows.sparkSession.conf
    compression = str(conf.get("spark.sql.parquet.compression.codec")).lower()
    columns = _find_columns(rows, partition_by)
    uploader = RowUploader(
        target=str(unseen.blobs),
        partition_by=columns,
        footer=_describe(rows, columns),
        compression=_COMPRESSIONS.get(compression, compression),
        rows_at_most=int(str(conf.get("spark.sql.files.maxRecordsPerFile"))),
    )
    texts = [F.col(quote_column(name)).cast("string") for name in columns]
    place = F.to_json(F.array(*texts)) if texts else F.lit("[]")
    placed = rows.withColumn(PLACE, place)
    # One file for each partition in a task, as Spark's own writer does it.
    grouped = placed.sortWithinPartitions(PLACE) if columns else placed
    written = grouped.mapInArrow(uploader, WRITTEN)
    found = [(row["folder"], row["object"]) for row in written.collect()]
    storage.make_folder(folder)

    def fetch(one: tuple[str, str]) -> None:
        inside, name = one
        unseen.fetch(name, folder / inside / f"part-{name}.parquet")

    with ThreadPoolExecutor(_AT_ONCE, "tidegate-fetching") as pool:
        list(pool.map(fetch, found))
    return read_frame_metrics(written)


def _find_columns(rows: DataFrame, names: Sequence[str]) -> list[str]:
    """The columns of ``rows`` that ``names`` mean, in any case, as they are written there."""
    known = {name.lower(): name for name in rows.columns}
    return [known[name.lower()] for name in names]


def _describe(rows: DataFrame, partition_by: Sequence[str]) -> dict[str, str]:
    """What Spark writes into the footer of a file, by which its reader knows the columns, and that dates before 1582
    are in the calendar of today."""
    schema: StructType = rows.schema
    inside = type(schema)([one for one in schema.fields if one.name not in partition_by])
    return {
        "org.apache.spark.version": rows.sparkSession.version,
        "org.apache.spark.sql.parquet.row.metadata": inside.json(),
    }
