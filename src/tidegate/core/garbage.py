"""The garbage collector of Python, where very many objects are made that stay."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_COLLECTED_AFTER = 50_000


@contextlib.contextmanager
def collect_rarely() -> Iterator[None]:
    """Collect garbage after 50,000 new objects, instead of 700, until the block ends.

    The collector would look at the files of a large source or table again and again, which stay in memory: that is half
    of what a list of 50,000 objects takes.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(_COLLECTED_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
