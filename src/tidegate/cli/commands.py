"""All commands of the typer application."""

from __future__ import annotations

import typer

from tidegate.cli import decide, look, repairs, start  # noqa: F401 - each module gives the app its commands
from tidegate.cli.app import LOOK, app
from tidegate.cli.quarantine import quarantine_app

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
        if hasattr(error, "exit_code") and hasattr(error, "show"):  # click's own: wrong use
            error.show()
            return 64
        raise
    return code if isinstance(code, int) else 0
