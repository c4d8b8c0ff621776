"""The driver's marker lines (``TIDEGATE {json}``) as lines that a person reads in the task log."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tidegate.core.outputs import RunReport
from tidegate.core.words import escape_controls

Event = Mapping[str, object]
"""A line of progress: ``event`` says what it is, the rest depends on that."""

MARKER = "TIDEGATE "
_COUNTED = ("rows", "files", "records")


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
    parts = [_describe_field(key, value) for key, value in event.items() if key != "event"]
    return escape_controls(f"{kind}: " + " | ".join(part for part in parts if part))


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


def describe_report(report: RunReport) -> str:
    """The run report in one line, for the task log."""
    quality, table = report["quality"], report["table"]
    parts = [f"{report['pipeline']} run {report['run_id']}: {report['outcome']}"]
    rows = {key: value for key, value in report["rows"].items() if value or key != "superseded"}
    parts.append("rows: " + ", ".join(f"{key} {value:,}" for key, value in rows.items()))
    if quality["verdict"]:
        parts.append(f"verdict: {quality['verdict']}")
    parts += [f"warning: {warning}" for warning in quality.get("warnings", ())]
    if table.get("version") is not None:
        parts.append(f"table version {table['version']}")
    for sink in report["sinks"]:
        if sink["behind"] != 0:
            parts.append(f"sink {sink['name']} is behind" + (f": {sink['error']}" if sink["error"] else ""))
    parts += [f"note: {note}" for note in report["notes"]]
    return escape_controls(" | ".join(parts))
