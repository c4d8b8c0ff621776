"""``commands.md``: every command with its arguments and options, from the command line's own definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from tidegate.cli.app import group_names
from tidegate.cli.commands import app
from tidegate.cli.outputs import OUTPUTS
from tidegate.core import errors
from tools.docs.markdown import MADE, code, table

EXIT_CODES: dict[int, str] = {
    0: "published, nothing new, or done",
    64: "wrong use, or a bad spec",
    65: "held by the gate: a person decides",
    66: "the source lost or never had what is asked, or may not be read",
    70: "a defect of tidegate",
    75: "try again: busy, broker away, killed",
    78: "checkpoint, table and spec disagree: a person must choose",
}


def render_commands() -> str:
    """The page."""
    root: Any = typer.main.get_command(app)
    known = {kind.exit_code for kind in vars(errors).values() if _is_error(kind)}
    if known != set(EXIT_CODES) - {0}:
        raise KeyError(f"exit codes {sorted(known)} and their descriptions differ: correct tools/docs/commands.py")
    parts = [
        MADE,
        "# Commands\n",
        f"`tidegate [--project DIR] COMMAND`. {root.help}\n",
        "stdout is the result, stderr everything else (progress, errors). `--json` prints the result as JSON; an error "
        'is then on stdout too, as `{"error": {...}}`.\n',
        "## For every command\n",
        table(["option", "meaning"], _rows(root)),
        "## Exit codes\n",
        table(["code", "means"], [[str(number), meaning] for number, meaning in EXIT_CODES.items()]),
        "`status --check` and `doctor` exit with 1 when they find something that needs a person.\n",
    ]
    for title, names in group_names({name: one for name, one in root.commands.items() if not one.hidden}):
        parts.append(f"## {title}\n")
        for name in names:
            for path, command in _leaves(name, root.commands[name]):
                parts += [f"### tidegate {path}\n", f"{command.help}\n", f"    {_usage(path, command)}\n"]
                rows = _rows(command)
                if rows:
                    parts.append(table(["argument or option", "meaning"], rows))
    parts += ["## What --json prints\n", "A JSON Schema of each output is shipped with the package:\n"]
    parts.append(table(["schema", "printed by"], _output_rows()))
    return "\n".join(parts)


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, errors.TidegateError)


def _leaves(name: str, command: Any) -> list[tuple[str, Any]]:
    """(what is typed, command) of a command, or of each command of a group."""
    if not hasattr(command, "commands"):
        return [(name, command)]
    return [leaf for one, inner in command.commands.items() for leaf in _leaves(f"{name} {one}", inner)]


def _usage(name: str, command: Any) -> str:
    parts = [f"tidegate {name}"]
    for parameter in _shown(command):
        shown = _spell(parameter)
        parts.append(shown if parameter.required else f"[{shown}]")
    return " ".join(parts)


def _output_rows() -> list[list[str]]:
    folder = "../../src/tidegate/cli/schemas"
    return [[f"[{name}]({folder}/{name}.schema.json)", whose] for name, (_, whose) in OUTPUTS.items()]


def _shown(command: Any) -> list[Any]:
    return [one for one in command.params if not getattr(one, "hidden", False)]


def _spell(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"{parameter.metavar}..." if parameter.nargs == -1 else str(parameter.metavar)
    name = max(parameter.opts, key=len)
    return name if parameter.is_flag else f"{name} {parameter.metavar or _value(parameter)}"


def _value(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    return {int: "N", Path: "DIR"}.get(kind, "TEXT")


def _rows(command: Any) -> list[list[str]]:
    rows = []
    for parameter in _shown(command):
        if parameter.name in ("help", "install_completion", "show_completion"):
            continue
        text = str(getattr(parameter, "help", None) or "")
        if not text:
            raise KeyError(f"{parameter.name} of a command has no help: every argument is explained")
        default = parameter.default
        if parameter.param_type_name == "option" and isinstance(default, int) and not isinstance(default, bool):
            text = f"{text} Default: {default}."
        rows.append([code(_spell(parameter)), text])
    return rows
