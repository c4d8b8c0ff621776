"""The storage port: everything that tidegate does with its state, staging, tables and quarantine, in the few operations
that an object store has too. So far they are carried out on file systems.

==============================================  =======================================================
here                                            on an object store
==============================================  =======================================================
``read``, ``read_with_stat``, ``stat``,         GET, HEAD
``exists``
``list_names``, ``list_folder``,                LIST of a prefix; folders do not exist, and making or
``list_folders``, ``list_tree``                 removing one does nothing
``put_if_absent``                               PUT If-None-Match, then GET and compare
``replace``, ``create``, ``touch``              PUT
``move``, ``place``, ``link``                   copy, compare, and for a move delete the source
``is_same``                                     compare the ETags
``remove``, ``remove_tree``                     DELETE
``sync_file``, ``sync_folder`` and others       nothing: what was acknowledged is durable
``address``                                     the URI
==============================================  =======================================================

When a call returns, this is on disk, so that a record that says "done" can never outlive the thing it speaks of:

- ``put_if_absent``, ``replace``, ``create``, ``write_note``: the bytes, the name, and every folder that had to be made;
- ``move``: the names, the new one before the old one goes. The bytes are as durable as they were before: whoever wrote
  them syncs them first (``sync_file``);
- ``place``: the bytes. ``link``: nothing. Both are for many files at a time; the caller then syncs their folders;
- ``remove``, ``take_away``, ``remove_tree``: nothing. After a power loss what was removed may be there again, and must
  do no harm.

What others write (Spark, pyarrow) is made durable by ``sync_files`` and ``sync_names_above``.

On NFS a request can be carried out and its reply lost; sent again it fails with EEXIST or ENOENT. So a link, a rename
or a replacement that fails that way is looked at: what it was to bring about may be there.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import json
import os
import pwd
import secrets
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tidegate.errors import DisagreementError, TryAgainError


@contextlib.contextmanager
def _disk_full_is_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(path) from error
        raise


def is_disk_full(error: BaseException) -> bool:
    """Whether a call of the operating system failed on a full disk or an exhausted quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_full(path: Path | str) -> TryAgainError:
    """The error for a full disk or an exhausted quota under ``path``."""
    return TryAgainError(
        "DISK_FULL",
        f"no space left on the device that holds {path}",
        where=str(path),
        next_run=GOES_ON,
        fix=f"free space (df -h {Path(path).parent}), then run again",
    )


GOES_ON = "goes on with what this one had begun, if it had; nothing is lost"
"""What the next run does after one that the operating system stopped, wherever that was."""

_TAKEN = ".taken"
"""How the name of a file ends while it is taken away; before it stand digits of the digest of what should go."""

_WANTED_DIGITS = 16

COPY_SUFFIX = ".incoming"
"""How the name of a copy that is being made ends. It starts with a dot: neither ``*.parquet`` globs nor Spark's listing
see it."""

_CHUNK_BYTES = 1 << 20

_NO_SYNC = {errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP, errno.ENOSYS}
_ONE_BY_ONE = 4
_AT_ONCE = 16

_NOT_WHAT_IT_SHOULD_BE = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


def name_cause(error: BaseException, folder: Path | str, state: Path | None = None) -> TryAgainError | None:
    """The error for a call of the operating system that failed on a full disk, a missing permission, a read-only file
    system, or on a file where a folder should be; None for all else. ``folder`` is what is named where the call names
    nothing; ``state`` is as for :func:`not_permitted`."""
    if not isinstance(error, OSError):
        return None
    if is_disk_full(error):
        return disk_full(error.filename or folder)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return not_permitted(
            [Path(os.fsdecode(name)) for name in (error.filename2, error.filename) if name] or [folder], state
        )
    if error.errno in _NOT_WHAT_IT_SHOULD_BE and error.filename:
        name = os.fsdecode(error.filename)
        return TryAgainError(
            "PATH_UNUSABLE",
            f"{name}: {error.strerror}",
            where=name,
            next_run=GOES_ON,
            fix=f"look at what is there (namei -l {shlex.quote(name)}) and put it right, or correct the path in "
            "tidegate.yaml; then run the same command again",
        )
    return None


