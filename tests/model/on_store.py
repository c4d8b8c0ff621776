"""Pipelines whose state is on an object store: each command is on a machine of its own, or on one that it shares."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.model.processes import current
from tests.model.world import World
from tests.support.faulty_store import FaultyStore, use_store
from tidegate.core.storage import ObjectPath, mirror
from tidegate.core.storage.mirror import Mirror

R = TypeVar("R")
_WRITES = {"put": "link", "copy": "link", "delete": "unlink"}
"""What the model calls the requests that change something: a stop before any other one is the same point."""


class WatchedStore(FaultyStore):
    """A store each of whose writes is a point of the process that sends it."""

    def put(self, path: str, file: Any, **how: Any) -> Any:
        return self._at("put", path, lambda: super(WatchedStore, self).put(path, file, **how))

    def copy(self, from_: str, to: str, *, overwrite: bool = True) -> None:
        self._at("copy", to, lambda: super(WatchedStore, self).copy(from_, to, overwrite=overwrite))

    def delete(self, paths: Any) -> None:
        first = paths if isinstance(paths, str) else next(iter(paths))
        self._at("delete", first, lambda: super(WatchedStore, self).delete(paths))

    @staticmethod
    def _at(name: str, path: str, act: Callable[[], R]) -> R:
        process = current()
        with contextlib.nullcontext() if process is None else process.at(f"{_WRITES[name]} store/{path}"):
            return act()


@dataclass
class Machines:
    """``count`` machines; commands are started on one after the other."""

    folder: Path
    count: int
    _of: dict[tuple[int, ObjectPath], Mirror] = field(default_factory=dict)
    _started: list[Any] = field(default_factory=list)

    def find(self, remote: ObjectPath, _cache: Path) -> Mirror:
        """The working copy for the process that asks; the test itself has its own."""
        process = current()
        key = id(process), remote
        if key not in self._of:
            machine = "of the test"
            if process is not None:
                machine = str(len(self._started) % self.count)
                self._started.append(process)
            self._of[key] = Mirror(self.folder / machine / remote.name / "copy", remote)
        return self._of[key]


def put_on_store(world: World, patch: pytest.MonkeyPatch, machines: int = 2) -> WatchedStore:
    """Move the state of a pipeline to which nothing has happened yet to an object store."""
    store = WatchedStore()
    bucket = use_store(patch, store)
    (world.root / "tidegate.yaml").write_text(f"version: 1\nstate: {bucket / 'state'}\n")
    for name in ("project", "paths", "spec"):
        vars(world).pop(name, None)
    patch.setattr(mirror, "mirror_of", Machines(world.root / "machines", machines).find)
    patch.setattr(mirror, "_FRESH_SECONDS", 0.0)
    patch.setattr(mirror, "_HOLDER_SECONDS", 0.02)
    patch.setattr(mirror, "_EVENTS_AT_MOST", 12)
    patch.setattr(mirror, "_KEPT_SECONDS", 0.0)
    return store
