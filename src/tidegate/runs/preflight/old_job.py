"""What another job has written into the folder of a table since a pipeline took the table over: most often the plain
Spark job that it has replaced, whose DAG was not paused.

Spark's file sink begins a new ``_spark_metadata``, and plain Spark then reads what that lists and nothing else. Any
writer of parquet leaves data files that the table's log does not name. Spark's Delta sink notes its batches in the log.
Only a table that was adopted is searched for files: that costs a listing of its folder, and its log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.table.log.files import list_versions, path_on_disk, read_actions
from tidegate.table.log.snapshot import Snapshot
from tidegate.table.log.state import read_log
from tidegate.table.publish.intent import pending_intents

SINK_LOG = "_spark_metadata"
"""The folder in which Spark's file sink lists the files that it has committed."""


@dataclass(frozen=True)
class Adopted:
    """The note of an adoption: ``batches`` has the last batch that counts of each query that had written to the table;
    ``checkpoint`` is that of the old job, where it was given."""

    at: str
    checkpoint: str | None = None
    batches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OldJob:
    """What was found. Paths are relative to the table's folder."""

    has_sink_log: bool = False
    files: Sequence[str] = ()
    """Parquet files that plain readers see and that no version of the log names."""
    batches: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """{query: its last batch that counts, its last one in the log}."""

    def __bool__(self) -> bool:
        return self.has_sink_log or bool(self.files) or bool(self.batches)


def read_adopted(paths: PipelinePaths) -> Adopted | None:
    """The note; None for a table that was not adopted. Raises UnreadableStateError."""
    value = storage.read_json(paths.adopted)
    with storage.unreadable_is_named(paths.adopted):
        return None if value is None else Adopted(**value)


def write_adopted(paths: PipelinePaths, note: Adopted) -> None:
    """Store the note, in the place of an earlier one."""
    storage.replace(paths.adopted, storage.dump_json(asdict(note)))


def find_old_job(paths: PipelinePaths) -> OldJob:
    """Look for it; the table has a log.

    While a publish is pending no file is reported: the process that finishes it moves files. Raises DisagreementError
    for a torn log.
    """
    has_sink_log = storage.exists(paths.table / SINK_LOG)
    note = read_adopted(paths)
    if note is None:
        return OldJob(has_sink_log)
    there = _list_plain(paths.table)  # before the log is read: what a publish moves in meanwhile is not in it
    is_pending = bool(pending_intents(paths))
    log = read_log(paths.table)
    files = [] if is_pending else _find_unnamed(paths.table, there, log)
    return OldJob(has_sink_log, files, _find_later(note, log))


def list_later_batches(table_path: Path, queries: Collection[str]) -> dict[str, list[tuple[int, int, list[str]]]]:
    """{query: (version, batch, the files that it added)} of every version of the log that a query committed."""
    found: dict[str, list[tuple[int, int, list[str]]]] = {query: [] for query in queries}
    for version in list_versions(table_path):
        actions = read_actions(table_path, version)
        txns = {one["txn"]["appId"]: int(one["txn"]["version"]) for one in actions if "txn" in one}
        for query in txns.keys() & found.keys():
            added = [path_on_disk(one["add"]["path"]) for one in actions if "add" in one]
            found[query].append((version, txns[query], added))
    return found


def _list_plain(table_path: Path) -> list[str]:
    """The parquet files that every plain reader sees."""
    prefix = len(str(table_path)) + 1
    names = (str(path)[prefix:] for path in storage.list_tree(table_path, "*.parquet"))
    return [name for name in names if not any(part[0] in "_." for part in name.split("/"))]


def _find_unnamed(table_path: Path, there: Sequence[str], log: Snapshot) -> list[str]:
    named = {path_on_disk(path) for path in (*log.added, *log.removed)}
    found = [name for name in there if name not in named]
    if found:  # rare: a file may have left the table so long ago that a compacted log has forgotten it
        named = list_removed(table_path)
    return [name for name in found if name not in named and storage.exists(table_path / name)]


def list_removed(table_path: Path) -> set[str]:
    """The files that some version took out of the table."""
    versions = (read_actions(table_path, version) for version in list_versions(table_path))
    return {path_on_disk(one["remove"]["path"]) for actions in versions for one in actions if "remove" in one}


def _find_later(note: Adopted, log: Snapshot) -> dict[str, tuple[int, int]]:
    found = {query: (batch, log.transaction_version(query)) for query, batch in note.batches.items()}
    return {query: (batch, last) for query, (batch, last) in found.items() if last is not None and last > batch}
