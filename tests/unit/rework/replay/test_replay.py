"""A replay without Spark: what it takes out of quarantine is in the table, wherever it is killed or frozen."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.held import NAME
from tests.support.page_outputs import shown
from tests.support.storage_calls import KilledHere, StorageCalls, kill, watch
from tests.unit.rework.replay.quarantined import Quarantined, at_work, text
from tidegate.cli.show_repairs import show_replay
from tidegate.core.errors import HeldError, TryAgainError, UsageError
from tidegate.rework.replay.choose import Selection
from tidegate.rework.replay.command import _clear, preview_replay
from tidegate.runs.reports.report import load_report
from tidegate.sources.bounds import TOO_LARGE
from tidegate.table.quarantine.filters import Where

BAD = "{torn"
A, B, C, D = text(11, 11), text(12, 12), text(13, -13), text(14, 14)
ASIDE = [(A, "malformed"), (BAD, "malformed"), (C, "positive")]


@pytest.fixture
def made(tmp_path: Path) -> Quarantined:
    """Two runs, each with records in quarantine."""
    made = Quarantined(tmp_path / "project")
    with at_work(made):
        made.bring("R1", [1, 2], ASIDE)
        made.bring("R2", [3], [(B, "malformed"), (D, "positive")])
    assert made.rows() == [1, 2, 3] and made.aside() == Counter([A, BAD, C, B, D])
    return made


def test_what_is_put_through_leaves_quarantine_and_what_breaks_again_goes_back_once(made: Quarantined) -> None:
    with at_work(made):
        report = made.replay()
        assert (report["mode"], report["outcome"]) == ("replay", "published")
        rows = report["rows"]
        assert (rows["read"], rows["malformed"], rows["entered"]) == (5, 1, 4)
        assert (rows["transformed"], rows["rejected"], rows["staged"], rows["published"]) == (4, 1, 3, 3)
        assert made.rows() == [1, 2, 3, 11, 12, 14] and made.aside() == Counter([BAD, C])
        assert made.replay() == report and made.drives == 1  # a retry
        again = made.replay("once more")
        assert (again["rows"]["read"], again["rows"]["published"]) == (2, 0)
        assert made.aside() == Counter([BAD, C])
        nothing = made.replay("none", where=())
        assert nothing["outcome"] == "published"  # the two broke again
        made.bring("R3", [4], [])
    assert made.rows() == [1, 2, 3, 4, 11, 12, 14]
    assert not made.leftovers() and not made.paths.replays.exists()


def test_a_replay_of_nothing_says_so(made: Quarantined) -> None:
    with at_work(made):
        made.replay(where=(), reason="positive")
        report = made.replay("more", where=(Where("source", "elsewhere", False),))
    assert report["outcome"] == "nothing_new"
    assert report["notes"] == ["there is no such record in quarantine: nothing to replay"]
    assert made.drives == 1


def test_a_selection_leaves_the_others_where_they_are(made: Quarantined) -> None:
    before = made.ids()
    with at_work(made):
        made.replay(run_id="of R2", rule="positive")
    assert made.rows() == [1, 2, 3, 14] and made.aside() == Counter([A, BAD, C, B])
    after = made.ids()
    assert {raw: after[raw] for raw in (A, BAD, B)} == {raw: before[raw] for raw in (A, BAD, B)}
    assert after[C] != before[C]  # it went back


def test_edited_records(made: Quarantined) -> None:
    ids = made.ids()
    with at_work(made):
        made.replay("edited", {ids[BAD]: text(20, 20), ids[C]: text(21, -21)})
    assert made.rows() == [1, 2, 3, 20] and made.aside() == Counter([A, B, D, text(21, -21)])
    with at_work(made), pytest.raises(UsageError, match=f"REPLAY_FILE: .*1 id in the file .*{ids[BAD]}"):
        made.replay("gone", {ids[BAD]: text(20, 20), ids[A]: A})
    assert load_report(made.paths, "gone") is None, "nothing was begun, and nothing has failed"
    assert made.rows() == [1, 2, 3, 20]


def test_what_the_gate_refuses_changes_nothing(made: Quarantined) -> None:
    ids = made.ids()
    before = made.aside()
    with at_work(made):
        with pytest.raises(HeldError, match=r"REPLAY_HELD: .*good"):
            made.replay("bad", {ids[BAD]: text(None, 5)})
        assert made.rows() == [1, 2, 3] and made.aside() == before
        assert load_report(made.paths, "bad").outcome == "held"  # type: ignore[union-attr]
        assert made.bring("R3", [4], [])["outcome"] == "published"  # live runs go on
        assert made.replay("bad")["outcome"] == "published"  # the same id, after the correction


def test_a_record_of_several_rows(made: Quarantined) -> None:
    with at_work(made):
        made.copies = 2
        with pytest.raises(UsageError, match="REPLAY_SEVERAL_ROWS: the transform makes 7 rows from 4 records"):
            made.replay()
        assert made.rows() == [1, 2, 3]
        report = made.replay("whole", reason="malformed")
        assert report["rows"]["published"] == 4
    assert made.rows() == [1, 2, 3, 11, 11, 12, 12]


def test_a_row_of_a_run_that_made_several_of_a_record(tmp_path: Path) -> None:
    made = Quarantined(tmp_path / "project")
    with at_work(made):
        made.bring("R1", [1, 2], [(D, "positive")], several=True)
        with pytest.raises(
            UsageError, match=r"REPLAY_REFUSED: none of the 1 record .*a rule rejected one row of several"
        ):
            made.replay()
    assert made.aside() == Counter([D]) and made.rows() == [1, 2]


@pytest.mark.parametrize(("detail", "goes"), [("not valid JSON", 2), ("not valid UTF-8", 0), ("not valid UTF-16", 0)])
def test_only_what_is_no_text_has_none(tmp_path: Path, detail: str, goes: int) -> None:
    """What is no JSON is text all the same, and may fit the source's columns or their format by now."""
    made = Quarantined(tmp_path / "project")
    made.detail = detail
    with at_work(made):
        made.bring("R1", [1], [(A, "malformed"), (BAD, "malformed")])
        plan = preview_replay(made.project, NAME, Selection())
    assert (plan["records"], sum(one["records"] for one in plan["stay"])) == (goes, 2 - goes)


