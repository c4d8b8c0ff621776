"""The driver's marker lines (``TIDEGATE {json}``) as lines that a person reads in the task log."""

from __future__ import annotations

import json
from typing import Any

MARKER = "TIDEGATE "
_COUNTED = ("rows", "files", "records")


def parse_marker(line: str) -> dict[str, Any] | None:
    """The event of a marker line, or None when the line is none."""
    if not line.startswith(MARKER):
        return None
    try:
        event = json.loads(line[len(MARKER) :])
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def describe_event(event: dict[str, Any]) -> str:
    """One readable line: ``progress: batch 3 | 12,000 rows | 4,100.5 rows/s``, or ``error: CODE: message``."""
    kind = event["event"]
    if kind == "error":
        nested = event.get("error")
        error = nested if isinstance(nested, dict) else event
        return f"error: {error.get('code', 'UNKNOWN')}: {error.get('message', '')}"
    parts = [_describe_field(key, value) for key, value in event.items() if key != "event"]
    return f"{kind}: " + " | ".join(part for part in parts if part)


def _describe_field(key: str, value: Any) -> str:
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


def describe_report(report: dict[str, Any]) -> str:
    """The run report in one line, for the task log."""
    rows = report.get("rows") or {}
    table = report.get("table") or {}
    verdict = (report.get("quality") or {}).get("verdict")
    parts = [f"{report.get('pipeline')} run {report.get('run_id')}: {report.get('outcome')}"]
    told = {key: value for key, value in rows.items() if value or key != "superseded"}
    counts = ", ".join(f"{key} {value:,}" for key, value in told.items() if isinstance(value, int))
    if counts:
        parts.append(f"rows: {counts}")
    if verdict:
        parts.append(f"verdict: {verdict}")
    parts += [f"warning: {warning}" for warning in (report.get("quality") or {}).get("warnings") or ()]
    if table.get("version") is not None:
        parts.append(f"table version {table['version']}")
    for sink in report.get("sinks") or []:
        if sink["behind"] != 0:
            parts.append(f"sink {sink['name']} is behind" + (f": {sink['error']}" if sink["error"] else ""))
    parts += [f"note: {note}" for note in report.get("notes") or ()]
    return " | ".join(parts)
