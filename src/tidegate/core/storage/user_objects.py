"""Objects that other programs wrote: which there are, and their bytes, as long as they are the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from functools import partial
from operator import itemgetter
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidegate.core.errors import Caught
from tidegate.core.garbage import collect_rarely
from tidegate.core.storage.faults import StoreError
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.shared import note_requests, plain_tag
from tidegate.core.storage.stores import PAGE_KEYS, call, is_denied, list_objects, list_pages, note_pages

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

R = TypeVar("R")

_LOOKS_AT_ONCE = 16
_LISTS_AT_ONCE = 8

_OF_A_LARGE_FOLDER = PAGE_KEYS // 2
"""How many objects a folder has, on average, where it is listed by itself."""

_LISTS_AT_LEAST = 16
"""Before so many folders are listed, their average is not known."""

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


_Answer = tuple[dict[str, StoredObject], list[str]]
"""Of a list: the objects, and the folders that are still to be listed."""
_Ended = tuple[_Answer | None, Exception | None]


@collect_rarely()
def list_below(folder: ObjectPath, after: str = "") -> dict[str, StoredObject]:
    """Every object below a folder, also empty ones: {path from there: object}; only those whose path sorts after
    ``after``. Raises StoreError, also where there is no such bucket."""
    # A policy may allow to list this prefix, and none below it.
    found = None if after else if_allowed(partial(_list_folders, folder))
    if found is None:
        found, _ = list_objects(folder, partial(_list, top=folder.key, after=after))
    found.pop("", None)  # `folder/`, with which consoles and other programs mark a folder
    return found


def _list(store: ObjectStore, top: str, below: str = "", after: str = "", *, divides: bool = False) -> _Answer:
    """The objects in the folder ``below`` of ``top`` by their paths from ``top``. Where ``divides``, and there are many
    objects in large folders, only those right in it; and the paths of its folders."""
    top = f"{top}/" if top else ""
    prefix, cut = top + below, len(top)
    found: dict[str, StoredObject] = {}
    for page in list_pages(store, prefix or None, top + after if after else None):
        if divides and not found and _has_large_folders(page, len(prefix)):
            note_requests()
            answer = store.list_with_delimiter(prefix or None)
            note_pages(len(answer["objects"]) + len(answer["common_prefixes"]))
            folders = [f"{one.rstrip('/')[cut:]}/" for one in answer["common_prefixes"]]
            return {one["path"][cut:]: StoredObject.of(one) for one in answer["objects"]}, folders
        found.update((one["path"][cut:], StoredObject.of(one)) for one in page)
    # Azure begins with the key itself.
    return {path: one for path, one in found.items() if path > after} if after else found, []


def _has_large_folders(page: Sequence[ObjectMeta], start: int) -> bool:
    """Return whether a page is full, and has so many objects of each folder that a list of each costs few requests
    more; the names of the folders begin at ``start``."""
    if len(page) < PAGE_KEYS:
        return False
    names = [name for name, slash, _ in (one["path"][start:].partition("/") for one in page) if slash]
    return len(names) >= _OF_A_LARGE_FOLDER * len(set(names)) > 0


def _list_folders(folder: ObjectPath) -> dict[str, StoredObject] | None:
    """The objects below a folder by their paths from there, from several lists at once where its folders are large;
    None where most turned out to be small, so that their lists would cost more requests than one of all keys."""
    ask = partial(_list, top=folder.key, divides=True)
    found, waiting = list_objects(folder, ask)
    if not waiting:
        return found
    waiting.reverse()
    ended: SimpleQueue[_Ended] = SimpleQueue()
    started, done, are_small = 0, 0, False
    while waiting or done < started:
        while waiting and started - done < _LISTS_AT_ONCE:
            _start(partial(list_objects, folder, partial(ask, below=waiting.pop())), ended)
            started += 1
        answer, error = ended.get()
        if answer is None:
            raise error or AssertionError("a list has ended without an answer")
        done += 1
        found |= answer[0]
        waiting += reversed(answer[1])
        are_small = are_small or (done > _LISTS_AT_LEAST and len(found) < done * _OF_A_LARGE_FOLDER // 2)
        if are_small:
            waiting.clear()
    return None if are_small else dict(sorted(found.items(), key=itemgetter(0)))


def _start(act: Callable[[], _Answer], ended: SimpleQueue[_Ended]) -> None:
    """Begin a call in a thread of its own, for which the process does not wait when it is stopped."""

    def run() -> None:
        answer, caught = None, Caught()
        try:
            with caught:
                answer = act()
        finally:
            ended.put((answer, caught.error))

    Thread(target=copy_context().run, args=(run,), name="tidegate-list", daemon=True).start()


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
