"""The driver's marker lines (``TIDEGATE {json}``) as lines that a person reads in the task log."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.core.words import escape_controls
from tidegate.sources.files.findings import describe_unread

if TYPE_CHECKING:
    from tidegate.core.outputs import RunReport

Event = Mapping[str, object]
"""A line of progress: ``event`` says what it is, the rest depends on that."""

MARKER = "TIDEGATE "
READING = "ingest"
"""The event that says how far a run has read its sources."""
_COUNTED = ("rows", "files", "records", "rules", "offsets")


def parse_marker(line: str) -> Event | None:
    """Parse a marker line; None for any other line."""
    if not line.startswith(MARKER):
        return None
    try:
        event = json.loads(line[len(MARKER) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def describe_event(event: Event) -> str:
    """One readable line: ``progress: batch 3 | 12,000 rows | 4,100.5 rows/s``, or ``error: CODE: message``."""
    kind = event["event"]
    if kind == "error":
        nested = event.get("error")
        error = nested if isinstance(nested, dict) else event
        return escape_controls(f"error: {error.get('code', 'UNKNOWN')}: {error.get('message', '')}")
    if kind == READING:
        return f"{READING}: {', '.join(_describe_reading(event))}"
    parts = [_describe_field(key, value) for key, value in event.items() if key != "event"]
    return escape_controls(f"{kind}: " + " | ".join(part for part in parts if part))


def _describe_reading(event: Event) -> list[str]:
    """``1.2 M of about 4.0 M rows``, ``310 of 1,020 MiB``, ``41.0 MiB/s``, ``about 17 s left``."""
    known = defaultdict(int, {name: value for name, value in event.items() if isinstance(value, int)})
    rows, size, all_bytes, offsets = known["rows"], known["bytes"], known["bytes_pending"], known["offsets"]
    # The rest of the bytes has about as many rows; too little was read before a fiftieth to say so.
    is_estimated = all_bytes / 50 <= size < all_bytes and size and not offsets
    parts = [_name_share(_shorten(rows), f"about {_shorten(rows * all_bytes / size)}" if is_estimated else "", "rows")]
    if size or all_bytes:
        unit, name = (1 << 20, "MiB") if max(size, all_bytes) >= 1 << 20 else (1 << 10, "KiB")
        parts.append(_name_share(f"{size / unit:,.0f}", f"{all_bytes / unit:,.0f}" if all_bytes else "", name))
    if offsets or known["offsets_pending"]:
        pending = known["offsets_pending"]
        parts.append(_name_share(_shorten(offsets), _shorten(pending) if pending else "", "offsets"))
    rate = known["bytes_per_second"] / (1 << 20)
    parts.append(f"{rate:,.1f} MiB/s" if rate else f"{_shorten(known['rows_per_second'])} rows/s")
    if "seconds_left" in event:
        parts.append(f"about {_name_span(known['seconds_left'])} left")
    return parts


def _name_share(done: str, whole: str, unit: str) -> str:
    return f"{done} of {whole} {unit}" if whole else f"{done} {unit}"


def _shorten(number: float) -> str:
    """``9,999``, ``12.3 k``, ``1.2 M``."""
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{number / 1e3:,.1f} k" if number < 1e6 else f"{number / 1e6:,.1f} M"


def _name_span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _describe_field(key: str, value: object) -> str:
    if value is None or isinstance(value, list | dict):
        return ""
    name = key.removesuffix("_id").replace("_", " ")
    if isinstance(value, bool):
        return f"{name}: {'yes' if value else 'no'}"
    if isinstance(value, int | float):
        number = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
        if value == 1 and name in _COUNTED:
            name = name.removesuffix("s")
        return f"{name} {value}" if name == "batch" else f"{number} {name}"
    return f"{name}: {value}"


def _name_outcome(report: RunReport) -> str:
    """The outcome, or how far a run is that has none yet."""
    if report["outcome"] is not None:
        return report["outcome"]
    if report["rows"].get("published"):
        return "published in part"
    return "audited, not published yet" if report["quality"]["verdict"] else "staged, not audited yet"


def describe_report(report: RunReport) -> str:
    """The run report in one line, for the task log."""
    quality, table = report["quality"], report["table"]
    parts = [f"{report['pipeline']} run {report['run_id']}: {_name_outcome(report)}"]
    rows = {key: value for key, value in report["rows"].items() if value or key != "superseded"}
    parts.append("rows: " + ", ".join(f"{key} {value:,}" for key, value in rows.items()))
    if quality["verdict"]:
        parts.append(f"verdict: {quality['verdict']}")
    parts += [f"warning: {warning}" for warning in quality.get("warnings", ())]
    parts += [f"warning: {unread}" for unread in describe_unread(report["sources"])]
    if table.get("version") is not None:
        parts.append(f"table version {table['version']}")
    for sink in report["sinks"]:
        if sink["behind"] != 0:
            parts.append(f"sink {sink['name']} is behind" + (f": {sink['error']}" if sink["error"] else ""))
    parts += [f"note: {note}" for note in report["notes"]]
    return escape_controls(" | ".join(parts))
