"""The note of a query's open state between runs: the watermark, the windows that are not closed yet, its size.

Spark's checkpoint keeps one watermark for all sources and no event time of each source; a run on a schedule
often has news of one source only, and the watermark of two would never move. So the driver notes the greatest event
time of each source with every batch. The note only ever delays or names something: rows never depend on it being there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.state.manifest import BatchManifest

if TYPE_CHECKING:
    from tidegate.core import outputs

WINDOWS_AT_MOST = 1000


@dataclass(frozen=True)
class OpenState:
    """Times are milliseconds since 1970 UTC.

    ``event_times`` has the greatest event time by source; ``open_until_ms`` the greatest end of a window (or event
    time) that went into state; ``windows`` the windows [start, end] that are open, the newest :data:`WINDOWS_AT_MOST`.
    """

    query_id: str
    event_times: dict[str, int] = field(default_factory=dict)
    open_until_ms: int | None = None
    windows: list[list[int]] = field(default_factory=list)
    rows: int = 0
    memory_bytes: int = 0
    watermark_ms: int = 0
    last_data_at_ms: int = 0
    drained_batch: int = -1
    """The last batch of the last driver that ended normally: Spark's work after a batch with data is done."""


def read_open_state(paths: PipelinePaths, query_id: str | None) -> OpenState | None:
    """Read the note of the current query, or None."""
    value = storage.read_note(paths.open_state / query_id) if query_id is not None else None
    return OpenState(**value) if value is not None else None


def note_drained(paths: PipelinePaths, query_id: str, batch_id: int) -> None:
    """Note that the driver has ended, after ``batch_id``."""
    note = read_open_state(paths, query_id)
    if note is not None and note.drained_batch != batch_id:
        storage.write_note(paths.open_state / query_id, batch_id, asdict(replace(note, drained_batch=batch_id)))


def hand_over_open_state(side: PipelinePaths, paths: PipelinePaths, query_id: str, batch_id: int) -> None:
    """Give the pipeline the note of a query that a side job has made, as of its last batch; a query without state has
    none. May be repeated."""
    note = read_open_state(side, query_id)
    if note is not None:
        storage.write_note(paths.open_state / query_id, batch_id, asdict(note))


def note_batch(
    paths: PipelinePaths, manifest: BatchManifest, *, open_until_ms: int | None, windows: list[list[int]], now_ms: int
) -> OpenState:
    """Take a batch into the note, before its manifest is written: a batch that is run again is noted again."""
    before = read_open_state(paths, manifest.query_id) or OpenState(manifest.query_id)
    seen = {
        name: source.max_event_time_ms
        for name, source in manifest.sources.items()
        if source.max_event_time_ms is not None
    }
    watermark = max(before.watermark_ms, manifest.watermark_ms or 0)
    still_open = {(start, end) for start, end in [*before.windows, *windows] if end > watermark}
    note = OpenState(
        query_id=manifest.query_id,
        event_times=_greatest(before.event_times, seen),
        open_until_ms=max((one for one in (before.open_until_ms, open_until_ms) if one is not None), default=None),
        windows=[list(window) for window in sorted(still_open)[-WINDOWS_AT_MOST:]],
        rows=sum(operator["numRowsTotal"] for operator in manifest.state),
        memory_bytes=sum(operator["memoryUsedBytes"] for operator in manifest.state),
        watermark_ms=watermark,
        last_data_at_ms=now_ms if manifest.read else before.last_data_at_ms,
        drained_batch=before.drained_batch,
    )
    storage.write_note(paths.open_state / manifest.query_id, manifest.batch_id, asdict(note))
    return note


def _greatest(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), two.get(name, 0)) for name in sorted({*one, *two})}


def reached_watermark(note: OpenState, delays: Mapping[str, float], policy: Literal["min", "max"]) -> int | None:
    """The watermark that one uninterrupted query would have: by ``delays``, the seconds each source may be late.

    With ``min`` a source without a record so far holds it back, as in Spark.
    """
    marks = {
        name: note.event_times[name] - round(delay * 1000) for name, delay in delays.items() if name in note.event_times
    }
    if not marks or (policy == "min" and len(marks) < len(delays)):
        return None
    return min(marks.values()) if policy == "min" else max(marks.values())


def closing_watermark(
    note: OpenState, delays: Mapping[str, float], policy: Literal["min", "max"], *, everything: bool
) -> int:
    """The watermark for closing open windows when all is read; 0 for none. ``everything``: close all of them."""
    wanted = [reached_watermark(note, delays, policy), note.open_until_ms if everything else None]
    return max((one for one in wanted if one is not None), default=0)


def text_of_ms(moment: int | None) -> str | None:
    """Milliseconds since 1970 as reports spell a time; None for none."""
    return None if not moment else datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")


def describe_open_state(note: OpenState) -> outputs.OpenState:
    """The note as reports and ``status`` show it."""
    return {
        "rows": note.rows,
        "memory_bytes": note.memory_bytes,
        "open_windows": [[text_of_ms(start), text_of_ms(end)] for start, end in note.windows],
        "event_times": {name: text_of_ms(moment) for name, moment in note.event_times.items()},
    }
