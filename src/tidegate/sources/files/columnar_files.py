"""parquet, orc and avro files as wholes: their rows, what is wrong with them, and one without rows.

pyarrow is imported here, so whoever must stay light imports this module where it is needed.
"""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from tidegate.sources.readers import avro_file


def count_rows(path: Path, file_format: str) -> int | None:
    """The rows of a file by its footer (avro: by its blocks); None where it has none, or none that can be read."""
    try:
        if file_format == "avro":
            return avro_file.count_records(path)
        if file_format == "parquet":
            return int(pq.read_metadata(path).num_rows)
        return int(orc.ORCFile(str(path)).nrows)
    except (pa.ArrowException, OSError, avro_file.NotAvro):
        return None


def find_fault(path: Path, file_format: str) -> str | None:
    """What is wrong with a file that is read to its end, in words; None where nothing is.

    Raises FileNotFoundError when the file is away and OSError when the disk fails, for avro alone: pyarrow's readers
    give both as their own errors.
    """
    if file_format == "avro":
        return _avro_fault(path)
    return _parquet_fault(path) if file_format == "parquet" else _orc_fault(path)


def make_empty(file_format: str) -> bytes:
    """A file of no rows. One column is enough: Spark fills the missing ones with nulls, of which there are none."""
    if file_format == "avro":
        return avro_file.make_empty()
    table = pa.table({"_nothing": pa.array([], pa.string())})
    sink = io.BytesIO()
    if file_format == "parquet":
        pq.write_table(table, sink)
    else:
        orc.write_table(table, sink)
    return sink.getvalue()


def _parquet_fault(path: Path) -> str | None:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for _ in file.iter_batches():
                pass
    except (pa.ArrowException, OSError) as error:
        return f"not a readable parquet file: {str(error).splitlines()[0]}"
    return None


def _orc_fault(path: Path) -> str | None:
    try:
        file = orc.ORCFile(str(path))
        for stripe in range(file.nstripes):
            file.read_stripe(stripe)
    except (pa.ArrowException, OSError) as error:
        return f"not a readable orc file: {str(error).splitlines()[0]}"
    return None


def _avro_fault(path: Path) -> str | None:
    try:
        avro_file.count_records(path)
    except avro_file.NotAvro as error:
        return f"not a readable avro file: {error}"
    return None
