"""The static files: script and styles, built from ``ui/`` by ``make ui``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import cast

from typing_extensions import TypedDict

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}


class Manifest(TypedDict):
    """The names of the files, which change with their content; ``sources`` is a digest of what they are built from."""

    theme: str
    script: str
    style: str
    sources: str


@dataclass(frozen=True)
class StaticFile:
    """A file to serve."""

    data: bytes
    media_type: str
    etag: str


@cache
def read_manifest() -> Manifest:
    """The manifest of the bundle."""
    return cast(Manifest, json.loads(files("tidegate.airflow.ui").joinpath("static/manifest.json").read_bytes()))


@cache
def list_static() -> dict[str, StaticFile]:
    """All static files by name, so that nothing of a request becomes part of a path."""
    found = {}
    for entry in files("tidegate.airflow.ui").joinpath("static").iterdir():
        suffix = f".{entry.name.rpartition('.')[2]}"
        if suffix in _TYPES:
            data = entry.read_bytes()
            found[entry.name] = StaticFile(data, _TYPES[suffix], f'"{hashlib.sha256(data).hexdigest()[:32]}"')
    return found
