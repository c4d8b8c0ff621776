"""The extra of the table's asset event: the run report, small enough for a row of Airflow's database.

All figures are kept. Lists of names, which grow with the contents of a folder, are cut; ``cut`` then has the length of
each in the report. The whole report is in the run's XCom.
"""

from __future__ import annotations

import json
from typing import Any, cast

from tidegate.core.outputs import RunReport

LISTED_AT_MOST = 20
BYTES_AT_MOST = 32 << 10
_FIGURES = ("rows", "malformed", "late", "partly_late", "files", "bytes", "backlog", "pending_offsets", "static")
_WHOLE = "quality.results"
_ALWAYS = ("pipeline", "run_id", "mode", "outcome", "started_at", "ended_at", "batches", "watermark", "rows")
_LONGEST_FIRST = ("state", "notes", "adopted_runs", "rebuilt", "accepted_loss", "sinks", "sources")


def shrink_report(report: RunReport) -> dict[str, Any]:
    """Cut the report for an event: at most :data:`BYTES_AT_MOST` as JSON, with every key of a report."""
    cut: dict[str, int] = {}
    value = _shorten(cast("dict[str, Any]", report), "", cut)
    if _is_large(value):
        for name, source in value["sources"].items():
            cut[f"sources.{name}"] = len(source)
            value["sources"][name] = {key: source[key] for key in _FIGURES if key in source}
    if _is_large(value):
        results = value["quality"]["results"]
        cut[_WHOLE] = len(results)
        value["quality"]["results"] = [one for one in results if not one["success"]][:LISTED_AT_MOST]
    for key in _LONGEST_FIRST:
        if _is_large(value) and value[key]:
            cut[key] = len(value[key])
            value[key] = type(value[key])()
    if _is_large(value):  # only texts of people and of errors can be that long
        value = {key: one if key in _ALWAYS else type(one)() for key, one in value.items()}
        cut = {key: 1 for key in value if key not in _ALWAYS}
    return {**value, "cut": cut} if cut else value


def _shorten(value: object, path: str, cut: dict[str, int]) -> Any:
    if isinstance(value, dict):
        return {key: _shorten(one, f"{path}.{key}" if path else str(key), cut) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    at_most = len(value) if path == _WHOLE else LISTED_AT_MOST
    if len(value) > at_most:
        cut[path] = len(value)
    return [_shorten(one, path, cut) for one in value[:at_most]]


def _is_large(value: object) -> bool:
    return len(json.dumps(value, default=str).encode()) > BYTES_AT_MOST - 2048
