"""What the operating system refuses, named: a full disk, a missing right, a file where a folder should be."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidegate.errors import TryAgainError, catalogue

_NOT_WHAT_IT_SHOULD_BE = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


def is_disk_full(error: BaseException) -> bool:
    """Whether a call of the operating system failed on a full disk or an exhausted quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_full(path: Path | str) -> TryAgainError:
    """The error for a full disk or an exhausted quota under ``path``."""
    return catalogue.DISK_FULL(where=str(path), path=path, parent=Path(path).parent)


@contextlib.contextmanager
def disk_full_is_named(path: Path) -> Iterator[None]:
    """Raise TryAgainError DISK_FULL where a call within fails on a full disk; ``path`` is what was to be written."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(path) from error
        raise


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
        return catalogue.PATH_UNUSABLE(where=name, name=name, strerror=error.strerror, quoted_name=shlex.quote(name))
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
        return catalogue.FILE_SYSTEM_READ_ONLY(where=str(refused), path=refused, quoted_path=shlex.quote(str(refused)))
    owner, folder, ownership = refused.stat().st_uid, refused, ""
    own = owner == os.geteuid()
    if not own and state is not None and refused.is_relative_to(state):
        ownership = f", which belongs to {_find_user(owner)}; all of {state} must belong to {user}"
        folder = state
    quoted = shlex.quote(str(folder))
    entry = catalogue.NOT_WRITABLE if mode == os.W_OK else catalogue.NOT_READABLE
    return entry(
        where=str(folder),
        user=user,
        path=refused,
        ownership=ownership,
        command=f"chmod -R u+rwX {quoted}" if own else f"sudo chown -R {user} {quoted}",
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
