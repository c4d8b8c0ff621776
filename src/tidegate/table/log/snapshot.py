"""What a table's log says at a version: the latest word on each thing (Delta's action reconciliation).

Read here and not by deltalake, which opens every commit file twice, with or without a compaction file: seconds for
20,000 versions. With one this takes a fraction of a second (docs/how-to/size-it.md).
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from tidegate.core import storage
from tidegate.table.log.actions import Action, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from tidegate.table.log.files import (
    LOG_FOLDER,
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
    remember_commits,
    split_lines,
    versions_of,
)

SHA256 = "tidegate.sha256"
"""In the tags of an ``add``: the digest of the file's bytes, in hex."""


@dataclass(frozen=True)
class DataFile:
    """A parquet file in place in the table folder: ``path`` is relative to it, as the file system spells it."""

    path: str
    rows: int
    size_bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)
    modified_at_ms: int = 0
    stats: dict[str, object] = field(default_factory=dict)
    """Delta statistics beside ``numRecords``."""
    sha256: str = ""
    """Of its bytes, in hex, as the log has it; "" where the log has none (an older version of tidegate, another
    program)."""


@dataclass
class LogHead:
    """A table at one version, but for its files: all that a publish needs which only adds some."""

    version: int = -1
    protocol: Protocol = field(default_factory=Protocol)
    metadata: Metadata = field(default_factory=Metadata)
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)

    def apply(self, action: Action) -> None:
        """Take in the next action. Raises ValueError for one that cannot be understood here."""
        if "txn" in action:
            self.txns[action["txn"]["appId"]] = action["txn"]
        if "protocol" in action:
            self.protocol = action["protocol"]
        if "metaData" in action:
            self.metadata = action["metaData"]
        if "domainMetadata" in action:
            self.domains[action["domainMetadata"]["domain"]] = action["domainMetadata"]
        if "sidecar" in action:
            raise ValueError("a checkpoint has files beside it")

    def transaction_version(self, app_id: str) -> int | None:
        """The number of ``txn(app_id, number)``; None when the log has none."""
        txn = self.txns.get(app_id)
        return None if txn is None else int(txn["version"])

    def count_marked(self) -> int:
        """How many files have a deletion vector: none, or all of the log was read (:func:`read_head`)."""
        return 0

    @property
    def schema_json(self) -> str:
        """The table's schema, as the log has it."""
        return str(self.metadata["schemaString"])

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return list(self.metadata.get("partitionColumns") or ())


@dataclass
class Snapshot(LogHead):
    """A table at one version. Files are known by their path as the log spells it, percent-encoded; one with a deletion
    vector by that too."""

    added: dict[str, AddFile] = field(default_factory=dict)
    removed: dict[str, RemoveFile] = field(default_factory=dict)

    def apply(self, action: Action) -> None:
        """Take in the next action. Raises ValueError for one that cannot be understood here."""
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
        """How many files have a deletion vector."""
        return sum(1 for add in self.added.values() if add.get("deletionVector"))

    def copy(self) -> Snapshot:
        """Another one that says the same, and does not change with this one."""
        copied = Snapshot(self.version, self.protocol, self.metadata, dict(self.txns), dict(self.domains))
        copied.added, copied.removed = dict(self.added), dict(self.removed)
        return copied

    def actions(self, removed_since_ms: int) -> Iterator[Action]:
        """All that there is to say, without files that were removed before a moment."""
        yield {"protocol": self.protocol}
        yield {"metaData": self.metadata}
        yield from (Action(txn=txn) for txn in self.txns.values())
        yield from (Action(domainMetadata=domain) for domain in self.domains.values() if not domain.get("removed"))
        yield from (Action(add=add) for add in self.added.values())
        for remove in self.removed.values():
            if int(remove.get("deletionTimestamp") or 0) >= removed_since_ms:
                yield {"remove": remove}

    def files(self) -> list[DataFile]:
        """The table's files by path."""
        return sorted((data_file(add) for add in self.added.values()), key=lambda file: file.path)


