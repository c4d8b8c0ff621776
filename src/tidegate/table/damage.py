"""Damage of a table: files and versions of its log that are missing or not as they were written.

Names and sizes are compared often, because that is cheap; ``tidegate verify`` reads the bytes. Other processes may
write at the same time, so a finding counts only if the log has no newer version by then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Literal

from tidegate.core import storage
from tidegate.core.words import count_of
from tidegate.table.footer import count_rows
from tidegate.table.log.files import (
    LOG_FOLDER,
    AddFile,
    checkpoints_of,
    commit_name,
    compacted_name,
    compactions_of,
    is_inside,
    list_names,
    path_on_disk,
    read_actions,
    torn_versions,
    versions_of,
)
from tidegate.table.log.snapshot import DataFile, data_file, read_base, read_snapshot
from tidegate.table.log.state import first_line

Kind = Literal["gone", "size", "digest", "unreadable", "rows", "commit_gone", "commit_torn", "not_in_log"]
_BYTES_PER_FILE = 1000
"""A compaction file or a checkpoint is read if it has no more bytes than this for each file to look at. An ``add`` has
about 300 bytes."""
_ATTEMPTS = 3


@dataclass(frozen=True)
class Damage:
    """One damage: ``path`` is relative to the table's folder, ``found`` describes it. ``file`` is the file in the log;
    None for a version, and for a file that is not in the log."""

    path: str
    kind: Kind
    found: str
    file: DataFile | None = None


def find_damage(table_path: Path, *, at_most: int | None = None) -> list[Damage]:
    """Find missing versions, and missing files or files of another size among the newest ``at_most`` files of the log,
    by default among all. Opens no data file."""
    found: list[Damage] = []
    for _ in range(_ATTEMPTS):
        names = list_names(table_path)
        found = [*_find_lost_commits(names), *_look_at_files(table_path, names, at_most)]
        if not found or versions_of(list_names(table_path))[-1:] == versions_of(names)[-1:]:
            return found
    return found


def examine_table(table_path: Path) -> tuple[list[Damage], list[DataFile]]:
    """Examine each version, and the bytes of each file. Returns the damage and the files that were read."""
    unreadable = None
    try:
        files = list(read_snapshot(table_path).added.values())
    except ValueError as error:
        files, unreadable = [], first_line(error)
    found = _find_lost_commits(list_names(table_path))
    for version in torn_versions(table_path):
        path = f"{LOG_FOLDER}/{commit_name(version)}"
        found.append(Damage(path, "commit_torn", "this version of the log is torn; Delta readers stop at it"))
    if unreadable is not None:
        return found or [Damage(LOG_FOLDER, "commit_torn", unreadable)], []
    found += [damage for add in files if (damage := _read_whole(table_path, add)) is not None]
    held = {path_on_disk(add["path"]) for add in files}
    for there in storage.list_tree(table_path, "[!.]*.parquet"):
        name = there.relative_to(table_path).as_posix()
        if name not in held and not any(part.startswith(("_", ".")) for part in PurePosixPath(name).parts):
            found.append(Damage(name, "not_in_log", "no version of the log counts it, but a plain glob reads its rows"))
    if found:  # files may have been replaced or added while these were read
        now = {path_on_disk(add["path"]) for add in read_snapshot(table_path).added.values()}
        found = [one for one in found if one.kind.startswith("commit") or (one.path in now) == (one.file is not None)]
    return found, [data_file(add) for add in files]


def describe_damage(found: Sequence[Damage]) -> str:
    """The damage in one clause."""
    parts = []
    lost = [one for one in found if one.file is not None]
    for kind, words in _WORDS.items():
        some = [one for one in found if one.kind == kind]
        if some:
            parts.append(f"{count_of(len(some), *words)}, for example {some[0].path} ({some[0].found})")
    rows = sum(one.file.rows for one in lost if one.file is not None)
    return "; ".join(parts) + (f"; the log counts {count_of(rows, 'row')} in these files" if lost else "")


_WORDS: dict[Kind, tuple[str, str]] = {
    "commit_gone": ("version of the log is gone", "versions of the log are gone"),
    "commit_torn": ("version of the log is torn", "versions of the log are torn"),
    "gone": ("file is gone", "files are gone"),
    "size": ("file has another size", "files have another size"),
    "digest": ("file has other bytes", "files have other bytes"),
    "unreadable": ("file cannot be read", "files cannot be read"),
    "rows": ("file has another number of rows", "files have another number of rows"),
    "not_in_log": ("file is not in the log", "files are not in the log"),
}


def _find_lost_commits(names: Sequence[str]) -> list[Damage]:
    """Versions whose commit file is missing, above the newest checkpoint: older ones, other programs may clean up. Our
    compaction files are not checkpoints for other readers."""
    versions = versions_of(list(names))
    first = max((int(name[:20]) + 1 for name in checkpoints_of(list(names))), default=0)
    lost = sorted(set(range(first, versions[-1] if versions else 0)) - set(versions))
    words = "this version of the log is gone; Delta readers stop at it"
    return [Damage(f"{LOG_FOLDER}/{commit_name(version)}", "commit_gone", words) for version in lost]


def _look_at_files(table_path: Path, names: Sequence[str], at_most: int | None) -> list[Damage]:
    if not names:
        return []
    try:
        if at_most is None:
            files: Iterator[AddFile] = iter(read_snapshot(table_path).added.values())
        else:
            files = islice(_walk_newest(table_path, list(names), at_most), at_most)
        return [damage for add in files if (damage := _look_at(table_path, add)) is not None]
    except FileNotFoundError:  # not a log
        return []
    except ValueError as error:
        return [Damage(LOG_FOLDER, "commit_torn", first_line(error))]


def _walk_newest(table_path: Path, names: list[str], at_most: int) -> Iterator[AddFile]:
    """The table's files, those of the newest versions first.

    The walk ends at a compaction file or a checkpoint of very many files, so that its cost does not grow with the
    table. A checkpoint is read only if commits before it are missing, because else it contains nothing new.
    """
    versions, checkpoints = versions_of(names), checkpoints_of(names)
    end = max((one for one in compactions_of(names) if not versions or one <= versions[-1]), default=-1)
    bases = [compacted_name(end)] if end >= 0 else []
    newest = max([*versions[-1:], *(int(name[:20]) for name in checkpoints)], default=-1)
    newer = [version for version in versions if version > end]
    above = [name for name in checkpoints if int(name[:20]) > end]
    if above and len(newer) < newest - end:
        end = int(above[-1][:20])
        bases = [name for name in above if int(name[:20]) == end]
    known: set[str] = set()
    for number in [version for version in reversed(newer) if version > end][:at_most]:
        try:
            actions = read_actions(table_path, number)
        except FileNotFoundError:
            return
        except ValueError as error:
            raise ValueError(f"{commit_name(number)}: {error}") from None
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        yield from (one["add"] for one in actions if "add" in one and one["add"]["path"] not in known | removed)
        known |= removed | {action["add"]["path"] for action in actions if "add" in action}
    paths = [table_path / LOG_FOLDER / name for name in bases]
    try:
        if newest - end > at_most or sum(storage.stat(path).size_bytes for path in paths) > at_most * _BYTES_PER_FILE:
            return
        adds = [one["add"] for path in paths for one in read_base(path, whole=True) if "add" in one]
    except (FileNotFoundError, ValueError):  # torn: the next reader that needs it reports it
        return
    adds.sort(key=lambda add: int(add.get("modificationTime") or 0), reverse=True)
    yield from (add for add in adds if add["path"] not in known)


def _look_at(table_path: Path, add: AddFile) -> Damage | None:
    file = data_file(add)
    if not is_inside(file.path):
        return None
    try:
        there = storage.stat(table_path / file.path).size_bytes
    except (FileNotFoundError, NotADirectoryError):
        return Damage(file.path, "gone", f"{file.size_bytes:,} bytes, {count_of(file.rows, 'row')}", file)
    if there != file.size_bytes:
        return Damage(file.path, "size", f"it has {there:,} bytes, the log says {file.size_bytes:,}", file)
    return None


def _read_whole(table_path: Path, add: AddFile) -> Damage | None:
    found, file = _look_at(table_path, add), data_file(add)
    if found is not None or not is_inside(file.path):
        return found
    path, sha256 = table_path / file.path, file.sha256
    try:
        if sha256 and (there := storage.digest(path)) != sha256:
            words = f"its sha256 is {there[:16]}..., that of what was published {sha256[:16]}..."
            return Damage(file.path, "digest", words, file)
        rows = count_rows(path, by_footer=bool(sha256))  # without a digest only reading all rows can show damage
    except FileNotFoundError:
        return Damage(file.path, "gone", "it went away while it was looked at", file)
    except (OSError, ValueError) as error:
        return Damage(file.path, "unreadable", first_line(error), file)
    wanted = json.loads(add.get("stats") or "{}").get("numRecords")
    if wanted is not None and rows != int(wanted):
        return Damage(file.path, "rows", f"it has {rows:,} rows, the log says {int(wanted):,}", file)
    return None
