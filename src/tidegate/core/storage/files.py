"""Files of the storage port: read, list, write whole, make durable; JSON values and numbered notes.

The rule of durability: bytes are synced as a file, names as the folder that has them.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import json
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tidegate.core.errors import DisagreementError, on_failure
from tidegate.core.storage.dispatch import operation
from tidegate.core.storage.faults import explain_link, path_is_named
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.shared import Stat


@operation
def read(path: Path) -> bytes:
    """The bytes of a file. Raises FileNotFoundError."""
    with path_is_named(path):
        return path.read_bytes()


@operation
def read_end(path: Path, at_most: int) -> bytes:
    """The last ``at_most`` bytes of a file. Raises FileNotFoundError."""
    with path_is_named(path), open(path, "rb") as handle:
        handle.seek(max(os.fstat(handle.fileno()).st_size - at_most, 0))
        return handle.read(at_most)


@operation
def read_start(path: Path, at_most: int) -> bytes:
    """The first ``at_most`` bytes of a file. Raises FileNotFoundError."""
    with open(path, "rb") as handle:
        return handle.read(at_most)


@operation
def read_with_stat(path: Path) -> tuple[bytes, Stat]:
    """The bytes of a file, and what it was like when it was opened. Raises FileNotFoundError."""
    with path_is_named(path), open(path, "rb") as handle:
        found = os.fstat(handle.fileno())
        return handle.read(), Stat(found.st_size, found.st_mtime_ns)


@operation
def stat(path: Path) -> Stat:
    """Size and time of a file. Raises FileNotFoundError."""
    found = path.stat()
    return Stat(found.st_size, found.st_mtime_ns)


@operation
def exists(path: Path) -> bool:
    """Return whether a file is there, or a folder (on an object store: anything under this prefix)."""
    return path.exists()


@operation
def digest(path: Path) -> str:
    """The sha256 of a file's bytes, in hex. Raises FileNotFoundError."""
    with path_is_named(path), open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@operation
def is_same(first: Path, second: Path) -> bool:
    """Return whether two names are of one file since :func:`link`, or are one folder; files that have the same bytes by
    chance are not. Raises FileNotFoundError."""
    return os.path.samestat(first.stat(), second.stat())


@operation
def free_bytes(folder: Path) -> int:
    """How much room is left where ``folder`` is."""
    return shutil.disk_usage(folder).free


@operation
def address(path: Path) -> str:
    """By what name libraries that read and write tables (pyarrow, deltalake) open ``path`` themselves."""
    return str(path)


@operation
def list_names(folder: Path) -> list[str]:
    """The names right in a folder, in no order; [] when it is not there."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


@operation
def has_name(folder: Path, fits: Callable[[str], bool]) -> bool:
    """Return whether one of the names right in a folder fits; lists no further than to the first."""
    try:
        with os.scandir(folder) as entries:
            return any(fits(entry.name) for entry in entries)
    except FileNotFoundError:
        return False


@operation
def real_path(path: Path) -> str:
    """The name of ``path`` behind symbolic links; on an object store its own."""
    return os.path.realpath(path)


def list_folder(folder: Path, pattern: str = "[!.]*") -> list[Path]:
    """What is right in a folder and has a name that fits the pattern (of ``fnmatch``), sorted; [] when it is not there.
    Hidden names are excluded unless the pattern asks for them."""
    return [folder / name for name in sorted(fnmatch.filter(list_names(folder), pattern))]


@operation
def list_folders(folder: Path) -> list[Path]:
    """The folders right in a folder, sorted; [] when it is not there."""
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []


@operation
def list_tree(folder: Path, pattern: str = "*") -> list[Path]:
    """Every file under a folder whose name fits the pattern (of ``fnmatch``), hidden ones too, sorted; [] when it is
    not there. Symbolic links are not followed."""
    walk = os.walk(folder, onerror=raise_unless_gone)
    return sorted(Path(place, name) for place, _, names in walk for name in fnmatch.filter(names, pattern))


def raise_unless_gone(error: OSError) -> None:
    """For ``os.walk``, which otherwise passes over a folder that cannot be listed as if it were empty."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


_NO_SYNC = {errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP, errno.ENOSYS}

_ONE_BY_ONE = 4

_AT_ONCE = 16


@operation
def sync_file(path: Path) -> None:
    """Make the bytes of file ``path``, written by somebody else, durable."""
    _sync(path, os.O_RDONLY)


