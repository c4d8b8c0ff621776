"""The command line. stdout is the result, stderr everything else; exit codes are those of :mod:`tidegate.errors`."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from tidegate.cli import decide, look, repairs, start, steps  # noqa: F401 - each module gives the app its commands
from tidegate.cli.app import app, command_line, dump
from tidegate.cli.grouped import LOOK
from tidegate.cli.quarantine import quarantine_app
from tidegate.errors import TidegateError, catalogue

__all__ = ["app", "main"]

app.add_typer(quarantine_app, name="quarantine", rich_help_panel=LOOK)


def main() -> NoReturn:
    """Entry point: runs a command, prints an error as people read it, and exits with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a letter that the terminal lacks must not end a command
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as a shell starts what runs in the background
        signal.signal(signal.SIGINT, _stop)  # typer would end a command without a word
    try:
        code = app(standalone_mode=False)  # what typer.Exit carried is returned here, not raised
    except TidegateError as error:
        _fail(error)
    except typer.Exit as leaving:
        raise SystemExit(leaving.exit_code) from None
    except typer.Abort:
        raise SystemExit(75) from None
    except Exception as error:  # noqa: BLE001 - every error ends as a message and an exit code
        if hasattr(error, "exit_code") and hasattr(error, "show"):  # click's own: wrong use
            error.show()
            raise SystemExit(64) from None
        from tidegate.extras import explain_missing
        from tidegate.storage import name_cause

        if (known := explain_missing(error) or name_cause(error, Path.cwd())) is not None:
            _fail(known)
        import traceback

        traceback.print_exc()
        raise SystemExit(70) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _fail(error: TidegateError) -> NoReturn:
    if "--json" in sys.argv and not command_line.printed:  # one document: a failed run's report holds its error already
        print(dump({"error": error.to_dict()}))
    print(str(error), file=sys.stderr)
    raise SystemExit(error.exit_code)


def _stop(signum: int, frame: FrameType | None) -> None:
    how = signal.Signals(signum).name
    raise catalogue.COMMAND_STOPPED(where=f"project {command_line.project or Path.cwd()}", how=how)


if __name__ == "__main__":
    main()
