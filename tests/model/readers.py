"""Readers of a table, which know nothing of the program."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from tests.model.fake_kafka import Row

LOG = "_delta_log"
_rows: dict[tuple[int, int, int], list[Row]] = {}
by_name: dict[str, list[Row]] = {}
"""The rows of every file of a table that was seen: maintenance removes those that were replaced."""
by_version: dict[tuple[Path, int], list[str]] = {}
"""The files of every version that was seen: another engine removes old commits."""


def read_rows(path: Path) -> list[Row]:
    """The rows of a parquet file; those of the files read last are remembered."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return by_name[_name_of(path)]
    key = (found.st_ino, found.st_size, found.st_mtime_ns)
    if key not in _rows:
        if len(_rows) > 10_000:
            _rows.clear()
        with pq.ParquetFile(path) as file:  # a seventh of what pq.read_table costs
            _rows[key] = file.read(use_threads=False).to_pylist()
    by_name[_name_of(path)] = _rows[key]
    return _rows[key]


def _name_of(path: Path) -> str:
    """The path that a file has, or had before it was replaced."""
    return str(path.with_name(path.name.removeprefix(".").removesuffix(".replaced")))


WHOLE_FILE = "None"
"""The id of a file that is in quarantine whole: it has no text there."""


def id_of(row: dict[str, Any]) -> str:
    return str(row["id"] if "id" in row else str(row["raw"]).partition(",")[0])


def read_plain(table: Path) -> Counter[str]:
    """Ids of all rows that ``table/**/*.parquet`` gives, which no log tells what to leave out."""
    return Counter(
        id_of(row)
        for path in table.rglob("*.parquet")
        if path.name[0] != "." and not set(path.parts) & FOREIGN_FOLDERS
        for row in read_rows(path)
    )


FOREIGN_FOLDERS = {LOG, "_change_data"}


def list_strange(table: Path) -> list[str]:
    """Parquet files that a plain glob finds and that hold no rows of the table, and that we take away: checkpoints of a
    log whose commits are all there."""
    return [] if _is_cut(table) else sorted(path.name for path in (table / LOG).glob("*.parquet"))


def list_reported(table: Path) -> list[str]:
    """The folders with parquet files of that kind that other readers need, so that reports name them only."""
    found = [LOG] if _is_cut(table) and any((table / LOG).glob("*.parquet")) else []
    return [*found, *(["_change_data"] if any((table / "_change_data").rglob("*.parquet")) else [])]


def _is_cut(table: Path) -> bool:
    versions = _versions(table)
    return versions != list(range(len(versions)))


def files_at(table: Path, version: int | None = None) -> list[str]:
    """The files that the log names at a version, by the commit files alone, or, where the first of these are gone, by
    the newest checkpoint, or as they were seen before. Raises LookupError when the log does not go back so far."""
    files: dict[str, None] = {}
    versions = _versions(table)
    last = versions[-1] if version is None and versions else version if version is not None else -1
    first = 0
    if versions and versions[0] > 0:
        checkpoints = [int(path.name[:20]) for path in (table / LOG).glob("*.checkpoint.parquet")]
        base = max((one for one in checkpoints if one <= last), default=None)
        if base is None and (table, last) in by_version:
            return by_version[table, last]
        if base is None:
            raise LookupError(f"version {last} of {table.name}")
        for row in pq.read_table(table / LOG / f"{base:020d}.checkpoint.parquet", columns=["add"]).to_pylist():
            if row["add"] is not None:
                files[unquote(row["add"]["path"])] = None
        first = base + 1
    for number in range(first, last + 1):
        for action in read_actions(table / LOG / f"{number:020d}.json"):
            if "add" in action:
                files[unquote(action["add"]["path"])] = None
            elif "remove" in action:
                files.pop(unquote(action["remove"]["path"]), None)
        by_version[table, number] = list(files)
    return list(files)


def read_log(table: Path) -> Counter[str]:
    """Ids of all rows of the newest version. A file that is not there is a torn table."""
    files = files_at(table)
    gone = [name for name in files if not (table / name).exists()]
    assert not gone, f"the log of {table.name} names a file that is not there: {gone[0]}"
    return Counter(id_of(row) for name in files for row in read_rows(table / name))


def read_actions(commit: Path) -> list[dict[str, Any]]:
    """The actions of a commit file."""
    return [json.loads(line) for line in commit.read_bytes().split(b"\n") if line]


def _versions(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / LOG).glob("*[0-9].json"))


def newest_version(table: Path) -> int:
    """The number of the newest commit; -1 without a table."""
    return max(_versions(table), default=-1)


def list_removed(table: Path, after: int) -> list[str]:
    """The files that versions above ``after`` took out."""
    new = [number for number in _versions(table) if number > after]
    actions = [one for number in new for one in read_actions(table / LOG / f"{number:020d}.json")]
    return [unquote(one["remove"]["path"]) for one in actions if "remove" in one]


def read_version(table: Path, version: int) -> list[str]:
    """Ids of the rows of a version, from its files or, where they were replaced since, from what is kept of them."""
    return [id_of(row) for name in files_at(table, version) for row in read_rows(kept(table / name))]


def kept(path: Path) -> Path:
    """A file of the table, or what is kept of one that was replaced."""
    return path if path.exists() else path.with_name(f".{path.name}.replaced")


def published_at(table: Path, before: int) -> dict[str, int]:
    """{id: the last version below ``before`` in which a run published it}."""
    found: dict[str, int] = {}
    for version in (number for number in _versions(table) if number < before):
        actions = read_actions(table / LOG / f"{version:020d}.json")
        info: dict[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
        if info.get("tidegate.outcome") == "published" and "tidegate.query_id" in info:
            for action in actions:
                if "add" in action:
                    path = kept(table / unquote(action["add"]["path"]))
                    found |= {id_of(row): version for row in read_rows(path)}
    return found


def read_delta(table: Path) -> Counter[str]:
    """Ids of all rows by deltalake."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(table)):
        return Counter()
    return Counter(id_of(row) for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist())