def not_permitted(paths: Sequence[Path | str], state: Path | None = None) -> TryAgainError:
    """The error for a file or folder that this user may not read or write: the one of ``paths``, or above them, that
    refuses it. Inside the folder ``state``, which runs fill, one that belongs to another user is not the only one."""
    there = [_find_existing(Path(path)) for path in paths]
    refused, mode = there[0], os.W_OK
    wanted = [(one, os.R_OK | os.X_OK if one.is_dir() else os.R_OK) for one in there]
    wanted += [(place, os.W_OK) for one in there for place in (one, one.parent)]
    for place, right in wanted:
        if not os.access(place, right, effective_ids=True):
            refused, mode = place, right
            break
    user = _find_user(os.geteuid())
    if mode == os.W_OK and os.statvfs(refused).f_flag & os.ST_RDONLY:
        what, fix = f"the file system that holds {refused} is read-only", "mount it writable (findmnt -T "
        fix += f"{shlex.quote(str(refused))} names it)"
    else:
        what = f"user {user} may not {'write to' if mode == os.W_OK else 'read'} {refused}"
        owner = refused.stat().st_uid
        own = owner == os.geteuid()
        if not own and state is not None and refused.is_relative_to(state):
            what += f", which belongs to {_find_user(owner)}; all of {state} must belong to {user}"
            refused = state
        quoted = shlex.quote(str(refused))
        fix = f"chmod -R u+rwX {quoted}" if own else f"sudo chown -R {user} {quoted}"
    return TryAgainError(
        "NOT_WRITABLE" if mode == os.W_OK else "NOT_READABLE",
        what,
        where=str(refused),
        next_run=GOES_ON,
        fix=f"{fix}, then run the same command again",
    )


def _find_existing(path: Path) -> Path:
    """``path``, or the nearest folder above it that is there and can be looked at."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def _find_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


@dataclass(frozen=True)
class Stat:
    """What a listing or a look at a file tells without its bytes."""

    size_bytes: int
    modified_ns: int
    """When it was last written, by the clock of the storage, in nanoseconds since 1970 UTC."""


def read(path: Path) -> bytes:
    """The bytes of a file. Raises FileNotFoundError."""
    return path.read_bytes()


def read_with_stat(path: Path) -> tuple[bytes, Stat]:
    """The bytes of a file, and what it was like when it was opened. Raises FileNotFoundError."""
    with open(path, "rb") as handle:
        found = os.fstat(handle.fileno())
        return handle.read(), Stat(found.st_size, found.st_mtime_ns)


def stat(path: Path) -> Stat:
    """Size and time of a file. Raises FileNotFoundError."""
    found = path.stat()
    return Stat(found.st_size, found.st_mtime_ns)


def exists(path: Path) -> bool:
    """Whether a file is there, or a folder (on an object store: anything under this prefix)."""
    return path.exists()


def free_bytes(folder: Path) -> int:
    """How much room is left where ``folder`` is."""
    return shutil.disk_usage(folder).free


def digest(path: Path) -> str:
    """The sha256 of a file's bytes, in hex. Raises FileNotFoundError."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


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


def list_folder(folder: Path, pattern: str = "[!.]*") -> list[Path]:
    """What is right in a folder and has a name that fits the pattern (of ``fnmatch``), sorted; [] when it is not there.
    Hidden names are left out unless the pattern asks for them."""
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
    found = (Path(place, name) for place, _, names in os.walk(folder) for name in fnmatch.filter(names, pattern))
    return sorted(found)


def sync_folder(path: Path) -> None:
    """Make the names in folder ``path`` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Make the bytes of file ``path``, written by somebody else, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


def make_folder(path: Path) -> None:
    """Make folder ``path``, with those above it that are missing; their names are on disk when the call returns."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)  # somebody else may make it at this moment
    sync_folder(path.parent)


