"""Snapshots of a table at a version, by Delta's action reconciliation.

We do not use deltalake, which opens every commit file twice, even with a compaction file: seconds for 20,000 versions.
With a compaction file, this takes a fraction of a second (docs/how-to/size-it.md).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from tidegate.core import storage
from tidegate.core.garbage import collect_rarely
from tidegate.state.manifest import StagedFile
from tidegate.table.footer import read_rows
from tidegate.table.log.files import (
    LOG_FOLDER,
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    checkpoints_of,
    commit_name,
    compacted_name,
    compactions_of,
    is_of_file,
    list_names,
    parse_line,
    path_on_disk,
    read_actions,
    read_actions_but_files,
    split_lines,
    versions_of,
)

SHA256 = "tidegate.sha256"
"""In the tags of an ``add``: the digest of the file in hex."""


Partition = tuple[tuple[str, str | None], ...]
"""(column, value in Delta's string form) of each partition column, in the order of their names."""


def partition_of(values: Mapping[str, str | None]) -> Partition:
    """The partition with these values; readers do not distinguish null and the empty string."""
    return tuple(sorted((name, value or None) for name, value in values.items()))


@dataclass(frozen=True)
class DataFile:
    """A parquet file in the table folder; ``path`` is relative to it, as in the file system."""

    path: str
    rows: int
    size_bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)
    modified_at_ms: int = 0
    stats: dict[str, object] = field(default_factory=dict)
    """Delta statistics other than ``numRecords``."""
    sha256: str = ""
    """In hex; "" where the log has none (an older version of tidegate, another program)."""


@dataclass(frozen=True)
class Replacement:
    """The changes to the table's files by new rows: ``remove`` leave the table, ``carried`` are copies of the rows of
    these files that stay.
    """

    remove: list[DataFile] = field(default_factory=list)
    carried: list[StagedFile] = field(default_factory=list)


@dataclass
class LogHead:
    """A table at one version without its files: enough for a publish that only adds files."""

    version: int = -1
    protocol: Protocol = field(default_factory=Protocol)
    metadata: Metadata = field(default_factory=Metadata)
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)

    def apply(self, action: Action) -> None:
        """Apply the next action. Raises ValueError for an unsupported one."""
        if "txn" in action:
            self.txns[action["txn"]["appId"]] = action["txn"]
        if "protocol" in action:
            self.protocol = action["protocol"]
        if "metaData" in action:
            self.metadata = action["metaData"]
        if "domainMetadata" in action:
            self.domains[action["domainMetadata"]["domain"]] = action["domainMetadata"]
        if "sidecar" in action:
            raise ValueError("a checkpoint has sidecar files")

    def transaction_version(self, app_id: str) -> int | None:
        """The number of ``txn(app_id, number)``; None when the log has none."""
        txn = self.txns.get(app_id)
        return None if txn is None else int(txn["version"])

    def last_batch(self, app_id: str) -> int:
        """Like :meth:`transaction_version`, but -1 when the log has none."""
        number = self.transaction_version(app_id)
        return -1 if number is None else number

    def count_marked(self) -> int:
        """The number of files with a deletion vector: 0, else :func:`read_head` returns a whole snapshot."""
        return 0

    @property
    def schema_json(self) -> str:
        """The table's schema, as in the log."""
        return str(self.metadata["schemaString"])

    @property
    def partition_columns(self) -> list[str]:
        """The partition columns."""
        return list(self.metadata.get("partitionColumns") or ())


