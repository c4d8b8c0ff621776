"""What a power cut leaves: everything that was not synced is gone, cut off, or full of NUL bytes.

:class:`Disk` keeps what was synced of a folder, by patching ``os.fsync``: the bytes of each file, and the names of each
folder, as they were at that moment. Whoever writes without it (Spark, deltalake, pyarrow) has synced nothing. The
ledger is left out: SQLite syncs by itself what it has to.

POSIX promises nothing about what was not synced, so the cut is the worst there is: each file and each folder goes back
on its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

Cut = Literal["empty", "half", "zeros", "names", "names and zeros"]
CUTS: tuple[Cut, ...] = ("empty", "half", "zeros", "names", "names and zeros")
_OWN_SYNC = (".sqlite", ".sqlite-journal")


@dataclass
class Disk:
    """What of the folder ``root`` is on disk. Everything that is there at the beginning is."""

    root: Path
    _bytes: dict[int, bytes] = field(default_factory=dict)
    """What was synced of a file, by its inode."""
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    """What was synced of a folder: inodes by name."""
    _held: list[int] = field(default_factory=list)
    """Open files, so that no inode is given to another file."""

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Begin: what is there is on disk; from now on ``os.fsync`` is told."""
        self.sync_all()
        real = os.fsync

        def fsync(handle: int) -> None:
            real(handle)
            self._note(handle)

        patch.setattr(os, "fsync", fsync)

    def sync_all(self) -> None:
        """Everything that is there is on disk."""
        for folder, _, names in os.walk(self.root):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                if not os.path.islink(path):
                    handle = os.open(path, os.O_RDONLY)
                    self._note(handle)
                    os.close(handle)

    def close(self) -> None:
        """Let go of all files."""
        for handle in self._held:
            os.close(handle)
        self._held.clear()

    def _note(self, handle: int) -> None:
        found = os.fstat(handle)
        known = found.st_ino in self._bytes or found.st_ino in self._names
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(handle) as entries:
                self._names[found.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            self._bytes[found.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()
        if not known:
            self._held.append(os.dup(handle))

    def cut(self, how: Cut) -> list[str]:
        """The power is cut; what became different, for the trace. What is left is on disk."""
        told: list[str] = []
        if "names" in how:
            self._put_names_back(self.root, told)
        if how != "names":
            for path in self._files():
                self._damage(path, how, told)
        self.close()
        self._bytes.clear()
        self._names.clear()
        self.sync_all()
        return told

    def _files(self) -> list[Path]:
        found = [Path(folder) / name for folder, _, names in os.walk(self.root) for name in names]
        return [path for path in found if not path.name.endswith(_OWN_SYNC) and not path.is_symlink()]

    def _damage(self, path: Path, how: Cut, told: list[str]) -> None:
        now, synced = path.read_bytes(), self._bytes.get(path.stat().st_ino)
        if now == synced:
            return
        kept = synced if synced is not None else b""
        rest = len(now) - len(kept) if now.startswith(kept) else 0
        lost = {"empty": b"", "half": now[len(kept) : len(kept) + rest // 2]}.get(how, b"\0" * rest)
        path.write_bytes(kept + lost)  # in place: other names of the file see it too
        told.append(f"{how}: {path.relative_to(self.root)}")

    def _put_names_back(self, folder: Path, told: list[str]) -> None:
        names = self._names.get(folder.stat().st_ino, {})
        now = {entry.name: entry.inode() for entry in os.scandir(folder)}
        for name in sorted(now.keys() - names.keys()):
            if not name.endswith(_OWN_SYNC):
                _remove(folder / name)
                told.append(f"never there: {(folder / name).relative_to(self.root)}")
        for name, inode in sorted(names.items()):
            if now.get(name) == inode or name.endswith(_OWN_SYNC):
                continue
            _remove(folder / name)
            self._bring_back(folder / name, inode)
            told.append(f"back again: {(folder / name).relative_to(self.root)}")
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                self._put_names_back(Path(entry.path), told)

    def _bring_back(self, path: Path, inode: int) -> None:
        if inode in self._names:
            path.mkdir()
            for name, inner in self._names[inode].items():
                self._bring_back(path / name, inner)
            self._names[path.stat().st_ino] = self._names[inode]
        else:
            for other in self._files():
                if other.stat().st_ino == inode:
                    os.link(other, path)
                    return
            path.write_bytes(self._bytes.get(inode, b""))
            self._bytes.setdefault(path.stat().st_ino, self._bytes.get(inode, b""))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
