"""What a backfill knows of replays: their batches, what they gave, and which of them the source cannot give again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.held import NAME
from tests.support.staged import QUERY
from tests.unit.rework.replay.quarantined import Quarantined, at_work, text
from tidegate.core.errors import UsageError
from tidegate.rework.backfill.choose import Choice, find_needs
from tidegate.rework.backfill.examine import _describe_replays
from tidegate.rework.backfill.lineage import Increment, Lineage, Replay, read_lineage
from tidegate.rework.backfill.span import Interval
from tidegate.runs.rollback import look_at_rollback, roll_back
from tidegate.table.log.state import list_data_files, read_table_state
from tidegate.table.publish.origins import read_origins

DAY = {n: (("day", f"2026-01-0{n}"),) for n in (1, 2, 3)}
Q = "q" * 8


def increment(batch: int, day: int, *, is_excluded: bool = False) -> Increment:
    rows = {"entered": 1, "transformed": 1}
    return Increment(batch, Q, batch, batch, is_excluded, rows, {}, {batch: {DAY[day]: 1}})


def replay(run_id: str, *batches: int, day: int | None = None, edited: int = 0) -> Replay:
    given = {} if day is None else {DAY[day]: 2}
    return Replay(run_id, frozenset((Q, batch) for batch in batches), given, edited)


def day(number: int) -> Interval:
    return Interval({"day": [f"2026-01-0{number}"]})


def test_with_one_batch_of_a_replay_come_the_others() -> None:
    """Nobody knows of which of them the replay's rows are."""
    increments = [increment(0, 1), increment(1, 2), increment(2, 3), increment(3, 3)]
    first, second = replay("first", 0, 2, day=2), replay("second", 2, 3)
    lineage = Lineage(increments, [], replays=[second, first])
    needs, replays = find_needs(lineage, [day(1)])
    assert ([*map(list, needs)], replays) == ([[0], [], [2], [3]], [second, first])
    # The replay gave day 2 rows of batches that had given it none.
    assert [*map(list, find_needs(lineage, [day(2)])[0])] == [[0], [1], [2], [3]]
    assert find_needs(lineage, [day(1), day(2)])[0] == [{0: {0, 1}}, {1: {1}}, {2: {0, 1}}, {3: {0, 1}}]
    alone = Lineage(increments, [], replays=[replay("elsewhere", 1, day=2)])
    assert find_needs(alone, [day(1)]) == ([{0: {0}}, {}, {}, {}], [])


def test_which_replays_reading_again_does_not_give() -> None:
    increments = [increment(0, 1), increment(1, 1, is_excluded=True)]
    plain, edited = replay("plain", 0), replay("edited", 0, edited=3)
    left_out, unknown = replay("left out", 1), replay("unknown", 7)
    lineage = Lineage(increments, [])

    def told(*replays: Replay) -> str | None:
        return _describe_replays(lineage, Choice(replays=list(replays)))

    assert told(plain) is None
    assert told(plain, edited) == "edited (3 records edited by hand)"
    assert str(told(left_out)).startswith("left out (records of an increment that was discarded")
    assert str(told(unknown)).startswith("unknown (")


def test_replays_tell_the_batches_that_records_were_of(tmp_path: Path) -> None:
    """Also of records that lie in files which an earlier replay wrote anew, or put back."""
    made = Quarantined(tmp_path / "project")
    paths, bad = made.paths, "{torn"
    with at_work(made):
        made.bring("R1", [1], [(bad, "malformed"), (text(7, 7), "malformed")])
        made.bring("R2", [2], [(text(8, 8), "malformed"), (text(9, 9), "positive")])
        made.replay("first", rule="positive")
        made.replay("second", {made.ids()[text(7, 7)]: text(70, 70)})
        made.replay("third")
    state = read_table_state(paths.table)
    assert state is not None
    first, second, third = read_lineage(paths.table, state.version).replays
    q = QUERY[:8]
    assert (first.run_id, first.batches, first.edited) == ("first", frozenset({(q, 1)}), 0)
    assert (second.batches, second.edited) == (frozenset({(q, 0)}), 1)
    assert third.batches == frozenset({(q, 0), (q, 1)}) and sum(third.given.values()) == 1
    assert made.rows() == [1, 2, 8, 9, 70] and made.aside() == Counter([bad])
    files = [file.path for file in list_data_files(paths.quarantine)]
    assert read_origins(paths.quarantine, files) == {files[0]: frozenset({(q, 0), (q, 1)})}


def test_a_rollback_does_not_go_back_over_a_replay(tmp_path: Path) -> None:
    """Its rows would be taken out of the table, and their records would not be in quarantine any more."""
    made = Quarantined(tmp_path / "project")
    with at_work(made):
        made.bring("R1", [1], [(text(7, 7), "malformed")])
        made.replay("first")
        before = made.rows()
        for then in ("reread", "leave-out"):
            with pytest.raises(UsageError) as refused:
                roll_back(made.project, NAME, 0, then, "back")
            assert refused.value.code == "ROLLBACK_MOVED" and "replay first" in refused.value.message
        looked = look_at_rollback(made.project, NAME, 0)
        assert looked["hindrance"] is not None and looked["hindrance"]["code"] == "ROLLBACK_MOVED"
    assert made.rows() == before
