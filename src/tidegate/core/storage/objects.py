"""The functions of the storage port on object stores; each has the name and the meaning that it has for files in
:mod:`tidegate.core.storage.files`. Lists are in :mod:`tidegate.core.storage.object_lists`, moves and copies in
:mod:`tidegate.core.storage.object_moves`.

A request whose reply was lost is sent again, so a condition can fail because of the caller's own first request. Each
write therefore carries a name of its own, and the name of the write that it replaced, as metadata: a writer that finds
its name in either place knows that its write was carried out.

No write depends on a delete: a store has no conditional one. What is taken away under a condition is emptied instead,
and an object without bytes counts as absent everywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from obstore.exceptions import AlreadyExistsError, PreconditionError

from tidegate.core.storage.listed import listing_of
from tidegate.core.storage.object_lists import list_below
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.object_probe import check_conditions
from tidegate.core.storage.object_requests import (
    WRITER,
    Found,
    attempts,
    get_object,
    look,
    no_object,
    overwrite,
    put_object,
    remove,
)
from tidegate.core.storage.range_file import RangeFile
from tidegate.core.storage.shared import OPERATIONS, Stat

_CHUNK_BYTES = 8 << 20

_PART_BYTES, _PARTS = 5 << 20, 10_000
"""The smallest part of an upload, and the largest number of parts, on S3."""


def read(path: ObjectPath) -> bytes:
    if (listing := listing_of(path)) is None:
        return get_object(path)[0]
    if path.key not in listing.entries:
        raise no_object(path)

    def get() -> tuple[bytes, str]:
        data, found = get_object(path)
        return data, found.version.get("e_tag", "")

    return listing.read(path.key, get)


def read_start(path: ObjectPath, at_most: int) -> bytes:
    return get_object(path, 0, at_most)[0]


def read_end(path: ObjectPath, at_most: int) -> bytes:
    size = stat(path).size_bytes
    return read(path)[-at_most:] if size <= at_most else get_object(path, size - at_most, size)[0]


def read_with_stat(path: ObjectPath) -> tuple[bytes, Stat]:
    data, found = get_object(path)
    return data, Stat(found.size, found.modified_ns)


def stat(path: ObjectPath) -> Stat:
    if (listing := listing_of(path)) is not None:
        if (entry := listing.entries.get(path.key)) is None:
            raise no_object(path)
        return Stat(entry.size, entry.modified_ns)
    found = look(path)
    if found is None or found.is_empty:
        raise no_object(path)
    return Stat(found.size, found.modified_ns)


def exists(path: ObjectPath) -> bool:
    if (listing := listing_of(path)) is not None and path.key in listing.entries:
        return True
    found = look(path) if path.key and listing is None else None
    return (found is not None and not found.is_empty) or any(True for _ in list_below(path))


def digest(path: ObjectPath) -> str:
    sha256 = hashlib.sha256()
    for chunk in _read_in_ranges(path):
        sha256.update(chunk)
    return sha256.hexdigest()


def _read_in_ranges(path: ObjectPath) -> Iterator[bytes]:
    """The bytes of one version of an object, of which each request fetches a part: each has time enough on a slow
    line."""
    file = RangeFile(path)
    if not file.size:
        raise no_object(path)
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def is_same(first: Path, second: Path) -> bool:
    if first == second:
        return True
    found = [look(one) if isinstance(one, ObjectPath) else None for one in (first, second)]
    there, other = (one if one is not None and not one.is_empty else None for one in found)
    if there is None or other is None:
        raise no_object(first if there is None else second)
    # A copy keeps the metadata. Equal bytes say nothing, since a file can be written again with the same rows.
    return there.writer == other.writer != ""


def digest_of(path: Path) -> str:
    return digest(path) if isinstance(path, ObjectPath) else OPERATIONS["digest"](path)  # type: ignore[return-value]


def free_bytes(folder: ObjectPath) -> int:
    return sys.maxsize


def open_input(path: ObjectPath) -> BinaryIO:
    return RangeFile(path)  # type: ignore[return-value]


def address(path: ObjectPath) -> str:
    return str(path)


def real_path(path: ObjectPath) -> str:
    return str(path)


def sync_file(path: ObjectPath) -> None:
    pass


def sync_folder(path: ObjectPath) -> None:
    pass


def sync_names_above(paths: Iterable[Path], top: ObjectPath, since_ns: int = 0) -> int:
    return 0


def sync_names_in(folder: ObjectPath, top: ObjectPath) -> None:
    pass


def make_folder(path: ObjectPath) -> None:
    pass


def remove_empty_folder(path: ObjectPath) -> None:
    pass


def refresh_time(path: ObjectPath) -> None:
    pass  # a copy has the time at which it was made


def set_modified(path: ObjectPath, modified_ns: int) -> None:
    pass


def put_tagged(path: ObjectPath, body: bytes | Path, modified_ns: int | None = None) -> str | None:
    """Write an object unless it is there; its ETag when this call wrote it, else None."""
    check_conditions(path)
    mine = secrets.token_hex(8)
    for _ in attempts(path):
        try:
            return put_object(path, body, "create", mine, modified_ns)
        except (AlreadyExistsError, PreconditionError):
            found = look(path)
            if found is None:
                continue  # removed since, or two requests met (409)
            if found.was_written_by(mine):
                return found.version.get("e_tag", "")
            if not found.is_empty:
                return None
            if exchange(path, body, found, modified_ns):
                now = look(path)
                return "" if now is None else now.version.get("e_tag", "")
    raise AssertionError("the attempts end with an error")


def exchange(path: ObjectPath, body: bytes | Path, there: Found, modified_ns: int | None = None) -> bool:
    """Write over the object ``there``; False when it is another one by now."""
    mine = secrets.token_hex(8)
    for _ in attempts(path):
        try:
            put_object(path, body, there.version, f"{mine} {there.writer.partition(' ')[0]}".strip(), modified_ns)
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            found = look(path)
            if found is None or found.version != there.version:
                return found is not None and found.was_written_by(mine)
            continue  # the store reported a conflict (409)
        return True
    raise AssertionError("the attempts end with an error")


def put_if_absent(path: ObjectPath, data: bytes, *, modified_ns: int | None = None) -> bool:
    return put_tagged(path, data, modified_ns) is not None


def replace(path: ObjectPath, data: bytes, *, modified_ns: int | None = None) -> None:
    # Under a condition too: a first request that the store carries out after its repetition, and after the next write,
    # would bring old bytes back.
    for _ in attempts(path):
        found = look(path)
        if found is None:
            is_written = put_tagged(path, data, modified_ns) is not None
        else:
            check_conditions(path)
            is_written = exchange(path, data, found, modified_ns)
        if is_written:
            return


@contextlib.contextmanager
def create(path: ObjectPath) -> Iterator[BinaryIO]:
    error = FileExistsError(17, "Object exists", str(path))
    if (found := look(path)) is not None and not found.is_empty:
        raise error
    with tempfile.NamedTemporaryFile(prefix="tidegate-") as handle:
        yield handle  # type: ignore[misc]
        handle.flush()
        if put_tagged(path, Path(handle.name)) is None:
            raise error


def touch(path: ObjectPath) -> None:
    data, found = get_object(path)
    exchange(path, data, found)  # another writer has given it the present, too


def remove_tree(path: ObjectPath) -> None:
    with contextlib.suppress(OSError):
        keys = [one.key for one in list_below(path)]
        if keys:
            overwrite(path, lambda store: store.delete(keys))


def remove_names(folder: ObjectPath, names: Iterable[str]) -> None:
    keys = [(folder / name).key for name in names]
    if keys:
        overwrite(folder, lambda store: store.delete(keys))


def store_time(folder: ObjectPath) -> float:
    probe = folder / f".{secrets.token_hex(8)}.clock"
    try:
        overwrite(probe, lambda store: store.put(probe.key, b"?"))
        found = look(probe)
        assert found is not None, "it was written"
        return found.modified_ns / 1e9
    finally:
        with contextlib.suppress(OSError):
            remove(probe)


def upload(source: Path, target: ObjectPath) -> None:
    """Write the bytes of a local file to an object that nobody else writes."""
    part_bytes = max(_PART_BYTES, -(-source.stat().st_size // _PARTS))
    attributes = {WRITER: secrets.token_hex(8)}
    overwrite(target, lambda store: store.put(target.key, source, attributes=attributes, chunk_size=part_bytes))


def download(source: ObjectPath, target: Path) -> None:
    """Write the bytes of an object to a local file, durably. Raises FileNotFoundError."""
    with open(target, "wb") as handle:
        for chunk in _read_in_ranges(source):
            handle.write(chunk)
        handle.flush()
        os.fsync(handle.fileno())
