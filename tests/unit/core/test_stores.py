"""What the storage port promises, on files, in memory, and on an object store that fails; the same cases run on real
servers in tests/stores."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty_store import FAULTS, UNSAFE, FaultyStore, UnsafeStore, seeded, use_store
from tests.support.port_suite import PortSuite
from tidegate.core import storage
from tidegate.core.storage import ObjectPath, access, stores
from tidegate.core.storage.faults import StoreError, name_cause
from tidegate.core.storage.user_objects import StoredObject, list_below


class TestFiles(PortSuite):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "root"


class TestMemory(PortSuite):
    @pytest.fixture
    def root(self, monkeypatch: pytest.MonkeyPatch) -> Path:
        return use_store(monkeypatch, FaultyStore()) / "pre fix"


@pytest.mark.parametrize("seed", range(4))
class TestFaults(PortSuite):
    """A third of all requests fail."""

    @pytest.fixture
    def root(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> Path:
        return use_store(monkeypatch, FaultyStore(seeded(seed, 0.33))) / "prefix"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    made = FaultyStore()
    use_store(monkeypatch, made)
    return made


ROOT = ObjectPath("s3://bucket/state")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", range(1, 4))
def test_a_writer_knows_its_own_write_after_any_one_fault(store: FaultyStore, fault: str, number: int) -> None:
    storage.put_if_absent(ROOT / "first", b"1")  # the conditions are checked with it
    start = len(store.requests)
    store.choose = lambda name, at: fault if at == start + number else None
    assert storage.put_if_absent(ROOT / "token", b"mine") is True
    assert storage.put_if_absent(ROOT / "token", b"other") is False
    storage.replace(ROOT / "token", b"newer")
    assert storage.take_away(ROOT / "token", b"mine") is False
    assert storage.take_away(ROOT / "token", b"newer") is True
    assert storage.put_if_absent(ROOT / "token", b"again") is True
    assert storage.read(ROOT / "token") == b"again"


def test_a_write_that_another_replaced_before_its_reply_was_lost_counts(store: FaultyStore) -> None:
    """The reply is lost; before the writer can look, another process takes the object away on purpose."""
    storage.put_if_absent(ROOT / "first", b"1")

    def choose(name: str, number: int) -> str | None:
        if name == "put" and number == at:
            return "lost reply"
        if number == at + 1:  # the repetition of the request: the other process comes before it
            store.choose = lambda name, number: None
            storage.replace(ROOT / "token", b"replaced")
        return None

    at = len(store.requests) + 1
    store.choose = choose
    assert storage.put_if_absent(ROOT / "token", b"mine") is True
    assert storage.read(ROOT / "token") == b"replaced"


def test_a_request_that_arrives_late_does_not_bring_old_bytes_back(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that timed out is carried out after its repetition and after the next write."""
    storage.put_if_absent(ROOT / "note", b"0")
    late: list[tuple[object, ...]] = []
    real = store.put

    def put(path: str, file: object, **more: object) -> object:
        if not late:
            late.append((path, file, more))
            raise_timeout()
        return real(path, file, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "put", put)
    storage.replace(ROOT / "note", b"1")
    storage.replace(ROOT / "note", b"2")
    path, file, more = late[0]
    with pytest.raises(Exception, match=r"(?i)precondition|match"):
        real(path, file, **more)  # type: ignore[arg-type]
    assert storage.read(ROOT / "note") == b"2"


def raise_timeout() -> None:
    from obstore.exceptions import GenericError

    raise GenericError("HTTP error: operation timed out")


