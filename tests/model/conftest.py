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
def folder() -> Iterator[Path]:
    """In memory: a scene costs some hundred storage calls."""
    path = Path(tempfile.mkdtemp(prefix="tidegate-scene-", dir=ROOM))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    """Changes of the program that end with the test."""
    with pytest.MonkeyPatch.context() as made:
        yield made


@pytest.fixture
def new_world(folder: Path) -> Iterator[Make]:
    """Makes pipelines that nothing has happened to yet; the one before ends when the next is made."""
    worlds: list[tuple[World, pytest.MonkeyPatch]] = []

    def end() -> None:
        while worlds:
            world, patch = worlds.pop()
            world.end()
            patch.undo()

    def make_world(shape: Shape, **more: Any) -> World:
        end()
        patch = pytest.MonkeyPatch()
        world = World(folder / str(len(list(folder.iterdir()))), shape, patch, **more)
        worlds.append((world, patch))
        return world

    yield make_world
    end()
    assert not stand_ins_left()


@pytest.fixture
def make(new_world: Make) -> Make:
    """Makes the pipelines of a test module; without a way of its own, new ones."""
    return new_world


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
