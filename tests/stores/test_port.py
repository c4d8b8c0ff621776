"""The storage port on real object stores."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.object_servers import Bucket
from tests.support.port_suite import PortSuite
from tidegate.core import storage
from tidegate.core.storage import ObjectPath, access, object_probe, stores
from tidegate.core.storage.faults import StoreError, name_cause


class TestS3(PortSuite):
    @pytest.fixture
    def root(self, s3_bucket: Bucket) -> Path:
        return ObjectPath(s3_bucket.url) / "pre fix"


class TestAzure(PortSuite):
    @pytest.fixture
    def root(self, azure_container: Bucket) -> Path:
        return ObjectPath(azure_container.url) / "prefix"


def refused(path: ObjectPath) -> tuple[str, int, str]:
    """(code, exit code, text) with which a read, a list and a write end; all three say the same."""
    found = set()
    for act in (storage.read, storage.list_names, lambda one: storage.put_if_absent(one, b"x")):
        with pytest.raises(StoreError) as caught:
            act(path)
        named = name_cause(caught.value, path)
        assert named is not None
        found.add((named.code, named.exit_code, named.message.partition(": ")[2]))
    assert len(found) == 1, found
    return found.pop()


def test_wrong_credentials_are_refused_at_once(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "canary-secret")
            code, exit_code, reason = refused(other_client(s3_bucket, patch))
        assert (code, exit_code) == ("STORE_REFUSED", 64)
        assert "canary" not in reason


def other_client(bucket: Bucket, patch: pytest.MonkeyPatch) -> ObjectPath:
    """A path in the bucket for which the client is made anew, from the environment as it is now."""
    patch.setattr(stores, "_open", stores._open.__wrapped__)
    patch.setattr(object_probe, "_checked", set())
    return ObjectPath(bucket.url) / "state" / "token"


@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_a_bucket_that_does_not_exist_is_not_an_empty_one(request: pytest.FixtureRequest, scheme: str) -> None:
    request.getfixturevalue("s3_bucket" if scheme == "s3" else "azure_container")
    path = ObjectPath(f"{scheme}://missing-{os.getpid()}/state/token")
    for act in (storage.list_names, storage.list_tree, storage.exists, lambda one: storage.put_if_absent(one, b"x")):
        with pytest.raises(StoreError) as caught:
            act(path)
        named = name_cause(caught.value, path)
        assert named is not None
        assert (named.code, named.exit_code) == ("STORE_REFUSED", 64)
        assert f"{scheme}://missing-{os.getpid()}" in named.message
        assert "bucket" in named.message or "container" in named.message


def test_a_server_that_is_away_is_waited_for(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "PATIENCE_SECONDS", 1.0)
    path = ObjectPath(s3_bucket.url) / "state" / "token"
    storage.replace(path, b"before")
    s3_bucket.server.kill()
    try:
        code, exit_code, reason = refused(path)
    finally:
        s3_bucket.server.restart()
    assert (code, exit_code) == ("STORAGE_FAILED", 75)
    assert reason == "HTTP error: error sending request (Connection refused)"
    assert storage.read(path) == b"before", "what was acknowledged before the kill is there"


def test_a_server_that_comes_back_in_time_costs_nothing(s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ObjectPath(s3_bucket.url) / "state" / "token"
    storage.replace(path, b"before")
    s3_bucket.server.kill()
    with ThreadPoolExecutor(1) as pool:
        write = pool.submit(storage.replace, path, b"after")
        time.sleep(0.5)
        assert not write.done()
        s3_bucket.server.restart()
        write.result()
    assert storage.read(path) == b"after"


def test_a_key_that_is_the_folder_of_another_is_named(s3_bucket: Bucket) -> None:
    """Amazon S3 has such keys; servers that keep objects as files have not."""
    root = ObjectPath(s3_bucket.url)
    storage.replace(root / "a", b"x")
    with pytest.raises(StoreError) as caught:
        storage.replace(root / "a" / "b", b"y")
    named = name_cause(caught.value, root)
    assert named is not None
    assert f"{root}/a/b" in named.message
    assert storage.read(root / "a") == b"x"


def test_a_signal_is_handled_while_the_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and says nothing: a stopped run must end long before the request does."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "us-east-1")
        code = (
            "import signal, sys; from tidegate.core import storage\n"
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); print('ready', flush=True)\n"
            "storage.read(storage.ObjectPath('s3://bucket/key'))"
        )
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        silent.accept()
        process.terminate()
        assert process.wait(4) == 3