def test_what_the_page_shows_of_a_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Quarantined(tmp_path / "project")
    torn = [(f"{{torn {number}", "malformed") for number in range(380)]
    with at_work(made):
        made.bring("R1", range(400), torn)
        made.bring("R2", [], [(text(-n, -n), "positive") for n in (1, 2, 3)])
        made.detail = f"value of 9 bytes; {TOO_LARGE}, and only the topic has all of it; raw has its first 2"
        made.bring("R3", range(400, 500), [(f"{number}", "malformed") for number in range(17)])
        before = made.aside()
        plan = preview_replay(made.project, NAME, Selection())
        show_replay(plan)
        assert capsys.readouterr().out == shown("replay --dry-run") + "\n"
        assert made.aside() == before and not made.paths.replays.exists() and made.drives == 0
        report = made.replay()
    assert report["notes"] == [
        "17 records stay in quarantine: they are too large, and quarantine has only their beginning"
    ]
    assert report["rows"]["read"] == 383 and report["quality"]["verdict"] == "passed"


def settle(made: Quarantined) -> None:
    """What a person does after a kill: the next run, and the replay once more."""
    made.bring("R9", [9], [])
    made.replay()


def check_whole(made: Quarantined, *, goes: bool = True) -> None:
    assert made.rows() == [1, 2, 3, 9, 11, 12, 14]
    assert made.aside() == Counter([BAD, C])
    assert not made.leftovers()


def never_twice(made: Quarantined) -> None:
    """No reader sees a record in two places, or a row twice."""
    rows, aside = made.seen_rows(), made.seen()
    assert max(rows.values()) == 1 and (not aside or max(aside.values()) == 1)
    for n, raw in ((11, A), (12, B), (14, D)):
        assert not (rows[n] and aside[raw])


def count_calls(made: Quarantined, root: Path, act: Callable[[str], None]) -> int:
    copy = copied(made, root)
    with at_work(copy), pytest.MonkeyPatch.context() as patch:
        calls = StorageCalls(patch, -1, act)
        copy.replay()
    return calls.count


def copied(made: Quarantined, root: Path) -> Quarantined:
    shutil.copytree(made.root, root)
    return Quarantined(root, made.mode, made.next_batch, offset=made.offset)


@pytest.mark.parametrize("after, next_is", [(False, "run"), (True, "replay")])
def test_killed_at_every_storage_call(made: Quarantined, tmp_path: Path, after: bool, next_is: str) -> None:
    points = count_calls(made, tmp_path / "count", kill)
    assert points > 40
    for point in range(1, points + 1):
        copy = copied(made, tmp_path / str(point))
        with at_work(copy):
            with pytest.MonkeyPatch.context() as patch:
                StorageCalls(patch, point, kill, after=after)
                with pytest.raises(KilledHere):
                    copy.replay()
            never_twice(copy)
            if next_is == "run":
                settle(copy)
            else:
                copy.replay()
                copy.bring("R9", [9], [])
            report = load_report(copy.paths, "again")
            assert report is not None and (report.outcome, report.rows["published"]) == ("published", 3)
        check_whole(copy)
        shutil.rmtree(copy.root)


def others_run(made: Quarantined) -> None:
    made.bring("R9", [9], [])


def others_replay(made: Quarantined) -> None:
    made.replay("other")


def others_quarantine(made: Quarantined) -> None:
    """The table has the files that it had: of a plan that comes late, the part for quarantine alone does not fit."""
    made.bring("R9", [], [("{more", "malformed")])


@pytest.mark.parametrize("meanwhile", [others_replay, others_quarantine])
def test_frozen_at_every_storage_call(
    made: Quarantined, tmp_path: Path, meanwhile: Callable[[Quarantined], None]
) -> None:
    """The lease goes to another process, which works to its end; then the first one wakes."""
    points = count_calls(made, tmp_path / "count", watch)
    for point in range(1, points + 1):
        copy = copied(made, tmp_path / str(point))
        with at_work(copy):
            with pytest.MonkeyPatch.context() as patch:
                StorageCalls(patch, point, lambda name, here=copy: meanwhile(here))  # type: ignore[misc]
                try:
                    copy.replay()
                except TryAgainError as lost:
                    assert lost.code in ("LEASE_LOST", "COMMIT_FAILED")
            never_twice(copy)
            copy.replay("the rest")
            if meanwhile is others_replay:
                others_run(copy)
        assert copy.rows() == sorted([1, 2, 3, 11, 12, 14, *([9] if meanwhile is others_replay else [])]), point
        expected = Counter([BAD, C, *(["{more"] if meanwhile is others_quarantine else [])])
        assert copy.aside() == expected, point
        shutil.rmtree(copy.root)


def test_who_slept_leaves_the_tries_of_others_alone(made: Quarantined) -> None:
    """What is removed is what was there before the lease was looked at."""
    old, new = (made.paths.replays / "replay-a" / token for token in ("old", "new"))
    old.mkdir(parents=True)

    class Slept:
        paths = made.paths

        class lease:
            @staticmethod
            def check() -> None:
                new.mkdir()

    _clear(Slept())  # type: ignore[arg-type]
    assert new.exists() and not old.exists()
