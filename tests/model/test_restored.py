"""State folder, table and quarantine, of which one or two were restored from a copy of before some work: either that is
harmless, or it is refused with 78, and the command that the error names leads to each record once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import get_args

import pytest

from tests.model.processes import stops
from tests.model.restorer import BETWEEN, COMBINATIONS, WORKS, Cell, Outcome, Restorer, name_start
from tests.model.world import Make, Shape

SHAPES: tuple[Shape, ...] = ("files", "kafka")
CELLS = [
    Cell(work, combination, between, shape)
    for work in WORKS
    for combination in COMBINATIONS
    for between in BETWEEN
    for shape in SHAPES
]


SAMPLE = CELLS[::59]
"""Some of each work, each combination, each moment and each kind of source."""


@pytest.fixture(scope="module")
def counts(request: pytest.FixtureRequest) -> Iterator[Counter[tuple[str, str]]]:
    """How many cells of each combination had which outcome; printed when all that were asked for are done."""
    found: Counter[tuple[str, str]] = Counter()
    yield found
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print()
        for one in COMBINATIONS:
            told = [f"{found[one, outcome]:4} {outcome}" for outcome in get_args(Outcome)]
            print(f"{one + ' older':24}{', '.join(told)}")


def try_out(new_world: Make, patch: pytest.MonkeyPatch, cell: Cell, counts: Counter[tuple[str, str]]) -> None:
    """One cell, from the first run on."""
    if cell.work == "adopt":
        name_start(patch)
    on_critical = "continue" if cell.work.endswith("alone") else "hold"
    it = Restorer(new_world(cell.shape, on_critical=on_critical), cell.work)
    it.carry_out(cell.combination, cell.between)
    counts[cell.combination, it.go_on()] += 1


@pytest.mark.parametrize("cell", SAMPLE, ids=str)
def test_a_sample(
    new_world: Make, monkeypatch: pytest.MonkeyPatch, counts: Counter[tuple[str, str]], cell: Cell
) -> None:
    try_out(new_world, monkeypatch, cell, counts)


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell not in SAMPLE], ids=str)
def test_each_record_is_somewhere_once(
    new_world: Make, monkeypatch: pytest.MonkeyPatch, counts: Counter[tuple[str, str]], cell: Cell
) -> None:
    try_out(new_world, monkeypatch, cell, counts)


@pytest.mark.parametrize(("work", "combination"), [("run", "state"), ("replay", "quarantine"), ("rollback", "table")])
def test_a_repair_that_is_killed_anywhere_is_completed(new_world: Make, work: str, combination: str) -> None:
    """By the next run or the next repair; what quarantine lacks is named by `status`."""
    stopped = 0
    for stop in stops(5, killed=True):
        it = Restorer(new_world("files"), work)
        it.carry_out(combination, "run")
        assert it.world.run("refused").error is not None
        process = it.world.repair(stop=stop)
        if process.state != "stopped":
            break
        stopped += 1
        it.world.kill(process)
        try:
            it.finish()
        except AssertionError as error:
            raise AssertionError(f"killed {stop}: {process.calls[-1]}: {error}") from error
    assert stopped > 3
