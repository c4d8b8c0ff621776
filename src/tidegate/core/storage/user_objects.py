"""Objects that other programs wrote: which there are, and their bytes, as long as they are the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidegate.core.garbage import collect_rarely
from tidegate.core.storage.faults import StoreError
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.shared import plain_tag
from tidegate.core.storage.stores import call, is_denied, list_objects, list_pages

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

R = TypeVar("R")

_LOOKS_AT_ONCE = 16
_SECOND_NS = 1_000_000_000
_LARGEST = (1 << 63) - 1
"""Of the numbers that the ledger holds."""


class StoredObject(NamedTuple):
    """An object by what identifies its content: the ETag, ``e_tag``.

    The other fields are those of :class:`os.stat_result` that a file is compared by. Stores have times in seconds, so
    the digits below come from the ETag: another object has another time. ``st_ctime_ns`` is a digest of the ETag alone.
    """

    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int
    e_tag: str

    @property
    def st_mtime(self) -> float:
        """When it was written, in seconds since the epoch."""
        return self.st_mtime_ns // _SECOND_NS

    @classmethod
    def of(cls, meta: ObjectMeta) -> StoredObject:
        """From what a store says of an object."""
        e_tag = meta["e_tag"] or ""
        if not e_tag.startswith('"'):
            e_tag = f'"{plain_tag(e_tag)}"'
        try:  # there are 50,000 in a list: of most stores it is a number already
            number = int(e_tag[1:18], 16) & _LARGEST
        except ValueError:
            number = int.from_bytes(hashlib.blake2b(e_tag.encode(), digest_size=8).digest(), "big") & _LARGEST
        modified_ns = int(meta["last_modified"].timestamp()) * _SECOND_NS + number % _SECOND_NS
        return cls(meta["size"], modified_ns, number, e_tag)


@collect_rarely()
def list_below(folder: ObjectPath, after: str = "") -> dict[str, StoredObject]:
    """Every object below a folder, also empty ones: {path from there: object}; only those whose path sorts after
    ``after``. Raises StoreError, also where there is no such bucket."""
    prefix = f"{folder.key}/" if folder.key else ""

    def ask(store: ObjectStore) -> dict[str, StoredObject]:
        pages = list_pages(store, prefix or None, prefix + after if after else None)
        found = {one["path"][len(prefix) :]: StoredObject.of(one) for page in pages for one in page}
        # Azure begins with the key itself.
        return {path: one for path, one in found.items() if path > after} if after else found

    return list_objects(folder, ask)


def look_at(uri: str) -> StoredObject | None:
    """The object at ``uri`` as it is now; None when there is none. Raises StoreError."""
    path = ObjectPath(uri)
    options: Any = {"head": True}
    try:
        return StoredObject.of(call(path, lambda store: store.get(path.key, options=options).meta))
    except FileNotFoundError:
        return None


def if_allowed(ask: Callable[[], R]) -> R | None:
    """What ``ask`` returns; None where this user may not ask: a policy may allow some prefixes only."""
    try:
        return ask()
    except StoreError as error:
        if not is_denied(error.__cause__):
            raise
        return None


def look_at_all(uris: Iterable[str]) -> dict[str, StoredObject | None]:
    """The same of several, some at a time."""
    from concurrent.futures import ThreadPoolExecutor  # an idle tick does without

    wanted = list(dict.fromkeys(uris))
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        return dict(zip(wanted, pool.map(look_at, wanted), strict=True))
