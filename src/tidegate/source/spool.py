"""The spool: what ``rate`` and ``socket`` give, on disk before anything else is done with it.

Neither can be asked again, and Spark's own sources of these names give nothing to a run that ends. So each run first
receives what there is into one file, ``state/<name>/spool/<source>/<number>.json``, whole or not at all. From there it
is a file like any other; when its rows are published it is removed.

Numbers only go up, as the ledger knows a file by its path for ever. A note beside the folder says how far the source
has come; it is written after the file, so a file without its note says as much.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidegate import storage
from tidegate.errors import TryAgainError
from tidegate.project import PipelinePaths
from tidegate.source.ledger import Ledger
from tidegate.source.rate import Clock, clock_after, make_rows
from tidegate.source.socket_lines import listen
from tidegate.spec.as_read import SpooledSource
from tidegate.spec.models import RateSource, SocketSource
from tidegate.spec.trial_options import rate_options, socket_options

_LAST_ROW_AT_MOST_BYTES = 4096


def receive(paths: PipelinePaths, name: str, source: SpooledSource) -> list[str]:
    """Receive what source ``name`` has, into one file or none. Returns what a reader of the report should know.

    Raises TryAgainError SOCKET_AWAY when nobody listens and nothing waits that was received before.
    """
    paths.spool(name).mkdir(parents=True, exist_ok=True)
    if isinstance(source.origin, RateSource):
        return _receive_rate(paths, name, source.origin)
    return _receive_lines(paths, name, source.origin)


def describe_not_replayable(name: str, source: SpooledSource) -> str:
    """What a source that cannot be asked again means for the table."""
    if isinstance(source.origin, RateSource):
        why = "its rows are made up once, as time passes"
    else:
        why = "what it sent while nobody listened is not counted"
    return f"source {name} is not replayable: {why}, so the table is not exactly-once"


def remove_spooled(paths: PipelinePaths, name: str, links: Iterable[str], ledger: Ledger) -> None:
    """Remove the files behind the links of published files; to be called before the links are forgotten, as they lead
    here. The ledger notes first that they are gone, so that no scan reports it."""
    rows = ledger.rows(name, links=list(links))
    ledger.note_vanished(name, [row.path for row in rows])
    for row in rows:
        storage.remove(paths.spool(name) / os.path.basename(row.path))


def _receive_rate(paths: PipelinePaths, name: str, source: RateSource) -> list[str]:
    options, now_us = rate_options(source), time.time_ns() // 1000
    notes, newest = paths.spool_position(name), _newest(paths, name)
    # The clock starts a second ago, so that the first run has something to show.
    known = storage.read_note(notes) or {"number": 0, **Clock(now_us - 1_000_000, 0, 0)._asdict()}
    number, clock = int(known["number"]), Clock(known["started_us"], known["seconds"], known["value"])
    if newest > number:
        number, clock = newest, clock_after(clock, _last_row(_file(paths, name, newest)))
    storage.write_note(notes, number, {"number": number, **clock._asdict()})
    rows, clock, left = make_rows(options, clock, now_us)
    if rows:
        storage.put_if_absent(_file(paths, name, number + 1), rows)
        storage.write_note(notes, number + 1, {"number": number + 1, **clock._asdict()})
    return [f"source {name}: {left:,} rows are left for later runs, each of which makes a million"] if left else []


def _receive_lines(paths: PipelinePaths, name: str, source: SocketSource) -> list[str]:
    notes, newest = paths.spool_position(name), _newest(paths, name)
    number = max(newest, (storage.read_note(notes) or {"number": 0})["number"])
    storage.write_note(notes, number, {"number": number})
    try:
        lines, told = listen(socket_options(source), f"{paths.spec}: sources.{name}")
    except TryAgainError as error:
        if not newest:
            raise
        return [f"source {name}: {error.message}; went on with what was received before"]
    if lines:
        storage.put_if_absent(_file(paths, name, number + 1), b"".join(lines))
        storage.write_note(notes, number + 1, {"number": number + 1})
    return [f"source {name}: {note}" for note in told]


def _last_row(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST_ROW_AT_MOST_BYTES))
        row: dict[str, Any] = json.loads(file.read().splitlines()[-1])
    return row


def _file(paths: PipelinePaths, name: str, number: int) -> Path:
    return paths.spool(name) / f"{number:010d}.json"


def _newest(paths: PipelinePaths, name: str) -> int:
    """The highest number of a file that is there; 0 without one. A process that was killed may have left no note of it,
    so the note is written anew before it can be removed."""
    stems = [entry.removesuffix(".json") for entry in os.listdir(paths.spool(name))]
    return max((int(stem) for stem in stems if stem.isdigit()), default=0)
