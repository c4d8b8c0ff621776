"""The checkpoint of a plain Spark job: read, matched with the sources of the new pipeline, and retired.

``offsets/<batch>`` is written before a batch runs, ``commits/<batch>`` after it. The table shows whether the rows of a
planned and uncommitted batch reached it: Spark's file sink lists its batches there, Delta records the last batch of the
query. For any other writer this is unknown. Without a checkpoint it is unknown which records are in the table: then the
spec has to say where each source starts.

To retire it, ``metadata`` is replaced by a text: Spark reads that file first. Without it, a new query would start in
the same folder, with a new id and the old offsets; if it cannot be parsed, the start fails. The original stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.rework import errors
from tidegate.rework.adopt.found import FoundTable
from tidegate.runs.preflight.table_log import read_adopted
from tidegate.sources.port import HandOver, ReadBefore, ReadFile, Source
from tidegate.spec.models import PipelineSpec
from tidegate.state.checkpoint import batch_ids
from tidegate.state.spark_logs import read_log_entries
from tidegate.state.topics import offsets_from_json

METADATA = "metadata"
RETIRED = "metadata.retired"
"""The original file, needed to read the checkpoint afterwards."""
_CHECKSUM = ".metadata.crc"
_VERSIONS = ("v1", "v2")


def is_retired(checkpoint: Path) -> bool:
    """Return whether it was retired: ``metadata`` has no query id, and the original is in the same folder."""
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
    """Raise UsageError ADOPT_NOTHING_TO_RETIRE unless the table was adopted with this checkpoint."""
    note = read_adopted(paths)
    query = read_query_id(checkpoint / (RETIRED if is_retired(checkpoint) else METADATA))
    if note is not None and query not in note.batches:
        adopted = "no checkpoint" if note.checkpoint is None else f"the checkpoint {note.checkpoint}"
        why = f"this one belongs to query {query or '?'}, and the table was adopted with {adopted}"
        raise errors.ADOPT_NOTHING_TO_RETIRE(where=str(checkpoint), why=why)


@dataclass(frozen=True)
class OldCheckpoint:
    """The progress of the old job; ``batch`` is the last one whose rows are in the table."""

    path: Path
    query_id: str
    batch: int
    sources: list[ReadBefore]


def read_old_checkpoint(path: Path, table: FoundTable) -> OldCheckpoint:
    """Read the checkpoint at ``path``, up to the last batch in ``table``.

    Raises DisagreementError: ADOPT_CHECKPOINT (there is none, it is torn, or the table was written by another query),
    ADOPT_STATE (its query keeps state), ADOPT_BATCH_UNKNOWN (a batch was begun, and whether it reached the table is
    unknown).
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
    """The error for a checkpoint that is incomplete, unreadable or of another job."""
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
        raise unusable(
            path,
            f"the table holds batches up to {in_table}, and it has finished {committed} and planned {planned}: "
            "they belong to different jobs, or one of them is an older copy",
        )
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


def plan_hand_over(spec: PipelineSpec, sources: Mapping[str, Source], old: OldCheckpoint | None) -> list[HandOver]:
    """Find where each of ``sources``, as written in ``spec``, continues.

    Raises UsageError ADOPT_NO_START, DisagreementError ADOPT_SOURCES, and what examining a source raises.
    """
    if old is None:
        _need_starts(spec, sources)
        return [source.start_from_spec() for source in sources.values()]
    return [sources[name].continue_from(read) for name, read in _match(sources, old).items()]


def _need_starts(spec: PipelineSpec, sources: Mapping[str, Source]) -> None:
    """Require an explicit start of each source: records may be in the table already."""
    missing = [
        f"sources.{name}.{source.start_key}"
        for name, source in sources.items()
        if source.start_key is not None and source.start_key not in spec.streams[name].fields_set
    ]
    if missing:
        raise errors.ADOPT_NO_START(where=f"jobs/{spec.name}/pipeline.yaml", keys=" and ".join(missing))


def _match(sources: Mapping[str, Source], old: OldCheckpoint) -> dict[str, ReadBefore]:
    """Match each source to one of the old job. Raises ADOPT_SOURCES unless there is exactly one match."""
    left = {name: [one for one in old.sources if source.may_continue(one)] for name, source in sources.items()}
    pairs: dict[str, ReadBefore] = {}
    while sure := next((name for name, some in left.items() if len(some) == 1), None):
        [chosen] = left.pop(sure)
        pairs[sure] = chosen
        left = {name: [one for one in some if one is not chosen] for name, some in left.items()}
    if left or len(pairs) != len(old.sources):
        raise errors.ADOPT_SOURCES(
            where=str(old.path),
            old="; ".join(one.describe() for one in old.sources),
            new="; ".join(source.describe() for source in sources.values()),
        )
    return pairs
