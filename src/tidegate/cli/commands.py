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


_ONLY_IN_WORDS = (
    (r"No such command '(.*?)'.*", r"there is no command \1"),
    (r"Option '(.*?)' requires an argument.*", r"the option \1 has no value"),
    (r"Got unexpected extra argument\S* \((.*)\)", r"too many arguments: \1"),
)
"""Faults of which click gives nothing but its text."""


def _describe(error: Exception) -> str:
    """A fault of the command line in our words."""
    param, message = getattr(error, "param", None), " ".join(str(getattr(error, "message", error)).split())
    message = message.removesuffix(".").removeprefix("Value error, ")
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        return f"there is no option {error.option_name}"
    if param is not None:
        name = param.opts[0] if param.param_type_name == "option" else (param.metavar or param.name.upper())
        if hasattr(error, "param_type"):
            return f"the {param.param_type_name} {name} is missing"
        return f"{name} takes a whole number" if "valid integer" in message else f"{name}: {message}"
    found = (match.expand(ours) for words, ours in _ONLY_IN_WORDS if (match := re.fullmatch(words, message)))
    return next(found, message)


def _refuse(error: Exception) -> UsageError:
    """The error for a command line that typer refuses."""
    context, fault = getattr(error, "ctx", None), _describe(error)
    words = [] if context is None else context.command_path.removeprefix(context.find_root().info_name or "").split()
    command = " ".join(["tidegate", *words])
    meant = getattr(error, "possibilities", None) or ()
    if (unknown := re.fullmatch("there is no command (.*)", fault)) is not None and context is not None:
        meant = filter(None, [name_nearest(unknown[1], context.command.commands)])
    nearest = "".join(f"write {one}; " for one in list(meant)[:1])
    return errors.BAD_ARGUMENTS(where=command, command=command, fault=fault, nearest=nearest)
