"""parquet, orc and avro files as a whole: row counts, schemas, and empty files.

This module imports pyarrow: import it in functions where start-up time matters.
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
from tidegate.sources.readers.rows import open_rows
from tidegate.sources.readers.unreadable import DamagedFile


def count_rows(path: Path, file_format: str) -> int | None:
    """Count the rows by the footer (avro: by the blocks); None where that is missing or cannot be read."""
    try:
        if file_format == "avro":
            return sum(block.records for block in avro_file.read_blocks(path))
        if file_format == "parquet":
            return int(pq.read_metadata(path).num_rows)
        return int(orc.ORCFile(str(path)).nrows)
    except (pa.ArrowException, OSError, DamagedFile):
        return None


def read_schema(path: Path, file_format: str) -> pa.Schema:
    """Read the schema of a file. Raises DamagedFile, OSError."""
    with open_rows(str(path), Form(file_format, "")) as rows:
        return rows.schema


def find_conflicts(folder: Path, links: Mapping[str, str], file_format: str) -> str | None:
    """Describe columns that have different types in files of ``folder``, with a file for each type. ``links`` maps the
    files to the user's paths."""
    seen: dict[str, dict[str, str]] = {}
    for link, path in links.items():
        try:
            columns = list(read_schema(folder / link, file_format))
        except (DamagedFile, OSError):
            continue
        for column in columns:
            seen.setdefault(column.name, {}).setdefault(str(column.type), path)
    conflicts = [
        f"{name} is " + " and ".join(f"{found} in {path}" for found, path in kinds.items())
        for name, kinds in seen.items()
        if len(kinds) > 1
    ]
    return "; ".join(conflicts) or None


def make_empty(file_format: str) -> bytes:
    """Make a file without rows. One column is enough, since missing columns are read as nulls."""
    if file_format == "avro":
        return avro_file.EMPTY
    table = pa.table({"_nothing": pa.array([], pa.string())})
    sink = io.BytesIO()
    if file_format == "parquet":
        pq.write_table(table, sink)
    else:
        orc.write_table(table, sink)
    return sink.getvalue()
