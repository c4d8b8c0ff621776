"""``status``, ``plan`` and ``doctor`` name what will stop the next run, or waits for it, and the command that helps."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.model.beside import D1, D2, done
from tests.model.processes import Stop
from tests.model.world import NAME, Make, World
from tidegate.operate.doctor import examine
from tidegate.operate.outlook import plan_pipeline
from tidegate.operate.status import project_status


def look(world: World, what: Any) -> Any:
    return done(world._start("look", lambda: {"seen": what()}, None))["seen"]


def doctor(world: World) -> dict[str, tuple[str, str | None]]:
    findings = look(world, lambda: examine(world.project))
    return {one.check: (one.found, one.fix) for one in findings if NAME in one.check and not one.ok}


@pytest.fixture
def world(new_world: Make) -> World:
    world = new_world("files")
    for number in range(2):
        world.offer(0, ["good"] * 3 + ["malformed"])
        done(world.run(f"r{number}"))
    return world


@pytest.mark.parametrize("how", ["deleted", "older"])
def test_a_quarantine_that_is_behind(world: World, how: str) -> None:
    assert doctor(world) == {}
    log = world.paths.quarantine / "_delta_log"
    if how == "deleted":
        shutil.rmtree(world.paths.quarantine)
    else:
        max(log.glob("*.json")).unlink()
    plan = look(world, lambda: plan_pipeline(world.project, NAME))
    (status,) = look(world, lambda: project_status(world.project, NAME))
    for errors in (plan["errors"], status["errors"]):
        assert [one["code"] for one in errors] == ["QUARANTINE_BEHIND"] and f"tidegate repair {NAME}" in errors[0][
            "fix"
        ]
    assert plan["summary"] == "the next run would refuse"
    found, fix = doctor(world)[f"quarantine of {NAME}"]
    assert "QUARANTINE_BEHIND" in found and fix is not None and f"tidegate repair {NAME}" in fix
    assert getattr(world.run("r9").error, "code", None) == "QUARANTINE_BEHIND"


def test_a_backfill_that_was_stopped_half_way(world: World) -> None:
    world.kill(world.backfill("b", D1, D2, stop=Stop("link data/state/orders/intents", after=True)))
    plan = look(world, lambda: plan_pipeline(world.project, NAME))
    (status,) = look(world, lambda: project_status(world.project, NAME))
    told = [note for note in plan["notes"] if note.startswith("backfill b was stopped half-way: `tidegate run")]
    assert len(told) == 1 and plan["pending"] and told[0] in status["notes"]
    assert doctor(world)[f"work of {NAME}"][0] == "backfill b was stopped half-way"
    done(world.run("r9"))
    assert look(world, lambda: plan_pipeline(world.project, NAME))["notes"] == []
    assert doctor(world) == {}
