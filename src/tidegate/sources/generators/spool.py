"""The spool: stores records of ``rate`` and ``socket`` on disk before anything else is done with them.

These sources cannot be read twice, and Spark's own sources of these names do not work with a run that ends. So each run
first receives into one file, ``state/<name>/spool/<source>/<number>.json``, atomically. It is then read like any file,
and removed when its rows are published.

Numbers only increase, since the ledger identifies a file by its path forever. A note next to the folder has the
position of the source. It is written after the file; when it is missing, the next run first restores it from the file.

A ``tidegate stream`` keeps the connection of a socket between its runs: see
:mod:`tidegate.sources.generators.socket_listener`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.sources.files.ledger import Ledger
from tidegate.sources.generators.rate import Clock, clock_after, make_rows
from tidegate.sources.generators.socket_arrivals import Arrivals, newest_number, spool_file
from tidegate.sources.generators.socket_lines import listen
from tidegate.sources.generators.socket_listener import Listeners
from tidegate.spec.as_read import SpooledSource
from tidegate.spec.models import RateSource, SocketSource
from tidegate.spec.trial_options import rate_options, socket_options

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
        return _receive_lines(paths, name, source.origin)
    finally:
        arrivals.close()


def describe_not_replayable(name: str, source: SpooledSource) -> str:
    """Describe what a source that cannot be read twice means for the table."""
    if isinstance(source.origin, RateSource):
        why = "its rows are made up once, as time passes"
    else:
        why = "what it sent while nobody listened is not counted"
    return f"source {name} is not replayable: {why}, so the table is not exactly-once"


def remove_spooled(paths: PipelinePaths, name: str, links: Iterable[str], ledger: Ledger) -> None:
    """Remove the files behind the links of published files; to be called before the links are forgotten.

    The ledger notes first that they are gone, so that no scan reports it.
    """
    rows = ledger.rows(name, links=list(links))
    ledger.note_vanished(name, [row.path for row in rows])
    for row in rows:
        storage.remove(paths.spool(name) / os.path.basename(row.path))


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


def _receive_lines(paths: PipelinePaths, name: str, source: SocketSource) -> list[str]:
    notes, newest = paths.spool_position(name), newest_number(paths.spool(name))
    number = max(newest, (storage.read_note(notes) or {"number": 0})["number"])
    try:
        lines, messages = listen(socket_options(source), f"{paths.spec}: sources.{name}")
    except TryAgainError as error:
        if not newest:
            raise
        return [f"source {name}: {error.message}; continued with what was received before"]
    if lines:
        storage.put_if_absent(spool_file(paths, name, number + 1), b"".join(lines))
        storage.write_note(notes, number + 1, {"number": number + 1})
    return [f"source {name}: {note}" for note in messages]


def _last_row(path: Path) -> dict[str, object]:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST_ROW_AT_MOST_BYTES))
        row: dict[str, object] = json.loads(file.read().splitlines()[-1])
    return row