@operation
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

    One that is gone is skipped (Spark's maintenance removes what is old), and so are file systems without a sync.
    """
    _for_each(paths, _sync_if_there)


@operation
def sync_names_above(paths: Iterable[Path], top: Path, since_ns: int = 0) -> int:
    """Make durable the names of ``paths`` and of the folders above them, up to what ``top`` holds; of these folders
    those that got or lost a name since ``since_ns``. Returns how many they were."""
    parents = {path.parent for path in paths}
    above = {folder for parent in parents for folder in (parent, *parent.parents) if folder.is_relative_to(top)}
    changed = [folder for folder in above if folder.stat().st_mtime_ns >= since_ns]
    _for_each(changed, sync_folder)
    return len(changed)


@operation
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


@operation
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


@operation
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


@operation
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


@operation
def set_modified(path: Path, modified_ns: int) -> None:
    """Give a file a modification time, in nanoseconds since 1970, and leave its content as it is."""
    with path_is_named(path):
        os.utime(path, ns=(modified_ns, modified_ns))


def _write_temporary(path: Path, data: bytes, modified_ns: int | None = None) -> Path:
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    with on_failure(lambda: discard(temporary)), open(temporary, "xb") as handle:
        handle.write(data)
        handle.flush()
        if modified_ns is not None:
            os.utime(handle.fileno(), ns=(modified_ns, modified_ns))
        os.fsync(handle.fileno())
    return temporary


def discard(path: Path) -> None:
    """Remove an unfinished file if that is possible."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _is_same_file(temporary: Path, path: Path) -> bool:
    """Return whether ``path`` is a link to ``temporary``, and so one that only this process can have made."""
    try:
        with open(path, "rb") as there:  # opening asks the server; a plain stat may be answered from a cache
            return os.path.samestat(os.fstat(there.fileno()), os.stat(temporary))
    except FileNotFoundError:
        return False


@operation
@contextlib.contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """A new file to write to, on disk when the block ends; removed when it fails. Raises FileExistsError."""
    with path_is_named(path):
        make_folder(path.parent)
        with open(path, "xb") as handle, on_failure(lambda: discard(path)):
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        sync_folder(path.parent)


@operation
def touch(path: Path) -> None:
    """Give a file the present as its time; needs no space. Raises FileNotFoundError."""
    os.utime(path)


@operation
def refresh_time(path: Path) -> None:
    """Give a file the present as its time before it gets another name, which has the same time.

    VACUUM would remove an old file under a name that is not in the table's log yet. Raises FileNotFoundError, but not
    on an object store, where each name is a copy with a time of its own.
    """
    touch(path)


@operation
def open_input(path: Path) -> str | BinaryIO:
    """What pyarrow opens to read a file: its name, or an open file of ranges of an object."""
    return str(path)


@operation
def remove(path: Path) -> None:
    """Remove a file, or nothing when it is gone already."""
    path.unlink(missing_ok=True)


@operation
def remove_names(folder: Path, names: Iterable[str]) -> None:
    """Remove files right in a folder, as far as they are there."""
    for name in names:
        remove(folder / name)


@operation
def store_time(folder: Path) -> float:
    """The time by the clock of the storage, in seconds since 1970, as it gives it to files: of an object store its own,
    in whole seconds."""
    return time.time()


@operation
def remove_tree(path: Path) -> None:
    """Remove a folder and all in it, or nothing when it is gone already."""
    shutil.rmtree(path, ignore_errors=True)


@operation
def remove_empty_folder(path: Path) -> None:
    """Remove a folder in which nothing is; one that is not empty stays, and so does one that cannot be removed."""
    with contextlib.suppress(OSError):
        path.rmdir()


class UnreadableStateError(DisagreementError, ValueError):
    """A file of the state folder that was cut, edited or exchanged."""

    def __init__(self, path: Path, why: Exception) -> None:
        quoted = shlex.quote(str(path))
        away = f"`mv {quoted} {quoted}.torn`"
        if isinstance(path, ObjectPath):
            away = f"remove all objects below {path.parent.parent}"
        super().__init__(
            "STATE_FILE_UNREADABLE",
            f"{path.name} is not what tidegate wrote: {type(why).__name__}: {why}",
            where=str(path),
            next_run="stops here again; nothing was read or written",
            fix=f"restore the pipeline's state from a backup made together with the table; or {away}, then `tidegate "
            "repair` for this pipeline, which shows what is missing then",
        )


@contextlib.contextmanager
def unreadable_is_named(path: Path) -> Iterator[None]:
    """Raise UnreadableStateError for content of ``path`` that cannot be understood within."""
    try:
        yield
    except UnreadableStateError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnreadableStateError(path, error) from error


def dump_json(value: object, *, indent: int | None = 1) -> bytes:
    """``value``, dataclasses in it included, as JSON with a closing newline: indented, but for what has thousands of
    entries, which takes several times as long that way."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)
    try:
        return (text + "\n").encode()
    except UnicodeEncodeError:
        # A file name that is not Unicode (surrogateescape): written as \udcXX it is valid JSON and can be read back.
        return (json.dumps(value, indent=indent, default=_plain) + "\n").encode()


def _plain(value: object) -> object:
    return vars(value) if is_dataclass(value) else str(value)


def read_json(path: Path) -> Any | None:
    """The JSON value in ``path``, or None when the file is not there. Raises UnreadableStateError."""
    try:
        data = read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with unreadable_is_named(path):
        return json.loads(data)


def write_note(folder: Path, number: int, value: object, *, only: bool = False) -> None:
    """Write ``folder/<number>.json`` and drop the notes of lower numbers.

    The highest number is what counts, so a writer that was frozen and comes late with a lower one changes nothing.
    ``only``: higher ones are dropped too, because what they speak of was put back, and that is on disk when the call
    returns. The highest goes last, so killed in between the folder still says what it said before, and the same call
    completes it.
    """
    replace(folder / f"{number}.json", dump_json(value))
    for other in sorted(_note_numbers(folder)):
        if other < number or (only and other > number):
            remove(folder / f"{other}.json")
    if only:
        sync_folder(folder)


def read_note(folder: Path) -> dict[str, Any] | None:
    """The note of the highest number in ``folder``; None when there is none. Raises UnreadableStateError."""
    while numbers := _note_numbers(folder):
        path = folder / f"{max(numbers)}.json"
        note = read_json(path)
        if isinstance(note, dict):
            return note
        if note is not None:  # else a newer one took its place just now
            raise UnreadableStateError(path, TypeError("a note is a JSON object"))
    return None


def _note_numbers(folder: Path) -> list[int]:
    names = (name.removesuffix(".json") for name in list_names(folder))
    return [int(name) for name in names if name.isdigit()]
