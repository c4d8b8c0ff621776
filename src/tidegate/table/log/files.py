"""The files of a table's log, and the actions in them as plain dictionaries.

Fields of other writers are kept in these, and a table of 100,000 files needs no more objects.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Required, TypedDict, cast
from urllib.parse import quote, unquote

from tidegate.core import storage

CommitInfo = dict[str, Any]
"""Information about a commit, with any keys: ``tidegate.run_id`` and so on."""


class AddFile(TypedDict, total=False):
    """A file of the table; ``path`` percent-encoded, ``size`` in bytes, times in milliseconds since 1970 UTC."""

    path: Required[str]
    partitionValues: dict[str, str | None]
    size: Required[int]
    modificationTime: int
    dataChange: bool
    stats: str
    tags: dict[str, str]
    deletionVector: dict[str, object] | None


class RemoveFile(TypedDict, total=False):
    """A file that is no longer in the table, with the same path as in its ``add``."""

    path: Required[str]
    deletionTimestamp: int
    dataChange: bool
    extendedFileMetadata: bool
    partitionValues: dict[str, str | None]
    size: int
    deletionVector: dict[str, object] | None


class Txn(TypedDict, total=False):
    """The progress of an application: for a query, its last batch."""

    appId: Required[str]
    version: Required[int]
    lastUpdated: int


class Protocol(TypedDict, total=False):
    """The features that readers and writers must support."""

    minReaderVersion: int
    minWriterVersion: int
    readerFeatures: list[str]
    writerFeatures: list[str]


class Metadata(TypedDict, total=False):
    """The table's metadata; ``schemaString`` is its schema in Spark's JSON."""

    id: str
    name: str
    format: object
    schemaString: str
    partitionColumns: list[str]
    createdTime: int
    configuration: dict[str, str]


class DomainMetadata(TypedDict, total=False):
    """The metadata of a Delta feature."""

    domain: Required[str]
    configuration: str
    removed: bool


class Action(TypedDict, total=False):
    """One line of a commit, with one of these keys."""

    add: AddFile
    remove: RemoveFile
    txn: Txn
    protocol: Protocol
    metaData: Metadata
    domainMetadata: DomainMetadata
    cdc: AddFile
    commitInfo: CommitInfo
    sidecar: object


LOG_FOLDER = "_delta_log"
_COMMIT = re.compile(r"^(\d{20})\.json$")
_COMPACTED = re.compile(r"^(\d{20})\.(\d{20})\.compacted\.json$")
_NOT_ENCODED = "/=!$&'()+,:;@"
"""Characters that delta-rs does not encode, in addition to letters, digits and ``-._~``."""
_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint(\.[\w.-]+)?\.(parquet|json)$")


def list_names(table_path: Path) -> list[str]:
    """The names of all files in the log's folder; [] when there is no log."""
    try:
        return storage.list_names(table_path / LOG_FOLDER)
    except NotADirectoryError:
        return []


def commit_name(version: int) -> str:
    """The name of a version's commit file."""
    return f"{version:020d}.json"


def compacted_name(last: int) -> str:
    """The name of the compaction file of the versions from 0 to ``last``."""
    return f"{0:020d}.{last:020d}.compacted.json"


def versions_of(names: list[str]) -> list[int]:
    """The versions whose commit file is among ``names``, oldest first."""
    return sorted(int(name[:20]) for name in names if _COMMIT.match(name))


def list_versions(table_path: Path) -> list[int]:
    """The versions whose commit file exists, oldest first."""
    return versions_of(list_names(table_path))


def compactions_of(names: list[str]) -> list[int]:
    """The last versions of the compaction files that begin with version 0, oldest first."""
    found = [match for name in names if (match := _COMPACTED.match(name))]
    return sorted(int(match[2]) for match in found if int(match[1]) == 0)


def checkpoints_of(names: list[str]) -> list[str]:
    """The names of Delta's checkpoints, which tidegate does not write: parquet files."""
    return sorted(name for name in names if _CHECKPOINT.match(name))


def is_log_file(name: str) -> bool:
    """Return whether a file is a commit or a checkpoint, so that there is a table."""
    return bool(_COMMIT.match(name) or _CHECKPOINT.match(name))


@lru_cache(maxsize=1 << 15)
def path_on_disk(logged: str) -> str:
    """The path of a data file in the file system: the log has it percent-encoded."""
    return unquote(logged)


def is_inside(path: str) -> bool:
    """Return whether a path of the log is in the table's folder: other programs may add files from other places."""
    parts = PurePosixPath(path).parts
    return bool(parts) and ".." not in parts and not path.startswith("/") and "://" not in path


def path_in_log(on_disk: str) -> str:
    """The path of a data file in the log, spelled as deltalake (delta-rs) encodes it: when deltalake removes a file, it
    encodes the path again, and readers compare paths as strings.
    """
    return quote(on_disk, safe=_NOT_ENCODED)


def split_lines(data: bytes) -> list[bytes]:
    """The lines of a file of JSON lines. Strings may contain U+0085, U+2028 and U+2029, at which ``str.splitlines``
    would split."""
    return [line for line in data.split(b"\n") if line.strip()]


def parse_line(line: bytes) -> Action:
    """One action, ``{kind: value}``. Raises ValueError when the line is torn."""
    action = json.loads(line)
    if not isinstance(action, dict):
        raise ValueError("a line of the log is not an action")
    return cast(Action, action)


def read_actions(table_path: Path, version: int) -> list[Action]:
    """The actions of one version. Raises FileNotFoundError, or ValueError for a torn file."""
    return parse_actions(storage.read(table_path / LOG_FOLDER / commit_name(version)))


def parse_actions(data: bytes) -> list[Action]:
    """The actions of a commit file. Raises ValueError for a torn one."""
    return list(map(parse_line, split_lines(data)))


def read_actions_but_files(table_path: Path, version: int) -> list[Action]:
    """Like :func:`read_actions`, without most of the actions that add or remove a file: a version may have very many.
    The last line is always parsed, to detect a torn file."""
    lines = split_lines(storage.read(table_path / LOG_FOLDER / commit_name(version)))
    return [parse_line(line) for line in (*(line for line in lines[:-1] if not is_of_file(line)), *lines[-1:])]


def is_of_file(line: bytes) -> bool:
    """Return whether a line adds or removes a file."""
    return line.startswith((b'{"add":', b'{"remove":'))


def torn_versions(table_path: Path) -> dict[int, bytes]:
    """The versions whose commit file is not complete JSON lines, with what is in it. Reads every file of the log."""
    torn = {}
    for version in list_versions(table_path):
        data = b""
        try:
            data = storage.read(table_path / LOG_FOLDER / commit_name(version))
            if not parse_actions(data):
                raise ValueError("empty")
        except (ValueError, OSError) as error:
            if storage.is_failure(error):
                raise
            torn[version] = data
    return torn
