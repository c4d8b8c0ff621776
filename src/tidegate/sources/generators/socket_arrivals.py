"""Stores lines that a connection receives between runs, and moves them into the spool when a run starts.

They are appended to one file next to the spool, ``state/<name>/spool/<source>.arriving/<number>.json``, and synced
each time. Its number is noted before it is created, so handing it over is one rename, which cannot happen twice. One
process at a time listens for a source, by a lock that ends with the process. The next holder of the lock hands over the
file of a killed process, up to the last whole line.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths


def spool_file(paths: PipelinePaths, name: str, number: int) -> Path:
    """The file of this number in the spool of a source."""
    return paths.spool(name) / f"{number:010d}.json"


def newest_number(folder: Path) -> int:
    """The highest number of a file that is in ``folder``; 0 without one."""
    stems = [entry.removesuffix(".json") for entry in os.listdir(folder)]
    return max((int(stem) for stem in stems if stem.isdigit()), default=0)


class Arrivals:
    """The right to listen for a source, and the file that is being written. See :meth:`take`. Thread-safe."""

    def __init__(self, paths: PipelinePaths, name: str, lock: int) -> None:
        self._paths = paths
        self._name = name
        self._lock = lock
        self._guard = threading.RLock()
        self._file: int | None = None
        self._path = Path()
        self._size = 0

    @classmethod
    def take(cls, paths: PipelinePaths, name: str) -> Arrivals | None:
        """Take the right to listen; None while another process has it. First hands over files of a killed process."""
        folder = paths.spool_arrivals(name)
        storage.make_folder(folder)
        storage.make_folder(paths.spool(name))
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        arrivals = cls(paths, name, lock)
        try:
            arrivals._note(arrivals._number())
            for left in sorted(folder.glob("*.json")):
                arrivals._hand_over_left(left)
        except BaseException:
            os.close(lock)
            raise
        return arrivals

    def append(self, data: bytes) -> None:
        """Store whole records durably. If it raises, none of them is stored."""
        with self._guard:
            if self._file is None:
                number = self._number() + 1
                self._note(number)
                self._path = self._paths.spool_arrivals(self._name) / spool_file(self._paths, self._name, number).name
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                self._size = 0
                storage.sync_folder(self._path.parent)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.pwrite(self._file, rest, self._size + len(data) - len(rest)) :]
                os.fdatasync(self._file)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._size)
                raise
            self._size += len(data)

    def hand_over(self) -> None:
        """Move the received lines into the spool, as one file."""
        with self._guard:
            if self._file is None:
                return
            if self._size:
                os.fsync(self._file)
                storage.move(self._path, self._paths.spool(self._name) / self._path.name)
            else:
                storage.remove(self._path)
            os.close(self._file)
            self._file = None

    def waiting_bytes(self) -> int:
        """The received bytes that are not yet in the table."""
        with self._guard:
            size = self._size if self._file is not None else 0
        with os.scandir(self._paths.spool(self._name)) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # published meanwhile
                    size += entry.stat().st_size
        return size

    def close(self) -> None:
        """Hand over, and release the right to listen."""
        try:
            self.hand_over()
        finally:
            os.close(self._lock)

    def _number(self) -> int:
        """The highest number that was ever used."""
        noted = (storage.read_note(self._paths.spool_position(self._name)) or {"number": 0})["number"]
        return max(newest_number(self._paths.spool(self._name)), int(noted))

    def _note(self, number: int) -> None:
        storage.write_note(self._paths.spool_position(self._name), number, {"number": number})

    def _hand_over_left(self, path: Path) -> None:
        """Hand over the file of a killed process, whose last line may be incomplete."""
        whole = path.read_bytes().rpartition(b"\n")
        size = len(whole[0]) + len(whole[1])
        if not size:
            storage.remove(path)
            return
        os.truncate(path, size)
        storage.sync_file(path)
        storage.move(path, self._paths.spool(self._name) / path.name)
