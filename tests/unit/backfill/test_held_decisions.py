"""Decisions on a held day of a backfill, without Spark: what is left of the others, and a second, other decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.kept import Kept
from tests.support.readers import read_agreed
from tidegate import storage
from tidegate.backfill import held
from tidegate.backfill.held import decide_backfill, keep_held
from tidegate.backfill.span import Interval
from tidegate.errors import UsageError
from tidegate.reports.report import load_report, new_report, save_report
from tidegate.table.log.state import digest_files, list_data_files, read_table_state
from tidegate.table.publish.intent import FileToRemove, PublishIntent
from tidegate.table.publish.rework import Rework


def hold(tmp_path: Path, *, is_last: bool, rebuilt: tuple[str, ...] = ()) -> Kept:
    """A table of two cities, and a backfill B1 that would take the rows of Oslo out, and is held."""
    kept = Kept(tmp_path, partition_by=["city"])
    kept.publish([{"id": 1, "city": "Oslo", "n": 1}, {"id": 2, "city": "Bergen", "n": 1}])
    report = new_report("orders", "B1")
    report.mode, report.rebuilt = "backfill", list(rebuilt)
    report.table = {"version": 7} if rebuilt else {}
    report.outcome, report.error = "failed", {"code": "BACKFILL_HELD", "message": "m"}
    save_report(kept.paths, report)
    before = replace(report)
    report.outcome, report.error = "published" if is_last else None, None
    report.rebuilt = [*rebuilt, "city=Oslo"]
    files, state = list_data_files(kept.paths.table), read_table_state(kept.paths.table)
    assert state is not None
    intent = PublishIntent(
        "orders",
        "B1",
        "table",
        state.schema_json,
        ["city"],
        Rework("orders", "backfill", "B1").app_id,
        0,
        -1,
        files_to_remove=[
            FileToRemove(file.path, file.rows, file.size_bytes, file.partition)
            for file in files
            if file.partition["city"] == "Oslo"
        ],
        table_files=digest_files(files),
        report=dict(report.to_json()),
    )
    side = kept.paths.beside(f"backfills/{intent.app_id}/token")
    keep_held(side, intent, Interval({"city": ["Oslo"]}), before)
    return kept


def decide(kept: Kept, decision: str) -> dict[str, object]:
    return dict(decide_backfill(kept.project, "orders", "B1", decision=decision, reason="seen"))


def test_a_dropped_day_leaves_what_was_published_and_says_what_is_left(tmp_path: Path) -> None:
    kept = hold(tmp_path / "last", is_last=True)
    report = decide(kept, "discard")
    assert (report["outcome"], report["notes"]) == ("discarded", [])
    kept = hold(tmp_path / "middle", is_last=False, rebuilt=("city=Bergen",))
    report = decide(kept, "discard")
    assert (report["outcome"], report["rebuilt"]) == ("published", ["city=Bergen"])
    assert report["notes"] == [
        "city=Oslo: discarded; before it were rebuilt, and stay: city=Bergen",
        "what comes behind city=Oslo was not rebuilt: it takes a command with another run id",
    ]
    assert len(read_agreed(kept.paths.table)) == 2


def test_a_released_day_in_the_middle_says_how_to_go_on(tmp_path: Path) -> None:
    kept = hold(tmp_path, is_last=False)
    report = decide(kept, "release")
    assert (report["outcome"], report["rebuilt"]) == (None, ["city=Oslo"])
    assert report["notes"] == ["partitions are left: the same command with --run-id B1 goes on"]
    assert [row["id"] for row in read_agreed(kept.paths.table)] == [2]


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
    with pytest.raises(UsageError) as refused:
        decide(kept, then)
    assert (refused.value.code, refused.value.exit_code) == ("DECIDED_ALREADY", 64)
    assert storage.list_folders(kept.paths.backfills) == []
    report = load_report(kept.paths, "B1")
    assert report is not None and report.decision is not None and report.decision["decision"] == first
