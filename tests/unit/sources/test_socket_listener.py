"""The connection that a stream keeps between its runs: every line that was read is in the spool once, whatever comes
between."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.core.errors import TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.sources.generators import sockets
from tidegate.sources.generators import source as spool
from tidegate.sources.generators.sockets import Arrivals, Listeners
from tidegate.spec.as_read import SpooledSource, as_files
from tidegate.spec.models import ProjectSpec, SocketSource
from tidegate.spec.project import Project


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    return Project(tmp_path, ProjectSpec()).paths("trial")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def _source(paths: PipelinePaths, port: int) -> SpooledSource:
    options: dict[str, str | int | float | bool] = {"host": "127.0.0.1", "port": port, "timeout": "60 seconds"}
    return as_files(SocketSource(type="socket", options=options), paths.spool("lines"))


def _received(paths: PipelinePaths) -> list[str]:
    files = sorted(paths.spool("lines").glob("*.json"))
    return [json.loads(line)["value"] for path in files for line in path.read_bytes().splitlines()]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_peer_that_accepts_once_writes_between_two_runs(paths: PipelinePaths, server: socket.socket) -> None:
    source = _source(paths, server.getsockname()[1])
    with Listeners() as listeners:
        assert spool.receive(paths, "lines", source, listeners) == []
        peer, _ = server.accept()
        server.close()
        with peer:
            sent: list[str] = []
            for run in range(3):
                lines = [f"{run}-{number}" for number in range(500)]
                peer.sendall("".join(f"{line}\n" for line in lines).encode())
                sent.extend(lines)
                _until(lambda: len(_handed_over(paths, source, listeners)) >= len(sent))
            peer.sendall(b"never ended")
        _until(lambda: "never ended" in "".join(path.read_text() for path in paths.spool_arrivals("lines").iterdir()))
    assert _received(paths) == [*sent, "never ended"]  # what had arrived is handed over at the end
    assert [path.name for path in paths.spool_arrivals("lines").iterdir()] == ["lock"]


def test_it_connects_again_when_the_peer_has_closed(
    paths: PipelinePaths, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_PAUSE_SECONDS", 0.01)
    source = _source(paths, server.getsockname()[1])
    with Listeners() as listeners:
        for word in ("one", "two"):
            spool.receive(paths, "lines", source, listeners)
            peer, _ = server.accept()
            with peer:
                peer.sendall(f"{word}\n".encode())
        _until(lambda: len(_handed_over(paths, source, listeners)) == 2)
    assert _received(paths) == ["one", "two"]


def _handed_over(paths: PipelinePaths, source: SpooledSource, listeners: Listeners) -> list[str]:
    spool.receive(paths, "lines", source, listeners)
    return _received(paths)


def test_nobody_there_is_told_once_for_each_attempt(paths: PipelinePaths, server: socket.socket) -> None:
    source = _source(paths, server.getsockname()[1])
    server.close()
    with Listeners() as listeners:
        with pytest.raises(TryAgainError, match="nothing is listening at 127"):
            spool.receive(paths, "lines", source, listeners)
        assert spool.receive(paths, "lines", source, listeners) == []


def test_when_more_waits_than_is_allowed_the_peer_has_to_wait(
    paths: PipelinePaths, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(sockets, "CHUNK_BYTES", 1 << 12)
    source = _source(paths, server.getsockname()[1])
    bound, lines = 100_000, [f"{number:09d}" for number in range(50_000)]
    monkeypatch.setattr(sockets, "BYTES_AT_MOST", bound)
    notes: list[str] = []
    with Listeners() as listeners:
        spool.receive(paths, "lines", source, listeners)
        peer, _ = server.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
        sender = threading.Thread(target=peer.sendall, args=("".join(f"{line}\n" for line in lines).encode(),))
        sender.start()

        def is_full() -> bool:
            notes.extend(spool.receive(paths, "lines", source, listeners))
            return any("bytes wait to be published" in note for note in notes)

        _until(is_full)
        time.sleep(0.1)
        assert sum(path.stat().st_size for path in paths.spool("lines").iterdir()) < 1.2 * bound
        found: list[str] = []

        def is_whole() -> bool:
            spool.receive(paths, "lines", source, listeners)
            for path in sorted(paths.spool("lines").glob("*.json")):
                found.extend(json.loads(line)["value"] for line in path.read_bytes().splitlines())
                path.unlink()  # as when it is published
            return len(found) >= len(lines)

        _until(is_whole)
        sender.join()
        peer.close()
    assert found == lines and _received(paths) == []


_CHILD = """
import sys, time
from pathlib import Path
from tests.unit.sources.test_socket_listener import _source
from tidegate.spec.project import Project
from tidegate.sources.generators import source as spool
from tidegate.sources.generators.sockets import Listeners
from tidegate.spec.models import ProjectSpec

paths = Project(Path(sys.argv[1]), ProjectSpec()).paths("trial")
with Listeners() as listeners:
    spool.receive(paths, "lines", _source(paths, int(sys.argv[2])), listeners)
    print("listens", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_stream_had_read_is_kept(paths: PipelinePaths, server: socket.socket, tmp_path: Path) -> None:
    source = _source(paths, server.getsockname()[1])
    command = [sys.executable, "-c", _CHILD, str(tmp_path), str(server.getsockname()[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "listens\n"
        peer, _ = server.accept()
        peer.sendall(b"one\ntwo\nhalf of a li")
        arriving = paths.spool_arrivals("lines")
        _until(lambda: "two" in "".join(path.read_text() for path in arriving.glob("*.json")))
        # Another run does not listen beside it, and takes nothing out of its hands.
        [note] = spool.receive(paths, "lines", source)
        assert "another process listens for it" in note and _received(paths) == []
        child.kill()
    peer.close()
    with open(next(arriving.glob("*.json")), "ab") as file:
        file.write(b'{"value": "torn')
    server.close()
    with Listeners() as listeners:
        for _ in range(2):
            spool.receive(paths, "lines", source, listeners)
            assert _received(paths) == ["one", "two"]


def test_numbers_are_not_used_again(paths: PipelinePaths) -> None:
    """Neither after a file was published and removed, nor after a kill between the note and the file."""
    names = []
    for _ in range(3):
        arrivals = Arrivals.take(paths, "lines")
        assert arrivals is not None and Arrivals.take(paths, "lines") is None
        arrivals.append(b"{}\n")
        arrivals.close()
        [path] = paths.spool("lines").glob("*.json")
        names.append(path.name)
        path.unlink()
    assert names == [f"{number:010d}.json" for number in (1, 2, 3)]


def test_a_disk_that_is_full_for_a_while_costs_no_line(
    paths: PipelinePaths, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_PAUSE_SECONDS", 0.01)
    source, kept, full = _source(paths, server.getsockname()[1]), sockets.Arrivals.append, [True]

    def append(self: Arrivals, data: bytes) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")
        kept(self, data)

    monkeypatch.setattr(Arrivals, "append", append)
    with Listeners() as listeners:
        spool.receive(paths, "lines", source, listeners)
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"one\n")
            notes: list[str] = []
            _until(
                lambda: (
                    any("cannot be written yet" in note for note in notes)
                    or bool(notes.extend(spool.receive(paths, "lines", source, listeners)))
                )
            )
            full[0] = False
            _until(lambda: _handed_over(paths, source, listeners) == ["one"])
