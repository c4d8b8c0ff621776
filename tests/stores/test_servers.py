"""The object stores on this machine: what the other tests of object stores stand on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from tests.support.object_servers import Bucket, enter_environment, make_bucket, running_s3_server
from tidegate.core.storage import ObjectPath
from tidegate.core.storage.object_probe import find_missing_rights
from tidegate.core.storage.stores import open_store
from tools.console import REPO_ROOT
from tools.object_servers import S3Server, has_attributes
from tools.processes import choose_free_port, wait_until

RACERS = 50


@pytest.fixture(params=["s3_bucket", "azure_container"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """A bucket of each server."""
    return request.getfixturevalue(request.param)


def race(act: Callable[[int], object]) -> list[int]:
    """Which of :data:`RACERS` threads, let loose at the same time, did not find that the object exists."""
    barrier = threading.Barrier(RACERS)

    def run(number: int) -> bool:
        barrier.wait()
        try:
            act(number)
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(RACERS) as pool:
        return [number for number, won in enumerate(pool.map(run, range(RACERS))) if won]


def read(bucket: Bucket, key: str) -> bytes:
    return obstore.get(bucket.client, key).bytes().to_bytes()


def test_one_of_fifty_creators_of_a_key_wins(bucket: Bucket) -> None:
    [winner] = race(lambda number: obstore.put(bucket.client, "a/key", f"{number}".encode(), mode="create"))
    assert read(bucket, "a/key") == f"{winner}".encode()


def test_one_of_fifty_copies_to_a_key_wins(bucket: Bucket) -> None:
    for number in range(RACERS):
        obstore.put(bucket.client, f"from/{number}", f"{number}".encode())
    [winner] = race(lambda number: obstore.copy(bucket.client, f"from/{number}", "to", overwrite=False))
    assert read(bucket, "to") == f"{winner}".encode()


def test_no_conditional_overwrite_is_lost(bucket: Bucket) -> None:
    obstore.put(bucket.client, "count", b"0 first")

    def add(thread: int) -> None:
        for turn in range(15):
            while True:
                found = obstore.get(bucket.client, "count")
                count = int(found.bytes().to_bytes().split()[0])
                # An ETag can be the digest of the body: a body that is there twice would pass for the first one.
                body = f"{count + 1} {thread} {turn}".encode()
                try:
                    obstore.put(bucket.client, "count", body, mode={"e_tag": found.meta["e_tag"]})
                    break
                except PreconditionError:
                    continue

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, range(6)))
    assert read(bucket, "count").split()[0] == b"90"


def test_deltalake_has_what_it_needs_from_the_environment(bucket: Bucket) -> None:
    for mode in ("error", "append"):
        write_deltalake(f"{bucket.url}/table", pa.table({"id": [1, 2]}), mode=mode)
    table = DeltaTable(f"{bucket.url}/table")
    assert (table.version(), table.to_pyarrow_table().num_rows) == (1, 4)


def test_requests_are_counted_by_operation_since_a_mark(s3_bucket: Bucket, s3_server: S3Server) -> None:
    elsewhere = f"{s3_bucket.name}-2"
    s3_server.make_bucket(elsewhere)
    requests = s3_server.count_requests(s3_bucket.name)
    obstore.put(s3_bucket.client, "a key [with] spaces s3_GetObject ", b"1", mode="create")
    obstore.put(open_store("s3", elsewhere), "a", b"1")
    with pytest.raises(FileNotFoundError):
        obstore.head(s3_bucket.client, "absent")
    with pytest.raises(AlreadyExistsError):
        obstore.put(s3_bucket.client, "a key [with] spaces s3_GetObject ", b"1", mode="create")
    assert requests.counts() == Counter(PutObject=2, HeadObject=1)
    requests.mark()
    assert requests.counts() == Counter()
    list(obstore.list(s3_bucket.client))
    obstore.delete(s3_bucket.client, ["a key [with] spaces s3_GetObject "])
    assert requests.counts() == Counter(ListObjectsV2=1, DeleteObjects=1)


def test_a_versioned_bucket_keeps_what_is_overwritten(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = make_bucket(s3_server, monkeypatch, versioned=True)
    first = obstore.put(bucket.client, "a/key", b"1")
    second = obstore.put(bucket.client, "a/key", b"2")
    assert read(bucket, "a/key") == b"2"
    assert first["version"] and first["version"] != second["version"]
    old = obstore.get(bucket.client, "a/key", options={"version": first["version"]})
    assert old.bytes().to_bytes() == b"1"


def test_a_versioned_bucket_here_is_no_place_for_a_table(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses to create an object that was removed, as a publish may have to."""
    bucket = make_bucket(s3_server, monkeypatch, versioned=True)
    error = find_missing_rights(ObjectPath(f"{bucket.url}/tables"))
    assert error is not None and error.code == "STORE_UNSAFE"
    assert "refused to create an object that had been removed" in error.message
    assert list(obstore.list(bucket.client)) == []


def test_a_killed_server_comes_back_with_its_objects_on_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_s3_server(tmp_path) as server:
        arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        assert b"--port" in arguments and server.secret.encode() not in arguments
        assert S3Server.find(server.folder) == S3Server.find(server.folder) is not None
        bucket = make_bucket(server, monkeypatch)
        written = obstore.put(bucket.client, "a/key", b"1")
        server.kill()
        assert not server.is_running() and S3Server.find(server.folder) is None
        with pytest.raises(BaseError):
            obstore.head(bucket.client, "a/key")
        server.restart()
        assert obstore.head(bucket.client, "a/key")["e_tag"] == written["e_tag"]
        requests = server.count_requests(bucket.name)
        with pytest.raises(AlreadyExistsError):
            obstore.put(bucket.client, "a/key", b"2", mode="create")
        assert requests.counts() == Counter(PutObject=1)


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = """
import sys, time
from pathlib import Path
from tests.support.object_servers import running_s3_server
with running_s3_server(Path(sys.argv[1])) as server:
    print(server.folder, flush=True)
    time.sleep(600)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=REPO_ROOT, stdout=subprocess.PIPE, text=True) as starter:
        try:
            assert starter.stdout is not None
            folder = Path(starter.stdout.readline().strip())
            assert S3Server.find(folder) is not None
        finally:
            starter.kill()
    assert wait_until(lambda: S3Server.find(folder) is None, 10)


def test_the_server_of_the_command_line_keeps_its_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_attributes(tmp_path):
        pytest.skip("no extended attributes here")
    command = [sys.executable, "-m", "tools.object_servers"]
    place = ["--dir", str(tmp_path), "--port", str(choose_free_port())]

    def call(action: str) -> str:
        return subprocess.run([*command, action, *place], cwd=REPO_ROOT, capture_output=True, text=True).stdout.strip()

    try:
        assert call("status") == "not running"
        assert call("start") == call("start") == call("status") == f"running at http://127.0.0.1:{place[-1]}"
        server = S3Server.find(tmp_path)
        assert server is not None
        bucket = make_bucket(server, monkeypatch)
        obstore.put(bucket.client, "a/key", b"1")
    finally:
        call("stop")
    assert call("status") == "not running"
    try:
        call("start")  # a client has the credentials of the first process
        assert read(bucket, "a/key") == b"1"
    finally:
        call("stop")


def test_a_developers_own_store_stays_out_of_the_tests(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "real")
    enter_environment(s3_server, monkeypatch)
    told = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "AZURE_"))}
    assert told == s3_server.environment()