def remove_empty_folder(path: Path) -> None:
    """Remove a folder in which nothing is; one that is not empty stays, and so does one that cannot be removed."""
    with contextlib.suppress(OSError):
        path.rmdir()


@contextlib.contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """A new file to write to, on disk when the block ends; removed when it fails. Raises FileExistsError."""
    with _disk_full_is_named(path):
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


def _write_beside(path: Path, data: bytes) -> Path:
    make_folder(path.parent)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(beside, "xb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    return beside


def put_if_absent(path: Path, data: bytes) -> bool:
    """Create ``path`` with ``data`` unless it is there; True when this call created it. Never a torn or partial
    file. When it was there, its name is on disk too: whoever created it may have been killed before that.
    """
    with _disk_full_is_named(path):
        beside = _write_beside(path, data)
        created = True
        try:
            os.link(beside, path)
        except FileExistsError:
            created = _is_same_file(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        sync_folder(path.parent)
        return created


def _is_same_file(beside: Path, path: Path) -> bool:
    """Whether ``path`` is a link to ``beside``, and so one that only this process can have made."""
    try:
        with open(path, "rb") as there:  # opening asks the server; a plain stat may be answered from a cache
            return os.path.samestat(os.fstat(there.fileno()), os.stat(beside))
    except FileNotFoundError:
        return False


def replace(path: Path, data: bytes) -> None:
    """Write ``path`` whole, over what is there; a reader sees the old bytes or the new ones."""
    with _disk_full_is_named(path):
        beside = _write_beside(path, data)
        try:
            os.replace(beside, path)
        except FileNotFoundError:
            if not path.is_file() or path.read_bytes() != data:  # else done: the reply to the first request got lost
                raise
        sync_folder(path.parent)


def move(source: Path, target: Path) -> bool:
    """Move a finished file or folder into place. False when ``source`` is gone and ``target`` is there: somebody did it
    already.

    Across devices the bytes are copied beside the target under a hidden name first, so a reader never sees a torn file;
    a folder cannot be moved there.
    """
    with _disk_full_is_named(target):
        make_folder(target.parent)
        moved = _rename(source, target)
        sync_folder(target.parent)
        if source.parent != target.parent:
            with contextlib.suppress(FileNotFoundError):  # the folder is gone, and the name with it
                sync_folder(source.parent)
        return moved


def place(source: Path, target: Path, check: Callable[[str], None]) -> bool:
    """Move one of many finished files, whose bytes are made durable first. False when somebody did it already.

    The target's folder must exist, and the caller syncs it. ``check`` is given the sha256 of the bytes that were copied
    when source and target are on two devices, and raises when they are not what was written.

    A process that fell asleep over such a copy could wake up after its target was removed again, and put it in once
    more. So a copy is made in the order *create the copy's name, open the source*, and who has placed all of its files
    calls :func:`remove_copies`: a sleeper then has either a source that is gone or a copy that is gone. Raises
    FileNotFoundError when both source and target are gone, TryAgainError DISK_FULL.
    """
    with _disk_full_is_named(target):
        try:
            sync_file(source)
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
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}{COPY_SUFFIX}")
    try:
        with open(beside, "xb") as writer, open(source, "rb") as reader:
            copied = hashlib.sha256()
            while chunk := reader.read(_CHUNK_BYTES):
                copied.update(chunk)
                writer.write(chunk)
            writer.flush()
            os.fsync(writer.fileno())
        if check is not None:
            check(copied.hexdigest())
        os.rename(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)  # the copy must be on disk before the source goes
    source.unlink(missing_ok=True)


def remove_copies(target: Path) -> None:
    """Remove copies of ``target`` that another process began; only once the source is gone."""
    for path in list_folder(target.parent, f".{_escape(target.name)}.*{COPY_SUFFIX}"):
        remove(path)


def _escape(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


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


def is_same(first: Path, second: Path) -> bool:
    """Whether two names hold the same bytes since :func:`link`. Raises FileNotFoundError."""
    return os.path.samestat(first.stat(), second.stat())


def remove(path: Path) -> None:
    """Remove a file, or nothing when it is gone already."""
    path.unlink(missing_ok=True)


def take_away(path: Path, data: bytes) -> bool:
    """Remove ``path`` if it holds ``data``. False for anything else that is there, which stays, and for nothing.

    Whoever slept between reading a file and this call must not remove what took its place. So the file is renamed
    first, looked at, and put back if it is another one; :func:`put_back_taken` does that for a process that was killed
    in between.
    """
    wanted = hashlib.sha256(data).hexdigest()[:_WANTED_DIGITS]
    aside = path.with_name(f".{path.name}.{wanted}.{secrets.token_hex(6)}{_TAKEN}")
    try:
        move(path, aside)
    except FileNotFoundError:
        return False
    return _put_back(path, aside, wanted)


def put_back_taken(folder: Path) -> None:
    """Complete each :func:`take_away` of a file of ``folder`` whose process was killed."""
    for aside in list_folder(folder, f".*.*.*{_TAKEN}"):
        name, wanted, _ = aside.name.removeprefix(".").removesuffix(_TAKEN).rsplit(".", 2)
        _put_back(folder / name, aside, wanted)


def _put_back(path: Path, aside: Path, wanted: str) -> bool:
    """Whether ``aside`` was what should go, and is gone now; anything else goes back to ``path``."""
    try:
        data = read(aside)
    except FileNotFoundError:
        return False  # another process has done it
    is_it = hashlib.sha256(data).hexdigest()[:_WANTED_DIGITS] == wanted
    if not is_it:
        put_if_absent(path, data)
    remove(aside)
    return is_it


def remove_tree(path: Path) -> None:
    """Remove a folder and all in it, or nothing when it is gone already."""
    shutil.rmtree(path, ignore_errors=True)


class UnreadableStateError(DisagreementError, ValueError):
    """A file of the state folder that was cut, edited or exchanged."""

    def __init__(self, path: Path, why: Exception) -> None:
        quoted = shlex.quote(str(path))
        super().__init__(
            "STATE_FILE_UNREADABLE",
            f"{path.name} is not what tidegate wrote: {type(why).__name__}: {why}",
            where=str(path),
            next_run="stops here again; nothing was read or written",
            fix="restore the pipeline's state folder from a backup made together with the table; or "
            f"`mv {quoted} {quoted}.torn`, then `tidegate repair` for this pipeline, which shows what is missing then",
        )


@contextlib.contextmanager
def unreadable_is_named(path: Path) -> Iterator[None]:
    """Raise UnreadableStateError for content of ``path`` that cannot be understood within."""
    try:
        yield
    except UnreadableStateError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableStateError(path, error) from error


def read_json(path: Path) -> Any | None:
    """The JSON value in ``path``, or None when the file is not there. Raises UnreadableStateError."""
    try:
        data = read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with unreadable_is_named(path):
        return json.loads(data)


def write_note(folder: Path, number: int, value: Any, *, only: bool = False) -> None:
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


def read_note(folder: Path) -> Any | None:
    """The note of the highest number in ``folder``; None when there is none. Raises UnreadableStateError."""
    while numbers := _note_numbers(folder):
        path = folder / f"{max(numbers)}.json"
        note = read_json(path)
        if note is not None and not isinstance(note, dict):
            raise UnreadableStateError(path, TypeError("a note is a JSON object"))
        if note is not None:  # else a newer one took its place just now
            return note
    return None


def _note_numbers(folder: Path) -> list[int]:
    names = (name.removesuffix(".json") for name in list_names(folder))
    return [int(name) for name in names if name.isdigit()]


def dump_json(value: Any) -> bytes:
    """``value`` as indented JSON with a closing newline, the one form of every file tidegate keeps."""
    text = json.dumps(value, indent=1, ensure_ascii=False, default=str)
    try:
        return (text + "\n").encode()
    except UnicodeEncodeError:
        # A file name that is not Unicode (surrogateescape): written as \udcXX it is valid JSON and can be read back.
        return (json.dumps(value, indent=1, default=str) + "\n").encode()
