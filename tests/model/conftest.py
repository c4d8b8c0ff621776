"""The set-up that the scenes share: pipelines in memory, one at a time."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.model.machine import ROOM
from tests.model.world import Make, Shape, World


@pytest.fixture
def new_world() -> Iterator[Make]:
    """Makes pipelines that nothing has happened to yet; the one before ends when the next is made."""
    folder = Path(tempfile.mkdtemp(prefix="tidegate-scene-", dir=ROOM))
    worlds: list[tuple[World, pytest.MonkeyPatch]] = []

    def end() -> None:
        while worlds:
            world, patch = worlds.pop()
            world.end()
            patch.undo()
            assert not stand_ins_left()

    def make_world(shape: Shape, **more: Any) -> World:
        end()
        patch = pytest.MonkeyPatch()
        world = World(folder / str(len(list(folder.iterdir()))), shape, patch, **more)
        worlds.append((world, patch))
        return world

    yield make_world
    end()
    shutil.rmtree(folder, ignore_errors=True)


def stand_ins_left() -> list[str]:
    """Names in tidegate's modules that still lead into the tests.

    A module that is first imported while a world's stand-ins are in force may keep one for the rest of the process,
    and a later test of another folder fails.
    """
    return [
        f"{name}.{key}"
        for name, module in list(sys.modules.items())
        if name.startswith("tidegate.")
        for key, value in list(vars(module).items())
        if str(getattr(value, "__module__", "")).startswith("tests.")
    ]
