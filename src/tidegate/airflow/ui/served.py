"""The project whose pipelines are shown, and time limits for looks at it that may take long: at a large folder, a slow
disk, an unreachable broker. A look over its limit continues, and the next request joins it."""

# No `from __future__ import annotations`: FastAPI resolves the annotations of dependencies at run time.

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import BoundedSemaphore, Lock, Thread
from typing import Annotated, TypeVar, cast

from fastapi import Depends, HTTPException

from tidegate.airflow.locate import find_served_project
from tidegate.airflow.ui.render import Refused
from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.process.limit import carry_out
from tidegate.spec.pipeline import check_name
from tidegate.spec.project import Project, load_project

PATIENCE_SECONDS = 8.0
_AT_ONCE = 8
_KEPT_SECONDS = 60.0
_AGAIN_SECONDS = 1.0
_STUCK_SECONDS = 60.0
_TIMES_AS_MANY = 4
_WAITING_AT_MOST = 500
_LONG_WAITS = 16
"""How many requests may wait longer than a second: each occupies one of the 40 threads of Airflow's server."""

_long_waits = BoundedSemaphore(_LONG_WAITS)
_T = TypeVar("_T")


@dataclass
class _Look:
    """One look. ``asked`` is when it was first requested, ``began`` and ``ended`` when it ran (monotonic clock)."""

    look: Callable[[], object]
    asked: float
    found: Future[object] = field(default_factory=Future)
    began: float | None = None
    ended: float | None = None

    def carry_out(self) -> None:
        self.began = time.monotonic()
        carry_out(self.look, self.found)
        self.ended = time.monotonic()


class Patience:
    """Runs looks with a time limit, at most ``at_once`` concurrently and each of them once at a time.

    A look that exceeds the limit continues, and its result is kept for a minute for the next request. A look may hang
    forever: after a minute another thread replaces its thread, up to four times as many. All are daemon threads, which
    do not keep the server from exiting.
    """

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._at_once = at_once
        self._workers = 0
        self._waiting: SimpleQueue[_Look] = SimpleQueue()
        self._looks: dict[object, _Look] = {}
        self._lock = Lock()

    def ask(self, key: object, look: Callable[[], _T], seconds: float) -> _T | None:
        """The result of ``look``, or None when it takes longer. Requests with the same key share one look."""
        with self._lock:
            self._forget_old()
            one = self._looks.get(key)
            is_new = one is None
            if one is None:
                self._start_worker()
                if self._waiting.qsize() >= _WAITING_AT_MOST:
                    return None
                one = self._looks[key] = _Look(look, time.monotonic())
                self._waiting.put(one)
        # Later requests wait only for the rest of that time: a disk that hangs must not occupy a thread of the server
        # for each page that is reloaded.
        left = seconds if is_new else max(one.asked + seconds - time.monotonic(), min(seconds, _AGAIN_SECONDS))
        with _grant(left) as granted:
            is_done = bool(wait([one.found], granted).done)
        if not is_done:
            return None
        with self._lock:
            if self._looks.get(key) is one:
                del self._looks[key]
        return cast("_T", one.found.result())

    def _start_worker(self) -> None:
        if self._workers < min(self._at_once + self._count_stuck(), self._at_once * _TIMES_AS_MANY):
            self._workers += 1
            Thread(target=self._work, name=f"tidegate-look-{self._workers}", daemon=True).start()

    def _count_stuck(self) -> int:
        before = time.monotonic() - _STUCK_SECONDS
        return sum(one.began is not None and one.ended is None and one.began < before for one in self._looks.values())

    def _work(self) -> None:
        while True:
            self._waiting.get().carry_out()

    def _forget_old(self) -> None:
        before = time.monotonic() - _KEPT_SECONDS
        for key, one in list(self._looks.items()):
            if one.ended is not None and one.ended < before:
                del self._looks[key]


@contextlib.contextmanager
def _grant(seconds: float) -> Iterator[float]:
    """How long a request may wait that would wait for ``seconds``: one second when all long waits are taken."""
    if seconds <= _AGAIN_SECONDS or not _long_waits.acquire(blocking=False):
        yield min(seconds, _AGAIN_SECONDS)
        return
    try:
        yield seconds
    finally:
        _long_waits.release()


for_pages = Patience()
"""For the main content of pages; separate from their parts, so that many slow parts do not delay a page."""


def look_soon(key: object, look: Callable[[], _T]) -> _T:
    """The result of ``look``. Raises HTTPException when it takes too long: Airflow's API server has few threads."""
    found = for_pages.ask(key, look, PATIENCE_SECONDS)
    if found is None:
        raise HTTPException(
            503,
            f"The project's disk takes longer than {PATIENCE_SECONDS:.0f} seconds, or too many pages wait for it. "
            "Nothing of a run depends on this page: load it again.",
        )
    return found


def open_project() -> Project:
    """The project that this Airflow serves.

    Raises:
        TidegateError: There is none, or its settings have a fault.
        HTTPException: The disk takes too long.
    """
    return look_soon("project", lambda: load_project(find_served_project()))


def find_project_of(dag_id: str) -> Project:
    """The project, for a DAG that may be one of its pipelines.

    Raises:
        HTTPException: 404 for a name that a pipeline cannot have, so that it never becomes part of a path.
        Refused: The project cannot be read.
    """
    try:
        check_name(dag_id)
    except TidegateError as error:
        raise HTTPException(404, error.code) from None
    try:
        return open_project()
    except TidegateError as error:
        raise Refused(error, 503) from None


def find_project_with(dag_id: str) -> Project:
    """The project, for a DAG that is or was one of its pipelines. Raises HTTPException for any other DAG, and as
    :func:`find_project_of`."""
    project = find_project_of(dag_id)
    folders = project.jobs / dag_id, project.state / dag_id
    key = (project.root, "is there", dag_id)
    if not look_soon(key, lambda: any(storage.exists(folder) for folder in folders)):
        raise HTTPException(404, f"{dag_id} is not a pipeline of tidegate in the project that is shown here.")
    return project


ServedProject = Annotated[Project, Depends(find_project_with)]
"""The project, for a route of a DAG: FastAPI calls it in a thread, so that a slow disk does not block the server."""
