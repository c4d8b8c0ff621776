"""The figures of a run that reads: rate, time left, and the reports of tasks that they are made of."""

from __future__ import annotations

import gzip
import json
import socket
import time
from pathlib import Path
from random import random

import pyarrow as pa
import pytest

from tidegate.sources.readers.form import Form
from tidegate.sources.readers.meter import Meter, Report, find_position
from tidegate.sources.readers.worker import PartsReader
from tidegate.spark.driver.progress import describe_event
from tidegate.spark.ingest import pace
from tidegate.spark.ingest.pace import Amount, Pace, ReadingProgress, ReportListener, Sample

MIB = 1 << 20


def _describe(pending: Amount, *samples: tuple[float, int, Amount]) -> str:
    made = Pace(pending)
    figures = [made.note(Sample(*one)) for one in samples][-1]
    return describe_event({"event": "ingest", **figures}).removeprefix("ingest: ")


def test_of_files_rows_and_time_are_estimated_by_bytes() -> None:
    said = _describe(Amount(1020 * MIB, 0), (0.0, 0, Amount(0, 0)), (10.0, 1_200_000, Amount(310 * MIB, 0)))
    assert said == "1.2 M of about 3.9 M rows, 310 of 1,020 MiB, 31.0 MiB/s, about 23 s left"
    assert _describe(Amount(900 * MIB, 0), (0.0, 0, Amount(0, 0)), (10.0, 50, Amount(MIB, 0))) == (
        "50 rows, 1 of 900 MiB, 0.1 MiB/s, about 2.5 h left"
    ), "too little was read to say how many rows there are"


def test_of_topics_offsets_are_counted() -> None:
    said = _describe(Amount(0, 400_000), (0.0, 0, Amount(0, 0)), (20.0, 99_000, Amount(0, 100_000)))
    assert said == "99.0 k rows, 100.0 k of 400.0 k offsets, 4,950 rows/s, about 60 s left"
    assert (
        _describe(Amount(0, 0), (0.0, 0, Amount(0, 0)), (10.0, 90, Amount(0, 100))) == "90 rows, 100 offsets, 9 rows/s"
    )


def test_files_and_topics_end_with_the_slower_one() -> None:
    said = _describe(Amount(100 * MIB, 200), (0.0, 0, Amount(0, 0)), (10.0, 60, Amount(50 * MIB, 20)))
    assert said == "60 rows, 50 of 100 MiB, 20 of 200 offsets, 5.0 MiB/s, about 90 s left"
    begun = _describe(Amount(100 * MIB, 200), (0.0, 0, Amount(0, 0)), (10.0, 60, Amount(50 * MIB, 0)))
    assert "left" not in begun, "nobody knows how fast the topic is"


def test_the_rate_is_that_of_the_last_minute() -> None:
    slow = [(float(at), at, Amount(at * MIB, 0)) for at in range(0, 1000, 10)]
    fast = [(1000.0 + at, at, Amount((990 + at * 20) * MIB, 0)) for at in range(0, 80, 10)]
    assert ", 20.0 MiB/s, " in _describe(Amount(9000 * MIB, 0), *slow, *fast)


def test_read_twice_nothing_is_more_than_there_is() -> None:
    said = _describe(Amount(10 * MIB, 0), (0.0, 0, Amount(0, 0)), (10.0, 20, Amount(12 * MIB, 0)))
    assert said == "20 rows, 10 of 10 MiB, 1.2 MiB/s"


@pytest.fixture
def listener() -> ReportListener:
    return ReportListener("127.0.0.1", is_local=True)


def _send(listener: ReportListener, *parts: tuple[str, int, int], source: str = "s") -> None:
    meter = Meter(listener.address_of(source))
    for part, size, rows in parts:
        meter.begin(part, size)
        meter.is_due(rows)
    meter.end()


def test_a_task_that_is_repeated_counts_once(listener: ReportListener) -> None:
    _send(listener, ("a", 5, 1), ("b", 6, 2))
    _send(listener, ("a", 5, 1))
    _send(listener, ("c", 7, 3))
    _send(listener, ("a", 9, 4), source="other")
    found = listener.receive()
    assert {key: (one.rows, one.done) for key, one in found.items()} == {
        ("s", "a"): (3, 11),
        ("s", "c"): (3, 7),
        ("other", "a"): (4, 9),
    }


