"""An object store in memory that does what stores do on a bad day: lost requests and replies, 503, 409, slow answers,
bodies that end early. It has the methods of obstore's clients that the storage port calls."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import MemoryStore

from tidegate.core.storage import ObjectPath, object_probe, stores

R = TypeVar("R")

FAULTS = ("lost request", "lost reply", "throttled", "conflict", "slow")
"""What may happen to a request: it is not carried out; it is, and the answer is lost; 503; 409 although nobody else
wrote; a late answer."""


class FaultyStore:
    """A store of which each request may fail: ``choose(name, number)`` names one of :data:`FAULTS`, or None."""

    def __init__(self, choose: Callable[[str, int], str | None] = lambda name, number: None) -> None:
        self.inside = MemoryStore()
        self.choose = choose
        self.requests: list[str] = []
        self._lock = threading.Lock()

    def _carry_out(self, name: str, act: Callable[[], R]) -> R:
        with self._lock:
            self.requests.append(name)
            number = len(self.requests)
        fault = self.choose(name, number)
        if fault == "throttled":
            raise GenericError("Server returned non-2xx status code: 503 Service Unavailable: <Code>SlowDown</Code>")
        if fault == "lost request":
            raise GenericError("HTTP error: error sending request for url (http://store.example/secret?sig=1)")
        if fault == "conflict" and name in ("put", "copy", "delete"):
            raise AlreadyExistsError("409 Conflict: <Code>ConditionalRequestConflict</Code>")
        if fault == "slow":
            time.sleep(0.01)
        result = act()
        if fault == "lost reply":
            raise GenericError("HTTP error: request or response body error: operation timed out")
        return result

    def put(self, path: str, file: Any, *, mode: Any = None, attributes: Any = None, **more: Any) -> Any:
        def act() -> Any:
            return self.inside.put(path, file, mode=mode, attributes=attributes, **more)

        return self._carry_out("put", act)

    def get(self, path: str, *, options: Any = None) -> Any:
        return self._carry_out("get", lambda: self.inside.get(path, options=options))

    def head(self, path: str) -> Any:
        return self._carry_out("head", lambda: self.inside.head(path))

    def list(self, prefix: str | None = None, *, chunk_size: int = 50, offset: str | None = None) -> Iterator[Any]:
        return self._carry_out("list", lambda: self.inside.list(prefix, chunk_size=chunk_size, offset=offset))

    def list_with_delimiter(self, prefix: str | None = None) -> Any:
        return self._carry_out("list", lambda: self.inside.list_with_delimiter(prefix))

    def delete(self, paths: str | Sequence[str]) -> None:
        keys = [paths] if isinstance(paths, str) else paths
        self._carry_out("delete", lambda: [self._delete(key) for key in keys])

    def _delete(self, path: str) -> None:
        try:
            self.inside.delete(path)
        except FileNotFoundError:
            return  # a store's answer for an absent key; the one in memory has an error

    def copy(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        def act() -> None:
            self.inside.copy(from_, to, overwrite=overwrite)

        self._carry_out("copy", act)


UNSAFE = ("create", "exchange", "removed", "weak")


class UnsafeStore(FaultyStore):
    """A store that ignores a condition of writes (``create``, ``exchange``), or refuses one that holds: to create what
    was ``removed``, as versitygw in a bucket with versions, or to exchange by its own ``weak`` ETags."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.removed: set[str] = set()

    def put(self, path: str, file: Any, *, mode: Any = None, attributes: Any = None, use_multipart: Any = None) -> Any:
        kind = "create" if mode == "create" else "exchange"
        if (mode == "create" and path in self.removed) or (isinstance(mode, dict) and self.fault == "weak"):
            raise AlreadyExistsError("412 Precondition Failed: <Code>PreconditionFailed</Code>")
        chosen = None if mode is not None and kind == self.fault else mode
        return super().put(path, file, mode=chosen, attributes=attributes, use_multipart=use_multipart)

    def _delete(self, path: str) -> None:
        super()._delete(path)
        if self.fault == "removed":
            self.removed.add(path)


def seeded(seed: int, share: float) -> Callable[[str, int], str | None]:
    """Faults drawn at random for a share of all requests."""
    draw = random.Random(seed)
    return lambda name, number: draw.choice(FAULTS) if draw.random() < share else None


def use_store(patch: pytest.MonkeyPatch, store: Any, *, pause: float = 0.0) -> ObjectPath:
    """Let every ``s3://`` path lead to ``store``, with the given first pause before a request is repeated; the path of
    its bucket."""
    patch.setattr(stores, "open_store", lambda scheme, bucket: store)
    patch.setattr(stores, "_FIRST_PAUSE_SECONDS", pause)
    patch.setattr(object_probe, "_checked", set())
    stores._check_bucket.cache_clear()
    return ObjectPath("s3://bucket")