@dataclass
class Snapshot(LogHead):
    """A table at one version. The keys of files are their percent-encoded paths, with the deletion vector if there is
    one."""

    added: dict[str, AddFile] = field(default_factory=dict)
    removed: dict[str, RemoveFile] = field(default_factory=dict)

    def apply(self, action: Action) -> None:
        """Apply the next action. Raises ValueError for an unsupported one."""
        super().apply(action)
        if "add" in action:
            key = _key(action["add"])
            self.removed.pop(key, None)
            self.added[key] = action["add"]
        if "remove" in action:
            key = _key(action["remove"])
            self.added.pop(key, None)
            self.removed[key] = action["remove"]

    def count_marked(self) -> int:
        """The number of files with a deletion vector."""
        return sum(1 for add in self.added.values() if add.get("deletionVector"))

    def copy(self) -> Snapshot:
        """A copy that does not change with this snapshot."""
        copied = Snapshot(self.version, self.protocol, self.metadata, dict(self.txns), dict(self.domains))
        copied.added, copied.removed = dict(self.added), dict(self.removed)
        return copied

    def actions(self, removed_since_ms: int) -> Iterator[Action]:
        """The reconciled actions, without files that were removed before a time."""
        yield {"protocol": self.protocol}
        yield {"metaData": self.metadata}
        yield from (Action(txn=txn) for txn in self.txns.values())
        yield from (Action(domainMetadata=domain) for domain in self.domains.values() if not domain.get("removed"))
        yield from (Action(add=add) for add in self.added.values())
        for remove in self.removed.values():
            if int(remove.get("deletionTimestamp") or 0) >= removed_since_ms:
                yield {"remove": remove}

    def files(self) -> list[DataFile]:
        """The table's files in the order of their paths."""
        return sorted((data_file(add) for add in self.added.values()), key=lambda file: file.path)


def _key(file: AddFile | RemoveFile) -> str:
    """The key of a file: with a deletion vector it is another file than without one."""
    vector = file.get("deletionVector")
    if not vector:
        return file["path"]
    return "\n".join([file["path"], *(str(vector.get(name)) for name in ("storageType", "pathOrInlineDv", "offset"))])


def data_file(add: AddFile) -> DataFile:
    """The file of an ``add`` action; with one row where the log has no count, so that it does not look empty."""
    return DataFile(
        path=path_on_disk(add["path"]),
        rows=int(json.loads(add.get("stats") or "{}").get("numRecords", 1)),
        size_bytes=int(add["size"]),
        partition=dict(add.get("partitionValues") or {}),
        modified_at_ms=int(add.get("modificationTime") or 0),
        sha256=str((add.get("tags") or {}).get(SHA256) or ""),
    )


_Read = TypeVar("_Read", bound=LogHead)
_VECTORS = "deletionVectors"
_BEGIN_BYTES = 1 << 16
"""How much of a compaction file is read at first: the schema of a wide table and some hundred queries."""
_Stamp = tuple[int, int]
_memory: ContextVar[dict[Path, tuple[dict[int, _Stamp], Snapshot]] | None] = ContextVar("_memory", default=None)


@contextlib.contextmanager
def remember_snapshots() -> Iterator[None]:
    """Cache the newest snapshot of each table until the block ends: later reads parse only new commits.

    For work that makes versions of very many files, which reads the log some ten times for each. Commits never change;
    if the size or time of one differs, everything is read again.
    """
    token = _memory.set({})
    try:
        with collect_rarely():
            yield
    finally:
        _memory.reset(token)


def read_snapshot(table_path: Path, version: int | None = None) -> Snapshot:
    """Read the table at a version, by default at its newest.

    Raises:
        FileNotFoundError: There is no log.
        ValueError: A commit is torn or missing and in no compaction file, or the log has an unsupported action.
    """
    memory = _memory.get()
    if memory is None or version is not None:
        return _read_snapshot(table_path, version)
    try:
        stamps = _stamps_of(table_path)
        known, before = memory.get(table_path, ({}, None))
        if before is None or any(stamps.get(number) != stamp for number, stamp in known.items()):
            snapshot = _read_snapshot(table_path)
        else:
            snapshot = before.copy()
            for number in sorted(stamps.keys() - known.keys()):
                if number != snapshot.version + 1:
                    raise ValueError(f"{commit_name(number)} does not follow")
                _apply_commit(snapshot, table_path, number)
                snapshot.version = number
            _check_known(snapshot)
    except (OSError, ValueError):
        memory.pop(table_path, None)
        return _read_snapshot(table_path)
    memory[table_path] = (stamps, snapshot.copy())
    return snapshot


def read_head(table_path: Path, app_ids: Collection[str] = ()) -> LogHead:
    """Read the table at its newest version without its files, so that very many files cost no more than few. Raises as
    :func:`read_snapshot`.

    Only the beginning of a compaction file is read, which contains everything but files (:meth:`Snapshot.actions`). If
    a query of ``app_ids`` is not found there, the whole file is read: if a committed batch were overlooked, its rows
    would be added twice. Everything is read of a table whose files may have deletion vectors, too.
    """
    if _memory.get() is not None:
        return read_snapshot(table_path)
    head = _read_version(LogHead, table_path, None)
    may_be_marked = _VECTORS in (head.protocol.get("readerFeatures") or ())
    return read_snapshot(table_path) if may_be_marked or any(one not in head.txns for one in app_ids) else head


