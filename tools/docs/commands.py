"""``commands.md``: every command with its arguments and options, from the command line's own definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from tidegate import errors
from tidegate.cli.main import app
from tools.docs.markdown import MADE, code, table

EXIT_CODES: dict[int, str] = {
    0: "published, nothing new, or done",
    64: "wrong use, or a bad spec",
    65: "held by the gate: a person decides",
    66: "the source lost, or never had, what is asked",
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
    ]
    for name, command in _leaves(root):
        parts += [f"## tidegate {name}\n", f"{command.help}\n", f"    {_usage(name, command)}\n"]
        rows = _rows(command)
        if rows:
            parts.append(table(["argument or option", "meaning"], rows))
    return "\n".join(parts)


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, errors.TidegateError)


def _leaves(group: Any, before: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found += _leaves(command, f"{before}{name} ")
        else:
            found.append((before + name, command))
    return found


def _usage(name: str, command: Any) -> str:
    parts = [f"tidegate {name}"]
    for parameter in command.params:
        shown = _spell(parameter)
        parts.append(shown if parameter.required else f"[{shown}]")
    return " ".join(parts)


def _spell(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = str(parameter.metavar or parameter.name.upper())
        return f"{name}..." if parameter.nargs == -1 else name
    name = max(parameter.opts, key=len)
    return name if parameter.is_flag else f"{name} {_value(parameter)}"


def _value(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    return {int: "N", Path: "DIR"}.get(kind, "TEXT")


def _rows(command: Any) -> list[list[str]]:
    rows = []
    for parameter in command.params:
        if parameter.name in ("help", "install_completion", "show_completion"):
            continue
        text = str(getattr(parameter, "help", None) or _SAID_ONCE.get(parameter.name, ""))
        default = parameter.default
        if parameter.param_type_name == "option" and isinstance(default, int) and not isinstance(default, bool):
            text = f"{text} Default: {default}."
        rows.append([code(_spell(parameter)), text])
    return rows


_SAID_ONCE = {
    "run_id": "The run.",
    "name": "The pipeline (default: all).",
    "folder": "The new project's folder.",
    "accept_loss": "After exit 66: go on without what was lost; the reason is recorded.",
}
"""Parameters that the command line leaves without a text of their own."""
