"""What a user may not do in a bucket is named before a run meets it, and the question leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from obstore.exceptions import GenericError, NotFoundError, PermissionDeniedError

from tests.support.faulty_store import UNSAFE, FaultyStore, UnsafeStore, use_store
from tidegate.core import storage
from tidegate.core.storage import ObjectPath, access, object_probe

FOLDER = ObjectPath("s3://bucket/tables")
DENIED = PermissionDeniedError(
    "Server returned non-2xx status code: 403 Forbidden: <Code>AccessDenied</Code><Message>Access Denied.</Message>"
)
REQUESTS = {"list": "list", "read": "get", "write": "put", "delete": "delete"}


def deny(*rights: str) -> Callable[[str, int], str | None]:
    def choose(name: str, number: int) -> str | None:
        if name in {REQUESTS[right] for right in rights}:
            raise DENIED
        return None

    return choose


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    store = FaultyStore()
    use_store(monkeypatch, store)
    return store


def test_a_bucket_with_all_rights_has_no_fault_and_no_object_is_left(store: FaultyStore) -> None:
    assert object_probe.find_missing_rights(FOLDER) is None
    assert "put" in store.requests
    assert storage.list_tree(ObjectPath("s3://bucket")) == []


def test_nothing_is_written_where_a_run_only_reads(store: FaultyStore) -> None:
    store.choose = deny("write", "delete")
    assert object_probe.find_missing_rights(FOLDER, only_read=True) is None
    assert set(store.requests) == {"list", "get"}


@pytest.mark.parametrize(
    ("rights", "named"),
    [
        (("delete",), "no right to delete there (Access Denied (AccessDenied))"),
        (("write",), "no right to write there"),
        (("read",), "no right to read there"),
        (("list",), "no right to list there"),
        (("write", "delete"), "no right to write and delete there"),
        (("read", "write", "delete"), "no right to read, write and delete there"),
        (("list", "read"), "no right to list there"),  # what is absent is refused without the right to list
        (("list", "read", "write", "delete"), "s3://bucket/tables: Access Denied (AccessDenied)"),
    ],
)
def test_the_rights_that_are_missing_are_named_at_once(store: FaultyStore, rights: tuple[str, ...], named: str) -> None:
    store.choose = deny(*rights)
    error = object_probe.find_missing_rights(FOLDER)
    assert error is not None
    assert (error.code, error.where) == ("STORE_REFUSED", str(FOLDER))
    assert named in error.message
    store.choose = deny()
    assert storage.list_tree(ObjectPath("s3://bucket")) == [], "nothing was written that could not be removed"


def test_a_key_that_may_not_be_deleted_is_not_asked_about_for_a_minute(store: FaultyStore) -> None:
    """The request as a whole succeeds, so there is no status; its answer has a code for each key."""

    def choose(name: str, number: int) -> str | None:
        if name == "delete":
            raise GenericError(
                "Generic S3 error: DeleteObjects request failed for key a: Access Denied. (code: AccessDenied)"
            )
        return None

    store.choose = choose
    error = object_probe.find_missing_rights(FOLDER)
    assert error is not None
    assert "no right to delete there (Access Denied (AccessDenied))" in error.message
    assert store.requests.count("delete") == 1


@pytest.mark.parametrize("fault", UNSAFE)
def test_a_store_without_conditions_is_named_whatever_an_earlier_run_found(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    use_store(monkeypatch, UnsafeStore(fault))
    monkeypatch.setattr(object_probe, "_checked", {("s3", "bucket")})
    error = object_probe.find_missing_rights(FOLDER)
    assert error is not None
    assert error.code == "STORE_UNSAFE"
    assert storage.list_tree(ObjectPath("s3://bucket")) == []


def test_a_bucket_that_is_missing_is_not_a_missing_right(store: FaultyStore) -> None:
    def choose(name: str, number: int) -> str | None:
        raise NotFoundError("status code: 404: <Code>NoSuchBucket</Code><Message>The bucket does not exist</Message>")

    store.choose = choose
    error = object_probe.find_missing_rights(FOLDER)
    assert error is not None
    assert error.code == "STORE_REFUSED"
    assert "The bucket does not exist (NoSuchBucket)" in error.message
    assert "right" not in error.message


def test_a_store_that_is_away_is_named_after_the_limit_of_who_asks(store: FaultyStore) -> None:
    store.choose = lambda name, number: "lost request"
    with storage.limit_patience(0.1):
        error = object_probe.find_missing_rights(FOLDER)
    assert error is not None
    assert (error.code, error.exit_code) == ("STORAGE_FAILED", 75)
    assert f"for {FOLDER} for 0.1 seconds" in error.message
    assert access.patience_seconds() == access.PATIENCE_SECONDS
