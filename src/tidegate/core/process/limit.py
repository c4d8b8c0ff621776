"""Calls with a time limit. One that takes longer continues in its thread, and the process may end before it. And
steps that say so when they take long."""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from threading import Thread, Timer
from typing import TypeVar

_T = TypeVar("_T")
_SLOW_SECONDS = 10.0


@contextlib.contextmanager
def print_if_slow(what: str) -> Iterator[None]:
    """Print ``what`` to stderr, once, where the block takes longer than ten seconds."""
    # On a terminal the line of the step before it may be still open.
    begin = "\n" if sys.stderr.isatty() else ""
    with act_if_slow(_SLOW_SECONDS, partial(print, f"{begin}{what}", file=sys.stderr, flush=True)):
        yield


@contextlib.contextmanager
def act_if_slow(seconds: float, act: Callable[[], object]) -> Iterator[None]:
    """Call ``act``, once and in another thread, where the block takes longer."""
    timer = Timer(seconds, act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def call_within(seconds: float, call: Callable[[], _T]) -> _T:
    """The result of ``call``. Raises what it raises, or TimeoutError when it takes longer."""
    ended: Future[_T] = Future()
    context = contextvars.copy_context()
    Thread(target=context.run, args=(carry_out, call, ended), name="tidegate-limited", daemon=True).start()
    try:
        return ended.result(seconds)
    except TimeoutError:
        if ended.done():
            raise
        raise TimeoutError(f"it takes longer than {seconds:.0f} seconds; nobody waits for it") from None


def carry_out(call: Callable[[], _T], ended: Future[_T]) -> None:
    """Put the result of ``call``, or what it raises, into ``ended``."""
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
        ended.set_exception(error)
    else:
        ended.set_result(result)
