"""Calls with a time limit. One that takes longer continues in its thread, and the process may end before it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

_T = TypeVar("_T")


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
