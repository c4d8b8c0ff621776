"""Read the checkpoint of a plain Spark job: its progress when it was stopped.

``offsets/<batch>`` is written before a batch runs, ``commits/<batch>`` after it. The table shows whether the rows of a
planned and uncommitted batch reached it: Spark's file sink lists its batches there, Delta records the last batch of the
query. For any other writer this is unknown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.rework import errors
from tidegate.rework.adopt.found import FoundTable
from tidegate.rework.adopt.retire import METADATA, RETIRED, is_retired
from tidegate.sources.port import ReadBefore, ReadFile
from tidegate.state.checkpoint import batch_ids
from tidegate.state.spark_logs import read_log_entries
from tidegate.state.topics import offsets_from_json

_VERSIONS = ("v1", "v2")


@dataclass(frozen=True)
class OldCheckpoint:
    """The progress of the old job; ``batch`` is the last one whose rows are in the table."""

    path: Path
    query_id: str
    batch: int
    sources: list[ReadBefore]


def read_old_checkpoint(path: Path, table: FoundTable) -> OldCheckpoint:
    """Read the checkpoint at ``path``, up to the last batch in ``table``.

    Raises DisagreementError: ADOPT_CHECKPOINT (there is none, or it is torn), ADOPT_STATE (its query keeps state),
    ADOPT_BATCH_UNKNOWN (a batch was begun, and it is unknown whether it reached the table), ADOPT_OTHER_CHECKPOINT (the
    table was written by another query).
    """
    offsets, commits = batch_ids(path / "offsets"), batch_ids(path / "commits")
    query_id = _read_query_id(path)
    if not commits:
        raise unusable(path, "no batch of it was ever finished, so no records of its sources are in a table")
    if not offsets or offsets[-1] < commits[-1] or offsets[-1] > commits[-1] + 1:
        raise unusable(path, f"its offsets reach batch {offsets[-1] if offsets else 'none'}, its commits {commits[-1]}")
    if any(storage.list_names(one) for one in storage.list_folders(path / "state")):
        raise errors.ADOPT_STATE(where=str(path / "state"))
    batch = _last_in_table(path, query_id, offsets[-1], commits[-1], table)
    try:
        sources = [_read_source(path, name, end) for name, end in _read_ends(path, batch)]
    except (ValueError, FileNotFoundError) as error:
        raise unusable(path, f"{error}") from error
    return OldCheckpoint(path, query_id, batch, sources)


def unusable(path: Path, why: str) -> DisagreementError:
    """The error for an incomplete or unreadable checkpoint."""
    return errors.ADOPT_CHECKPOINT(where=str(path), why=why)


def _read_query_id(path: Path) -> str:
    try:
        return str(json.loads(storage.read(path / (RETIRED if is_retired(path) else METADATA)))["id"])
    except (FileNotFoundError, NotADirectoryError):
        raise unusable(path, "it has no file `metadata`: it is not a checkpoint of a Spark query") from None
    except (ValueError, KeyError, TypeError) as error:
        raise unusable(path, "its file `metadata` cannot be read") from error


def _last_in_table(path: Path, query_id: str, planned: int, committed: int, table: FoundTable) -> int:
    """The last batch whose rows are in the table."""
    in_table = table.sink_log.last_batch if table.sink_log is not None else table.txns.get(query_id)
    if in_table is None:
        if planned != committed:
            raise errors.ADOPT_BATCH_UNKNOWN(where=str(path), planned=planned, committed=committed)
        return committed
    if committed <= in_table <= planned:
        return in_table
    try:
        is_continued = in_table < committed and _read_ends(path, in_table) == _read_ends(path, committed)
    except (ValueError, FileNotFoundError):
        is_continued = False
    if not is_continued:  # else only batches without data came after it
        raise errors.ADOPT_OTHER_CHECKPOINT(where=str(path), in_table=in_table, committed=committed, planned=planned)
    return committed


def _read_ends(path: Path, batch: int) -> list[tuple[str, object]]:
    """Return each source's name and end offset (Spark's JSON, None for none) in a planned batch."""
    name = f"offsets/{batch}"
    try:
        version, _, *lines = storage.read(path / name).decode().split("\n")
        if version not in _VERSIONS:
            raise ValueError(f"it begins with {version[:20]!r}")
        lines = [line for line in lines if line]
        if version == "v2":  # named sources
            named = [line.partition(":")[::2] for line in lines]
        else:
            named = [(str(number), line) for number, line in enumerate(lines)]
        return [(source, None if value == "-" else json.loads(value)) for source, value in named]
    except FileNotFoundError:
        raise FileNotFoundError(f"{name} is missing") from None
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {error}") from error


def _read_source(path: Path, name: str, end: object) -> ReadBefore:
    if end is None:
        return ReadBefore(name)
    if isinstance(end, dict) and set(end) == {"logOffset"} and type(end["logOffset"]) is int:
        last = end["logOffset"]
        entries = read_log_entries(path / "sources" / name, f"sources/{name}", last)
        return ReadBefore(name, files=[ReadFile(entry.path, entry.time_ms) for entry in entries])
    try:
        return ReadBefore(name, offsets=offsets_from_json(end))
    except ValueError:
        shown = json.dumps(end)[:80]
        raise ValueError(f"source {name} ends at {shown}, which is neither of files nor of Kafka topics") from None
