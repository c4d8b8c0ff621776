"""``tidegate quarantine``: list, show, export and replay quarantined records."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tidegate.cli import errors
from tidegate.cli.app import Json, Name, print_foreseen, with_groups
from tidegate.cli.work import name_work, open_project, print_value, run_job, submit_before_audit
from tidegate.core.errors import DisagreementError
from tidegate.core.words import count_of

if TYPE_CHECKING:
    from tidegate.core.paths import PipelinePaths
    from tidegate.spec.project import Project
    from tidegate.table.quarantine.filters import QuarantineFilter

quarantine_app = typer.Typer(
    help="Quarantined records: list, show and export them, or replay them through the pipeline.", no_args_is_help=True
)


class Records(NamedTuple):
    """The options that choose records."""

    reason: Annotated[str | None, typer.Option("--reason", help="Only this reason: malformed, late, or a rule.")] = None
    rule: Annotated[
        str | None, typer.Option("--rule", help="Only rows that break this rule, alone or among others.")
    ] = None
    of_run: Annotated[str | None, typer.Option("--run-id", help="Only records of this run.")] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="COLUMN=TEXT",
            help="Only where the column is TEXT, or with COLUMN~TEXT contains it; repeatable.",
        ),
    ] = None

    def make_filter(self, project: Project, name: str) -> QuarantineFilter:
        """Make the filter. Raises UsageError QUARANTINE_WHERE, or for a missing or faulty spec."""
        from tidegate.spec.pipeline import load_pipeline
        from tidegate.table.quarantine.filters import QuarantineFilter, parse_where

        load_pipeline(project, name)
        where = parse_where(self.where or ())
        return QuarantineFilter(run_id=self.of_run, reason=self.reason, rule=self.rule, where=where)


@quarantine_app.command("list")
@with_groups
def quarantine_list(
    name: Name,
    records: Records,
    json_: Json = False,
) -> None:
    """How many records were quarantined, by run, reason and cause, with an example of each."""
    from tidegate.cli.show_runs import show_causes
    from tidegate.rework.held import find_held_records
    from tidegate.spec.pipeline import load_pipeline
    from tidegate.table.quarantine.read import list_quarantine

    project = open_project()
    wanted, paths = records.make_filter(project, name), _find_quarantine(project, name)
    found = list_quarantine(paths.quarantine, wanted, find_held_records(paths))
    _refuse_misspelt(project, name, wanted, found)
    print_value(found, json_, partial(show_causes, sources=load_pipeline(project, name).record_streams))


@quarantine_app.command("show")
@with_groups
def quarantine_show(
    name: Name,
    records: Records,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, newest first.")] = 20,
    json_: Json = False,
) -> None:
    """The records themselves, newest first."""
    from tidegate.cli.show_runs import show_records
    from tidegate.rework.held import find_held_records
    from tidegate.table.quarantine.read import show_quarantine

    project = open_project()
    wanted, paths = records.make_filter(project, name), _find_quarantine(project, name)
    found = show_quarantine(paths.quarantine, wanted, limit, find_held_records(paths))
    _refuse_misspelt(project, name, wanted, found)
    print_value(found, json_, show_records)


@quarantine_app.command("export")
@with_groups
def quarantine_export(
    name: Name,
    records: Records,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="A file that is not there yet (default: stdout).", show_default=False
        ),
    ] = None,
) -> None:
    """The records as JSON lines, each with its id: to be edited, and given to replay --file."""
    from tidegate.table.quarantine.read import export_quarantine

    project = open_project()
    wanted, paths = records.make_filter(project, name), _find_quarantine(project, name)
    count = export_quarantine(paths.quarantine, wanted, to, sys.stdout)
    _refuse_misspelt(project, name, wanted, count)
    print(f"exported {count_of(count, 'record')}{f' to {to}' if to else ''}", file=sys.stderr)


@quarantine_app.command("replay")
@with_groups
def quarantine_replay(
    name: Name,
    records: Records,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Edited records: JSON lines with the id and the raw text of each.",
            dir_okay=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be replayed, and what stays and why.")
    ] = False,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="RUN_ID", help="A name for this replay. Safe to repeat.")
    ] = None,
    json_: Json = False,
) -> None:
    """Replay quarantined records (default: all), with the current schema, suite and transform."""
    from tidegate.rework.replay.choose import Selection
    from tidegate.rework.replay.command import preview_replay, read_edits, replay_records

    project = open_project()
    selection = Selection(records.make_filter(project, name))
    if file is not None:
        options = dict(zip(("--reason", "--rule", "--run-id", "--where"), records, strict=True))
        if given := [option for option, value in options.items() if value]:
            fault = f"--file names the records itself, so {', '.join(given)} cannot be given with it"
            raise errors.BAD_OPTIONS(where=f"pipeline {name}", fault=fault, fix="give one of them")
        selection = Selection(edits=read_edits(file))
    if dry_run:
        from tidegate.cli.show_repairs import show_replay

        print_foreseen(preview_replay(project, name, selection), json_, show_replay)
        return
    chosen = name_work("replay", as_)
    submit = submit_before_audit(project, name)
    run_job(lambda: replay_records(project, name, chosen, selection, submit=submit), project, name, chosen, json_)


def _find_quarantine(project: Project, name: str) -> PipelinePaths:
    """Raise DisagreementError QUARANTINE_BEHIND where the quarantine table is gone.

    Where it was restored from an older copy, only print the error: the copy can be read."""
    from tidegate.runs.preflight.tables import check_quarantine
    from tidegate.table.log.state import has_log

    paths = project.paths(name)
    try:
        check_quarantine(paths)
    except DisagreementError as error:
        if not has_log(paths.quarantine):
            raise
        print(error, file=sys.stderr)
    return paths


def _refuse_misspelt(project: Project, name: str, wanted: QuarantineFilter, found: object) -> None:
    """Raise UsageError QUARANTINE_UNKNOWN where nothing was found because the reason, rule or run does not exist."""
    from tidegate.rework.replay.choose import check_names, check_run

    if not found:
        check_names(project, project.paths(name), name, wanted)
        check_run(project.paths(name), name, wanted)
