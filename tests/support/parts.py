"""Parts of files read as a worker of Spark reads them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.sources.readers.form import Form
from tidegate.sources.readers.worker import PartsReader


def read(path: Path, ddl: str, cuts: Sequence[int] = (), **options: str) -> list[dict[str, Any]]:
    """The records of a file whose suffix names its format, read in parts that end at ``cuts``."""
    bounds = [0, *cuts]
    ends = pa.array([*bounds[1:], None], pa.int64())
    parts = pa.RecordBatch.from_pydict({"path": [path.as_uri()] * len(bounds), "begin": bounds, "end": ends})
    batches = list(PartsReader(Form(path.suffix[1:], ddl, options=options))(iter([parts])))
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def faults(rows: Sequence[dict[str, Any]]) -> dict[int, str]:
    """Why records are malformed, by the number of their row in the file."""
    return {int(row["_position"].rpartition("#row+")[2]): row["_detail"] for row in rows if row["_malformed"]}
