"""Which implementation of a function of the port a path calls for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.shared import OPERATIONS

P = ParamSpec("P")
R = TypeVar("R")


def operation(act: Callable[P, R]) -> Callable[P, R]:
    """Make ``act`` a function of the port: with a path of an object store, the function of its name in one of the
    modules for objects is called instead."""
    name = act.__name__
    OPERATIONS[name] = act

    @functools.wraps(act)
    def choose(*args: P.args, **kwargs: P.kwargs) -> R:
        if not any(isinstance(one, ObjectPath) for one in args):
            return act(*args, **kwargs)
        # Imported late: it brings the client of object stores, which a project on local disks does without.
        from tidegate.core.storage import object_lists, object_moves, objects

        home = next(one for one in (objects, object_lists, object_moves) if hasattr(one, name))
        chosen: Callable[P, R] = getattr(home, name)
        return chosen(*args, **kwargs)

    return choose
