"""``status``, ``plan`` and ``doctor`` name what will stop the next run, or waits for it, and the command that helps."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.model.beside import D1, D2, code_of, done
from tests.model.processes import Stop
from tests.model.world import NAME, Make, World
from tidegate.rework.backfill.command import preview_backfill
from tidegate.rework.backfill.span import Wanted
from tidegate.rework.replay.choose import Selection
from tidegate.rework.replay.command import preview_replay
from tidegate.runs.opening import note_refused
from tidegate.runs.restart.repair import reset_pipeline
from tidegate.runs.rollback import look_at_rollback
from tidegate.views.doctor import examine
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import project_status


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
    world.day_by_day = True
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
    shown = look(world, lambda: reset_pipeline(world.project, NAME, from_beginning=True, dry_run=True, confirm=None))
    assert [one.partition(":")[0] for one in shown["choices"]] == [
        "restore what is damaged or gone from a copy, then run again",
        f"`tidegate reset {NAME} --from-beginning --confirm {NAME}`",
        f"`tidegate repair {NAME}`",
    ]
    works: dict[Any, Any] = {
        lambda: preview_backfill(world.project, NAME, Wanted(D1, D1)): lambda: world.backfill("b", D1, D1),
        lambda: preview_backfill(world.project, NAME, None): lambda: world.refresh("f"),
        lambda: look_at_rollback(world.project, NAME, 0): lambda: world.rollback(0, "leave-out", "back"),
        lambda: preview_replay(world.project, NAME, Selection()): lambda: world.replay("p", Selection()),
    }
    for dry_run, work in works.items():
        refused = code_of(work())
        assert look(world, dry_run)["hindrance"]["code"] == refused == "QUARANTINE_BEHIND"


def test_a_backfill_that_was_stopped_half_way(world: World) -> None:
    world.kill(world.backfill("b", D1, D2, stop=Stop("link data/state/orders/intents", after=True)))
    plan = look(world, lambda: plan_pipeline(world.project, NAME))
    (status,) = look(world, lambda: project_status(world.project, NAME))
    told = [note for note in plan["notes"] if note.startswith("backfill b was stopped half-way: `tidegate run")]
    assert len(told) == 1 and plan["pending"] and told[0] in status["notes"]
    assert doctor(world)[f"work of {NAME}"][0] == "backfill b was stopped half-way"
    done(world.run("r9"))
    (left,) = look(world, lambda: plan_pipeline(world.project, NAME))["notes"]
    assert left.startswith(f"backfill b is unfinished: day={D1} is rebuilt, day={D2} is not; ")
    done(world.backfill("b", D1, D2))
    assert look(world, lambda: plan_pipeline(world.project, NAME))["notes"] == []
    assert doctor(world) == {}


def told(world: World) -> tuple[list[str], list[str], dict[str, tuple[str, str | None]]]:
    """What ``plan``, ``status`` and ``doctor`` say of work that is not finished."""
    plan = look(world, lambda: plan_pipeline(world.project, NAME))
    (status,) = look(world, lambda: project_status(world.project, NAME))
    (glance,) = look(world, lambda: project_status(world.project, None))
    found = [[note for note in one["notes"] if "unfinished" in note] for one in (plan, status, glance)]
    assert found[1] == found[2]
    return found[0], found[1], doctor(world)


@pytest.mark.parametrize("where", ["first", "between", "second"])
def test_a_backfill_that_was_killed_before_its_publish(world: World, where: str) -> None:
    """The next run does not go on with it: whoever looks is told how far it is, and what goes on with it."""
    stops = {"first": Stop("checkpoint/metadata"), "second": Stop("checkpoint/metadata", nth=3)}
    stop = stops.get(where, Stop("replace data/state/orders/lease", after=True))
    world.kill(world.backfill("b", D1, D2, stop=stop))
    done_so_far = "nothing of it is rebuilt" if where == "first" else f"day={D1} is rebuilt, day={D2} is not"
    again = f"tidegate backfill {NAME} --from {D1} --to {D2} --run-id b"
    line = f"backfill b is unfinished: {done_so_far}; `{again}` resumes it"
    for _ in range(2):
        plan, status, found = told(world)
        assert plan == status == [line]
        assert found == {f"work of {NAME}": (line.rpartition("; ")[0], again)}
        notes = done(world.run(world.new_run_id()))["notes"]
        assert not [note for note in notes if "continues what it had begun" in note]
    assert done(world.backfill("b", D1, D2))["rebuilt"] == [f"day={D1}", f"day={D2}"]
    assert told(world) == ([], [], {})
    world.check_all()


@pytest.mark.parametrize(("at", "then"), [(1, "b"), (2, "other"), (2, "refresh"), (3, "b")])
def test_a_backfill_that_was_stopped_by_a_key(world: World, patch: pytest.MonkeyPatch, at: int, then: str) -> None:
    """It ends with a report that says that it failed; until it is resumed, or the days are rebuilt by another command,
    whoever looks sees how far it is."""
    submit, driver = World._submit, iter(range(1, 9))

    def stop(self: World, plan: Any) -> int:
        if next(driver) == at:
            raise KeyboardInterrupt
        return submit(self, plan)

    world.disturbed.add("backfill b")
    with patch.context() as inner:
        inner.setattr(World, "_submit", stop)
        stopped = world.backfill("b", D1, D2)
    if at == 3:
        assert stopped.error is None and told(world) == ([], [], {})
        return
    assert isinstance(stopped.error, KeyboardInterrupt)
    again = f"tidegate backfill {NAME} --from {D1} --to {D2} --run-id b"
    done_so_far = "nothing of it is rebuilt" if at == 1 else f"day={D1} is rebuilt, day={D2} is not"
    line = f"backfill b is unfinished: {done_so_far}; `{again}` resumes it"
    plan, status, found = told(world)
    assert plan == status == [line] and found == {f"work of {NAME}": (line.rpartition("; ")[0], again)}
    done(world.refresh("all", keeps_older=True) if then == "refresh" else world.backfill(then, D1, D2))
    assert told(world) == ([], [], {})


def test_a_refresh_that_was_killed(world: World) -> None:
    world.kill(world.refresh("all", keeps_older=True, stop=Stop("checkpoint/metadata")))
    again = f"tidegate refresh {NAME} --keep-older --run-id all"
    line = f"refresh all is unfinished: nothing of it is rebuilt; `{again}` resumes it"
    (status,) = look(world, lambda: project_status(world.project, NAME))
    (ended,) = [note for note in status["notes"] if "ended without an outcome" in note]
    assert ended.endswith(
        "; the next run finishes its publish, if that was begun, and nothing else of it; the same command with "
        "--run-id all does the rest"
    )
    assert told(world)[:2] == ([line], [line])
    notes = done(world.run("r9"))["notes"]
    assert [note for note in notes if note.endswith("; the same command with --run-id all does the rest")]
    assert told(world)[:2] == ([line], [line])


def test_a_backfill_that_may_be_at_work(world: World) -> None:
    """Between two days a run may have the lease: whether the backfill waits behind it, nobody can tell."""
    world.kill(world.backfill("b", D1, D2, stop=Stop("replace data/state/orders/lease", after=True)))
    note_refused(world.paths, "r9")
    plan, status, found = told(world)
    assert plan == status and plan[0].startswith("backfill b is unfinished, or waits for its turn: ")
    assert found == {}
