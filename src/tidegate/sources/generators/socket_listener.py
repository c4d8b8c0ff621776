"""Keeps the connections of socket sources open between the runs of ``tidegate stream``.

A thread reads each connection and stores every line on disk (:mod:`tidegate.sources.generators.socket_arrivals`),
during runs and between them. When more is pending than a run may take, it stops reading, so that the peer has to wait.
When the peer closes, it connects again, after an increasing pause.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Self

from tidegate.core.errors import TidegateError, TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.sources.generators.socket_arrivals import Arrivals
from tidegate.sources.generators.socket_lines import BYTES_AT_MOST, CHUNK_BYTES, make_record, socket_away
from tidegate.spec.trial_options import SocketOptions

_LOOK_SECONDS = 0.2
"""How often a waiting thread checks whether it is to end."""
_END_SECONDS = 1.0
_PAUSE_SECONDS, _PAUSE_AT_MOST = 1.0, 30.0


class Listener:
    """One connection at a time to the peer of a source, read by a thread."""

    def __init__(
        self, arrivals: Arrivals, options: SocketOptions, where: str, *, bytes_at_most: int = BYTES_AT_MOST
    ) -> None:
        self.options = options
        self._arrivals = arrivals
        self._where = where
        self._bytes_at_most = bytes_at_most
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
            if (waits := self._arrivals.waiting_bytes()) >= self._bytes_at_most:
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
            elif len(line) >= self._bytes_at_most:
                self._notes.append(f"a line of more than {self._bytes_at_most:,} bytes was cut in two")
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

    def __init__(self, *, bytes_at_most: int = BYTES_AT_MOST) -> None:
        self._bytes_at_most = bytes_at_most
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
            known = self._listeners[name] = Listener(arrivals, options, where, bytes_at_most=self._bytes_at_most)
        return known

    def keep_only(self, names: Collection[str]) -> None:
        """Close the listeners of all other sources."""
        for name in [name for name in self._listeners if name not in names]:
            self._listeners.pop(name).close()