@pytest.mark.parametrize("fault", UNSAFE)
def test_a_store_that_ignores_conditions_is_refused(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    store = UnsafeStore(fault)
    use_store(monkeypatch, store)
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            storage.put_if_absent(ROOT / "token", b"mine")
        named = name_cause(caught.value, ROOT)
        assert named is not None
        assert (named.code, named.exit_code) == ("STORE_UNSAFE", 64)
        assert "s3://bucket" in str(named)
    assert storage.list_tree(ObjectPath("s3://bucket")) == [], "the probe is removed, and nothing was written"


def test_a_store_that_does_not_answer_is_named_after_a_limit(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(stores, "_FIRST_PAUSE_SECONDS", 0.01)
    for fault in ("throttled", "lost request"):
        store.choose = lambda name, number, fault=fault: fault  # type: ignore[misc]
        for act in (storage.read, storage.list_names, storage.exists):
            with pytest.raises(StoreError) as caught:
                act(ROOT / "token")
            named = name_cause(caught.value, ROOT)
            assert named is not None
            assert (named.code, named.exit_code, named.retry) == ("STORAGE_FAILED", 75, True)
            assert "secret" not in str(named), "an address can have a signature in it"
            assert "s3://bucket/state/token" in str(named)
    assert len(store.requests) > 10, "each was repeated"


def test_what_may_not_be_done_is_not_repeated(store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.exceptions import GenericError, PermissionDeniedError

    refusals = [
        PermissionDeniedError("Server returned non-2xx status code: 403 Forbidden: <Code>AccessDenied</Code>"),
        GenericError("Server returned non-2xx status code: 400 Bad Request: <Code>ExpiredToken</Code>"),
        GenericError("Server returned non-2xx status code: 301 Moved Permanently: <Code>PermanentRedirect</Code>"),
    ]
    for number, refusal in enumerate(refusals, 1):

        def refuse(name: str, at: int, refusal: Exception = refusal) -> str | None:
            raise refusal

        store.choose = refuse
        with pytest.raises(StoreError) as caught:
            storage.read(ROOT / "token")
        named = name_cause(caught.value, ROOT)
        assert named is not None
        assert (named.code, named.exit_code) == ("STORE_REFUSED", 64)
        assert len(store.requests) == number


def test_no_call_of_the_operating_system_takes_a_path_of_a_store(tmp_path: Path) -> None:
    for act in (ROOT.exists, ROOT.mkdir, ROOT.read_bytes, lambda: list(ROOT.iterdir()), lambda: os.listdir(ROOT)):
        with pytest.raises(TypeError, match="on an object store"):
            act()
    assert not list(tmp_path.iterdir())


def test_paths_of_stores_behave_as_paths() -> None:
    path = storage.parse_path("s3://bucket/a/b c.json")
    assert isinstance(path, ObjectPath)
    assert (path.scheme, path.bucket, path.key) == ("s3", "bucket", "a/b c.json")
    assert str(path.parent / ".x") == "s3://bucket/a/.x"
    assert str(Path("/project") / path) == "s3://bucket/a/b c.json"
    assert path.relative_to(ObjectPath("s3://bucket")) == Path("a/b c.json")
    assert type(path.relative_to(ObjectPath("s3://bucket"))) is not ObjectPath
    assert not path.is_relative_to(Path("/project"))
    assert path.is_absolute()
    assert storage.parse_path("data/x") == Path("data/x")
    assert not isinstance(storage.parse_path("http://x/y"), ObjectPath)
    assert {str(one) for one in itertools.islice(path.parents, 2)} == {"s3://bucket/a", "s3://bucket"}


def test_a_write_over_an_object_that_was_removed_meanwhile_begins_again(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 answers NoSuchKey (404) to a write under a condition on an object that is absent."""
    from obstore.exceptions import PreconditionError

    storage.replace(ROOT / "note", b"1")
    real = store.put

    def put(path: str, file: object, **more: object) -> object:
        monkeypatch.setattr(store, "put", real)
        store.delete(path)
        raise PreconditionError("Server returned non-2xx status code: 404 Not Found: <Code>NoSuchKey</Code>")

    monkeypatch.setattr(store, "put", put)
    storage.replace(ROOT / "note", b"2")
    assert storage.read(ROOT / "note") == b"2"


def test_a_listing_spares_requests_and_sees_what_changed_before_it(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = ROOT / "table"
    for version in range(5):
        storage.replace(table / "_log" / f"{version}.json", b"%d" % version)

    def ask() -> tuple[list[bytes], int]:
        before = len(store.requests)
        with storage.listed_once(table):
            found = [storage.read(path) for path in storage.list_folder(table / "_log") for _ in range(3)]
            assert all(storage.exists(path) for path in storage.list_tree(table))
        return found[::3], len(store.requests) - before

    assert ask() == ([b"0", b"1", b"2", b"3", b"4"], 6), "a list, and each file once"
    assert ask() == ([b"0", b"1", b"2", b"3", b"4"], 1), "no file changed"
    storage.replace(table / "_log" / "3.json", b"x")
    storage.remove(table / "_log" / "4.json")
    assert ask() == ([b"0", b"1", b"2", b"x"], 2)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    assert ask() == ([b"0", b"1", b"2", b"x"], 5)


def test_what_replaced_an_object_after_it_was_listed_is_not_kept_under_its_etag(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = ROOT / "table" / "note"
    storage.replace(path, b"1")
    listed = list(store.inside.list())
    with storage.listed_once(path.parent):
        assert storage.exists(path)  # it is listed
        store.inside.put(path.key, b"2", attributes={"writer": "another process"})
        assert storage.read(path) == b"2"
    # An ETag can be the digest of the bytes: when the first ones are back, so is it.
    monkeypatch.setattr(store, "list", lambda prefix, **more: iter(listed))
    store.inside.put(path.key, b"1")
    with storage.listed_once(path.parent):
        assert storage.read(path) == b"1"


@pytest.mark.parametrize("given", ['"5d41"', "5d41", 'W/"5d41"'], ids=["plain", "without quotes", "weak"])
def test_an_etag_is_asked_for_as_the_store_has_it(given: str) -> None:
    """Lists of Azure leave the quotes out; a proxy that compresses marks it as weak: no condition holds for that."""
    meta: Any = {"size": 1, "e_tag": given, "last_modified": datetime(2026, 1, 1, tzinfo=UTC)}
    found = StoredObject.of(meta)
    assert found.e_tag == '"5d41"'
    assert found == StoredObject.of({**meta, "e_tag": '"5d41"'}), "the same object, however its ETag is written"


def test_a_prefix_of_very_many_objects_is_asked_each_time(store: FaultyStore) -> None:
    table = ROOT / "table"
    for number in range(4001):
        store.inside.put(f"state/table/{number:04d}", b"x")
    with storage.listed_once(table):
        assert not storage.looks_are_cheap(table)
        assert storage.exists(table / "4000")
        assert len(storage.list_names(table)) == 4001


def test_a_file_that_s3_could_not_copy_is_refused_before_it_is_uploaded(store: FaultyStore, tmp_path: Path) -> None:
    source = tmp_path / "part-0.parquet"
    source.touch()
    os.truncate(source, (5 << 30) + 1)
    with pytest.raises(StoreError) as caught:
        storage.place(source, ROOT / "part-0.parquet", lambda digest: None)
    assert caught.value.named.code == "STORE_REFUSED"
    assert f"{source} is larger than 5 GiB" in caught.value.named.message
    assert store.requests == []


def test_each_page_of_a_list_counts_as_a_request(store: FaultyStore) -> None:
    for number in range(1001):
        store.inside.put(f"state/{number:05d}", b"x")

    def count(act: Callable[[], object]) -> int:
        before = storage.count_requests()
        act()
        return storage.count_requests() - before

    def list_once() -> None:
        with storage.listed_once(ROOT):
            storage.exists(ROOT / "00000")

    assert count(lambda: storage.list_names(ROOT)) == 2
    assert count(lambda: storage.list_tree(ROOT)) == 2
    assert count(lambda: list_below(ROOT)) == 2
    assert count(list_once) == 2
    assert count(lambda: list_below(ROOT, "00000")) == 1
