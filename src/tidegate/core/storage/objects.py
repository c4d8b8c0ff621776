"""The functions of the storage port on object stores; each has the name and the meaning that it has for files in
:mod:`tidegate.core.storage.files` and :mod:`tidegate.core.storage.moving`.

A request whose reply was lost is sent again, so a condition can fail because of the caller's own first request. Each
write therefore carries a name of its own, and the name of the write that it replaced, as metadata: a writer that finds
its name in either place knows that its write was carried out.

No write depends on a delete: a store has no conditional one. What is taken away under a condition is emptied instead,
and an object without bytes counts as absent everywhere.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.exceptions import BaseError as AnyStoreError

from tidegate.core import errors
from tidegate.core.storage.access import patience_seconds
from tidegate.core.storage.faults import StoreError
from tidegate.core.storage.listed import forget_listings, listing_of
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.range_file import RangeFile
from tidegate.core.storage.shared import COPY_SUFFIX, OPERATIONS, Stat
from tidegate.core.storage.stores import (
    call,
    give_up,
    is_denied,
    list_objects,
    list_pages,
    note_pages,
    reason_of,
    refuse,
    refuse_for,
    refuse_unsafe,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

    from tidegate.core.errors import TidegateError

R = TypeVar("R")

_CHUNK_BYTES = 8 << 20

_WRITER, _MODIFIED = "writer", "modified"

_COPIED_BYTES = 5 << 30
"""The largest object that S3 copies; larger ones would have to be copied in parts, which the client cannot."""

_CONFLICTS = 10
"""After so many refusals of a probe that only this process writes, the store is refused: a conflict (409) would have
ended."""


@dataclass(frozen=True)
class _Found:
    """An object as its headers describe it."""

    size: int
    modified_ns: int
    version: dict[str, str]
    writer: str

    @property
    def is_empty(self) -> bool:
        return self.size == 0

    def was_written_by(self, name: str) -> bool:
        """True for the write ``name``, and for the one that replaced it."""
        return name in self.writer.split()


def _describe(meta: ObjectMeta, attributes: Any) -> _Found:
    given = attributes.get(_MODIFIED)
    version = {name: str(meta[name]) for name in ("e_tag", "version") if meta.get(name)}
    modified_ns = int(given) if given else int(meta["last_modified"].timestamp() * 1e9)
    return _Found(meta["size"], modified_ns, version, attributes.get(_WRITER, ""))


def _look(path: ObjectPath) -> _Found | None:
    """The object at ``path``, also an empty one; None when there is none."""

    def ask(store: ObjectStore) -> _Found:
        answer = store.get(path.key, options={"head": True})
        return _describe(answer.meta, answer.attributes)

    try:
        return call(path, ask)
    except FileNotFoundError:
        return None


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(2, "No such object", str(path))


def _get(path: ObjectPath, start: int = 0, end: int | None = None) -> tuple[bytes, _Found]:
    def ask(store: ObjectStore) -> tuple[bytes, _Found]:
        options: Any = {} if end is None else {"range": (start, end)}
        answer = store.get(path.key, options=options)
        return bytes(answer.bytes()), _describe(answer.meta, answer.attributes)

    data, found = call(path, ask)
    if found.is_empty:
        raise _missing(path)
    return data, found


def read(path: ObjectPath) -> bytes:
    if (listing := listing_of(path)) is None:
        return _get(path)[0]
    if path.key not in listing.entries:
        raise _missing(path)

    def get() -> tuple[bytes, str]:
        data, found = _get(path)
        return data, found.version.get("e_tag", "")

    return listing.read(path.key, get)


def read_start(path: ObjectPath, at_most: int) -> bytes:
    return _get(path, 0, at_most)[0]


def read_end(path: ObjectPath, at_most: int) -> bytes:
    size = stat(path).size_bytes
    return read(path)[-at_most:] if size <= at_most else _get(path, size - at_most, size)[0]


def read_with_stat(path: ObjectPath) -> tuple[bytes, Stat]:
    data, found = _get(path)
    return data, Stat(found.size, found.modified_ns)


def stat(path: ObjectPath) -> Stat:
    if (listing := listing_of(path)) is not None:
        if (entry := listing.entries.get(path.key)) is None:
            raise _missing(path)
        return Stat(entry.size, entry.modified_ns)
    found = _look(path)
    if found is None or found.is_empty:
        raise _missing(path)
    return Stat(found.size, found.modified_ns)


def exists(path: ObjectPath) -> bool:
    if (listing := listing_of(path)) is not None and path.key in listing.entries:
        return True
    found = _look(path) if path.key and listing is None else None
    return (found is not None and not found.is_empty) or any(True for _ in _list(path))


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
        raise _missing(path)
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def is_same(first: Path, second: Path) -> bool:
    if first == second:
        return True
    found = [_look(one) if isinstance(one, ObjectPath) else None for one in (first, second)]
    there, other = (one if one is not None and not one.is_empty else None for one in found)
    if there is None or other is None:
        raise _missing(first if there is None else second)
    # A copy keeps the metadata. Equal bytes say nothing, since a file can be written again with the same rows.
    return there.writer == other.writer != ""


def _digest(path: Path) -> str:
    return digest(path) if isinstance(path, ObjectPath) else OPERATIONS["digest"](path)  # type: ignore[return-value]


def free_bytes(folder: ObjectPath) -> int:
    return sys.maxsize


def open_input(path: ObjectPath) -> BinaryIO:
    return RangeFile(path)  # type: ignore[return-value]


def address(path: ObjectPath) -> str:
    return str(path)


def real_path(path: ObjectPath) -> str:
    return str(path)


# Lists


def _prefix(folder: ObjectPath) -> str | None:
    return f"{folder.key}/" if folder.key else None


def _list(folder: ObjectPath) -> Iterator[ObjectPath]:
    """Every object below a folder, empty ones excluded; a bucket that is missing is an error and not an empty one."""
    bucket = ObjectPath(f"{folder.scheme}://{folder.bucket}")
    if (listing := listing_of(folder)) is not None:
        prefix = _prefix(folder) or ""
        yield from (bucket / key for key in listing.entries if key.startswith(prefix))
        return

    def ask(store: ObjectStore) -> list[str]:
        return [one["path"] for page in list_pages(store, _prefix(folder)) for one in page if one["size"]]

    for key in list_objects(folder, ask):
        yield bucket / key


def _list_right_in(folder: ObjectPath) -> tuple[list[str], list[str]]:
    """The names of objects and of folders right in a folder."""
    if (listing := listing_of(folder)) is not None:
        prefix = _prefix(folder) or ""
        rest = [key.removeprefix(prefix).split("/") for key in listing.entries if key.startswith(prefix)]
        folders = dict.fromkeys(names[0] for names in rest if len(names) > 1)
        return [names[0] for names in rest if len(names) == 1], [*folders]

    def ask(store: ObjectStore) -> tuple[list[str], list[str]]:
        answer = store.list_with_delimiter(_prefix(folder))
        note_pages(len(answer["objects"]) + len(answer["common_prefixes"]))
        objects = [one["path"].rpartition("/")[2] for one in answer["objects"] if one["size"]]
        return objects, [one.rstrip("/").rpartition("/")[2] for one in answer["common_prefixes"]]

    return list_objects(folder, ask)


def list_names(folder: ObjectPath) -> list[str]:
    objects, folders = _list_right_in(folder)
    return [*objects, *folders]


def has_name(folder: ObjectPath, fits: Callable[[str], bool]) -> bool:
    return any(fits(name) for name in list_names(folder))


def list_folders(folder: ObjectPath) -> list[Path]:
    return sorted(folder / name for name in _list_right_in(folder)[1])


def list_tree(folder: ObjectPath, pattern: str = "*") -> list[Path]:
    return sorted(path for path in _list(folder) if fnmatch.fnmatch(path.name, pattern))


@dataclass(frozen=True)
class Entry:
    """An object as a listing has it; ``modified_at`` is by the clock of the store, in seconds since 1970."""

    name: str
    size: int
    tag: str
    """Another one after each change: its ETag."""
    modified_at: float


def list_entries(folder: ObjectPath) -> list[Entry]:
    """The objects right in a folder that has no folders in it, in the order of their names."""

    def ask(store: ObjectStore) -> list[Entry]:
        return [
            Entry(one["path"].rpartition("/")[2], one["size"], one["e_tag"] or "", one["last_modified"].timestamp())
            for page in list_pages(store, _prefix(folder))
            for one in page
            if one["size"]
        ]

    found = list_objects(folder, ask)
    return sorted(found, key=lambda one: one.name)


# Durability: what a store has acknowledged is durable, and folders do not exist


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


# Writes

_checked: set[tuple[str, str]] = set()


def trust_conditions(path: ObjectPath) -> None:
    """Let this process take for granted that the conditions of writes hold: another one of this machine has asked."""
    _checked.add((path.scheme, path.bucket))


def _check_conditions(path: ObjectPath) -> None:
    """Refuse a store that ignores the conditions of writes; each process asks once for each bucket."""
    if (path.scheme, path.bucket) in _checked:
        return
    probe = path.parent / f".{secrets.token_hex(8)}.probe"
    try:
        _try_and_remove(probe)
    except FileNotFoundError as error:
        raise refuse(path, error.__cause__ if isinstance(error.__cause__, Exception) else error) from error
    _checked.add((path.scheme, path.bucket))


def _try_conditions(probe: ObjectPath) -> None:
    _overwrite(probe, lambda store: store.put(probe.key, b"0"))
    remove(probe)
    first = _write_probe(probe, "create")
    if _is_accepted(probe, "create"):
        raise refuse_unsafe(probe, "created an object that was there already")
    _write_probe(probe, first.version)
    if _is_accepted(probe, first.version):
        raise refuse_unsafe(probe, "replaced an object although it had changed")


def find_missing_rights(folder: ObjectPath, *, only_read: bool = False) -> TidegateError | None:
    """The error that a run which uses the objects below ``folder`` would end with: the store is away, there is no such
    bucket, a right is missing, or conditions are ignored. None when nothing is missing; no object is left behind."""
    probe = folder / f".{secrets.token_hex(8)}.probe"
    rights: dict[str, Callable[[], object]] = {"list": lambda: _list_right_in(probe), "read": lambda: _get(probe)}
    if not only_read:
        # These are asked for with requests that change nothing: a probe could not be removed without the right to.
        absent = {"e_tag": '"0"', "version": "1"}
        rights |= {"write": lambda: _put(probe, b"0", absent, "probe"), "delete": lambda: remove(probe)}
    try:
        refused = {right: reason for right, ask in rights.items() if (reason := _find_refusal(folder, ask))}
        if "list" in refused and "read" in refused:
            del refused["read"], rights["read"]  # without the right to list, what is absent is refused too
        if refused:
            reason = next(iter(refused.values()))
            if len(refused) < len(rights):
                reason = f"there is no right to {' and '.join(', '.join(refused).rsplit(', ', 1))} there ({reason})"
            return refuse_for(folder, reason)  # refused on all counts, the store's own words say more: a wrong key
        if not only_read:
            _try_and_remove(probe)
    except StoreError as error:
        return error.named
    return None


def _find_refusal(folder: ObjectPath, ask: Callable[[], object]) -> str | None:
    """Why a right is missing; None when it is there. Raises StoreError for another fault of the store."""
    try:
        ask()
    except (FileNotFoundError, PreconditionError, AlreadyExistsError):
        return None  # allowed, and there is no such object
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, AnyStoreError):  # a setting of the client
            raise
        if not is_denied(cause):
            raise (give_up if error.named.retry else refuse)(folder, cause) from error
        return reason_of(cause)
    return None


def _try_and_remove(probe: ObjectPath) -> None:
    try:
        _try_conditions(probe)
    finally:
        with contextlib.suppress(OSError):
            remove(probe)


def _write_probe(probe: ObjectPath, mode: Any) -> _Found:
    """Write under a condition that holds; what is there then, whether or not the reply arrived."""
    for number, _ in enumerate(_attempts(probe)):
        _is_accepted(probe, mode)
        if (found := _look(probe)) is not None and found.version != mode:
            return found
        if number == _CONFLICTS:
            what = (
                "create an object that had been removed" if found is None else "replace an object that had not changed"
            )
            raise refuse_unsafe(probe, f"refused to {what}")
    raise AssertionError("the attempts end with an error")


def _is_accepted(probe: ObjectPath, mode: Any) -> bool:
    try:
        _put(probe, secrets.token_bytes(8), mode, "probe")  # other bytes each time: an ETag is their digest
    except (AlreadyExistsError, PreconditionError):
        return False
    return True


def _change(path: ObjectPath, act: Callable[[ObjectStore], R]) -> R:
    """A request that changes something."""
    try:
        return call(path, act)
    finally:
        forget_listings()


def _overwrite(path: ObjectPath, act: Callable[[ObjectStore], object]) -> None:
    """A request without a condition: a conflict (409) ends by itself."""
    for _ in _attempts(path):
        with contextlib.suppress(AlreadyExistsError, PreconditionError):
            _change(path, act)
            return


def _put(path: ObjectPath, body: bytes | Path, mode: Any, writer: str, modified_ns: int | None = None) -> str:
    """Write an object; its ETag."""
    attributes = {_WRITER: writer} if modified_ns is None else {_WRITER: writer, _MODIFIED: str(modified_ns)}

    def act(store: ObjectStore) -> str:
        return store.put(path.key, body, mode=mode, attributes=attributes, use_multipart=False)["e_tag"] or ""

    return _change(path, act)


def _attempts(path: ObjectPath) -> Iterator[None]:
    """Let a write begin again while other writers come in between, or the store reports a conflict."""
    end = time.monotonic() + patience_seconds()
    while time.monotonic() < end:
        yield
        time.sleep(0.05)
    raise give_up(path, TimeoutError("the object changed before each write"))


def put_tagged(path: ObjectPath, body: bytes | Path, modified_ns: int | None = None) -> str | None:
    """Write an object unless it is there; its ETag when this call wrote it, else None."""
    _check_conditions(path)
    mine = secrets.token_hex(8)
    for _ in _attempts(path):
        try:
            return _put(path, body, "create", mine, modified_ns)
        except (AlreadyExistsError, PreconditionError):
            found = _look(path)
            if found is None:
                continue  # removed since, or two requests met (409)
            if found.was_written_by(mine):
                return found.version.get("e_tag", "")
            if not found.is_empty:
                return None
            if _exchange(path, body, found, modified_ns):
                now = _look(path)
                return "" if now is None else now.version.get("e_tag", "")
    raise AssertionError("the attempts end with an error")


def _exchange(path: ObjectPath, body: bytes | Path, there: _Found, modified_ns: int | None = None) -> bool:
    """Write over the object ``there``; False when it is another one by now."""
    mine = secrets.token_hex(8)
    for _ in _attempts(path):
        try:
            _put(path, body, there.version, f"{mine} {there.writer.partition(' ')[0]}".strip(), modified_ns)
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            found = _look(path)
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
    for _ in _attempts(path):
        found = _look(path)
        if found is None:
            is_written = put_tagged(path, data, modified_ns) is not None
        else:
            _check_conditions(path)
            is_written = _exchange(path, data, found, modified_ns)
        if is_written:
            return


@contextlib.contextmanager
def create(path: ObjectPath) -> Iterator[BinaryIO]:
    error = FileExistsError(17, "Object exists", str(path))
    if (found := _look(path)) is not None and not found.is_empty:
        raise error
    with tempfile.NamedTemporaryFile(prefix="tidegate-") as handle:
        yield handle  # type: ignore[misc]
        handle.flush()
        if put_tagged(path, Path(handle.name)) is None:
            raise error


def touch(path: ObjectPath) -> None:
    data, found = _get(path)
    _exchange(path, data, found)  # another writer has given it the present, too


def remove(path: ObjectPath) -> None:
    with contextlib.suppress(FileNotFoundError):
        _overwrite(path, lambda store: store.delete(path.key))


def remove_tree(path: ObjectPath) -> None:
    with contextlib.suppress(OSError):
        keys = [one.key for one in _list(path)]
        if keys:
            _overwrite(path, lambda store: store.delete(keys))


def remove_names(folder: ObjectPath, names: Iterable[str]) -> None:
    keys = [(folder / name).key for name in names]
    if keys:
        _overwrite(folder, lambda store: store.delete(keys))


def store_time(folder: ObjectPath) -> float:
    probe = folder / f".{secrets.token_hex(8)}.clock"
    try:
        _overwrite(probe, lambda store: store.put(probe.key, b"?"))
        found = _look(probe)
        assert found is not None, "it was written"
        return found.modified_ns / 1e9
    finally:
        with contextlib.suppress(OSError):
            remove(probe)


def upload(source: Path, target: ObjectPath) -> None:
    """Write the bytes of a local file to an object that nobody else writes."""
    _overwrite(target, lambda store: store.put(target.key, source))


def download(source: ObjectPath, target: Path) -> None:
    """Write the bytes of an object to a local file, durably. Raises FileNotFoundError."""
    with open(target, "wb") as handle:
        for chunk in _read_in_ranges(source):
            handle.write(chunk)
        handle.flush()
        os.fsync(handle.fileno())


# Moving


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
    found = _look(source)
    if found is not None and not found.is_empty:
        return [(source, Path())]
    return [(one, one.relative_to(source)) for one in _list(source)]


def _exists(path: Path) -> bool:
    return exists(path) if isinstance(path, ObjectPath) else path.exists()


def _remove(path: Path) -> None:
    if isinstance(path, ObjectPath):
        remove(path)
    else:
        path.unlink(missing_ok=True)


def _copy_over(source: Path, target: Path) -> str:
    """Copy a file or an object to a name, whatever is there; the sha256 of a local file, "" of an object that the store
    copied by itself."""
    if not isinstance(source, ObjectPath):
        assert isinstance(target, ObjectPath)
        found = _digest(source)
        attributes = {_WRITER: secrets.token_hex(8)}
        _overwrite(target, lambda store: store.put(target.key, source, attributes=attributes))  # a large one in parts
        return found
    if isinstance(target, ObjectPath) and (source.scheme, source.bucket) == (target.scheme, target.bucket):
        _overwrite(target, lambda store: store.copy(source.key, target.key))
        return ""
    with _downloaded(source) as copy:
        if isinstance(target, ObjectPath):
            return _copy_over(copy, target)
        OPERATIONS["move"](copy, target)
    return ""


def place(source: Path, target: Path, check: Callable[[str], None]) -> bool:
    """Bring one of many finished files to its name, in two steps: under a hidden name, then a copy within the store.

    A process that was suspended at any point resumes without harm once another one has placed the file and called
    :func:`remove_copies`: before ``check``, which asks for the lease too, it is stopped there; after it, the hidden
    object is gone, and the copy fails. Each step is one request that the store carries out whole. Such a process may
    also remove the hidden object of the one that has the lease, which then begins again.
    """
    try:
        if isinstance(target, ObjectPath):
            _place_object(source, target, check)
        else:
            with _downloaded(source) as copy:
                OPERATIONS["place"](copy, target, check)
    except FileNotFoundError:
        if not _exists(target):
            raise
        return False
    _remove(source)
    return True


def _place_object(source: Path, target: ObjectPath, check: Callable[[str], None]) -> None:
    if not isinstance(source, ObjectPath) and source.stat().st_size > _COPIED_BYTES and target.scheme == "s3":
        raise StoreError(errors.OBJECT_TOO_LARGE(where=str(target), file=source), str(target))
    aside = _aside(target)
    for _ in _attempts(target):
        check(_copy_over(source, aside))
        try:
            _overwrite(target, lambda store: store.copy(aside.key, target.key))
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
        taken = _look(target)
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
    found = _look(path)
    if found is not None and not found.writer and not found.is_empty:
        with _downloaded(path) as copy:
            _exchange(path, copy, found)


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
        there, found = _get(path)
    except FileNotFoundError:
        return False
    return there == data and _exchange(path, b"", found)


def put_back_taken(folder: ObjectPath) -> None:
    pass
