"""What was synced, and in which state: the shim of tests that ask what a power loss would leave."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


class Synced:
    """Notes each file and folder that this process syncs, as it was at that moment."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.paths: set[str] = set()
        self._files: set[tuple[int, int, int]] = set()
        self._names: set[tuple[int, str]] = set()
        real = os.fsync

        def fsync(handle: Any) -> None:
            real(handle)
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            found = os.fstat(handle)
            self.paths.add(str(path))
            if path.is_dir():
                self._names |= {(found.st_ino, name) for name in os.listdir(path)}
            else:
                self._files.add((found.st_ino, found.st_size, found.st_mtime_ns))

        patch.setattr(os, "fsync", fsync)

    def missing(self, folder: Path) -> list[str]:
        """What is under ``folder`` and would not survive: bytes or names that were not synced."""
        found = []
        for path in sorted([folder, *folder.rglob("*")]):
            stat = path.stat()
            if (path.parent.stat().st_ino, path.name) not in self._names:
                found.append(f"name of {path.relative_to(folder)}")
            if path.is_file() and (stat.st_ino, stat.st_size, stat.st_mtime_ns) not in self._files:
                found.append(f"bytes of {path.relative_to(folder)}")
        return found
