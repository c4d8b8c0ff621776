"""Importing Great Expectations: quietly, and without what an audit never uses.

The import costs about 2.5 CPU-seconds, a third of it for drawing charts (altair) and for the statistics of three rules
(scipy.stats). Those two are imported only when a name of theirs is used; no use is refused.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
import warnings
from types import ModuleType

_PUT_OFF = ("altair", "scipy.stats")

AHEAD_AT_MOST_BYTES = 512 << 20
"""Input up to which a run imports the library while Spark still reads: above it Spark's own process judges the rows
(:func:`tidegate.quality.engine.choose_engine`), and the import would be for nothing."""


def import_gx() -> ModuleType:
    """The library, with analytics switched off before it looks. Seconds of CPU the first time, nothing later."""
    if "great_expectations" not in sys.modules:
        os.environ["GX_ANALYTICS_ENABLED"] = "false"
        for name in _PUT_OFF:
            _put_off(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations
    return great_expectations


def import_gx_ahead() -> None:
    """Begin the import in a thread: while Spark reads, this process only waits, so that a small run ends 1.7 s earlier.

    Not before Spark's process was started: a fork while a thread imports may never come back. A failure shows when the
    library is needed.
    """

    def load() -> None:
        with contextlib.suppress(Exception):
            import_gx()

    threading.Thread(target=load, name="import-gx", daemon=True).start()


class _PutOffModule(ModuleType):
    """A placeholder for a module until one of its names is used; then the real one's proxy."""

    def __getattr__(self, name: str) -> object:
        real = sys.modules.get(self.__name__)
        if real is self or real is None:
            sys.modules.pop(self.__name__, None)
            real = importlib.import_module(self.__name__)
        return getattr(real, name)


def _put_off(name: str) -> None:
    """Let ``name`` be imported on its first use. Does nothing when it is imported already, or not installed.

    Python's own ``LazyLoader`` does not do here: on 3.11 a second import statement already wakes it.
    """
    if name in sys.modules:
        return
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        return
    if spec is not None:
        module = _PutOffModule(name)
        module.__spec__ = spec
        sys.modules[name] = module
