"""The rule of durability: bytes are synced as a file, names as the folder that has them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tidegate.core.storage.faults import path_is_named

_NO_SYNC = {errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP, errno.ENOSYS}

_ONE_BY_ONE = 4

_AT_ONCE = 16


def sync_file(path: Path) -> None:
    """Make the bytes of file ``path``, written by somebody else, durable."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Make the names in folder ``path`` durable."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, how: int) -> None:
    with path_is_named(path):
        handle = os.open(path, how)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_folders(paths: Iterable[Path]) -> None:
    """Make the names in folders durable, of many folders at a time: each has to wait for the disk."""
    _for_each(paths, sync_folder)


def sync_files(paths: Iterable[Path]) -> None:
    """Make the bytes of ``paths`` durable, many at a time: the file system then writes its journal once for all.

    One that is gone is passed over (Spark's maintenance removes what is old), and so are file systems without a sync.
    """
    _for_each(paths, _sync_if_there)


def sync_names_above(paths: Iterable[Path], top: Path, since_ns: int = 0) -> int:
    """Make durable the names of ``paths`` and of the folders above them, up to what ``top`` holds; of these folders
    those that got or lost a name since ``since_ns``. Returns how many they were."""
    parents = {path.parent for path in paths}
    above = {folder for parent in parents for folder in (parent, *parent.parents) if folder.is_relative_to(top)}
    changed = [folder for folder in above if folder.stat().st_mtime_ns >= since_ns]
    _for_each(changed, sync_folder)
    return len(changed)


def sync_names_in(folder: Path, top: Path) -> None:
    """Make durable the names of all that is under ``folder``, its own, and those above it, up to what ``top`` holds."""
    if folder.is_dir():
        sync_names_above([folder, *folder.rglob("*")], top)


def _sync_if_there(path: Path) -> None:
    try:
        sync_file(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _for_each(paths: Iterable[Path], act: Callable[[Path], None]) -> None:
    some = sorted(paths)
    if len(some) <= _ONE_BY_ONE:
        for path in some:
            act(path)
        return
    from concurrent.futures import ThreadPoolExecutor  # it brings logging, which most commands do without

    with ThreadPoolExecutor(_AT_ONCE, "tidegate-sync") as pool:
        for _ in pool.map(act, some):
            pass  # raises what a call has raised
