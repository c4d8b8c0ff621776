"""Another name for a file, on one device or across two."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from tidegate.core.errors import on_failure
from tidegate.core.storage.dispatch import operation
from tidegate.core.storage.faults import explain_link, path_is_named
from tidegate.core.storage.files import (
    discard,
    list_folder,
    make_folder,
    put_if_absent,
    read,
    remove,
    sync_file,
    sync_folder,
)
from tidegate.core.storage.shared import COPY_SUFFIX

_CHUNK_BYTES = 1 << 20

_TAKEN = ".taken"
"""How the name of a file ends while it is taken away, behind digits of the digest of what should go."""

_WANTED_DIGITS = 16


@operation
def move(source: Path, target: Path) -> bool:
    """Move a finished file or folder into place. False when ``source`` is gone and ``target`` is there: somebody did it
    already.

    Across devices the bytes are first copied under a hidden name next to the target, so a reader never sees a torn
    file; a folder cannot be moved across devices.
    """
    with path_is_named(target):
        make_folder(target.parent)
        moved = _rename(source, target)
        sync_folder(target.parent)
        if source.parent != target.parent:
            with contextlib.suppress(FileNotFoundError):  # the folder is gone, and the name with it
                sync_folder(source.parent)
        return moved


@operation
def rename(source: Path, target: Path) -> None:
    """Rename a file or a folder within one device. Other than :func:`move` it makes no folder and never copies: whoever
    removes the target's folder keeps a suspended process from it. Raises OSError where that is impossible."""
    os.rename(source, target)
    for folder in dict.fromkeys((target.parent, source.parent)):  # the new name first
        sync_folder(folder)


@operation
def place(source: Path, target: Path, check: Callable[[str], None], *, stored: Path | None = None) -> bool:
    """Move one of many finished files, whose bytes are made durable first. False when somebody did it already.
    ``stored`` is an object that has these bytes too, which a store copies by itself.

    The target's folder must exist, and the caller syncs it. When source and target are on two devices, ``check`` is
    given the sha256 of the bytes that were copied, before readers see them ("" where an object store copied them by
    itself). It raises when they are not what was written, or when the caller may not continue. The file gets the
    present as its time: other programs clear up files of a table's folder that are old and that its log does not name
    yet.

    A process that was suspended during such a copy could resume after its target was removed, and place it again. So
    a copy is made in the order *create the copy's name, open the source*, and a process that has placed all of its
    files calls :func:`remove_copies`: the stale process then finds either its source or its copy gone. Raises
    FileNotFoundError when both source and target are gone, TryAgainError DISK_FULL.
    """
    with path_is_named(target):
        try:
            sync_file(source)
            os.utime(source)
        except FileNotFoundError:
            if not target.exists():
                raise
            return False
        return _rename(source, target, check)


def _rename(source: Path, target: Path, check: Callable[[str], None] | None = None) -> bool:
    try:
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_over(source, target, check)
    except FileNotFoundError:
        if not target.exists():
            raise
        return False
    return True


def _copy_over(source: Path, target: Path, check: Callable[[str], None] | None) -> None:
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}{COPY_SUFFIX}")
    with on_failure(lambda: discard(temporary)):
        with open(temporary, "xb") as writer, open(source, "rb") as reader:
            copied = hashlib.sha256()
            while chunk := reader.read(_CHUNK_BYTES):
                copied.update(chunk)
                writer.write(chunk)
            writer.flush()
            os.fsync(writer.fileno())
        if check is not None:
            check(copied.hexdigest())
        os.rename(temporary, target)
    sync_folder(target.parent)  # the copy must be on disk before the source goes
    source.unlink(missing_ok=True)


@operation
def remove_copies(target: Path) -> None:
    """Remove copies of ``target`` that another process began; only once the source is gone."""
    for path in list_folder(target.parent, f".{_escape(target.name)}.*{COPY_SUFFIX}"):
        remove(path)


def _escape(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


@operation
def link(source: Path, target: Path) -> None:
    """Give a file a second name, with the same bytes; one of many, the caller syncs their folders. A target that is
    there stays. Raises FileNotFoundError when both are gone."""
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except FileNotFoundError:
        if not target.exists():
            raise
    except OSError as error:
        if (named := explain_link(error, target)) is not None:
            raise named from error
        raise


@operation
def clone(source: Path, target: Path) -> None:
    """Like :func:`link`, and across devices a durable copy; ``target`` is a name that nobody else writes to."""
    try:
        link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with path_is_named(target), open(target, "wb") as writer, open(source, "rb") as reader:
            shutil.copyfileobj(reader, writer, _CHUNK_BYTES)
            writer.flush()
            os.fsync(writer.fileno())


@operation
def take_away(path: Path, data: bytes) -> bool:
    """Remove ``path`` if it holds ``data``. False for anything else that is there, which stays, and for nothing.

    A process that was suspended between reading a file and this call must not remove the file's replacement. So the
    file is first renamed, then compared, and put back if it is another one; :func:`put_back_taken` does that for a
    process that was killed in between.
    """
    wanted = hashlib.sha256(data).hexdigest()[:_WANTED_DIGITS]
    aside = path.with_name(f".{path.name}.{wanted}.{secrets.token_hex(6)}{_TAKEN}")
    try:
        move(path, aside)
    except FileNotFoundError:
        return False
    return _put_back(path, aside, wanted)


@operation
def put_back_taken(folder: Path) -> None:
    """Complete each :func:`take_away` of a file of ``folder`` whose process was killed."""
    for aside in list_folder(folder, f".*.*.*{_TAKEN}"):
        name, wanted, _ = aside.name.removeprefix(".").removesuffix(_TAKEN).rsplit(".", 2)
        _put_back(folder / name, aside, wanted)


def _put_back(path: Path, aside: Path, wanted: str) -> bool:
    """Return whether ``aside`` was what should go, and is gone now; anything else goes back to ``path``."""
    try:
        data = read(aside)
    except FileNotFoundError:
        return False  # another process has done it
    is_it = hashlib.sha256(data).hexdigest()[:_WANTED_DIGITS] == wanted
    if not is_it:
        put_if_absent(path, data)
    remove(aside)
    return is_it
