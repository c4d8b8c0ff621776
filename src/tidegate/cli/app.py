"""What the commands share: the application, their common options, and how a result is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

import typer

from tidegate import __version__
from tidegate.cli.grouped import GroupedCommands
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.driver.progress import Event
    from tidegate.driver.submit import SubmitPlan
    from tidegate.outputs import Error, RunReport
    from tidegate.project import Project
    from tidegate.recovery.context import Submit


app = typer.Typer(
    name="tidegate",
    cls=GroupedCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Streaming on a schedule: drain what arrived, check it, publish it, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_T = TypeVar("_T")
_Foreseen = TypeVar("_Foreseen", bound=Mapping[str, object])


@dataclass
class CommandLine:
    """What the commands and the code that prints their errors both know of this command line."""

    project: Path | None = None
    printed: bool = False


command_line = CommandLine()


def complete_name(incomplete: str) -> list[str]:
    """The pipelines of the project of this folder, for the shell."""
    from tidegate.pipeline import list_pipelines
    from tidegate.project import load_project

    try:
        return [name for name in list_pipelines(load_project(None)) if name.startswith(incomplete)]
    except (TidegateError, OSError):
        return []


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline.", autocompletion=complete_name)]
RunId = Annotated[str, typer.Option("--run-id", help="The run this step belongs to.")]
HeldRun = Annotated[str, typer.Argument(metavar="RUN_ID", help="The held run, as status names it.")]
WorkId = Annotated[
    str | None,
    typer.Option(
        "--run-id",
        help="A name for this piece of work. Safe to repeat: with the same one it goes on, or is done already.",
    ),
]
AcceptLoss = Annotated[
    str | None,
    typer.Option("--accept-loss", help="After exit 66: go on without what was lost; the reason is recorded."),
]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is recorded with who decided.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def _begin(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    project: Annotated[
        Path | None, typer.Option("--project", help="The project's folder (default: found upwards from here).")
    ] = None,
) -> None:
    command_line.project = project


def open_project() -> Project:
    """The project of ``--project``, or of this folder. Raises ConfigError NO_PROJECT and what its file has wrong."""
    from tidegate.project import load_project

    return load_project(command_line.project)


def name_work(kind: str, given: str | None) -> str:
    """The run id of a run or another piece of work: the one that was ``given``, or a new one. An empty one counts as
    given: it is refused later."""
    from tidegate.reports.run_ids import new_run_id

    return new_run_id(kind) if given is None else given


def print_value(value: _T, as_json: bool, show: Callable[[_T], None]) -> None:
    """The result of a command, for programs or for people."""
    if as_json:
        command_line.printed = True
        print(dump(value))
    else:
        show(value)


def print_foreseen(value: _Foreseen, as_json: bool, show: Callable[[_Foreseen], None]) -> None:
    """What a dry run found; the exit code is that of the error that the work itself would end with."""
    print_value(value, as_json, show)
    hindrance = cast("Error | None", value["hindrance"])
    if hindrance is not None:
        raise typer.Exit(hindrance["exit_code"])


def dump(value: object, indent: int | None = 1) -> str:
    """``value`` as JSON, in letters that stdout has."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text


def submit(plan: SubmitPlan, *, then_audit: bool = False) -> int:
    """Start a Spark driver, with a line that tells of its progress; its exit code."""
    from tidegate.audit.gx_import import AHEAD_AT_MOST_BYTES, import_gx_ahead
    from tidegate.cli.progress import ProgressLine
    from tidegate.driver.submit import run_spark_submit

    with ProgressLine() as line:

        def on_event(event: Event) -> None:
            line.show(event)
            if event["event"] == "session" and then_audit and plan.pending_bytes <= AHEAD_AT_MOST_BYTES:
                import_gx_ahead()

        return run_spark_submit(plan, on_event)


def submit_before_audit(project: Project, name: str) -> Submit:
    """:func:`submit` for work that goes on with the audit of this pipeline."""
    return partial(submit, then_audit=project.suite_path(name).exists())


def print_report(report: RunReport, as_json: bool) -> None:
    """The report of a run."""
    from tidegate.cli.show_runs import show_report

    print_value(report, as_json, show_report)


def run_step(act: Callable[[], RunReport], project: Project, name: str, run_id: str, as_json: bool) -> None:
    """Run a step; when it fails, the report is printed anyway, and the error after it."""
    from tidegate.reports.report import load_report

    try:
        report = act()
    except TidegateError:
        failed = load_report(project.paths(name), run_id)
        if failed is not None and failed.error is not None:
            print_report(failed.to_json(), as_json)
        raise
    print_report(report, as_json)
