"""Decisions on a held day of a backfill, without Spark: what is left of the others, and a second, other decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.held_backfill import hold
from tests.support.kept import Kept
from tests.support.readers import read_agreed
from tidegate.core import storage
from tidegate.core.errors import UsageError
from tidegate.rework.backfill import held
from tidegate.rework.backfill.held import decide_backfill, list_held
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Answer


def decide(kept: Kept, decision: str) -> dict[str, object]:
    return dict(decide_backfill(kept.project, "orders", "B1", Answer(decision, "seen")))


def test_a_dropped_day_leaves_what_was_published_and_says_what_is_left(tmp_path: Path) -> None:
    kept = hold(tmp_path / "last", is_last=True)
    report = decide(kept, "discard")
    assert (report["outcome"], report["notes"]) == ("discarded", [])
    kept = hold(tmp_path / "middle", is_last=False, rebuilt=("city=Bergen",))
    report = decide(kept, "discard")
    assert (report["outcome"], report["rebuilt"]) == ("published", ["city=Bergen"])
    assert report["notes"] == [
        "city=Oslo: discarded; rebuilt, and kept: city=Bergen",
        "other partitions of the command were not rebuilt: use another run id for them",
    ]
    assert len(read_agreed(kept.paths.table)) == 2


def test_a_released_day_in_the_middle_says_how_to_go_on(tmp_path: Path) -> None:
    kept = hold(tmp_path, is_last=False)
    report = decide(kept, "release")
    assert (report["outcome"], report["rebuilt"]) == (None, ["city=Oslo"])
    assert report["notes"] == ["partitions are left: the same command with --run-id B1 rebuilds them"]
    assert [row["id"] for row in read_agreed(kept.paths.table)] == [2]


def test_rows_that_lack_a_column_of_the_table_by_now_are_not_released(tmp_path: Path) -> None:
    """A run has added it meanwhile, to rows of another day."""
    kept = hold(tmp_path, is_last=True)
    kept.columns["more"] = "string"
    kept.publish([{"id": 3, "city": "Bergen", "n": 1, "more": "x"}])
    with pytest.raises(UsageError) as refused:
        decide(kept, "release")
    assert refused.value.code == "BACKFILL_OUTDATED" and "city=Oslo was rebuilt (its columns)" in refused.value.message
    assert len(read_agreed(kept.paths.table)) == 3
    assert decide(kept, "discard")["outcome"] == "discarded"


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("first, then", [("release", "discard"), ("discard", "release")])
def test_the_opposite_of_what_was_done_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_last: bool, first: str, then: str
) -> None:
    """The first command is killed before it takes away what was held: it counts."""
    kept = hold(tmp_path, is_last=is_last)

    class Killed(BaseException):
        pass

    def kill(folder: Path) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(held.storage, "remove_tree", kill)
        with pytest.raises(Killed):
            decide(kept, first)
    assert list_held(kept.paths) == [] and ("staging", "state") in kept.foresee()
    with pytest.raises(UsageError) as refused:
        decide(kept, then)
    assert (refused.value.code, refused.value.exit_code) == ("DECIDED_ALREADY", 64)
    fix = refused.value.fix
    assert fix is not None and fix.endswith("start a new backfill under another run id")
    assert ("tidegate rollback orders" in fix) == (first == "release")
    assert storage.list_folders(kept.paths.backfills) == []
    report = load_report(kept.paths, "B1")
    assert report is not None and report.decision is not None and report.decision["decision"] == first
