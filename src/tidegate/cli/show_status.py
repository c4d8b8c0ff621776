"""Print for people the state of pipelines, and what comes next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from tidegate.cli.lines import show_lines, show_table, source_line, source_notes, state_line
from tidegate.cli.show_runs import show_sinks
from tidegate.core import outputs
from tidegate.core.errors import TidegateError
from tidegate.core.words import count_of, escape_line
from tidegate.runs.preflight.definition import describe_change
from tidegate.runs.reports.report import RUN_STATES

if TYPE_CHECKING:
    from tidegate.cli.scaffold.write import Scaffold


_OF_TROUBLE_ALONE: tuple[outputs.TroubleKind, ...] = ("behind", "missed", "lost")
"""The kinds that are printed from ``trouble``: the errors, notes and runs of a row contain all others."""


def show_plan(value: outputs.Plan) -> None:
    """Print what the next run would read."""
    print(f"{value['pipeline']}: {value['summary']}")
    for name, source in value["sources"].items():
        print(f"  source {name}: {_plan_line(source)}")
        for line in _plan_notes(source):
            print(f"    {line}")
    if value["changes"]:
        print(f"  changed since run {value['changes_since']}, the last that read something:")
    for change in value["changes"]:
        print(f"    {describe_change(change)}")
    _show_errors(value["errors"])
    for note in value["notes"]:
        print(indent(note, "  "))


def show_verification(value: outputs.Verification) -> None:
    """Print what was read of each table, and what is wrong with it."""
    for table in value["tables"]:
        files, rows = count_of(table["files"], "file"), count_of(table["rows"], "row")
        read = f"{files} ({table['digests']:,} by digest), {rows}, {count_of(table['bytes'], 'byte')}"
        if not table["files"] and any(one["kind"].startswith("commit") for one in table["damaged"]):
            read = "its log does not say which files it has"
        print(f"{value['pipeline']}: {table['table']} {table['path']}, version {table['version']}: {read}")
        for one in table["damaged"]:
            rows = f" ({count_of(one['rows'], 'row')})" if one["rows"] else ""
            print(escape_line(f"  {one['path']}: {one['kind'].replace('_', ' ')}{rows}: {one['found']}"))
    if not value["tables"]:
        print(f"{value['pipeline']}: there is no table yet")
    elif value["ok"]:
        print("  all of it is there and whole")
    show_lines("fix", value["fix"])


def _show_errors(errors: Sequence[outputs.Error]) -> None:
    for error in errors:
        print(indent(f"would refuse: {TidegateError.from_dict(error)}", "  "))


def _plan_line(source: outputs.SourceReport) -> str:
    if "files" in source:
        return f"{count_of(source['files'], 'file')}, {count_of(source['bytes'], 'byte')}"
    return f"{count_of(source['pending_offsets'], 'offset')} " + source_line(source).partition(", ")[2]


def _plan_notes(source: outputs.SourceReport) -> list[str]:
    """The notes on a source without those that are among the notes and errors of the plan, with what to do."""
    without: outputs.SourceReport = {
        **source,
        "skipped": [one for one in source.get("skipped", ()) if "fix" not in one],
        "changed": [],
        "settling": [],
    }
    return source_notes(without)


def show_status(value: Sequence[outputs.Status]) -> None:
    """Print each pipeline with its backlog, its trouble and its last runs."""
    if not value:
        print("no pipelines; `tidegate new NAME` writes one")
    for pipeline in value:
        table = pipeline["table"]
        version = f"table version {table['version']}" if table else "no table yet"
        print(f"{pipeline['pipeline']}: {version}, backlog: {_backlog_text(pipeline)}")
        for trouble in pipeline["trouble"]:
            if trouble["kind"] in _OF_TROUBLE_ALONE:
                print(f"  {trouble['message']}")
        _show_errors(pipeline["errors"])
        for note in pipeline["notes"]:
            print(indent(note, "  "))
        if (state := pipeline["state"]) is not None:
            print(f"  state: {state_line(state)}, watermark {pipeline['watermark'] or 'none yet'}")
        show_sinks(pipeline["sinks"])
        shown = {_name_error(error) for error in pipeline["errors"]}
        for run in pipeline["runs"]:
            _show_run(run, shown)


def _backlog_text(pipeline: outputs.Status) -> str:
    if pipeline["backlog"] is None:
        unknown = pipeline["backlog_unknown"]
        return f"unknown ({unknown['code']})" if unknown else "unknown"  # the error is printed below
    return ", ".join(f"{source} {_backlog_of(one)}" for source, one in pipeline["backlog"].items())


def _backlog_of(one: outputs.FilesBacklog | outputs.KafkaBacklog) -> str:
    return count_of(one["files"], "file") if "files" in one else count_of(one["offsets"], "offset")


def _show_run(run: outputs.RunReport, shown: set[str]) -> None:
    """Print one run, and add its error to ``shown``; of an error already in it, only the code is printed."""
    rows = run["rows"]
    seconds = run["duration_seconds"].get("ingest") or 0
    rate = f" ({rows['read'] / seconds:,.1f}/s)" if rows["read"] and seconds else ""
    quarantined = rows["malformed"] + rows["late"] + rows["rejected"]
    mode = "" if run["mode"] == "incremental" else f" ({run['mode']})"
    print(
        f"  {run['started_at'][:19]}  {run['outcome'] or 'unfinished':<12} read {rows['read']:,}{rate}  "
        f"quarantined {quarantined:,}  published {rows['published']:,}  {run['run_id']}{mode}"
    )
    for warning in run["quality"].get("warnings") or ():
        print(f"    warning: {warning}")
    for note in run["notes"]:
        if RUN_STATES["died"].text in note:
            print(f"    note: {note}")
    if run["error"]:
        error = _name_error(run["error"])
        print(indent(f"{run['error']['code']}, as above" if error in shown else error, "    "))
        shown.add(error)


def _name_error(error: outputs.Error) -> str:
    return f"{error['code']}: {error['message']}"


def show_catalog(value: Sequence[outputs.CatalogEntry]) -> None:
    """Print the pipelines, one per line."""
    if not value:
        print("no pipelines; `tidegate new NAME` writes one")
        return
    rows = [
        {
            "pipeline": one["pipeline"],
            "schedule": one["schedule"] or "(by hand)",
            "sources": ", ".join(f"{name}: {kind}" for name, kind in one["sources"].items()),
            "description": one["description"] or "",
        }
        if one["error"] is None
        else {"pipeline": one["pipeline"], "schedule": "", "sources": "", "description": one["error"]["code"]}
        for one in value
    ]
    show_table(rows)


def show_findings(value: Sequence[outputs.Finding]) -> None:
    """Print the findings of ``doctor``, with the fix of each that is wrong."""
    width = max(len(one["check"]) for one in value)
    for one in value:
        print(f"{'ok   ' if one['ok'] else 'WRONG'}  {one['check'].ljust(width)}  {one['found']}")
        if one["fix"]:
            print(f"       {' ' * width}  fix: {one['fix']}")
    wrong = sum(not one["ok"] for one in value)
    print(f"{wrong} of {len(value)} wrong" if wrong else f"all {len(value)} right")


def show_state(value: outputs.State) -> None:
    """Print the state of a query."""
    print(f"{value['pipeline']}: state after batch {value['batch']}")
    for store in value["operators"]:
        print(f"  {store['operator']} ({store['store']}): {count_of(store['count'], 'row')}")
        for row in store["rows"]:
            print(f"    {json.dumps(row['key'], ensure_ascii=False)}: {json.dumps(row['value'], ensure_ascii=False)}")


def show_acknowledged(value: outputs.Acknowledged) -> None:
    """Print the changes and lost rows that were acknowledged."""
    if not value["acknowledged"] and not value["lost"]:
        print(f"{value['pipeline']}: there is nothing to acknowledge")
    for change in value["acknowledged"]:
        unread = count_of(change["unread_bytes"], "byte stays", "bytes stay")
        print(f"acknowledged: {change['path']} {change['how']}, {unread} unread")
    for lost in value["lost"]:
        print(f"acknowledged: {count_of(lost['rows'], 'row')} of {lost['of']} lost with {lost['path']}")
    if value["left"]:
        print(f"{count_of(value['left'], 'more is open', 'more are open')}")


def show_scaffold(written: Scaffold, folder: Path) -> None:
    """Print the files that were written, and the next commands."""
    for path in written.files:
        print(f"wrote {folder / path}")
    if written.columns:
        print(f"columns{f' (by {written.inferred_from})' if written.inferred_from else ''}: {written.columns}")
    for note in written.notes:
        print(f"note: {note}")
    print("next:")
    for command in written.next_commands:
        print(f"  {command}")
