"""All commands of the typer application."""

from __future__ import annotations

import re

import typer

from tidegate.cli import decide, errors, look, repairs, start  # noqa: F401 - each module gives the app its commands
from tidegate.cli.app import LOOK, app
from tidegate.cli.quarantine import quarantine_app
from tidegate.core.errors import UsageError
from tidegate.spec.faults import name_nearest

__all__ = ["app", "run_command"]

app.add_typer(quarantine_app, name="quarantine", rich_help_panel=LOOK)


def run_command() -> int:
    """Run the command line and return its exit code. Raises TidegateError and unexpected errors."""
    try:
        code = app(standalone_mode=False)  # the code of typer.Exit is returned, not raised
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.Abort:
        return 75
    except Exception as error:
        if not (hasattr(error, "exit_code") and hasattr(error, "show")):
            raise
        if type(error).__name__ != "NoArgsIsHelpError":
            raise _refuse(error) from None
        error.show()
        return 64
    return code if isinstance(code, int) else 0


_IN_OUR_WORDS = (
    (r"No such command '(.*?)'.*", r"there is no command \1"),
    (r"No such option: (\S+).*", r"there is no option \1"),
    (r"Missing (argument|option) '(.*?)'.*", r"the \1 \2 is missing"),
    (r"Option '(.*?)' requires an argument.*", r"the option \1 has no value"),
    (r"Got unexpected extra argument\S* \((.*)\)", r"too many arguments: \1"),
    (r"Invalid value for '(.*?)': Value error, (.*)", r"\1: \2"),
    (r"Invalid value for '(.*?)': .*valid integer.*", r"\1 takes a whole number"),
    (r"Invalid value for '(.*?)': (.*)", r"\1: \2"),
)


def _refuse(error: Exception) -> UsageError:
    """The error for a command line that typer refuses."""
    format_message, context = getattr(error, "format_message", lambda: str(error)), getattr(error, "ctx", None)
    text = " ".join(format_message().split()).removesuffix(".")
    pattern, ours = next((pair for pair in _IN_OUR_WORDS if re.fullmatch(pair[0], text)), ("(.*)", r"\1"))
    fault = re.sub(pattern, ours, text, count=1)
    words = [] if context is None else context.command_path.removeprefix(context.find_root().info_name or "").split()
    command = " ".join(["tidegate", *words])
    meant = getattr(error, "possibilities", None) or ()
    if (unknown := re.fullmatch("there is no command (.*)", fault)) is not None and context is not None:
        meant = filter(None, [name_nearest(unknown[1], context.command.commands)])
    nearest = "".join(f"write {one}; " for one in list(meant)[:1])
    return errors.BAD_ARGUMENTS(where=command, command=command, fault=fault, nearest=nearest)
