"""Lines of a TCP socket, received in a run or between the runs of ``tidegate stream``, and stored on disk.

Received lines are appended to one file next to the spool, ``state/<name>/spool/<source>.arriving/<number>.json``, and
synced each time. Its number is noted before it is created, so handing it over to the spool is one rename, which cannot
happen twice. One process at a time listens for a source, by a lock that ends with the process. The next holder of the
lock hands over the file of a killed process, up to the last whole line.

In ``tidegate stream`` a thread reads each connection, during runs and between them. When more is pending than a run may
take, it stops reading, so that the peer has to wait. When the peer closes, it connects again, after an increasing
pause.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.core import storage
from tidegate.core.errors import TidegateError, TryAgainError, on_failure
from tidegate.core.paths import PipelinePaths
from tidegate.sources import errors
from tidegate.spec.trial_options import SocketOptions

CHUNK_BYTES = 1 << 16
BYTES_AT_MOST = 64 << 20
_SECONDS_AT_MOST = 60.0


def listen(options: SocketOptions, where: str) -> tuple[list[bytes], list[str]]:
    """Receive lines from the peer: each as a JSON object, and notes on how it ended.

    Ends when the peer closes, when it sends nothing for ``options.timeout``, or at a limit. Text after the last line
    break is a line too, since it is not sent again. Bytes that are not UTF-8 are kept, for quarantine. Raises
    TryAgainError SOCKET_AWAY.
    """
    address = f"{options.host}:{options.port}"
    try:
        connection = socket.create_connection((options.host, options.port), timeout=options.timeout)
    except OSError as error:
        raise socket_away(options, where, error) from error
    lines: list[bytes] = []
    notes: list[str] = []
    rest, size, began = b"", 0, time.monotonic()
    with connection:
        while True:
            seconds = max(_SECONDS_AT_MOST, options.timeout) - (time.monotonic() - began)
            if size >= BYTES_AT_MOST or seconds <= 0:
                what = f"{size:,} bytes" if size >= BYTES_AT_MOST else f"{time.monotonic() - began:.0f} seconds"
                notes.append(f"stopped listening at {address} after {what}; what it sent later is lost")
                break
            connection.settimeout(min(seconds, options.timeout))
            try:
                chunk = connection.recv(CHUNK_BYTES)
            except TimeoutError:
                if seconds > options.timeout:
                    break
                continue
            except OSError as error:
                notes.append(
                    f"the connection to {address} broke: {error.strerror or error}; what was received before is kept"
                )
                break
            if not chunk:
                break
            size += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            lines += [make_record(line, options) for line in whole]
    if rest:
        lines.append(make_record(rest, options))
    return lines, notes


def socket_away(options: SocketOptions, where: str, error: OSError) -> TryAgainError:
    """Make the error of a run that cannot connect."""
    return errors.SOCKET_AWAY(where=where, host=options.host, port=options.port, error=error.strerror or error)


def make_record(line: bytes, options: SocketOptions) -> bytes:
    """Make the JSON object that stores a line."""
    row = {"value": line.removesuffix(b"\r").decode("utf-8", "surrogateescape")}
    if options.with_timestamp:
        row["timestamp"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


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
        with on_failure(lambda: os.close(lock)):
            arrivals._note(arrivals._number())
            for left in sorted(folder.glob("*.json")):
                arrivals._hand_over_left(left)
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
            with on_failure(self._cut_back):
                rest = memoryview(data)
                while rest:
                    rest = rest[os.pwrite(self._file, rest, self._size + len(data) - len(rest)) :]
                os.fdatasync(self._file)
            self._size += len(data)

    def _cut_back(self) -> None:
        """Remove from the file what was written of records that are not stored."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                os.ftruncate(self._file, self._size)

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


_LOOK_SECONDS = 0.2
"""How often a waiting thread checks whether it is to end."""
_END_SECONDS = 1.0
_PAUSE_SECONDS, _PAUSE_AT_MOST = 1.0, 30.0


