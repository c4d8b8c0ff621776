"""Writing a file whole, and removing it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tidegate.core.storage.faults import explain_link, path_is_named
from tidegate.core.storage.syncing import sync_folder


def make_folder(path: Path) -> None:
    """Make folder ``path``, with those above it that are missing; their names are on disk when the call returns."""
    if path.is_dir():
        return
    parent = path.parent
    if parent.is_dir():
        with contextlib.suppress(PermissionError):  # above the folders that are ours
            sync_folder(parent.parent)  # the process that made the parent may have been killed before that
    else:
        make_folder(parent)
    path.mkdir(exist_ok=True)  # somebody else may make it at this moment
    sync_folder(parent)


def put_if_absent(path: Path, data: bytes, *, modified_ns: int | None = None) -> bool:
    """Create ``path`` with ``data`` unless it is there; True when this call created it. Never a torn or partial
    file. When it was there, its name is on disk too: its creator may have been killed before that.

    ``modified_ns`` is the modification time that the file gets, in nanoseconds since 1970; None for that of now.
    """
    with path_is_named(path):
        while True:
            temporary = _write_temporary(path, data, modified_ns)
            created = True
            try:
                os.link(temporary, path)
            except FileExistsError:
                created = _is_same_file(temporary, path)
            except FileNotFoundError:
                if temporary.exists() or not path.parent.is_dir():
                    raise
                continue  # removed as a leftover while this process was suspended
            except OSError as error:
                if (named := explain_link(error, path)) is not None:
                    raise named from error
                raise
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(path.parent)
            return created


def replace(path: Path, data: bytes, *, modified_ns: int | None = None) -> None:
    """Write ``path`` whole, over what is there; a reader sees the old bytes or the new ones. ``modified_ns`` as for
    :func:`put_if_absent`."""
    with path_is_named(path):
        temporary = _write_temporary(path, data, modified_ns)
        try:
            os.replace(temporary, path)
        except FileNotFoundError:
            if not path.is_file() or path.read_bytes() != data:  # else done: the reply to the first request got lost
                raise
        sync_folder(path.parent)


def set_modified(path: Path, modified_ns: int) -> None:
    """Give a file a modification time, in nanoseconds since 1970, and leave its content as it is."""
    with path_is_named(path):
        os.utime(path, ns=(modified_ns, modified_ns))


def _write_temporary(path: Path, data: bytes, modified_ns: int | None = None) -> Path:
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as handle:
            handle.write(data)
            handle.flush()
            if modified_ns is not None:
                os.utime(handle.fileno(), ns=(modified_ns, modified_ns))
            os.fsync(handle.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return temporary


def _is_same_file(temporary: Path, path: Path) -> bool:
    """Whether ``path`` is a link to ``temporary``, and so one that only this process can have made."""
    try:
        with open(path, "rb") as there:  # opening asks the server; a plain stat may be answered from a cache
            return os.path.samestat(os.fstat(there.fileno()), os.stat(temporary))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """A new file to write to, on disk when the block ends; removed when it fails. Raises FileExistsError."""
    with path_is_named(path):
        make_folder(path.parent)
        with open(path, "xb") as handle:
            try:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            except BaseException:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                raise
        sync_folder(path.parent)


def touch(path: Path) -> None:
    """Give a file the present as its time; needs no space. Raises FileNotFoundError."""
    os.utime(path)


def remove(path: Path) -> None:
    """Remove a file, or nothing when it is gone already."""
    path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a folder and all in it, or nothing when it is gone already."""
    shutil.rmtree(path, ignore_errors=True)


def remove_empty_folder(path: Path) -> None:
    """Remove a folder in which nothing is; one that is not empty stays, and so does one that cannot be removed."""
    with contextlib.suppress(OSError):
        path.rmdir()
