"""The progress of an ingest on stderr: one line that is rewritten on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys

from tidegate.spark.driver.progress import Event, describe_event


class ProgressLine:
    """Shows the driver's events. As a context manager it ends the last line."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._width = 0

    def show(self, event: Event) -> None:
        """Show one event, except errors, which the command prints."""
        if event["event"] in ("error", "result"):
            return
        text = describe_event(event)
        if self._live:
            print("\r" + text[:118].ljust(self._width), end="", file=sys.stderr, flush=True)
            self._width = min(len(text), 118)
        else:
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live and self._width:
            print(file=sys.stderr)
