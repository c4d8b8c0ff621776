"""Retire the old job's checkpoint, so that Spark refuses to start its query again.

Spark first reads the file ``metadata``. Without it, a new query would start in the same folder, with a new id and the
old offsets; if it cannot be parsed, the start fails. The original stays beside it.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.rework import errors
from tidegate.runs.preflight.old_job import read_adopted

METADATA = "metadata"
RETIRED = "metadata.retired"
"""The original file, needed to read the checkpoint afterwards."""
_CHECKSUM = ".metadata.crc"


def is_retired(checkpoint: Path) -> bool:
    """Whether it was retired: ``metadata`` has no query id, and the original is beside it."""
    return storage.exists(checkpoint / RETIRED) and read_query_id(checkpoint / METADATA) is None


def read_query_id(path: Path) -> str | None:
    """The query id in a file ``metadata``; None when there is no such file, or none in it."""
    try:
        return str(json.loads(storage.read(path))["id"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def retire(checkpoint: Path, pipeline: str) -> None:
    """Replace ``metadata`` by a text that is not JSON, once the original is safe. May be repeated."""
    if is_retired(checkpoint):
        return
    storage.put_if_absent(checkpoint / RETIRED, storage.read(checkpoint / METADATA))
    text = (
        f"This checkpoint was retired at {now_text()}: tidegate's pipeline {pipeline} continues where it ended, and a "
        f"run of this query would write rows a second time. The original of this file is {RETIRED}.\n"
    )
    storage.replace(checkpoint / METADATA, text.encode())
    storage.remove(checkpoint / _CHECKSUM)  # of the original; in either case Spark cannot read the file


def check_same(paths: PipelinePaths, checkpoint: Path) -> None:
    """Raise UsageError ADOPT_CHECKPOINT_OF_ANOTHER unless the table was adopted with this checkpoint."""
    note = read_adopted(paths)
    query = read_query_id(checkpoint / (RETIRED if is_retired(checkpoint) else METADATA))
    if note is not None and query not in note.batches:
        adopted = "no checkpoint" if note.checkpoint is None else f"the checkpoint {note.checkpoint}"
        raise errors.ADOPT_CHECKPOINT_OF_ANOTHER(where=str(checkpoint), query=query or "?", adopted=adopted)
