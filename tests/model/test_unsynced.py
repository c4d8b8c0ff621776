"""A power cut at each point of a run: what was not synced is gone, cut off or full of NUL bytes. At most two runs
later, without a person, every record is in its place once, for every reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.model.processes import Stop
from tests.model.unsynced import CUTS, Cut
from tests.model.world import Shape, World

_POINTS_AT_MOST = 400
_SWEEP = os.environ.get("TIDEGATE_SWEEP")
_EVERY = 1 if _SWEEP == "all" else 9 if _SWEEP else 83
"""Every so many points; for each cut another one first."""


def cut_at(root: Path, shape: Shape, point: int, how: Cut, *, is_first: bool) -> bool:
    """One scene: a run is cut at a storage call, or after its end; False when it ended before that call."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(root, shape, patch, batch_size=2)
        if not is_first:
            world.offer(0, ["good", "good", "malformed"])
            assert world.run("before").error is None
        world.offer(0, ["good", "malformed", "good"])
        world.offer(1, ["good"])
        world.disk.sync_all()
        process = world.run("cut", stop=Stop(nth=point))
        is_over = process.state == "ended"
        if not is_over:
            world.kill(process)
        world.cut_power(how)
        try:
            for number in range(2):
                process = world.run(f"after-{number}")
                assert process.error is None
                world.check()
            world.check_all()
        except AssertionError as error:
            raise AssertionError("\n".join([f"{error} (point {point}, {how})", *world.log])) from error
        finally:
            world.end()
        return not is_over


@pytest.mark.parametrize("is_first", [True, False], ids=["first run", "later run"])
@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_power_is_cut(folder: Path, shape: Shape, how: Cut, is_first: bool) -> None:
    first = 1 if _EVERY == 1 else 1 + (3 * CUTS.index(how) + 7 * is_first) % _EVERY
    for point in range(first, _POINTS_AT_MOST, _EVERY):
        if not cut_at(folder / str(point), shape, point, how, is_first=is_first):
            break
    else:
        raise AssertionError(f"a run has more than {_POINTS_AT_MOST} points")


@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_power_is_cut_later_than_the_kill(folder: Path, shape: Shape) -> None:
    """A run is killed behind making a folder, the next finds it and publishes: its name is on disk by then."""
    for nth in range(1, 8):
        with pytest.MonkeyPatch.context() as patch:
            world = World(folder / str(nth), shape, patch)
            world.offer(0, ["good", "malformed"])
            world.disk.sync_all()
            world.kill(world.run("killed", stop=Stop("mkdir", nth=nth, after=True)))
            assert world.run("published").error is None
            world.cut_power("names")
            for number in range(2):
                assert world.run(f"after-{number}").error is None, world.log
            world.check_all()
            world.end()


@pytest.mark.parametrize("how", ["names", "names and zeros"])
@pytest.mark.parametrize("kinds", [["good", "malformed"], ["poor", "poor"]], ids=["published", "waits alone"])
@pytest.mark.parametrize("shape", ["kafka", "files"])
def test_power_is_cut_after_another_run_has_taken_over(folder: Path, shape: Shape, kinds: list[str], how: Cut) -> None:
    """A run is killed at any call; the next trusts what that one wrote, and removes what it was made from."""
    for point in range(1 + _EVERY // 3, _POINTS_AT_MOST, _EVERY):
        with pytest.MonkeyPatch.context() as patch:
            world = World(folder / str(point), shape, patch, batch_size=2, on_critical="continue")
            try:
                world.offer(0, ["good"])
                assert world.run("before").error is None
                world.offer(0, kinds)
                world.disk.sync_all()
                process = world.run("killed", stop=Stop(nth=point))
                if process.state == "ended":
                    return
                world.kill(process)
                world.offer(1, ["good"])
                world.run("takes over")
                world.cut_power(how)
                world.settle("release")
            except AssertionError as error:
                raise AssertionError("\n".join([f"{error} (point {point}, {how})", *world.log])) from error
            finally:
                world.end()
    raise AssertionError(f"a run has more than {_POINTS_AT_MOST} points")


def test_a_plan_that_a_run_seals_is_on_disk_before_the_seal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has planned a batch, and sleeps; the next one seals that plan. Were the plan lost in a power cut, and not
    its seal, other records would be planned into the batch, and it would not be what was sealed."""
    world = World(folder, "kafka", monkeypatch)
    world.offer(0, ["good"])
    assert world.run("first").error is None
    world.offer(0, ["good"])
    world.freeze(world.run("sleeps", stop=Stop("state/")))
    world.offer(0, ["good", "malformed"])
    world.freeze(world.run("seals", stop=Stop("offsets/", after=True)))
    world.cut_power("names and zeros")
    world.offer(1, ["good"])
    world.settle("discard")
