"""Lists of many objects of other programs: their folders are listed at the same time, with the same result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.exceptions import PermissionDeniedError

from tests.support.faulty_store import FaultyStore, seeded, use_store
from tidegate.core import storage
from tidegate.core.storage import ObjectPath, stores, user_objects
from tidegate.core.storage.faults import StoreError
from tidegate.core.storage.user_objects import StoredObject, list_below

TOP = ObjectPath("s3://bucket/in")
_AT_ONCE = 8
_SECONDS = 20


class WatchedStore(FaultyStore):
    """A store that knows how many requests are under way. ``meet``: a list of a folder waits for others."""

    meet: threading.Barrier | None = None
    most = 0
    _now = 0

    def list(self, prefix: str | None = None, *, chunk_size: int = 50, offset: str | None = None) -> Iterator[Any]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        if self.meet is not None and prefix != "in/":
            self.meet.wait(_SECONDS)
        pages = list(super().list(prefix, chunk_size=chunk_size, offset=offset))
        with self._lock:
            self._now -= 1
        return iter(pages)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> WatchedStore:
    made = WatchedStore()
    use_store(monkeypatch, made)
    return made


def fill(store: FaultyStore, folder: str, number: int) -> None:
    for one in range(number):
        store.inside.put(f"in/{folder}/{one:05}.json", b"1")


def plain_list(store: FaultyStore) -> dict[str, StoredObject]:
    """One list of all keys."""
    return {one["path"].removeprefix("in/"): StoredObject.of(one) for page in store.inside.list("in") for one in page}


def count_requests(store: FaultyStore) -> int:
    """What a list costs by the program's own count, in which each page is one; the result is that of a plain list."""
    before = storage.count_requests()
    assert list(list_below(TOP).items()) == list(plain_list(store).items())
    return storage.count_requests() - before


def test_large_folders_are_listed_eight_at_once(store: WatchedStore) -> None:
    for day in range(16):
        fill(store, f"day={day:02}", 600)
    store.meet = threading.Barrier(_AT_ONCE)  # breaks where fewer are under way
    assert list_below(TOP) == plain_list(store)
    assert store.most == _AT_ONCE


@pytest.mark.parametrize(
    ("folders", "requests"),
    [
        ({"day=1": 900}, 1),
        ({f"day={day}": 100 for day in range(50)}, 5),  # small folders: one list of all keys costs less
        ({f"day={day}": 1000 for day in range(20)}, 22),
        ({f"year=2026/month={month:02}": 1500 for month in range(12)}, 1 + 1 + 2 + 12 * 2),
        ({"archive": 3000}, 1 + 1 + 3),
        # The first one is no measure of the others: no more than a part of them is listed by itself.
        ({"a": 1000} | {f"user={user:04}": 1 for user in range(2000)}, 1 + 3 + 24 + 3),
    ],
)
def test_a_list_costs_few_requests_more(store: WatchedStore, folders: dict[str, int], requests: int) -> None:
    for folder, number in folders.items():
        fill(store, folder, number)
    assert count_requests(store) <= requests


def test_objects_next_to_large_folders_are_listed_once(store: WatchedStore) -> None:
    fill(store, "a", 1500)
    for number in range(1500):
        store.inside.put(f"in/b-{number:05}.json", b"1")
    assert count_requests(store) == 1 + 2 + 2


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of four keys; a folder of two is large."""
    for module, name, value in (
        (stores, "PAGE_KEYS", 4),
        (user_objects, "PAGE_KEYS", 4),
        (user_objects, "_OF_A_LARGE_FOLDER", 2),
    ):
        monkeypatch.setattr(module, name, value)


NAMES = ["day=1", "x%2Fy", "%41", "[1] ä", "a", "a b", "a-b", "𝄞", "~#{}^", "_k=v", ".x", "+&@", "A"]


@pytest.mark.usefixtures("short_pages")
@settings(max_examples=150)
@given(st.sets(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), max_size=60))
def test_the_result_is_that_of_one_list(keys: set[str]) -> None:
    """Keys with odd names at any depth, also one that is the folder of another."""
    store = FaultyStore()
    with pytest.MonkeyPatch.context() as patch:
        use_store(patch, store)
        for key in ("in-other/a", *(f"in/{one}" for one in keys)):
            store.inside.put(key, b"1")
        assert list(list_below(TOP).items()) == list(plain_list(store).items())


@pytest.mark.usefixtures("short_pages")
@pytest.mark.parametrize("seed", range(3))
def test_lists_at_once_outlast_faults(store: WatchedStore, seed: int) -> None:
    for day in range(30):
        fill(store, f"day={day:02}", 5)
    store.choose = seeded(seed, 0.3)
    assert list_below(TOP) == plain_list(store)


def test_a_folder_that_is_not_listed_ends_the_list(store: WatchedStore) -> None:
    for day in range(10):
        fill(store, f"day={day:02}", 600)
    store.choose = lambda name, number: "throttled" if number > 5 else None
    with (
        storage.limit_patience(0.05),
        pytest.raises(StoreError, match=r"did not serve requests for s3://bucket/in for 0\.05 seconds") as caught,
    ):
        list_below(TOP)
    assert caught.value.named.code == "STORAGE_FAILED"


class OneList(WatchedStore):
    """A store of which a policy allows to list ``in/``, and no prefix below it."""

    def list(self, prefix: str | None = None, *, chunk_size: int = 50, offset: str | None = None) -> Iterator[Any]:
        if prefix != "in/":
            raise PermissionDeniedError("status code: 403 Forbidden: <Code>AccessDenied</Code>")
        return super().list(prefix, chunk_size=chunk_size, offset=offset)


def test_the_right_to_list_the_prefix_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    store = OneList()
    use_store(monkeypatch, store)
    for day in range(3):
        fill(store, f"day={day:02}", 600)
    assert list_below(TOP) == plain_list(store)


def test_a_signal_ends_lists_that_have_no_answer(store: WatchedStore) -> None:
    for day in range(8):
        fill(store, f"day={day:02}", 600)
    store.meet = threading.Barrier(_AT_ONCE + 1)

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            list_below(TOP)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        store.meet.abort()
