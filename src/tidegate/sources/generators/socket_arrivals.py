"""Lines that a connection brings while no run asks for them: on disk as they come, a file of the spool when a run does.

They are appended to one file beside the spool, ``state/<name>/spool/<source>.arriving/<number>.json``, and synced each
time. Its number was noted before it was made, so handing it over is one rename, which nobody can do twice. One process
at a time listens for a source, by a lock that ends with it. Whoever holds the lock next hands over what a killed one
left, up to the last whole line.
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
    """The right to listen for a source, and the file that grows meanwhile. Made by :meth:`take`; safe among threads."""

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
        """The right to listen; None while another process has it. What a killed one left is handed over first."""
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
        """Keep whole records. On return they are on disk; whatever is raised, none of them is kept."""
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
        """Make what has arrived a file of the spool."""
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
        """What has arrived and is not yet in the table."""
        with self._guard:
            size = self._size if self._file is not None else 0
        with os.scandir(self._paths.spool(self._name)) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # published meanwhile
                    size += entry.stat().st_size
        return size

    def close(self) -> None:
        """Hand over, and let others listen."""
        try:
            self.hand_over()
        finally:
            os.close(self._lock)

    def _number(self) -> int:
        """The highest number that was ever given."""
        noted = (storage.read_note(self._paths.spool_position(self._name)) or {"number": 0})["number"]
        return max(newest_number(self._paths.spool(self._name)), int(noted))

    def _note(self, number: int) -> None:
        storage.write_note(self._paths.spool_position(self._name), number, {"number": number})

    def _hand_over_left(self, path: Path) -> None:
        """What a killed process left: its last line may have been half written."""
        whole = path.read_bytes().rpartition(b"\n")
        size = len(whole[0]) + len(whole[1])
        if not size:
            storage.remove(path)
            return
        os.truncate(path, size)
        storage.sync_file(path)
        storage.move(path, self._paths.spool(self._name) / path.name)