def _key(file: AddFile | RemoveFile) -> str:
    """What a file is known by: a deletion vector takes its place beside the same file without one."""
    vector = file.get("deletionVector")
    if not vector:
        return file["path"]
    return "\n".join([file["path"], *(str(vector.get(name)) for name in ("storageType", "pathOrInlineDv", "offset"))])


def data_file(add: AddFile) -> DataFile:
    """The file of an ``add`` action; one row where the log does not tell: not empty, to be safe."""
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
"""So much of a compaction file is read at first: the schema of a wide table, and some hundred queries."""
_Stamp = tuple[int, int]
_memory: ContextVar[dict[Path, tuple[dict[int, _Stamp], Snapshot]] | None] = ContextVar("_memory", default=None)
_GARBAGE_AFTER = 50_000
"""Python looks for circles of garbage after so many new objects, and not after 700: the actions of very many files are
objects that stay, and are looked through each time."""


@contextlib.contextmanager
def remember_snapshots() -> Iterator[None]:
    """Until the block ends, reading a table's newest version again parses only the commits that came since.

    For work that makes versions of very many files: a log is read some ten times for each. Commits are never changed;
    where one has another size or time than it had, all is read again.
    """
    token, thresholds = _memory.set({}), gc.get_threshold()
    gc.set_threshold(_GARBAGE_AFTER)
    try:
        with remember_commits():
            yield
    finally:
        gc.set_threshold(*thresholds)
        _memory.reset(token)


def read_snapshot(table_path: Path, version: int | None = None) -> Snapshot:
    """The table at a version, without one at its newest. Raises FileNotFoundError when there is no log, ValueError when
    it cannot be read whole: a torn or missing commit that no compaction holds, or something that is not known here.
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
    """The table at its newest version, but for its files: a table of very many costs as much as a small one. Raises as
    :func:`read_snapshot`.

    Of a compaction file the beginning is read, where it says all the rest, in the order in which it is written here
    (:meth:`Snapshot.actions`). A query of ``app_ids`` that is not found there is looked for in all of it: to take a
    batch for one that is not in the table would be to add its rows twice. All is read, too, of a table whose files may
    have deletion vectors.
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
    """The table at a version, as far as its ``kind`` takes it in."""
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
    """(version, name) of the files that spare reading commits, the best first; then None: read them all."""
    found = [(end, 1, compacted_name(end)) for end in compactions_of(names)]
    found += [(int(name[:20]), 0, name) for name in checkpoints_of(names)]
    yield from ((end, name) for end, _, name in sorted(found, reverse=True) if end <= last or last < 0)
    yield None


def read_base(path: Path, *, whole: bool) -> Iterator[Action]:
    """The actions of a compaction file or a checkpoint, of a compaction file without those of files unless ``whole``.
    Raises FileNotFoundError, or ValueError for one that is torn."""
    if path.suffix == ".json":
        lines = split_lines(storage.read(path)) if whole else _read_begin(path)
        if not lines:
            raise ValueError(f"{path.name} is empty")
        yield from map(parse_line, lines)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(storage.address(path)).to_pylist(maps_as_pydicts="strict")
    except pa.ArrowException as error:
        raise ValueError(f"{path.name}: {error}") from None
    for row in rows:
        yield cast(Action, {kind: _without_nulls(value) for kind, value in row.items() if value is not None})


def _read_begin(path: Path) -> list[bytes]:
    """The lines of a compaction file before the first of a file of the table; all but those of files, where another
    program wrote it, in an order of its own."""
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
    """A struct as JSON has it: a field that is null is not there. Among partition values null is a value."""
    if not isinstance(value, dict):
        return value
    return {
        name: _without_nulls(one, keep=name == "partitionValues")
        for name, one in value.items()
        if keep or one is not None
    }


def _check_known(snapshot: LogHead) -> None:
    if not snapshot.metadata or not snapshot.protocol:
        raise ValueError("it does not say what the table is")
