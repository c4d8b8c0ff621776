"""Commands that change nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.app import LOOK, Json, Name, app, complete_name
from tidegate.cli.work import open_project, print_value


@app.command("list", rich_help_panel=LOOK)
def list_(json_: Json = False) -> None:
    """The pipelines, with schedule and sources."""
    from tidegate.cli.show_status import show_catalog
    from tidegate.views.catalog import catalog_pipelines

    print_value(catalog_pipelines(open_project()), json_, show_catalog)


@app.command(rich_help_panel=LOOK)
def plan(name: Name, json_: Json = False) -> None:
    """What the next run would read, and what is held. No JVM, nothing written. Exits like a run that would fail."""
    from tidegate.cli.show_status import show_plan
    from tidegate.views.outlook import plan_pipeline

    value = plan_pipeline(open_project(), name)
    print_value(value, json_, show_plan)
    if value["exit_code"]:
        raise typer.Exit(value["exit_code"])


@app.command(rich_help_panel=LOOK)
def status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The pipeline (default: all).", autocompletion=complete_name),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only pipelines that need a person.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="How many runs of each to show (default: 10 of one, 3 of all).")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit 1 when a pipeline needs a person: held, failing, behind its schedule, ..."),
    ] = False,
    json_: Json = False,
) -> None:
    """Last runs, backlog, held increments, changed files, table version, the worst first. No JVM."""
    from tidegate.cli.show_status import show_status
    from tidegate.views.status import needs_a_person, project_status, summarise

    rows = project_status(open_project(), name, limit)
    shown = [row for row in rows if row["trouble"]] if failed else rows
    if shown or json_ or not rows:
        print_value(shown, json_, show_status)
    elif name is not None:
        print(f"{name}: nothing needs a person")
    if name is None and rows and not json_:
        print(summarise(rows))
    if check and (found := needs_a_person(rows)):
        print("\n".join(found), file=sys.stderr)
        raise typer.Exit(1)


@app.command(rich_help_panel=LOOK)
def verify(name: Name, json_: Json = False) -> None:
    """Read every file that the logs of table and quarantine count: is it there and whole? Exit 78 when one is not."""
    from tidegate.cli.show_status import show_verification
    from tidegate.views.verify import verify_pipeline

    value = verify_pipeline(open_project(), name)
    print_value(value, json_, show_verification)
    if not value["ok"]:
        raise typer.Exit(78)


@app.command(rich_help_panel=LOOK)
def logs(
    name: Name,
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN_ID", help="The run (default: the one in progress, or the newest).")
    ] = None,
    json_: Json = False,
) -> None:
    """What a run printed: the progress of its batches, and the Spark driver's log, kept until a run succeeds."""
    from tidegate.cli.show_runs import show_logs
    from tidegate.views.logs import read_logs

    print_value(read_logs(open_project(), name, run_id), json_, show_logs)


@app.command("data-docs", rich_help_panel=LOOK)
def data_docs(
    name: Name,
    to: Annotated[Path, typer.Option("--to", help="The folder for the pages; another run's there are replaced.")],
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN_ID", help="The run (default: the newest that was judged).")
    ] = None,
    json_: Json = False,
) -> None:
    """Great Expectations' Data Docs of a run's verdict, as web pages. Counts only: no row is read."""
    from tidegate.views.logs import make_data_docs

    print_value(make_data_docs(open_project(), name, run_id, to), json_, lambda made: print(made["page"]))


@app.command(rich_help_panel=LOOK)
def state(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", help="Rows to show of each store.")] = 20,
    json_: Json = False,
) -> None:
    """The query's state between runs: keys and values, read from its checkpoint (starts Spark)."""
    from tidegate.cli.show_status import show_state
    from tidegate.spark.inspection.show_state import read_state

    print_value(read_state(open_project(), name, limit=limit), json_, show_state)
