"""The typer application and the options that commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, cast, get_type_hints

import typer
from typer.core import TyperGroup

from tidegate import __version__
from tidegate.cli.work import command_line, name_work, print_value, run_job
from tidegate.core.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.core.outputs import Error, RunReport
    from tidegate.spec.project import Project

START, LOOK, DECIDE, REPAIR, STEPS = "Start", "Look", "Decide", "Repair", "Steps of a run"
GROUPS = (START, LOOK, DECIDE, REPAIR, STEPS)


class GroupedCommands(TyperGroup):
    """A group whose help shows commands under their panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each panel with its commands; a command without one comes last."""
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        width = max(map(len, shown), default=0)
        for title, names in group_names(shown):
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), _first_paragraph(shown[name])) for name in names])


def group_names(commands: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """(panel, names of its commands) in the order of :data:`GROUPS`, without empty panels."""
    panels = {name: getattr(command, "rich_help_panel", None) for name, command in commands.items()}
    grouped = [(title, [name for name, panel in panels.items() if panel == title]) for title in GROUPS]
    grouped.append(("Commands", [name for name, panel in panels.items() if panel not in GROUPS]))
    return [(title, names) for title, names in grouped if names]


def _first_paragraph(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


app = typer.Typer(
    name="tidegate",
    cls=GroupedCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Streaming on a schedule: drain what arrived, check it, publish it, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_Foreseen = TypeVar("_Foreseen", bound=Mapping[str, object])


def complete_name(incomplete: str) -> list[str]:
    """Complete names of pipelines of the current folder's project."""
    from tidegate.spec.pipeline import list_pipelines
    from tidegate.spec.project import load_project

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
        help="A name for this job. Safe to repeat: with the same name it is resumed, or is already done.",
    ),
]
AcceptLoss = Annotated[
    str | None,
    typer.Option("--accept-loss", help="After exit 66: continue without what was lost; the reason is recorded."),
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


def print_foreseen(value: _Foreseen, as_json: bool, show: Callable[[_Foreseen], None]) -> None:
    """Print the result of a dry run, and exit with the code of the error that the command itself would end with."""
    print_value(value, as_json, show)
    hindrance = cast("Error | None", value.get("hindrance"))
    if hindrance is not None:
        raise typer.Exit(hindrance["exit_code"])


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function with parameters of type ``NamedTuple``: their fields become its options."""
    groups: dict[str, type[tuple[object, ...]]] = {}
    options: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, tuple):
            groups[name] = kind
            own = get_type_hints(kind, include_extras=True)
            options += [one.replace(annotation=own[one.name]) for one in inspect.signature(kind).parameters.values()]
        else:
            options.append(parameter.replace(annotation=kind))

    @functools.wraps(command)
    def carry_out(**given: object) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{one: given.pop(one) for one in inspect.signature(kind).parameters})
        command(**given)

    named = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in options]
    carry_out.__annotations__ = {one.name: one.annotation for one in named}
    vars(carry_out)["__signature__"] = inspect.Signature(named)
    return carry_out


class Job(NamedTuple):
    """The options of a job that can be named, and shown before it is done."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and what prevents it; change nothing.")
    ] = False
    run_id: WorkId = None
    json_: Json = False

    def show(self, value: _Foreseen, show: Callable[[_Foreseen], None]) -> None:
        """Print the result of a dry run."""
        print_foreseen(value, self.json_, show)

    def carry_out(self, project: Project, name: str, kind: str, work: Callable[[str], RunReport]) -> None:
        """Do the job, which gets its run id, and print its report."""
        run_id = name_work(kind, self.run_id)
        run_job(lambda: work(run_id), project, name, run_id, self.json_)
