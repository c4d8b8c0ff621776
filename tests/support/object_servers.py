"""Buckets of a test's own on the session's object stores."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.storage import ObjectPath, access
from tidegate.core.storage.stores import open_store
from tools.object_servers import AzureServer, S3Server, has_attributes

if TYPE_CHECKING:
    import pytest
    from obstore.store import ObjectStore


@dataclass(frozen=True)
class Bucket:
    """A bucket or container without objects; the environment of the test leads to its server."""

    server: S3Server | AzureServer
    name: str

    @property
    def scheme(self) -> str:
        """The scheme of paths in it."""
        return "s3" if isinstance(self.server, S3Server) else "az"

    @property
    def url(self) -> str:
        """Its path, without a slash at the end."""
        return f"{self.scheme}://{self.name}"

    @property
    def client(self) -> ObjectStore:
        """The client that tidegate uses for it."""
        return open_store(self.scheme, self.name)


def make_bucket(server: S3Server | AzureServer, patch: pytest.MonkeyPatch, **settings: bool) -> Bucket:
    """A bucket with a name of its own, since clients are kept by their names; ``patch`` sets the environment."""
    enter_environment(server, patch)
    bucket = Bucket(server, f"test-{secrets.token_hex(6)}")
    server.make_bucket(bucket.name, **settings)
    if isinstance(server, S3Server):
        _FOLDERS[bucket.name] = server.folder / "data" / bucket.name
    return bucket


_FOLDERS: dict[str, Path] = {}


def folder_of(path: Path) -> Path:
    """Where an S3 server of the tests keeps the objects below ``path``, as files with the names of their keys: any
    reader of files reads them there. A path of a file system is returned as it is."""
    return _FOLDERS[path.bucket] / path.key if isinstance(path, ObjectPath) else path


def enter_environment(server: S3Server | AzureServer, patch: pytest.MonkeyPatch) -> None:
    """Lead this process and its children to ``server``, without a trace of the developer's own stores."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_")):
            patch.delenv(name)
    for name, value in server.environment().items():
        patch.setenv(name, value)
    patch.setattr(access, "_settings", {})  # of a project that an earlier test has loaded
    patch.setattr(access, "_find_login", None)  # of Airflow, which one has imported


@contextmanager
def running_s3_server(folder: Path, **settings: str) -> Iterator[S3Server]:
    """An S3 server with its data in ``folder``, or on a disk where ``folder`` has no extended attributes: before Linux
    6.6 memory has none."""
    elsewhere = None if has_attributes(folder) else Path(tempfile.mkdtemp(prefix="tidegate-s3-", dir="/var/tmp"))
    server = S3Server.start_in(elsewhere or folder, None, True, **settings)
    try:
        yield server
    finally:
        server.stop()
        if elsewhere is not None:
            shutil.rmtree(elsewhere)
