"""Missing rights, as a real server refuses them: to a user whom the bucket's policy does not allow."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.object_servers import Bucket
from tests.support.page_outputs import shown
from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.storage import ObjectPath, access, object_probe, stores
from tools.object_servers import S3Server

ALL = ("s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject")


@pytest.fixture
def data(s3_bucket: Bucket, s3_server: S3Server) -> Path:
    """The folder of the bucket."""
    return s3_server.folder / "data" / s3_bucket.name


def ask(name: str, *, only_read: bool = False) -> TidegateError | None:
    stores._open.cache_clear()  # the environment has changed
    with access.limit_patience(2):
        return object_probe.find_missing_rights(ObjectPath(f"s3://{name}/tables"), only_read=only_read)


@pytest.mark.parametrize(
    ("lacks", "named"),
    [
        ((), None),
        (("s3:DeleteObject",), "no right to delete there"),
        (("s3:PutObject", "s3:DeleteObject"), "no right to write and delete there"),
        (("s3:GetObject",), "no right to read there"),
        (("s3:ListBucket",), "no right to list there"),
    ],
)
def test_the_right_that_a_policy_does_not_give_is_named(
    s3_server: S3Server, data: Path, monkeypatch: pytest.MonkeyPatch, lacks: tuple[str, ...], named: str | None
) -> None:
    s3_server.allow(data.name, *(one for one in ALL if one not in lacks))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.GUEST)
    error = ask(data.name)
    if named is None:
        assert error is None
    else:
        assert error is not None and error.code == "STORE_REFUSED"
        assert named in error.message
    assert [path.name for path in data.rglob("*.probe")] == []


def test_the_policy_of_the_page_gives_what_a_run_needs() -> None:
    rights = [right for one in json.loads(shown("policy"))["Statement"] for right in [one["Action"]]]
    given = {right for some in rights for right in ([some] if isinstance(some, str) else some)}
    assert given == {*ALL, "s3:AbortMultipartUpload"}
    page = (Path(__file__).parents[2] / "docs/how-to/object-stores.md").read_text()
    prefixes = re.findall(r"^(?:warehouse|quarantine|state): s3://lake/(\w+)$", page, re.MULTILINE)
    listed, changed = json.loads(shown("policy"))["Statement"]
    assert len(prefixes) == 3
    assert listed["Condition"]["StringLike"]["s3:prefix"] == [f"{one}/*" for one in prefixes]
    assert changed["Resource"] == [f"arn:aws:s3:::lake/{one}/*" for one in prefixes]


def test_who_only_reads_needs_no_right_to_write(
    s3_server: S3Server, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.allow(data.name, "s3:ListBucket", "s3:GetObject")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.GUEST)
    assert ask(data.name, only_read=True) is None


def test_no_such_bucket_wrong_key_and_a_dead_server(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ask("no-such-bucket")
    assert error is not None and (error.code, error.exit_code) == ("STORE_REFUSED", 64)
    assert "NoSuchBucket" in error.message
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a wrong one")
    error = ask(s3_bucket.name)
    assert error is not None and (error.code, error.exit_code) == ("STORE_REFUSED", 64)
    assert "SignatureDoesNotMatch" in error.message and "a wrong one" not in str(error)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    error = ask(s3_bucket.name)
    assert error is not None and (error.code, error.exit_code) == ("STORAGE_FAILED", 75)
    assert "Connection refused" in error.message


@pytest.mark.parametrize("fixture", ["s3_bucket", "azure_container"])
def test_all_rights_are_there_and_nothing_is_left(request: pytest.FixtureRequest, fixture: str) -> None:
    bucket: Bucket = request.getfixturevalue(fixture)
    folder = ObjectPath(bucket.url) / "tables"
    assert object_probe.find_missing_rights(folder) is None
    assert storage.list_tree(ObjectPath(bucket.url)) == []
    assert object_probe.find_missing_rights(ObjectPath(f"{bucket.scheme}://no-such-bucket/tables")) is not None
