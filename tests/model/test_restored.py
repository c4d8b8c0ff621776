"""State folder, table and quarantine, of which one or two were restored from a copy of before some work: either that is
harmless, or it is refused with 78, and the command that the error names leads to each record once."""

from __future__ import annotations

import pytest

from tests.model.restorer import BETWEEN, COMBINATIONS, WORKS, Cell, Restorer, name_start
from tests.model.world import Make, Shape

SHAPES: tuple[Shape, ...] = ("files", "kafka")
CELLS = [
    Cell(work, combination, between, shape)
    for work in WORKS
    for combination in COMBINATIONS
    for between in BETWEEN
    for shape in SHAPES
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_each_record_is_somewhere_once(new_world: Make, monkeypatch: pytest.MonkeyPatch, cell: Cell) -> None:
    if cell.work == "adopt":
        name_start(monkeypatch)
    it = Restorer(new_world(cell.shape), cell.work)
    it.carry_out(cell.combination, cell.between)
    it.go_on()
