"""``_spark_metadata`` in the folder of a table: the committed files of Spark's file sink, and its last batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.core import storage
from tidegate.core.hive_names import unescape_name
from tidegate.rework import errors
from tidegate.runs.preflight.old_job import SINK_LOG
from tidegate.state.spark_logs import newest_batch, read_log_entries

ADOPTED_SINK_LOG = "._spark_metadata.adopted"
"""Its name after the adoption: Spark then lists the table's folder, like every other reader."""


@dataclass(frozen=True)
class SinkLog:
    """``files`` are the committed ones, relative to the table and with unescaped folder names, so that they are found
    after a rename; ``last_batch`` is the newest batch in the table."""

    folder: Path
    files: frozenset[str]
    last_batch: int


def read_sink_log(table_path: Path, roots: Sequence[str]) -> SinkLog | None:
    """Read the log of a table, also from where an interrupted adoption has moved it; None when there is none.

    ``roots`` are the paths of the table's folder that may be in the log. Raises DisagreementError ADOPT_SINK_LOG.
    """
    folder = table_path / SINK_LOG
    if newest_batch(folder) < 0:
        folder = table_path / ADOPTED_SINK_LOG
        if newest_batch(folder) < 0:
            return None
    files: set[str] = set()
    try:
        for entry in read_log_entries(folder, folder.name, newest_batch(folder)):
            inside = inside_of(entry.path, roots)
            if inside is None:
                raise ValueError(f"it names {entry.path}, which is not in this folder: the table was moved or copied")
            if entry.is_delete:
                files.discard(unescape_name(inside))
            else:
                files.add(unescape_name(inside))
    except ValueError as error:
        raise errors.ADOPT_SINK_LOG(where=str(folder), why=error, folder=folder.name) from error
    return SinkLog(folder, frozenset(files), newest_batch(folder))


def inside_of(path: str, roots: Sequence[str]) -> str | None:
    """``path`` relative to the first of ``roots`` that contains it; None when none does."""
    for root in roots:
        if path.startswith(root.rstrip("/") + "/"):
            return path[len(root.rstrip("/")) + 1 :]
    return None


def hide_sink_log(table_path: Path) -> None:
    """Move the log to its hidden name, unless that was done before."""
    if storage.exists(table_path / SINK_LOG):
        storage.move(table_path / SINK_LOG, table_path / ADOPTED_SINK_LOG)
