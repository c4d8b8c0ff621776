"""Moves and copies of the storage port on object stores: :mod:`tidegate.core.storage.moving`."""

from __future__ import annotations

import contextlib
import errno
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tidegate.core import errors
from tidegate.core.storage.faults import StoreError
from tidegate.core.storage.object_lists import list_below
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.object_requests import WRITER, attempts, get_object, look, overwrite, remove
from tidegate.core.storage.objects import digest_of, download, exchange, exists
from tidegate.core.storage.shared import COPY_SUFFIX, OPERATIONS

_COPIED_BYTES = 5 << 30
"""The largest object that S3 copies; larger ones would have to be copied in parts, which the client cannot."""


def move(source: Path, target: Path) -> bool:
    files = _files_of(source)
    if not files:
        if not _exists(target):
            raise FileNotFoundError(2, "No such file or object", str(source))
        return False
    for one, rest in files:
        _copy_over(one, target / rest if rest.parts else target)
    for one, _ in files:
        _remove(one)
    return True


def rename(source: Path, target: Path) -> None:
    raise OSError(errno.EXDEV, "An object store has no rename", str(source))


def _files_of(source: Path) -> list[tuple[Path, Path]]:
    """The file or object itself, or all those below the folder, each with its path from there."""
    if not isinstance(source, ObjectPath):
        if source.is_file():
            return [(source, Path())]
        return [(one, one.relative_to(source)) for one in sorted(source.rglob("*")) if one.is_file()]
    found = look(source)
    if found is not None and not found.is_empty:
        return [(source, Path())]
    return [(one, one.relative_to(source)) for one in list_below(source)]


def _exists(path: Path) -> bool:
    return exists(path) if isinstance(path, ObjectPath) else path.exists()


def _remove(path: Path) -> None:
    if isinstance(path, ObjectPath):
        remove(path)
    else:
        path.unlink(missing_ok=True)


def _copy_over(source: Path, target: Path, stored: Path | None = None) -> str:
    """Copy a file or an object to a name, whatever is there; the sha256 of a local file, "" of an object that the store
    copied by itself. A file whose bytes the object ``stored`` has is not uploaded again."""
    if not isinstance(source, ObjectPath):
        assert isinstance(target, ObjectPath)
        found = digest_of(source)
        if isinstance(stored, ObjectPath) and (stored.scheme, stored.bucket) == (target.scheme, target.bucket):
            with contextlib.suppress(FileNotFoundError):  # the file itself is there
                overwrite(target, lambda store: store.copy(stored.key, target.key))
                return found
        attributes = {WRITER: secrets.token_hex(8)}
        overwrite(target, lambda store: store.put(target.key, source, attributes=attributes))  # a large one in parts
        return found
    if isinstance(target, ObjectPath) and (source.scheme, source.bucket) == (target.scheme, target.bucket):
        overwrite(target, lambda store: store.copy(source.key, target.key))
        return ""
    with _downloaded(source) as copy:
        if isinstance(target, ObjectPath):
            return _copy_over(copy, target)
        OPERATIONS["move"](copy, target)
    return ""


def place(source: Path, target: Path, check: Callable[[str], None], *, stored: Path | None = None) -> bool:
    """Bring one of many finished files to its name, in two steps: under a hidden name, then a copy within the store.

    A process that was suspended at any point resumes without harm once another one has placed the file and called
    :func:`remove_copies`: before ``check``, which asks for the lease too, it is stopped there; after it, the hidden
    object is gone, and the copy fails. Each step is one request that the store carries out whole. Such a process may
    also remove the hidden object of the one that has the lease, which then begins again.
    """
    try:
        if isinstance(target, ObjectPath):
            _place_object(source, target, check, stored)
        else:
            with _downloaded(source) as copy:
                OPERATIONS["place"](copy, target, check)
    except FileNotFoundError:
        if not _exists(target):
            raise
        return False
    _remove(source)
    return True


def _place_object(source: Path, target: ObjectPath, check: Callable[[str], None], stored: Path | None) -> None:
    if not isinstance(source, ObjectPath) and source.stat().st_size > _COPIED_BYTES and target.scheme == "s3":
        raise StoreError(errors.OBJECT_TOO_LARGE(where=str(target), file=source), str(target))
    aside = _aside(target)
    for _ in attempts(target):
        check(_copy_over(source, aside, stored))
        try:
            overwrite(target, lambda store: store.copy(aside.key, target.key))
        except FileNotFoundError:
            if _exists(target) or not _exists(source):
                raise
        else:
            return


def _aside(target: ObjectPath) -> ObjectPath:
    return target.with_name(f".{target.name}{COPY_SUFFIX}")


def remove_copies(target: ObjectPath) -> None:
    remove(_aside(target))


def link(source: Path, target: Path) -> None:
    # A look, then a copy: those who give a name to a file at the same time give it to the same bytes.
    if isinstance(target, ObjectPath):
        taken = look(target)
        is_taken = taken is not None and not taken.is_empty
    else:
        is_taken = target.exists()
    try:
        if not is_taken:
            if isinstance(source, ObjectPath):
                _name_writer(source)
            _copy_over(source, target)
    except FileNotFoundError:
        if not _exists(target):
            raise


def _name_writer(path: ObjectPath) -> None:
    """Give an object of another program a writer's name, by which its copies are known; its bytes stay."""
    found = look(path)
    if found is not None and not found.writer and not found.is_empty:
        with _downloaded(path) as copy:
            exchange(path, copy, found)


def clone(source: Path, target: Path) -> None:
    _copy_over(source, target)


@contextlib.contextmanager
def _downloaded(source: Path) -> Iterator[Path]:
    """A local copy of an object, for the time of the block; it may be moved away."""
    assert isinstance(source, ObjectPath)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        copy = Path(folder, "copy")
        download(source, copy)
        yield copy


def take_away(path: ObjectPath, data: bytes) -> bool:
    try:
        there, found = get_object(path)
    except FileNotFoundError:
        return False
    return there == data and exchange(path, b"", found)


def put_back_taken(folder: ObjectPath) -> None:
    pass
