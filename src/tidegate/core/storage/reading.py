"""Reading of files, their size and time, and lists of names."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.core.storage.faults import path_is_named


@dataclass(frozen=True)
class Stat:
    """What the metadata of a file says."""

    size_bytes: int
    modified_ns: int
    """When it was last written, by the clock of the storage, in nanoseconds since 1970 UTC."""


def read(path: Path) -> bytes:
    """The bytes of a file. Raises FileNotFoundError."""
    with path_is_named(path):
        return path.read_bytes()


def read_end(path: Path, at_most: int) -> bytes:
    """The last ``at_most`` bytes of a file. Raises FileNotFoundError."""
    with path_is_named(path), open(path, "rb") as handle:
        handle.seek(max(os.fstat(handle.fileno()).st_size - at_most, 0))
        return handle.read(at_most)


def read_start(path: Path, at_most: int) -> bytes:
    """The first ``at_most`` bytes of a file. Raises FileNotFoundError."""
    with open(path, "rb") as handle:
        return handle.read(at_most)


def read_with_stat(path: Path) -> tuple[bytes, Stat]:
    """The bytes of a file, and what it was like when it was opened. Raises FileNotFoundError."""
    with path_is_named(path), open(path, "rb") as handle:
        found = os.fstat(handle.fileno())
        return handle.read(), Stat(found.st_size, found.st_mtime_ns)


def stat(path: Path) -> Stat:
    """Size and time of a file. Raises FileNotFoundError."""
    found = path.stat()
    return Stat(found.st_size, found.st_mtime_ns)


def exists(path: Path) -> bool:
    """Whether a file is there, or a folder (on an object store: anything under this prefix)."""
    return path.exists()


def digest(path: Path) -> str:
    """The sha256 of a file's bytes, in hex. Raises FileNotFoundError."""
    with path_is_named(path), open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def is_same(first: Path, second: Path) -> bool:
    """Whether two names hold the same bytes since :func:`link`, or are one folder. Raises FileNotFoundError."""
    return os.path.samestat(first.stat(), second.stat())


def free_bytes(folder: Path) -> int:
    """How much room is left where ``folder`` is."""
    return shutil.disk_usage(folder).free


def address(path: Path) -> str:
    """By what name libraries that read and write tables (pyarrow, deltalake) open ``path`` themselves."""
    return str(path)


def list_names(folder: Path) -> list[str]:
    """The names right in a folder, in no order; [] when it is not there."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def has_name(folder: Path, fits: Callable[[str], bool]) -> bool:
    """Whether one of the names right in a folder fits; lists no further than to the first."""
    try:
        with os.scandir(folder) as entries:
            return any(fits(entry.name) for entry in entries)
    except FileNotFoundError:
        return False


def real_path(path: Path) -> str:
    """The name of ``path`` behind symbolic links; on an object store its own."""
    return os.path.realpath(path)


def list_folder(folder: Path, pattern: str = "[!.]*") -> list[Path]:
    """What is right in a folder and has a name that fits the pattern (of ``fnmatch``), sorted; [] when it is not there.
    Hidden names are excluded unless the pattern asks for them."""
    return [folder / name for name in sorted(fnmatch.filter(list_names(folder), pattern))]


def list_folders(folder: Path) -> list[Path]:
    """The folders right in a folder, sorted; [] when it is not there."""
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []


def list_tree(folder: Path, pattern: str = "*") -> list[Path]:
    """Every file under a folder whose name fits the pattern (of ``fnmatch``), hidden ones too, sorted; [] when it is
    not there. Symbolic links are not followed."""
    walk = os.walk(folder, onerror=raise_unless_gone)
    return sorted(Path(place, name) for place, _, names in walk for name in fnmatch.filter(names, pattern))


def raise_unless_gone(error: OSError) -> None:
    """For ``os.walk``, which otherwise passes over a folder that cannot be listed as if it were empty."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
