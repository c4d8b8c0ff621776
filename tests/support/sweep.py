"""How many examples a property is tried with."""

from __future__ import annotations

import os


def examples(number: int) -> int:
    """``number`` examples in `make sweep`; an eighth of it in `make test`, but not fewer than ten."""
    return number if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else max(10, number // 8)
