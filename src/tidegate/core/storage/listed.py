"""One listing of a prefix that answers many questions about the objects below it.

A run asks again and again which versions and files a table has. On an object store each question is a request that is
paid for, so all are answered from one listing for some seconds, or until this process writes. Another program may
commit meanwhile; it may do so after any look, and what must not be missed is asked of the commit itself.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.shared import plain_tag

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_MOST = 4000
"""How many objects a listing has at most; a store lists 1,000 with one request."""

_FRESH_SECONDS = 5.0

_KEPT_BYTES = 1 << 20
"""Larger objects are read each time."""

_WRITE_MODE = 0o700


@dataclass(frozen=True)
class Entry:
    """An object as a listing describes it."""

    size: int
    modified_ns: int
    e_tag: str


class Listing:
    """All objects below a folder by their keys; empty ones count as absent."""

    def __init__(self, folder: ObjectPath) -> None:
        self.folder = folder
        self._entries: dict[str, Entry] | None = None
        self._listed_at, self._writes = 0.0, 0
        self._is_complete = True
        self._kept: dict[str, tuple[str, bytes]] | None = None
        self._used: dict[str, tuple[str, bytes]] = {}

    def load(self) -> dict[str, Entry] | None:
        """The objects; None where there are more than :data:`_MOST`."""
        is_old = time.monotonic() - self._listed_at > _FRESH_SECONDS or self._writes != _writes
        if (self._entries is None or is_old) and self._is_complete:
            self._listed_at, self._writes = time.monotonic(), _writes
            from tidegate.core.storage.stores import list_objects, note_pages

            def ask(store: ObjectStore) -> list[tuple[str, Entry]]:
                prefix = f"{self.folder.key}/" if self.folder.key else None
                page = next(iter(store.list(prefix, chunk_size=_MOST)), [])
                return [
                    (one["path"], Entry(one["size"], int(one["last_modified"].timestamp() * 1e9), one["e_tag"] or ""))
                    for one in page
                ]

            found = list_objects(self.folder, ask)
            note_pages(len(found))
            self._is_complete = len(found) < _MOST
            self._entries = {key: entry for key, entry in found if entry.size} if self._is_complete else None
        return self._entries

    @property
    def entries(self) -> dict[str, Entry]:
        """The objects of a complete listing."""
        return self.load() or {}

    def read(self, key: str, get: Callable[[], tuple[bytes, str]]) -> bytes:
        """The bytes of an object, by ``get``, which gives their ETag too, or from this machine's cache, which has those
        of the last block."""
        entry = self.entries.get(key)
        if entry is None or not entry.e_tag or entry.size > _KEPT_BYTES:
            return get()[0]
        if self._kept is None:
            self._kept = self._read_cache()
        found = self._used.get(key) or self._kept.get(key)
        if found is None or found[0] != entry.e_tag:
            data, e_tag = get()
            if plain_tag(e_tag) != plain_tag(entry.e_tag):  # replaced since it was listed
                return data
            found = (entry.e_tag, data)
        self._used[key] = found
        return found[1]

    def save(self) -> None:
        """Keep what was read for the next block; a cache that cannot be written to is done without."""
        if self._kept is None or self._used == self._kept:
            return
        entries = {key: [tag, base64.b64encode(data).decode()] for key, (tag, data) in self._used.items()}
        with contextlib.suppress(OSError):
            self._cache.parent.mkdir(parents=True, exist_ok=True, mode=_WRITE_MODE)
            temporary = self._cache.with_name(f"{self._cache.name}.{os.getpid()}.tmp")
            temporary.write_text(json.dumps(entries))
            temporary.replace(self._cache)

    def _read_cache(self) -> dict[str, tuple[str, bytes]]:
        try:
            return {
                key: (tag, base64.b64decode(data)) for key, (tag, data) in json.loads(self._cache.read_bytes()).items()
            }
        except (OSError, ValueError):
            return {}

    @property
    def _cache(self) -> Path:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = Path(base) if base and os.path.isabs(base) else Path.home() / ".cache"
        return folder / "tidegate" / "objects" / hashlib.sha256(str(self.folder).encode()).hexdigest()[:32]


_writes = 0
"""How often this process has begun to write to a store, in any thread."""

_current: ContextVar[tuple[Listing, ...]] = ContextVar("tidegate_listings", default=())


@contextlib.contextmanager
def listed_once(*folders: Path) -> Iterator[None]:
    """Within the block, answer questions of this thread about objects below ``folders`` from one listing of each. It is
    made again after some seconds, and when this process has written to a store. Folders of a file system are asked each
    time."""
    listings = tuple(Listing(one) for one in folders if isinstance(one, ObjectPath))
    given = _current.set(listings)
    try:
        yield
    finally:
        _current.reset(given)
        for listing in listings:
            listing.save()


def forget_listings() -> None:
    """Ask the store again: something is written."""
    global _writes
    _writes += 1


def listing_of(path: ObjectPath) -> Listing | None:
    """The listing that has ``path``; None without one, or where it is too long."""
    for listing in _current.get():
        if path.is_relative_to(listing.folder) and listing.load() is not None:
            return listing
    return None


def looks_are_cheap(path: Path) -> bool:
    """Return whether a look at a file below ``path`` costs no request of its own."""
    return not isinstance(path, ObjectPath) or listing_of(path) is not None
