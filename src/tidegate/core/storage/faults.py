"""What the operating system refuses, named: a full disk, a missing right, a file where a folder should be, and all else
that a file system can answer."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import secrets
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidegate.core import errors
from tidegate.core.errors import TidegateError, TryAgainError, UsageError
from tidegate.core.storage.object_path import is_object

_NOT_WHAT_IT_SHOULD_BE = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
_TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE)
_OF_PROGRAMS = (errno.ENOENT, errno.EBADF, errno.EFAULT, errno.ESRCH, errno.ECHILD)
"""What no file system reports by itself: a missing file has an error of its own where one is expected, or a defect."""
_REPORTED_BY_JAVA = (errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.EMFILE, errno.ENFILE, errno.EBUSY)
_OF_NETWORKS = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRINUSE, errno.EADDRNOTAVAIL)
"""What a connection reports too; of a file only where the error names one."""


class StoreError(OSError):
    """An object store refused a request, or gave no answer; ``named`` is the error for the user."""

    def __init__(self, named: TidegateError, path: str) -> None:
        super().__init__(errno.EIO, named.message, path)
        self.named = named


class ObjectChangedError(OSError):
    """The object was replaced after it was opened, or after it was listed."""


def is_disk_full(error: BaseException) -> bool:
    """Return whether a call of the operating system failed on a full disk or an exhausted quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_full(path: Path | str) -> TryAgainError:
    """The error for a full disk or an exhausted quota under ``path``."""
    return errors.DISK_FULL(where=str(path), path=path, parent=Path(path).parent)


def is_failure(error: BaseException) -> bool:
    """Return whether the operating system failed to answer, which says neither that a file is gone nor what is in
    it."""
    return (
        isinstance(error, OSError)
        and error.errno is not None
        and not isinstance(error, FileNotFoundError | NotADirectoryError)
    )


@contextlib.contextmanager
def path_is_named(path: Path) -> Iterator[None]:
    """Have an error of the operating system within name ``path``, where the call was on an open file and named none.
    Raises TryAgainError DISK_FULL where one fails on a full disk."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(path) from error
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def name_cause(error: BaseException, folder: Path | str, state: Path | None = None) -> TidegateError | None:
    """The error for a call of the operating system that failed: on a full disk, a missing permission, a read-only file
    system, a file where a folder should be, or, as STORAGE_FAILED, for any other reason of a file system. None for
    other errors. ``folder`` is what is named where the call names nothing; ``state`` is as for
    :func:`not_permitted`."""
    if isinstance(error, StoreError):
        return error.named
    if not isinstance(error, OSError) or isinstance(error, ConnectionError):
        return None
    number = error.errno
    if number is None or number <= 0 or number in _OF_PROGRAMS or (number in _OF_NETWORKS and not error.filename):
        return None
    if is_disk_full(error):
        return disk_full(_name_of(error, folder))
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return not_permitted(
            [Path(os.fsdecode(name)) for name in (error.filename2, error.filename) if name] or [folder], state
        )
    name = _name_of(error, folder)
    if number in _NOT_WHAT_IT_SHOULD_BE and error.filename:
        return errors.PATH_UNUSABLE(where=name, name=name, strerror=error.strerror, quoted_name=shlex.quote(name))
    return _failed(number, name)


def name_failure(error: OSError, path: Path) -> TidegateError | None:
    """Of a file that a person wrote: the error where the file system failed. None where the file is missing, is no
    file, or may not be read, which the person can correct."""
    if error.errno in (errno.EACCES, errno.EPERM, *_NOT_WHAT_IT_SHOULD_BE):
        return None
    return name_cause(error, path)


def name_java_cause(text: str, folder: Path) -> TryAgainError | None:
    """The error for a failure of storage that Java gives in the operating system's own words; None for other texts."""
    number = next((one for one in _REPORTED_BY_JAVA if os.strerror(one) in text), None)
    return None if number is None else _failed(number, str(folder))


def _failed(number: int, name: str) -> TryAgainError:
    reason = f"{os.strerror(number)} ({errno.errorcode.get(number, f'errno {number}')})"
    if number in _TOO_MANY_OPEN:
        return errors.TOO_MANY_OPEN_FILES(where=name, path=name, reason=reason)
    return errors.STORAGE_FAILED(where=name, path=name, reason=reason, quoted_path=shlex.quote(name))


def explain_link(error: OSError, target: Path) -> UsageError | None:
    """The error for a second name that could not be given because the file system has none; None for other causes.
    EPERM may also mean a missing right, so a file of our own is tried."""
    if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
        return None
    probe = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    temporary = probe.with_name(f"{probe.name}.tmp")
    try:
        probe.touch(exist_ok=False)
        os.link(probe, temporary)
    except OSError as again:
        if again.errno != error.errno or not probe.exists():
            return None
    else:
        return None
    finally:
        for one in (probe, temporary):
            one.unlink(missing_ok=True)
    folder = str(target.parent)
    return errors.NO_HARD_LINKS(where=folder, folder=folder, quoted_folder=shlex.quote(folder))


def _name_of(error: OSError, folder: Path | str) -> str:
    """The path that an error names, or ``folder``; the number of an open file names nothing."""
    name = error.filename
    return str(folder) if not name or isinstance(name, int) else os.fsdecode(name)


def not_permitted(paths: Sequence[Path | str], state: Path | None = None) -> UsageError:
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
        command = f"mount it writable (findmnt -T {shlex.quote(str(refused))} names it)"
        reason = ": its file system is read-only"
        return errors.NOT_PERMITTED(
            where=str(refused), user=user, use="write to", path=refused, reason=reason, command=command
        )
    owner, use = refused.stat().st_uid, "write to" if mode == os.W_OK else "read"
    folder, ownership, letters = refused, "", "rwx" if refused.is_dir() else "rw"
    command = f"chmod u+{letters} {shlex.quote(str(refused))}"
    if owner != os.geteuid():
        ownership = f", which belongs to {_find_user(owner)}"
        command = f"sudo setfacl -m u:{user}:{letters} {shlex.quote(str(refused))}"
        if state is not None and refused.is_relative_to(state):
            folder, ownership = state, f"{ownership}; all of {state} must belong to {user}"
            command = f"sudo chown -R {user} {shlex.quote(str(state))}"
    return errors.NOT_PERMITTED(where=str(folder), user=user, use=use, path=refused, reason=ownership, command=command)


def find_unwritable(folder: Path, state: Path) -> UsageError | None:
    """The error that writing into ``folder`` would raise for this user; None where it may be written to or created.
    ``state`` is as for :func:`not_permitted`."""
    if is_object(folder):  # the store says so with the first write
        return None
    there = _find_existing(folder)
    if os.path.lexists(there) and not os.path.isdir(there):
        name, strerror = str(there), os.strerror(errno.ENOTDIR)
        return errors.PATH_UNUSABLE(where=name, name=name, strerror=strerror, quoted_name=shlex.quote(name))
    return None if os.access(there, os.W_OK | os.X_OK, effective_ids=True) else not_permitted([there], state)


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
