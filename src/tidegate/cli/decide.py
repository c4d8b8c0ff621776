"""Commands that record a person's decision: on held increments, and on changed files."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from tidegate.cli.app import DECIDE, HeldRun, Json, Name, Reason, app, print_foreseen
from tidegate.cli.work import open_project, print_report, print_value, run_step, submit, submit_before_audit


@app.command(rich_help_panel=DECIDE)
def release(name: Name, run_id: HeldRun, reason: Reason, json_: Json = False) -> None:
    """Publish a held increment anyway."""
    _decide(name, run_id, "release", reason, json_)


@app.command(rich_help_panel=DECIDE)
def discard(name: Name, run_id: HeldRun, reason: Reason, json_: Json = False) -> None:
    """Discard a held increment: it is never published."""
    _decide(name, run_id, "discard", reason, json_)


def _decide(name: str, run_id: str, decision: Literal["release", "discard"], reason: str, as_json: bool) -> None:
    from tidegate.rework.held import decide_held_work, find_ruling
    from tidegate.runs.reports.verdicts import Answer

    project = open_project()
    before = find_ruling(project.paths(name), run_id)
    report = decide_held_work(project, name, run_id, Answer(decision, reason), submit=submit)
    print_report(report, as_json)
    if before is not None:
        said = f"{before['who']} decided at {before['at']} to {before['decision']} run {run_id}"
        print(f"note: {said}; the decision is kept, with its reason", file=sys.stderr)


@app.command(rich_help_panel=DECIDE)
def reread(
    name: Name,
    run_id: HeldRun,
    reason: Reason = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read again and what prevents it; decide nothing.")
    ] = False,
    json_: Json = False,
) -> None:
    """Read a held increment again from the source, with the current schema, suite and transform, and continue."""
    from tidegate.runs.decide import reread_run

    project = open_project()
    if dry_run:
        from tidegate.cli.show_repairs import show_reread
        from tidegate.runs.restart.recorded import look_at_reread

        print_foreseen(look_at_reread(project, name, run_id), json_, show_reread)
        return
    submit = submit_before_audit(project, name)
    run_step(lambda: reread_run(project, name, run_id, reason=reason, submit=submit), project, name, run_id, json_)


@app.command(rich_help_panel=DECIDE)
def acknowledge(
    name: Name,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files or partitions, as status names them (default: all)."),
    ] = None,
    reason: Reason = "",
    json_: Json = False,
) -> None:
    """Accept files that changed after they were read, and rows lost with damaged files of the table."""
    from tidegate.cli.show_status import show_acknowledged
    from tidegate.views.acknowledge import acknowledge_changes

    print_value(acknowledge_changes(open_project(), name, files or (), reason=reason), json_, show_acknowledged)
