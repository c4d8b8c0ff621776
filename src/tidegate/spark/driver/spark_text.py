"""The first lines of a message of Spark, and the line of the user's code that it names."""

from __future__ import annotations

import traceback
from pathlib import Path


def user_line(error: BaseException, path: Path) -> str:
    """``file:line`` of the last frame of ``error`` that lies in the folder of the user's file, else the file alone."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).parent == path.parent:
            return f"{frame.filename}:{frame.lineno}"
    return str(path)


def first_lines(error: BaseException, limit: int = 600) -> str:
    """The head of an exception's text, without the Java trace or the query plan."""
    text = str(error).split("\n\tat ")[0].split("JVM stacktrace")[0].strip()
    lines = [line for line in text.splitlines() if line.strip()]
    kept = []
    for line in lines:
        if line.lstrip().startswith(("'Project", "Project [", "+-", "~", "== SQL", "Traceback")):
            break
        kept.append(line)
    return (" ".join(kept) or text)[:limit]
