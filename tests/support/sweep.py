"""How many examples a property is tried with."""

from __future__ import annotations

import os


def examples(number: int) -> int:
    """``number`` examples in `make sweep`; a sixteenth of it in `make test`, but not fewer than five."""
    return number if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else max(5, number // 16)
