"""The command line: results on stdout, everything else on stderr, exit codes of :mod:`tidegate.core.errors`."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO, cast

from tidegate.cli import errors
from tidegate.cli.plain_run import read_plain_run, run_plainly
from tidegate.cli.work import command_line, dump
from tidegate.core.errors import TidegateError
from tidegate.core.words import escape_controls


def main() -> NoReturn:
    """Entry point: run a command, print its error for people, and exit with its code."""
    sys.stdout, sys.stderr = _escaped(sys.stdout), _escaped(sys.stderr)
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a shell ignores it for background jobs
        signal.signal(signal.SIGINT, _stop)  # typer would end a command without a message
    try:
        code = _run()
    except TidegateError as error:
        _fail(error)
    except BrokenPipeError:  # the reader of stdout has exited; devnull keeps Python from another error at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:  # noqa: BLE001 - every error ends as a message and an exit code
        from tidegate.core.extras import explain_missing
        from tidegate.core.storage import name_cause

        if (known := explain_missing(error) or name_cause(error, Path.cwd())) is not None:
            _fail(known)
        import traceback

        traceback.print_exc()
        raise SystemExit(70) from None
    raise SystemExit(code)


class _Escaped:
    """A stream of the command: what it writes has no control characters, whatever text a record or a file name is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(escape_controls(text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def _escaped(stream: TextIO) -> TextIO:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a character that the terminal lacks must not end a command
    return stream if isinstance(stream, _Escaped) else cast("TextIO", _Escaped(stream))


def _run() -> int:
    given = read_plain_run(sys.argv[1:])
    if given is not None:
        run_plainly(given)
        return 0
    from tidegate.cli.commands import run_command

    return run_command()


def _fail(error: TidegateError) -> NoReturn:
    if "--json" in sys.argv and not command_line.printed:  # one document: a failed run's report has its error already
        print(dump({"error": error.to_dict()}))
    print(str(error), file=sys.stderr)
    raise SystemExit(error.exit_code)


def _stop(signum: int, frame: FrameType | None) -> None:
    how = signal.Signals(signum).name
    raise errors.COMMAND_STOPPED(where=f"project {command_line.project or Path.cwd()}", how=how)


if __name__ == "__main__":
    main()
