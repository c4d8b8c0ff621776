"""``tidegate --help``: commands in groups, in the order in which a person needs them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

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


def group_names(commands: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """(panel, names of its commands) in the order of :data:`GROUPS`, without empty panels."""
    panels = {name: getattr(command, "rich_help_panel", None) for name, command in commands.items()}
    grouped = [(title, [name for name, panel in panels.items() if panel == title]) for title in GROUPS]
    grouped.append(("Commands", [name for name, panel in panels.items() if panel not in GROUPS]))
    return [(title, names) for title, names in grouped if names]


def _first_paragraph(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())
