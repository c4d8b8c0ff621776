"""What the tools say, and how they fail."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

REPO_ROOT = Path(__file__).resolve().parent.parent
_STARTED = time.monotonic()


class ToolError(Exception):
    """A tool cannot go on: ``message`` says what happened, ``fix`` what to do about it."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return self.message + (f"\n  fix: {self.fix}" if self.fix else "")


def say(text: str) -> None:
    """One line to the person who waits, with the seconds since the tool began."""
    print(f"[{time.monotonic() - _STARTED:5.1f}s] {text}", file=sys.stderr, flush=True)


def run_main(main: Callable[[list[str]], int]) -> None:
    """Ends the process with what ``main`` returns; a :class:`ToolError` becomes two clear lines and exit code 1."""
    try:
        sys.exit(main(sys.argv[1:]))
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
