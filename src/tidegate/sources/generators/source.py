"""``rate`` and ``socket`` as sources: each run first receives records into the spool, whose files are read like others.

These sources cannot be read twice, and Spark's own sources of these names do not work with a run that ends. So each run
first receives into one file, ``state/<name>/spool/<source>/<number>.json``, atomically. It is then read like any file,
and removed when its rows are published.

Numbers only increase, since the ledger identifies a file by its path forever. A note next to the folder has the
position of the source. It is written after the file; when it is missing, the next run first restores it from the file.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypedDict

from tidegate.core import storage
from tidegate.core.errors import TryAgainError
from tidegate.core.outputs import TriedLook
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.sources.files.ledger import Ledger
from tidegate.sources.files.scan import EMPTY_SCAN, FilesScan
from tidegate.sources.files.source import FilesArrival, FilesHandOver, FilesStream
from tidegate.sources.generators.sockets import Arrivals, Listeners, listen, newest_number, spool_file
from tidegate.sources.port import ReadBefore, SoFar
from tidegate.spec.as_read import SpooledSource
from tidegate.spec.models import RateSource, SocketSource
from tidegate.spec.project import Project
from tidegate.spec.trial_options import ROWS_AT_MOST, RateOptions, rate_options, socket_options

RECEIVES_FIRST = "the next run first receives"


class ReceivedStream(FilesStream):
    """The files of one spool. ``listeners`` keep the connection of a socket between runs."""

    listens = True
    is_replayable = False
    start_key = None
    spec: SpooledSource

    def __init__(
        self,
        project: Project,
        paths: PipelinePaths,
        name: str,
        spec: SpooledSource,
        ledger: Ledger | None,
        listeners: Listeners | None = None,
    ) -> None:
        super().__init__(project, paths, name, spec, ledger)
        self._listeners = listeners

    def receive(self) -> list[str]:
        """Receive into at most one file. Raises TryAgainError SOCKET_AWAY when no earlier records are pending."""
        notes = receive(self.paths, self.name, self.spec, self._listeners)
        return [describe_not_replayable(self.name, self.spec), *notes]

    def scan(self) -> FilesScan:
        """The spool, compared with the ledger; empty before the first run."""
        return super().scan() if storage.exists(self.paths.spool(self.name)) else EMPTY_SCAN

    def look(self, so_far: SoFar) -> FilesArrival:
        """Find received files that are in no batch."""
        arrival = super().look(so_far)
        arrival.summary["replayable"] = False
        return arrival

    def describe_ahead(self) -> list[str]:
        """Note that the next run receives first: the source was not contacted."""
        coming = f"{RECEIVES_FIRST} what source {self.name} has; it was not contacted now"
        return [describe_not_replayable(self.name, self.spec), coming]

    def may_continue(self, read: ReadBefore) -> bool:
        """Never: what such a source sent before the first run cannot be received again."""
        return False

    def start_from_spec(self) -> FilesHandOver:
        """Start with what it sends from the first run on."""
        return FilesHandOver(self.name)

    def settle(self, links: Iterable[str]) -> None:
        """Remove the files whose rows are published, before their links are forgotten."""
        rows = self.ledger.rows(self.name, links=list(links))
        # First in the ledger, so that no scan reports that they are gone.
        self.ledger.note_place(self.name, [row.path for row in rows], "reported")
        for row in rows:
            storage.remove(self.paths.spool(self.name) / os.path.basename(row.path))

    def sample(self, folder: Path, rows: int) -> tuple[dict[str, object], TriedLook | None]:
        """Nothing to sample: what it sends during ``try`` is not kept."""
        return {}, None


_LAST_ROW_AT_MOST_BYTES = 4096
_LISTENS = "source {}: another process listens for it (tidegate stream); what that process has handed over is read"


def receive(paths: PipelinePaths, name: str, source: SpooledSource, listeners: Listeners | None = None) -> list[str]:
    """Receive what source ``name`` has, into at most one file. Returns notes for the report.

    With ``listeners`` this is what their connection received since the last call; else a socket is read now.

    Raises TryAgainError SOCKET_AWAY when no connection is possible and no earlier records are pending.
    """
    paths.spool(name).mkdir(parents=True, exist_ok=True)
    if isinstance(source.origin, RateSource):
        return _receive_rate(paths, name, source.origin)
    if listeners is not None:
        return _receive_kept(paths, name, source.origin, listeners)
    arrivals = Arrivals.take(paths, name)
    if arrivals is None:
        return [_LISTENS.format(name)]
    try:
        return _receive_lines(paths, name, source.origin, arrivals)
    finally:
        arrivals.close()


def describe_not_replayable(name: str, source: SpooledSource) -> str:
    """Describe what a source that cannot be read twice means for the table."""
    if isinstance(source.origin, RateSource):
        why = "its rows are made up once, as time passes"
    else:
        why = "what it sent while nobody listened is not counted"
    return f"source {name} is not replayable: {why}, so the table is not exactly-once"


def _receive_rate(paths: PipelinePaths, name: str, source: RateSource) -> list[str]:
    options, now_us = rate_options(source), time.time_ns() // 1000
    notes, newest = paths.spool_position(name), newest_number(paths.spool(name))
    # The clock starts a second ago, so that the first run has something to show.
    known = storage.read_note(notes) or {"number": 0, **Clock(now_us - 1_000_000, 0, 0)._asdict()}
    number, clock = int(known["number"]), Clock(known["started_us"], known["seconds"], known["value"])
    if newest > number:
        number, clock = newest, clock_after(clock, _last_row(spool_file(paths, name, newest)))
    storage.write_note(notes, number, {"number": number, **clock._asdict()})
    rows, clock, left = make_rows(options, clock, now_us)
    if rows:
        storage.put_if_absent(spool_file(paths, name, number + 1), rows)
        storage.write_note(notes, number + 1, {"number": number + 1, **clock._asdict()})
    if not left:
        return []
    return [f"source {name}: {count_of(left, 'row is', 'rows are')} left for later runs, each of which makes a million"]


def _receive_kept(paths: PipelinePaths, name: str, source: SocketSource, listeners: Listeners) -> list[str]:
    listener = listeners.find(paths, name, socket_options(source))
    if listener is None:
        return [_LISTENS.format(name)]
    notes = [f"source {name}: {note}" for note in listener.hand_over()]
    error = listener.take_error()
    if error is not None and not newest_number(paths.spool(name)):
        raise error
    return notes


def _receive_lines(paths: PipelinePaths, name: str, source: SocketSource, arrivals: Arrivals) -> list[str]:
    try:
        lines, messages = listen(socket_options(source), f"{paths.spec}: sources.{name}")
    except TryAgainError as error:
        if not newest_number(paths.spool(name)):
            raise
        return [f"source {name}: {error.message}; continued with what was received before"]
    if lines:
        arrivals.append(b"".join(lines))
    return [f"source {name}: {note}" for note in messages]


def _last_row(path: Path) -> RateRow:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST_ROW_AT_MOST_BYTES))
        row: RateRow = json.loads(file.read().splitlines()[-1])
    return row


_SECOND_US = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RateRow(TypedDict):
    """A generated row, as the spool has it."""

    timestamp: str
    value: int


class Clock(NamedTuple):
    """When the source started, for how many seconds rows were generated, and the next value."""

    started_us: int
    seconds: int
    value: int


def make_rows(options: RateOptions, clock: Clock, now_us: int) -> tuple[bytes, Clock, int]:
    """Generate the rows of the past seconds as JSON lines, up to the limit of one run. Returns them, the clock after
    them, and how many rows are left for later runs."""
    passed = (now_us - clock.started_us) // _SECOND_US
    second, value = clock.seconds, clock.value
    lines: list[str] = []
    while second < passed:
        count = _total(second + 1, options) - _total(second, options)
        if len(lines) + count > ROWS_AT_MOST:
            break
        begin = clock.started_us + second * _SECOND_US
        for number in range(count):
            at = _EPOCH + timedelta(microseconds=begin + number * _SECOND_US // count)
            lines.append(f'{{"timestamp":"{at:%Y-%m-%dT%H:%M:%S.%f}Z","value":{value + number}}}\n')
        second, value = second + 1, value + count
    left = _total(passed, options) - _total(second, options) if second < passed else 0
    return "".join(lines).encode(), Clock(clock.started_us, second, value), left


def clock_after(clock: Clock, row: RateRow) -> Clock:
    """Return the clock after the second whose last row this is."""
    at = (datetime.fromisoformat(row["timestamp"]) - _EPOCH) // timedelta(microseconds=1)
    return Clock(clock.started_us, (at - clock.started_us) // _SECOND_US + 1, row["value"] + 1)


def _total(seconds: int, options: RateOptions) -> int:
    """Rows up to the end of a second, as Spark computes it: the rate grows by the same step each second of the ramp."""
    ramp = min(seconds, options.ramp_up)
    step = max(1, options.rows_per_second // (options.ramp_up + 1))
    return step * ramp * (ramp + 1) // 2 + (seconds - ramp) * options.rows_per_second
