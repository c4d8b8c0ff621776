"""Record which line of the user's code made each frame, so that an unsupported operator is named with its line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Step = tuple[str, "DataFrame"]
"""``file:line`` of the user's code, and the frame that a call on it returned."""


@contextmanager
def trace_frames(folder: Path) -> Iterator[list[Step]]:
    """The frames that calls from files in ``folder`` return while the block runs, in order."""
    steps: list[Step] = []
    mine = str(folder)

    def note(frame: FrameType, event: str, result: object) -> None:
        if event == "return" and isinstance(result, DataFrame):
            caller = frame.f_back
            if caller is not None and str(Path(caller.f_code.co_filename).parent) == mine:
                steps.append((f"{caller.f_code.co_filename}:{caller.f_lineno}", result))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield steps
    finally:
        sys.setprofile(before)