def test_what_is_no_report_of_a_task_is_passed_over(listener: ReportListener) -> None:
    meter = Meter(listener.address_of("s")._replace(token="another"))
    meter.begin("a", 1)
    meter.end()
    meter = Meter(listener.address_of("s"))
    meter.begin("a", 4)
    meter.report(3)
    assert meter._socket is not None
    for junk in (b"", b"\xff", b"[]", b"[" * 60_000, f"{listener.address_of('s').token} [".encode()):
        meter._socket.send(junk)
    meter.report(99)
    assert [one.done for one in listener.receive().values()] == [4], "no position is behind the end of its part"


class _Flooded(socket.socket):
    """A socket to which another program sends as fast as it is read."""

    received = 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.received += 1
        assert self.received <= 100_000, "the driver only reads what another program sends"
        self.sendto(b"no report", self.getsockname())
        return super().recv(size, flags)


def test_a_program_that_sends_without_end_does_not_hold_the_driver_up(listener: ReportListener) -> None:
    listener._socket = _Flooded(fileno=listener._socket.detach())
    _send(listener, ("a", 4, 1))
    assert [one.done for one in listener.receive().values()] == [4]


def test_a_meter_without_a_listener_does_no_harm(listener: ReportListener) -> None:
    gone = listener.address_of("s")
    listener._socket.close()
    for address in (None, gone, gone._replace(host="no.such.host.invalid"), gone._replace(port=0)):
        meter = Meter(address)
        meter.begin("a", 3)
        assert not meter.is_due(1)
        for _ in range(3):
            meter.report(1)
        meter.end()


def test_a_driver_that_listens_again_gets_the_reports_of_the_same_task(listener: ReportListener) -> None:
    address = listener.address_of("s")
    listener.close()
    meter = Meter(address)
    meter.begin("a", 3)
    for _ in range(3):
        meter.report(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
        again.bind((address.host, address.port))
        again.settimeout(5)
        meter.report(2)  # may get the answer to an earlier one
        meter.report(3)
        assert Report.of(again.recv(9999), address.token) is not None


def test_the_position_in_a_file_that_is_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert find_position(str(path)) == 0
    with open(path, "rb", buffering=0) as file:
        file.read(60)
        assert find_position(str(path)) == 60
    assert find_position(str(tmp_path / "none")) == 0


def test_the_reader_of_a_packed_file_reports_how_much_of_it_is_unpacked(
    listener: ReportListener, tmp_path: Path
) -> None:
    packed = gzip.compress("".join(f'{{"id": {number}, "text": "{random()}"}}\n' for number in range(60_000)).encode())
    (tmp_path / "a.json.gz").write_bytes(packed)
    address = listener.address_of("s")._replace(pause_seconds=0)
    lines = pa.RecordBatch.from_pydict({"value": [json.dumps({"link": "a.json.gz", "begin": 0, "end": None})]})
    seen = []
    for _ in PartsReader(Form("json", "id INT"), str(tmp_path), report_to=address)(iter([lines])):
        [report] = listener.receive().values()
        seen.append((report.rows, report.done))
    assert seen == sorted(seen) and seen[-1] == (60_000, len(packed))
    assert 10_000 <= seen[0][0] < 60_000 and 0 < seen[0][1] < len(packed)


def test_a_line_comes_when_it_is_due_and_something_is_new(
    listener: ReportListener, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(pace.time, "monotonic", lambda: now)
    reading = ReadingProgress(Amount(2 * MIB, 10), listener, ["k"])
    _send(listener, ("a", MIB, 30))
    _send(listener, ("k 0 0", 4, 4), source="k")
    reading.emit_when_due()
    assert capsys.readouterr().out == ""
    for seconds, lines in ((10, 1), (15, 0), (20, 0)):
        monkeypatch.setattr(pace.time, "monotonic", lambda at=seconds: now + at)
        reading.emit_when_due()
        out = capsys.readouterr().out
        assert out.count("TIDEGATE") == lines
        if lines:
            assert '"rows": 34' in out and '"bytes_pending": 2097152' in out and '"offsets": 4' in out
    ReadingProgress(Amount(0, 0), None, ()).emit_when_due()
