"""The storage port: the few operations on which every promise stands, each atomic and durable.

File systems only, so far. When a call returns, this is on disk, so that a record that says "done" can never outlive the
thing it speaks of:

- ``put_if_absent``, ``replace``, ``write_note``: the bytes, the name, and every folder that had to be made for it;
- ``move``: the names, the new one before the old one goes. The bytes are as durable as they were before: whoever wrote
  them syncs them first (``fsync_file``);
- ``remove``, ``take_away``, ``remove_tree``: nothing. After a power loss what was removed may be there again, and must
  do no harm.

On NFS a request can be carried out and its reply lost; sent again it fails with EEXIST or ENOENT. So a link, a rename
or a replacement that fails that way is looked at: what it was to bring about may be there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import pwd
import secrets
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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


def fsync_dir(path: Path) -> None:
    """Make the names in folder ``path`` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_file(path: Path) -> None:
    """Make the bytes of file ``path``, written by somebody else, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make folder ``path``, with those above it that are missing; their names are on disk when the call returns."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)  # somebody else may make it at this moment
    fsync_dir(path.parent)


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
        fsync_dir(path.parent)
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
        fsync_dir(path.parent)


def move(source: Path, target: Path) -> bool:
    """Move a finished file or folder into place. False when ``source`` is gone and ``target`` is there: somebody did it
    already.

    Across devices the bytes are copied beside the target under a hidden name first, so a reader never sees a torn file;
    a folder cannot be moved there.
    """
    with _disk_full_is_named(target):
        make_folder(target.parent)
        moved = True
        try:
            _rename(source, target)
        except FileNotFoundError:
            if not target.exists():
                raise
            moved = False
        fsync_dir(target.parent)
        if source.parent != target.parent:
            with contextlib.suppress(FileNotFoundError):  # the folder is gone, and the name with it
                fsync_dir(source.parent)
        return moved


def _rename(source: Path, target: Path) -> None:
    try:
        os.rename(source, target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    with open(source, "rb") as reader, open(beside, "xb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        os.fsync(writer.fileno())
    os.rename(beside, target)
    fsync_dir(target.parent)
    source.unlink(missing_ok=True)


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
    for aside in sorted(folder.glob(f".*.*.*{_TAKEN}")) if folder.is_dir() else []:
        name, wanted, _ = aside.name.removeprefix(".").removesuffix(_TAKEN).rsplit(".", 2)
        _put_back(folder / name, aside, wanted)


def _put_back(path: Path, aside: Path, wanted: str) -> bool:
    """Whether ``aside`` was what should go, and is gone now; anything else goes back to ``path``."""
    try:
        data = aside.read_bytes()
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
        data = path.read_bytes()
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
        fsync_dir(folder)


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
    try:
        return [int(name.removesuffix(".json")) for name in os.listdir(folder) if name.removesuffix(".json").isdigit()]
    except FileNotFoundError:
        return []


def dump_json(value: Any) -> bytes:
    """``value`` as indented JSON with a closing newline, the one form of every file tidegate keeps."""
    text = json.dumps(value, indent=1, ensure_ascii=False, default=str)
    try:
        return (text + "\n").encode()
    except UnicodeEncodeError:
        # A file name that is not Unicode (surrogateescape): written as \udcXX it is valid JSON and can be read back.
        return (json.dumps(value, indent=1, default=str) + "\n").encode()
