"""How many examples a property is tried with, and at which points a sweep stops a process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def examples(number: int) -> int:
    """``number`` examples in `make sweep`; a sixteenth of it in `make test`, but not fewer than five."""
    return number if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else max(5, number // 16)


def sweep(total: int, sample: int) -> list[int]:
    """Step numbers to stop at: all of them with TIDEGATE_SWEEP=all, else an even sample with both ends; of at least n
    with TIDEGATE_SWEEP=n."""
    wanted = os.environ.get("TIDEGATE_SWEEP", "0")
    sample = total if wanted == "all" else max(sample, int(wanted))
    if total <= sample:
        return list(range(1, total + 1))
    return sorted({1 + round(index * (total - 1) / (sample - 1)) for index in range(sample)})


def choose(points: Sequence[T], sample: int) -> list[T]:
    """The points to stop at, chosen as :func:`sweep` does."""
    return [points[number - 1] for number in sweep(len(points), sample)]
