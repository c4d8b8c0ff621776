"""What ``rate`` and ``socket`` give is on disk once, whatever moment a run is killed at."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit.taken_files import take_stats, taken_files
from tidegate.core import storage
from tidegate.core.errors import TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.intake import admit, remove_links
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.scan import scan_files
from tidegate.sources.generators import sockets
from tidegate.sources.generators import source as spool
from tidegate.sources.generators.sockets import listen
from tidegate.sources.generators.source import Clock, clock_after, make_rows
from tidegate.spec.as_read import SpooledSource, as_files
from tidegate.spec.models import ProjectSpec, RateSource, SocketSource
from tidegate.spec.project import Project
from tidegate.spec.trial_options import RateOptions, SocketOptions

_START_US = 1_767_225_600_250_000


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, ProjectSpec())


@pytest.fixture
def paths(project: Project) -> PipelinePaths:
    return project.paths("trial")


def _rows(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_rows_follow_from_the_clock_however_runs_come() -> None:
    options = RateOptions(rows_per_second=3, ramp_up=0)
    once, end, left = make_rows(options, Clock(_START_US, 0, 0), _START_US + 4_999_999)
    assert (end, left) == (Clock(_START_US, 4, 12), 0)
    clock, pieces = Clock(_START_US, 0, 0), b""
    for passed in (100, 1_000_000, 1_000_000, 2_500_000, 2_400_000, 4_000_000):
        rows, clock, _ = make_rows(options, clock, _START_US + passed)
        pieces += rows
    assert (pieces, clock) == (once, end)
    rows = _rows(once)
    assert [row["value"] for row in rows] == list(range(12))
    assert [row["timestamp"] for row in rows[:4]] == [
        "2026-01-01T00:00:00.250000Z", "2026-01-01T00:00:00.583333Z",
        "2026-01-01T00:00:00.916666Z", "2026-01-01T00:00:01.250000Z",
    ]  # fmt: skip
    assert clock_after(Clock(_START_US, 0, 0), rows[-1]) == end


def test_the_ramp_is_sparks() -> None:
    counts = []
    clock = Clock(_START_US, 0, 0)
    for second in range(1, 8):
        rows, clock, _ = make_rows(RateOptions(10, 4), clock, _START_US + second * 1_000_000)
        counts.append(len(_rows(rows)))
    assert counts == [2, 4, 6, 8, 10, 10, 10]


def test_one_run_makes_a_million_rows_and_leaves_the_others() -> None:
    options = RateOptions(rows_per_second=300_000, ramp_up=0)
    rows, clock, left = make_rows(options, Clock(_START_US, 0, 0), _START_US + 5_000_000)
    assert (rows.count(b"\n"), left, clock.value) == (900_000, 600_000, 900_000)
    rows, clock, left = make_rows(options, clock, _START_US + 5_000_000)
    assert (rows.count(b"\n"), left, clock.value) == (600_000, 0, 1_500_000)


def _spooled(paths: PipelinePaths, name: str) -> list[dict[str, Any]]:
    return [row for path in sorted(paths.spool(name).glob("*.json")) for row in _rows(path.read_bytes())]


def test_rate_counts_on_when_killed_at_any_write(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    source = as_files(RateSource(type="rate", options={"rowsPerSecond": 2}), paths.spool("ticks"))
    now = itertools.count(_START_US * 1000, 1_000_000_000)
    monkeypatch.setattr(spool.time, "time_ns", lambda: next(now))
    for kill_at in range(1, 6):
        _kill_at(monkeypatch, kill_at, lambda: spool.receive(paths, "ticks", source))
        spool.receive(paths, "ticks", source)
        values = [row["value"] for row in _spooled(paths, "ticks")]
        assert values == list(range(len(values))), kill_at
    assert len(values) > 10


def _kill_at(monkeypatch: pytest.MonkeyPatch, number: int, work: Callable[[], Any]) -> None:
    """Let the process end before its write of this number, as far as the disk can tell."""
    counter = itertools.count(1)

    def real(module: ModuleType, name: str) -> Callable[..., Any]:
        kept = getattr(module, name)

        def write(*arguments: Any) -> Any:
            if next(counter) >= number:
                raise KeyboardInterrupt
            return kept(*arguments)

        return write

    with monkeypatch.context() as patch:
        for module, name in ((storage, "put_if_absent"), (storage, "move"), (storage.files, "replace")):
            patch.setattr(module, name, real(module, name))
        try:
            work()
        except KeyboardInterrupt:
            return


def test_a_changed_rate_leaves_no_gap(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(_START_US * 1000, 2_000_000_000)
    monkeypatch.setattr(spool.time, "time_ns", lambda: next(now))
    for rows_per_second in (5, 50, 1):
        source = as_files(RateSource(type="rate", options={"rowsPerSecond": rows_per_second}), paths.spool("ticks"))
        spool.receive(paths, "ticks", source)
    assert [row["value"] for row in _spooled(paths, "ticks")] == list(range(5 + 100 + 2))


@pytest.fixture
def serve() -> Iterator[Callable[..., int]]:
    """Starts a peer that sends pieces to its one caller, and closes, or stays silent; its port."""
    held: list[socket.socket] = []

    def start(*pieces: bytes, closes: bool = True, endless: bool = False) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        held.append(server)

        def work() -> None:
            connection, _ = server.accept()
            held.append(connection)
            try:
                for piece in itertools.cycle(pieces) if endless else pieces:
                    connection.sendall(piece)
            except OSError:
                return
            if closes:
                connection.close()

        threading.Thread(target=work, daemon=True).start()
        return int(server.getsockname()[1])

    yield start
    for one in held:
        one.close()


def _options(port: int, *, timeout: float = 60.0, with_timestamp: bool = False) -> SocketOptions:
    return SocketOptions("127.0.0.1", port, with_timestamp, timeout)


def test_lines_until_the_peer_closes(serve: Callable[..., int]) -> None:
    port = serve(b"one\ntw", b'o\r\n\n"quoted" \xe2\x80\xa8\xc3', b"\xa4\x00\n\xff\nlast")
    lines, notes = listen(_options(port), "here")
    assert notes == []
    assert lines[4] == b'{"value": "\xff"}\n'
    del lines[4]
    assert [json.loads(line)["value"] for line in lines] == ["one", "two", "", '"quoted" \u2028ä\x00', "last"]


def test_lines_until_a_silence(serve: Callable[..., int]) -> None:
    port = serve(b"one\ntwo\n", closes=False)
    lines, notes = listen(_options(port, timeout=0.2, with_timestamp=True), "here")
    rows = [json.loads(line) for line in lines]
    assert [row["value"] for row in rows] == ["one", "two"]
    assert all(row["timestamp"].endswith("Z") for row in rows)
    assert notes == []


def test_a_peer_that_never_stops_does_not_keep_the_run(
    serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "BYTES_AT_MOST", 100_000)
    monkeypatch.setattr(sockets, "_SECONDS_AT_MOST", 0.1)
    lines, notes = listen(_options(serve(b"x" * 99 + b"\n", endless=True)), "here")
    assert len(lines) >= 1000
    assert "bytes; what it sent later is lost" in notes[0]
    lines, notes = listen(_options(serve(b"one\n", closes=False), timeout=0.1), "here")
    assert len(lines) == 1


def test_nobody_listens(paths: PipelinePaths, serve: Callable[..., int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    source = _socket_source(paths, port)
    with pytest.raises(TryAgainError) as caught:
        spool.receive(paths, "lines", source)
    assert caught.value.code == "SOCKET_AWAY"
    assert caught.value.message == f"nothing is listening at 127.0.0.1:{port}: Connection refused"
    spool.receive(paths, "lines", _socket_source(paths, serve(b"one\n")))
    (note,) = spool.receive(paths, "lines", source)
    assert note.endswith("Connection refused; continued with what was received before")


def _socket_source(paths: PipelinePaths, port: int) -> SpooledSource:
    options: dict[str, Any] = {"host": "127.0.0.1", "port": port, "timeout": "60 seconds"}
    return as_files(SocketSource(type="socket", options=options), paths.spool("lines"))


def test_a_published_file_is_removed_and_its_number_never_used_again(
    project: Project, paths: PipelinePaths, serve: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Killed before the file is handed over; the next run receives nothing, and publishes it.
    source = _socket_source(paths, serve(b"one\n"))
    _kill_at(monkeypatch, 3, lambda: spool.receive(paths, "lines", source))
    assert list(paths.spool("lines").iterdir()) == []
    spool.receive(paths, "lines", _socket_source(paths, serve(b"")))
    assert [path.name for path in paths.spool("lines").iterdir()] == ["0000000001.json"]
    with open_ledger(paths) as ledger:
        scan = scan_files(project, paths, "lines", source, ledger)
        links = admit(paths, "lines", source, scan.new, ledger).links
        stats = take_stats(paths.intake("lines"), links)
        ledger.mark_staged("lines", "query", 0, taken_files(ledger, stats, "lines"))
        ledger.mark_published("query", 0)
        published = ledger.removable_links()
        for _ in range(2):  # as after a kill in between
            spool.ReceivedStream(project, paths, "lines", source, ledger).settle(link for _, link in published)
        remove_links(paths, published, ledger)
        assert list(paths.spool("lines").iterdir()) == []
        spool.receive(paths, "lines", _socket_source(paths, serve(b"two\n")))
        scan = scan_files(project, paths, "lines", source, ledger)
        assert [Path(entry.path).name for entry in scan.new] == ["0000000002.json"]
        assert (scan.vanished, scan.changed, scan.skipped) == ((), (), ())
