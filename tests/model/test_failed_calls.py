"""A backfill of which a storage call in the table's folder fails, once or for good: plain readers have every row once,
or the error and ``status`` say what they miss."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.model.beside import D1, D2, done
from tests.model.processes import Process
from tests.model.world import Make, World, read_delta, read_plain
from tests.support.storage_calls import fail
from tests.support.sweep import sweep
from tidegate.core.errors import TidegateError
from tidegate.table.publish.publish import describe_missed


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Which storage call of the model's processes fails: ``at`` (of those that touch the table), or all from there."""
    how: dict[str, Any] = {"at": 0, "for_good": False, "count": 0, "name": ""}
    real = Process.at

    @contextlib.contextmanager
    def at(self: Process, label: str) -> Iterator[None]:
        with real(self, label):
            how["count"] += "warehouse" in label
            if "warehouse" in label and how["count"] == how["at"]:
                how["name"] = label.partition(" ")[0]
            again = how["for_good"] and 0 < how["at"] < how["count"] and label.partition(" ")[0] == how["name"]
            if "warehouse" in label and (how["count"] == how["at"] or again):
                fail(label)
            yield

    monkeypatch.setattr(Process, "at", at)
    yield how


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_backfill(make: Make, failing: dict[str, Any], for_good: bool) -> None:
    def begin() -> World:
        failing.update(at=0, for_good=for_good)
        world = make("files")
        world.offer(0, ["good", "malformed", "good", "good"])
        done(world.run("r1"))
        failing["count"] = 0
        return world

    world = begin()
    done(world.backfill("b", D1, D2))
    total, truth = failing["count"], read_plain(world.paths.table)
    for at in sweep(total, 20):
        world = begin()
        failing["at"] = at
        world.disturbed.add("backfill b")
        error = world.backfill("b", D1, D2).error
        failing["at"] = 0
        plain, missed = read_plain(world.paths.table), describe_missed(world.paths)
        assert read_delta(world.paths.table) == truth
        assert (plain == truth) == (missed == []), f"failed at {at} ({failing['name']})"
        if missed:
            assert for_good and isinstance(error, TidegateError) and error.code == "ROWS_OUT_OF_SIGHT"
        done(world.backfill("b", D1, D2))
        done(world.run("r2"))
        world.check_all()
