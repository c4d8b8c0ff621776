"""The single steps of a run, as Airflow starts them."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.cli.app import AcceptLoss, Json, Name, RunId, app
from tidegate.cli.grouped import STEPS
from tidegate.cli.work import name_work, open_project, run_step, submit


@app.command(rich_help_panel=STEPS)
def ingest(
    name: Name,
    run_id: RunId,
    accept_loss: AcceptLoss = None,
    json_: Json = False,
) -> None:
    """One step: read new data into staging."""
    from tidegate.runs.steps import ingest_run

    project = open_project()
    run_step(
        lambda: ingest_run(project, name, run_id, submit=submit, accept_loss=accept_loss), project, name, run_id, json_
    )


@app.command(rich_help_panel=STEPS)
def audit(name: Name, run_id: RunId, json_: Json = False) -> None:
    """One step: check what is staged."""
    from tidegate.runs.steps import audit_run

    project = open_project()
    run_step(lambda: audit_run(project, name, run_id), project, name, run_id, json_)


@app.command(rich_help_panel=STEPS)
def publish(name: Name, run_id: RunId, json_: Json = False) -> None:
    """One step: add what passed to the table."""
    from tidegate.runs.steps import publish_run

    project = open_project()
    run_step(lambda: publish_run(project, name, run_id), project, name, run_id, json_)


@app.command(rich_help_panel=STEPS)
def deliver(
    name: Name,
    run_id: Annotated[str | None, typer.Option("--run-id", help="The run this step belongs to.")] = None,
    json_: Json = False,
) -> None:
    """One step: feed further sinks the versions they are behind, whichever run published them."""
    from tidegate.runs.steps import deliver_run

    project = open_project()
    chosen = name_work("deliver", run_id)
    run_step(lambda: deliver_run(project, name, chosen, submit=submit), project, name, chosen, json_)
