"""Parts of files read as a worker of Spark reads them, without Spark."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.sources.readers.form import Form
from tidegate.sources.readers.worker import PartsReader
from tidegate.state.topics import FilePart


def read(path: Path, ddl: str, cuts: Sequence[int] = (), **options: str) -> list[dict[str, Any]]:
    """The records of a file whose suffix names its format, read in parts that end at ``cuts``."""
    batches = list(PartsReader(Form(path.suffix[1:], ddl, options=options))(iter([lines_of(path, 0, *cuts, None)])))
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def lines_of(path: Path, *bounds: int | None) -> pa.RecordBatch:
    """The lines of a batch file that name the parts of a file between these bounds."""
    parts = [FilePart(str(path), int(begin or 0), end) for begin, end in itertools.pairwise(bounds)]
    return pa.RecordBatch.from_pydict({"value": [json.dumps(asdict(part)) for part in parts]})


def faults(rows: Sequence[dict[str, Any]]) -> dict[int, str]:
    """Why records are malformed, by the number of their row in the file."""
    return {int(row["_position"].rpartition("#row+")[2]): row["_detail"] for row in rows if row["_malformed"]}
