"""Why a sink could not be fed. A fault stops only that sink; the run reports it at its end."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

_AT_MOST = 600


class SinkFault(Exception):
    """What went wrong with one sink: what happened, where (a user's file and line, a topic), and what fixes it."""

    def __init__(self, message: str, *, where: str | None = None, fix: str = "correct the cause") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def to_dict(self) -> dict[str, object]:
        """The fault as a driver returns it."""
        return {"message": self.message, "where": self.where, "fix": self.fix}

    @staticmethod
    def from_dict(value: dict[str, Any]) -> SinkFault:
        """The fault that :meth:`to_dict` returned."""
        return SinkFault(value["message"], where=value["where"], fix=value["fix"])


def explain_fault(error: BaseException, job_folder: Path) -> SinkFault:
    """Turn any exception into a fault: its text, and the line of the user's code that raised it, if any."""
    if isinstance(error, SinkFault):
        return error
    text = " ".join(line.strip() for line in str(error).split("\n\tat ")[0].splitlines() if line.strip())
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    line = _user_line(error, job_folder)
    fix = "correct the sink's code" if line else "look at the message"
    return SinkFault(message[:_AT_MOST], where=line, fix=fix)


def _user_line(error: BaseException, job_folder: Path) -> str | None:
    """``file:line`` of the last frame that lies in the pipeline's folder."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(job_folder):
        return f"{error.filename}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(job_folder):
            return f"{frame.filename}:{frame.lineno}"
    return None