def _stamps_of(table_path: Path) -> dict[int, _Stamp]:
    found = {}
    for number in versions_of(list_names(table_path)):
        there = storage.stat(table_path / LOG_FOLDER / commit_name(number))
        found[number] = (there.size_bytes, there.modified_ns)
    return found


def _read_snapshot(table_path: Path, version: int | None = None) -> Snapshot:
    return _read_version(Snapshot, table_path, version)


def _read_version(kind: type[_Read], table_path: Path, version: int | None) -> _Read:
    """Read the table at a version as a head or a whole snapshot (``kind``)."""
    names = list_names(table_path)
    versions = versions_of(names)
    if not versions and not checkpoints_of(names):
        raise FileNotFoundError(table_path / LOG_FOLDER)
    last = version if version is not None else max(versions, default=-1)
    fault: Exception = ValueError("no commit file is there")
    for base in _bases(names, last):
        snapshot = kind()
        try:
            first = 0
            if base is not None:
                first = base[0] + 1
                for action in read_base(table_path / LOG_FOLDER / base[1], whole=issubclass(kind, Snapshot)):
                    snapshot.apply(action)
            for number in range(first, last + 1):
                _apply_commit(snapshot, table_path, number)
            snapshot.version = max(last, first - 1)
            _check_known(snapshot)
        except (OSError, ValueError, KeyError, TypeError) as error:
            if storage.is_failure(error):
                raise
            fault = error
            continue
        return snapshot
    raise fault if isinstance(fault, ValueError) else ValueError(str(fault))


def _apply_commit(snapshot: LogHead, table_path: Path, version: int) -> None:
    read = read_actions if isinstance(snapshot, Snapshot) else read_actions_but_files
    try:
        for action in read(table_path, version):
            snapshot.apply(action)
    except FileNotFoundError:
        raise ValueError(f"{commit_name(version)} is missing") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{commit_name(version)}: {error}") from None


def _bases(names: list[str], last: int) -> Iterator[tuple[int, str] | None]:
    """(version, name) of compaction files and checkpoints to start from, the newest first; then None: read all
    commits."""
    found = [(end, 1, compacted_name(end)) for end in compactions_of(names)]
    found += [(int(name[:20]), 0, name) for name in checkpoints_of(names)]
    yield from ((end, name) for end, _, name in sorted(found, reverse=True) if end <= last or last < 0)
    yield None


def read_base(path: Path, *, whole: bool) -> Iterator[Action]:
    """The actions of a compaction file or a checkpoint; unless ``whole``, those of a compaction file without its files.
    Raises FileNotFoundError, or ValueError for a torn file."""
    if path.suffix == ".json":
        lines = split_lines(storage.read(path)) if whole else _read_begin(path)
        if not lines:
            raise ValueError(f"{path.name} is empty")
        yield from map(parse_line, lines)
        return
    try:
        rows = read_rows(path)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    for row in rows:
        yield cast(Action, {kind: _without_nulls(value) for kind, value in row.items() if value is not None})


def _read_begin(path: Path) -> list[bytes]:
    """The lines of a compaction file before the first ``add`` or ``remove``; if another program wrote it in another
    order, all lines but those."""
    size = _BEGIN_BYTES
    while True:
        data = storage.read_start(path, size)
        is_all = len(data) < size
        lines = split_lines(data if is_all else data[: data.rfind(b"\n") + 1])
        if [line[: line.find(b":") + 1] for line in lines[:2]] != [b'{"protocol":', b'{"metaData":']:
            return [line for line in split_lines(storage.read(path)) if not is_of_file(line)] if lines else lines
        first = next((number for number, line in enumerate(lines) if is_of_file(line)), None)
        if first is not None or is_all:
            return lines[:first]
        size *= 4


def _without_nulls(value: object, *, keep: bool = False) -> object:
    """A struct as in JSON, without fields that are null. Null partition values are kept."""
    if not isinstance(value, dict):
        return value
    return {
        name: _without_nulls(one, keep=name == "partitionValues")
        for name, one in value.items()
        if keep or one is not None
    }


def _check_known(snapshot: LogHead) -> None:
    if not snapshot.metadata or not snapshot.protocol:
        raise ValueError("it has no protocol or no metadata")
