"""parquet, orc and avro files as wholes: their rows and columns, and one without rows.

pyarrow is imported here, so whoever must stay light imports this module where it is needed.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from tidegate.sources.readers import avro_file
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.part_readers import open_rows
from tidegate.sources.readers.rows import DamagedFile


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


def read_schema(path: Path, file_format: str) -> pa.Schema:
    """The columns of a file in the types that it has. Raises DamagedFile, OSError."""
    with open_rows(str(path), Form(file_format, "")) as rows:
        return rows.schema


def find_conflicts(folder: Path, links: Mapping[str, str], file_format: str) -> str | None:
    """The columns that files of ``folder`` hold in different types, with a file for each. ``links`` maps the files to
    the paths that the user knows."""
    seen: dict[str, dict[str, str]] = {}
    for link, path in links.items():
        try:
            columns = list(read_schema(folder / link, file_format))
        except (DamagedFile, OSError):
            continue
        for column in columns:
            seen.setdefault(column.name, {}).setdefault(str(column.type), path)
    told = [
        f"{name} is " + " and ".join(f"{found} in {path}" for found, path in kinds.items())
        for name, kinds in seen.items()
        if len(kinds) > 1
    ]
    return "; ".join(told) or None


def make_empty(file_format: str) -> bytes:
    """A file of no rows. One column is enough: the missing ones are nulls, of which there are none."""
    if file_format == "avro":
        return avro_file.make_empty()
    table = pa.table({"_nothing": pa.array([], pa.string())})
    sink = io.BytesIO()
    if file_format == "parquet":
        pq.write_table(table, sink)
    else:
        orc.write_table(table, sink)
    return sink.getvalue()
