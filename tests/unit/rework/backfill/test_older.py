"""Of which batches a table's files are, whatever has made or renamed them, and how far the older part has to go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.kept import Kept
from tests.support.readers import read_agreed
from tidegate.rework.backfill.lineage import Increment, Lineage
from tidegate.rework.backfill.older import _grow, describe_older
from tidegate.table.log.state import list_data_files
from tidegate.table.publish.intent import FileToRemove, PublishIntent
from tidegate.table.publish.origins import FOREIGN, Batch, read_origins
from tidegate.table.publish.replace import bring_back, set_aside

Q = "q" * 8


def increment(first: int, last: int | None = None, **more: Any) -> Increment:
    values: dict[str, Any] = {"is_excluded": False, "rows": {}, "ends": {}, **more}
    return Increment(first, Q, first, first if last is None else last, **values)


def together(*batches: int) -> frozenset[Batch]:
    return frozenset((Q, batch) for batch in batches)


def test_how_far_the_older_part_goes() -> None:
    lineage = Lineage([increment(0), increment(1), increment(2, 3), increment(4), increment(5)], [])
    assert _grow(1, lineage, [together(0), together(1), together(4, 5)]) == 1, "no set is divided"
    assert _grow(1, lineage, [together(0, 1)]) == 2
    assert _grow(1, lineage, [together(2, 4), together(0, 1), together(1, 3)]) == 4, "one thing leads to another"
    assert _grow(0, lineage, [together(1) | {FOREIGN}]) == 2, "rows that no run has read are older than all"
    assert _grow(0, lineage, [together(1, 77)]) == 2, "nor can a batch be read that the log does not have"
    assert _grow(0, lineage, [together(0, 1, 2, 3, 4, 5)]) == 0


def test_batches_that_are_not_read_again_are_older() -> None:
    lineage = Lineage([increment(0, is_replaced=True), increment(1), increment(2, is_excluded=True), increment(3)], [])
    assert _grow(0, lineage, [together(0), together(2), together(1, 3)]) == 0
    assert _grow(0, lineage, [together(1, 2)]) == 2
    assert _grow(0, lineage, [together(0, 3)]) == 4


def origins(kept: Kept) -> dict[str, list[int]]:
    """{city: the batches of its files}."""
    found = read_origins(kept.paths.table, [file.path for file in kept.files])
    cities = {file.path: str(file.partition["city"]) for file in kept.files}
    return {cities[path]: sorted(batch for _, batch in batches) for path, batches in found.items()}


def test_files_that_maintenance_put_together_have_the_batches_of_their_partition(tmp_path: Path) -> None:
    kept = Kept(tmp_path, partition_by=["city"])
    kept.publish([{"id": 1, "city": "Oslo", "n": 1}])
    kept.publish([{"id": 2, "city": "Oslo", "n": 1}, {"id": 3, "city": "Bergen", "n": 1}])
    kept.publish([{"id": 4, "city": "Bergen", "n": 1}, {"id": 5, "city": "Moss", "n": 1}])
    kept.maintain()
    assert origins(kept) == {"Oslo": [0, 1], "Bergen": [1, 2], "Moss": [2]}
    kept.publish([{"id": 6, "city": "Oslo", "n": 1}])
    kept.maintain("M2")
    assert origins(kept) == {"Oslo": [0, 1, 3], "Bergen": [1, 2], "Moss": [2]}
    assert len(read_agreed(kept.paths.table)) == 6


def test_files_that_were_set_aside_and_brought_back_are_of_the_same_batches(tmp_path: Path) -> None:
    """Also where neither the old nor the new name tells them."""
    kept = Kept(tmp_path, partition_by=["city"])
    kept.publish([{"id": 1, "city": "Oslo", "n": 1}, {"id": 2, "city": "Bergen", "n": 1}])
    kept.publish([{"id": 3, "city": "Oslo", "n": 1}])
    kept.maintain()
    before, table = origins(kept), kept.paths.table
    remove = [FileToRemove(one.path, one.rows, one.size_bytes, one.partition) for one in reversed(kept.files)]
    intent = PublishIntent("orders", "B1", "table", "{}", ["city"], "backfill-1", 0, -1, files_to_remove=remove)
    set_aside(intent, table, lambda: True)
    assert all(Path(file.path).name.startswith(".") for file in kept.files)
    assert origins(kept) == before == {"Oslo": [0, 1], "Bergen": [0]}
    bring_back(table, app_id="backfill-1", check_lease=lambda: None)
    assert not {file.path for file in list_data_files(table)} & {one.path for one in remove}
    assert origins(kept) == before
    assert len(read_agreed(table)) == 3


def test_what_stays_is_told_in_a_sentence() -> None:
    days = [f"day=2026-01-{day:02d}" for day in range(1, 8)]
    told = describe_older({"files": 7, "rows": 1000, "partitions": days, "until": "noon", "lost": ["a is gone"] * 6})
    assert told == (
        "the older part stays as it is: 1,000 rows in 7 files of day=2026-01-01, day=2026-01-02, day=2026-01-03, "
        "day=2026-01-04, day=2026-01-05 and 2 more, published until noon; the reason: a is gone, a is gone, a is gone, "
        "a is gone, a is gone and 1 more"
    )
    assert "no part of the table stays" in describe_older(
        {"files": 0, "rows": 0, "partitions": [], "until": None, "lost": []}
    )
