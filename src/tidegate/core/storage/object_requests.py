"""Single requests to object stores, from which the functions of the port are made."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from obstore.exceptions import AlreadyExistsError, PreconditionError

from tidegate.core.storage.access import patience_seconds
from tidegate.core.storage.listed import forget_listings
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.stores import call, give_up

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

R = TypeVar("R")

WRITER, _MODIFIED = "writer", "modified"
"""The names of the metadata."""


@dataclass(frozen=True)
class Found:
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


def _describe(meta: ObjectMeta, attributes: Any) -> Found:
    given = attributes.get(_MODIFIED)
    version = {name: str(meta[name]) for name in ("e_tag", "version") if meta.get(name)}
    modified_ns = int(given) if given else int(meta["last_modified"].timestamp() * 1e9)
    return Found(meta["size"], modified_ns, version, attributes.get(WRITER, ""))


def look(path: ObjectPath) -> Found | None:
    """The object at ``path``, also an empty one; None when there is none."""

    def ask(store: ObjectStore) -> Found:
        answer = store.get(path.key, options={"head": True})
        return _describe(answer.meta, answer.attributes)

    try:
        return call(path, ask)
    except FileNotFoundError:
        return None


def no_object(path: Path) -> FileNotFoundError:
    return FileNotFoundError(2, "No such object", str(path))


def get_object(path: ObjectPath, start: int = 0, end: int | None = None) -> tuple[bytes, Found]:
    def ask(store: ObjectStore) -> tuple[bytes, Found]:
        options: Any = {} if end is None else {"range": (start, end)}
        answer = store.get(path.key, options=options)
        return bytes(answer.bytes()), _describe(answer.meta, answer.attributes)

    data, found = call(path, ask)
    if found.is_empty:
        raise no_object(path)
    return data, found


def change(path: ObjectPath, act: Callable[[ObjectStore], R]) -> R:
    """A request that changes something."""
    try:
        return call(path, act)
    finally:
        forget_listings()


def overwrite(path: ObjectPath, act: Callable[[ObjectStore], object]) -> None:
    """A request without a condition: a conflict (409) ends by itself."""
    for _ in attempts(path):
        with contextlib.suppress(AlreadyExistsError, PreconditionError):
            change(path, act)
            return


def put_object(path: ObjectPath, body: bytes | Path, mode: Any, writer: str, modified_ns: int | None = None) -> str:
    """Write an object; its ETag."""
    attributes = {WRITER: writer} if modified_ns is None else {WRITER: writer, _MODIFIED: str(modified_ns)}

    def act(store: ObjectStore) -> str:
        return store.put(path.key, body, mode=mode, attributes=attributes, use_multipart=False)["e_tag"] or ""

    return change(path, act)


def attempts(path: ObjectPath) -> Iterator[None]:
    """Let a write begin again while other writers come in between, or the store reports a conflict."""
    end = time.monotonic() + patience_seconds()
    while time.monotonic() < end:
        yield
        time.sleep(0.05)
    raise give_up(path, TimeoutError("the object changed before each write"))


def remove(path: ObjectPath) -> None:
    with contextlib.suppress(FileNotFoundError):
        overwrite(path, lambda store: store.delete(path.key))