class Listener:
    """One connection at a time to the peer of a source, read by a thread."""

    def __init__(self, arrivals: Arrivals, options: SocketOptions, where: str) -> None:
        self.options = options
        self._arrivals = arrivals
        self._where = where
        self._tried = threading.Event()
        self._ended = threading.Event()
        self._away: TryAgainError | None = None
        self._notes: list[str] = []
        self._thread = threading.Thread(target=self._work, name="tidegate-listener", daemon=True)
        self._thread.start()

    def hand_over(self) -> list[str]:
        """Move the received lines into the spool. Returns notes for the report."""
        self._tried.wait(self.options.timeout + 1)
        self._arrivals.hand_over()
        notes, self._notes = self._notes, []
        return notes

    def take_error(self) -> TryAgainError | None:
        """Return why the last attempt to connect failed, once for each attempt; None when it did not."""
        error, self._away = self._away, None
        return error

    def close(self) -> None:
        """Close the connection, keep the received lines, and release the right to listen."""
        self._ended.set()
        self._thread.join(_END_SECONDS)  # a thread that still tries to connect will read nothing
        self._arrivals.close()

    def _work(self) -> None:
        address, pause = (self.options.host, self.options.port), _PAUSE_SECONDS
        while not self._ended.is_set():
            try:
                connection = socket.create_connection(address, timeout=self.options.timeout)
            except OSError as error:
                self._away = socket_away(self.options, self._where, error)
                self._tried.set()
                self._ended.wait(pause)
                pause = min(2 * pause, _PAUSE_AT_MOST)
                continue
            self._away, pause = None, _PAUSE_SECONDS
            self._tried.set()
            with connection:
                try:
                    self._read(connection)
                except (OSError, TidegateError) as error:
                    self._notes.append(f"stopped listening, and connects again: {error}")
            self._ended.wait(pause)

    def _read(self, connection: socket.socket) -> None:
        """Store each line until the connection ends; text after the last line break is a line too."""
        line = bytearray()
        connection.settimeout(_LOOK_SECONDS)
        has_room = True
        while not self._ended.is_set():
            if (waits := self._arrivals.waiting_bytes()) >= BYTES_AT_MOST:
                if has_room:
                    self._notes.append(f"{waits:,} bytes wait to be published; reading continues when they are")
                has_room = False
                self._ended.wait(_LOOK_SECONDS)
                continue
            has_room = True
            try:
                chunk = connection.recv(CHUNK_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                self._notes.append(f"the connection broke: {error.strerror or error}; what was received before is kept")
                break
            if not chunk:
                break
            first, *others = chunk.split(b"\n")
            line += first
            if others:
                self._keep([bytes(line), *others[:-1]])
                line = bytearray(others[-1])
            elif len(line) >= BYTES_AT_MOST:
                self._notes.append(f"a line of more than {BYTES_AT_MOST:,} bytes was cut in two")
                self._keep([bytes(line)])
                line = bytearray()
        if line:
            self._keep([bytes(line)])

    def _keep(self, lines: Iterable[bytes]) -> None:
        """Store the lines on disk, however long it takes: the peer waits meanwhile."""
        data = b"".join(make_record(line, self.options) for line in lines)
        while True:
            try:
                self._arrivals.append(data)
                return
            except (OSError, TidegateError) as error:
                self._notes.append(f"what was received cannot be written yet: {error}")
                if self._ended.wait(_PAUSE_SECONDS):
                    return


class Listeners:
    """The listeners of one ``tidegate stream``, by source; each starts with the first run that reads its source."""

    def __init__(self) -> None:
        self._listeners: dict[str, Listener] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.keep_only(())

    def find(self, paths: PipelinePaths, name: str, options: SocketOptions) -> Listener | None:
        """Return the listener of source ``name``, restarted when its options were edited; None while another process
        listens."""
        known = self._listeners.get(name)
        if known is not None and known.options != options:
            self._listeners.pop(name).close()
            known = None
        if known is None and (arrivals := Arrivals.take(paths, name)) is not None:
            where = f"{paths.spec}: sources.{name}"
            known = self._listeners[name] = Listener(arrivals, options, where)
        return known

    def keep_only(self, names: Collection[str]) -> None:
        """Close the listeners of all other sources."""
        for name in [name for name in self._listeners if name not in names]:
            self._listeners.pop(name).close()
