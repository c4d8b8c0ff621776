"""Commands that repair a table or a pipeline, most with a dry run first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tidegate.cli.app import REPAIR, Job, Json, Name, app, with_groups
from tidegate.cli.work import open_project, print_value, submit_before_audit
from tidegate.core.outputs import RunReport

Then = Literal["reread", "leave-out"]


@app.command(rich_help_panel=REPAIR)
@with_groups
def adopt(
    name: Name,
    table: Annotated[Path, typer.Option("--table", help="The folder of the table that is there.")],
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", help="The checkpoint of the plain Spark job that wrote it: what it has read."),
    ] = None,
    retire_old: Annotated[
        bool,
        typer.Option(
            "--retire-old", help="Make the checkpoint one that Spark refuses to start, so that the old job cannot run."
        ),
    ] = False,
    *,
    job: Job,
) -> None:
    """Take over a parquet or Delta table where it lies, and the checkpoint of the plain Spark job that wrote it."""
    from tidegate.cli.show_repairs import show_adoption
    from tidegate.rework.adopt.adoption import adopt_table, preview_adoption

    project = open_project()
    if job.dry_run:
        job.show(preview_adoption(project, name, table, checkpoint, retire_old=retire_old), show_adoption)
        return

    def work(run_id: str) -> RunReport:
        return adopt_table(project, name, run_id, table, checkpoint, retire_old=retire_old)

    job.carry_out(project, name, "adopt", work)


@app.command(rich_help_panel=REPAIR)
def repair(
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the choices and change nothing.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Back up the table and build a new one from everything the sources still have."),
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file of the table first, as verify does: find other bytes too.")
    ] = False,
    json_: Json = False,
) -> None:
    """Where checkpoint, table and spec disagree: create a checkpoint that starts exactly where the table's log ends.
    Where files of the table are gone or damaged: continue without them, and record that."""
    from tidegate.cli.show_repairs import show_repair
    from tidegate.runs.restart.repair import repair_pipeline

    value = repair_pipeline(open_project(), name, dry_run=dry_run, rebuild=rebuild, verify=verify)
    print_value(value, json_, show_repair)


@app.command(rich_help_panel=REPAIR)
@with_groups
def backfill(
    name: Name,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="DAY", help="The first day, or a time stamp at which a day begins.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DAY", help="The last day, which is included, or a time stamp, which is not."),
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="COLUMN=VALUE", help="Partitions by name, instead of days; repeatable."),
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", help="The time zone of time stamps without one, and of their days (UTC).")
    ] = None,
    *,
    job: Job,
) -> None:
    """Rebuild partitions from the source, with the current schema, suite and transform, and swap them in."""
    from tidegate.cli.show_repairs import show_backfill
    from tidegate.rework.backfill.command import backfill_table, preview_backfill
    from tidegate.rework.backfill.span import Wanted

    project = open_project()
    wanted = Wanted(from_, to, tuple(partition or ()), zone)
    if job.dry_run:
        job.show(preview_backfill(project, name, wanted), show_backfill)
        return
    submit = submit_before_audit(project, name)
    job.carry_out(
        project, name, "backfill", lambda run_id: backfill_table(project, name, run_id, wanted, submit=submit)
    )


@app.command(rich_help_panel=REPAIR)
@with_groups
def refresh(
    name: Name,
    keep_older: Annotated[
        bool,
        typer.Option(
            "--keep-older", help="Keep the older part of the table unchanged, whose records the source has lost."
        ),
    ] = False,
    *,
    job: Job,
) -> None:
    """Rebuild the whole table from all records that runs have taken, check it, and swap it in."""
    from tidegate.cli.show_repairs import show_backfill
    from tidegate.rework.backfill.command import preview_refresh, refresh_table

    project = open_project()
    if job.dry_run:
        job.show(preview_refresh(project, name, keeps_older=keep_older), show_backfill)
        return
    submit = submit_before_audit(project, name)

    def work(run_id: str) -> RunReport:
        return refresh_table(project, name, run_id, keeps_older=keep_older, submit=submit)

    job.carry_out(project, name, "refresh", work)


@app.command(rich_help_panel=REPAIR)
@with_groups
def rollback(
    name: Name,
    to_version: Annotated[int, typer.Option("--to-version", help="The version whose rows the table gets.")],
    then: Annotated[
        Then | None,
        typer.Option(
            "--then",
            metavar="reread|leave-out",
            help="What becomes of the records in between: the next run reads them again, or not.",
        ),
    ] = None,
    *,
    job: Job,
) -> None:
    """Give the table the rows of an earlier version, in one new version."""
    from tidegate.runs.rollback import look_at_rollback, roll_back

    project = open_project()
    if job.dry_run:
        from tidegate.cli.show_repairs import show_rollback

        value = look_at_rollback(project, name, to_version)
        print_value(value, job.json_, show_rollback)
        in_the_way = [value["hindrance"], *(one["hindrance"] for one in value["choices"] if one["then"] == then)]
        if code := next((error["exit_code"] for error in in_the_way if error is not None), 0):
            raise typer.Exit(code)
        return
    job.carry_out(project, name, "rollback", lambda run_id: roll_back(project, name, to_version, then, run_id))


@app.command(rich_help_panel=REPAIR)
def reset(
    name: Name,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning",
            help="Back up the table and build a new one, and the state, from everything the sources still have.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    confirm: Annotated[str | None, typer.Option("--confirm", help="The pipeline's name once more, to do it.")] = None,
    json_: Json = False,
) -> None:
    """Create a pipeline's checkpoint again: where it stopped, or from the beginning. Shows its plan before it acts."""
    from tidegate.cli.show_repairs import show_repair
    from tidegate.runs.restart.repair import reset_pipeline

    value = reset_pipeline(open_project(), name, from_beginning=from_beginning, dry_run=dry_run, confirm=confirm)
    print_value(value, json_, show_repair)


@app.command(rich_help_panel=REPAIR)
@with_groups
def maintain(name: Name, job: Job) -> None:
    """Compact small files, remove what nothing needs any more, and what is older than `maintenance:` keeps."""
    from tidegate.cli.show_runs import show_maintenance
    from tidegate.rework.maintain.command import maintain_pipeline, preview_maintenance

    project = open_project()
    if job.dry_run:
        job.show(preview_maintenance(project, name), show_maintenance)
        return
    job.carry_out(project, name, "maintain", lambda run_id: maintain_pipeline(project, name, run_id))
