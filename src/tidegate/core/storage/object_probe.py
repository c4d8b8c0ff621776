"""Whether a store honours the conditions of writes, and which rights are missing."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.exceptions import BaseError as AnyStoreError

from tidegate.core.storage.faults import StoreError
from tidegate.core.storage.object_lists import list_right_in
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.object_requests import Found, attempts, get_object, look, overwrite, put_object, remove
from tidegate.core.storage.stores import give_up, is_denied, reason_of, refuse, refuse_for, refuse_unsafe

if TYPE_CHECKING:
    from tidegate.core.errors import TidegateError

_CONFLICTS = 10
"""After so many refusals of a probe that only this process writes, the store is refused: a conflict (409) would have
ended."""


_checked: set[tuple[str, str]] = set()


def trust_conditions(path: ObjectPath) -> None:
    """Let this process take for granted that the conditions of writes hold: another one of this machine has asked."""
    _checked.add((path.scheme, path.bucket))


def check_conditions(path: ObjectPath) -> None:
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
    overwrite(probe, lambda store: store.put(probe.key, b"0"))
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
    rights: dict[str, Callable[[], object]] = {"list": lambda: list_right_in(probe), "read": lambda: get_object(probe)}
    if not only_read:
        # These are asked for with requests that change nothing: a probe could not be removed without the right to.
        absent = {"e_tag": '"0"', "version": "1"}
        rights |= {"write": lambda: put_object(probe, b"0", absent, "probe"), "delete": lambda: remove(probe)}
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


def _write_probe(probe: ObjectPath, mode: Any) -> Found:
    """Write under a condition that holds; what is there then, whether or not the reply arrived."""
    for number, _ in enumerate(attempts(probe)):
        _is_accepted(probe, mode)
        if (found := look(probe)) is not None and found.version != mode:
            return found
        if number == _CONFLICTS:
            what = (
                "create an object that had been removed" if found is None else "replace an object that had not changed"
            )
            raise refuse_unsafe(probe, f"refused to {what}")
    raise AssertionError("the attempts end with an error")


def _is_accepted(probe: ObjectPath, mode: Any) -> bool:
    try:
        put_object(probe, secrets.token_bytes(8), mode, "probe")  # other bytes each time: an ETag is their digest
    except (AlreadyExistsError, PreconditionError):
        return False
    return True
