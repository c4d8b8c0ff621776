"""An increment that is mostly malformed or rejected is held without being asked; less is a warning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_kafka import FakeBroker
from tests.support.held import NAME, Held, commands
from tests.support.page_outputs import shown
from tests.unit.staged_increments import stage
from tidegate.cli.show_runs import show_report
from tidegate.cli.show_status import show_status
from tidegate.core.errors import HeldError
from tidegate.quality.verdict import Quarantined, WholeFiles, decide_verdict
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.sources.kafka import offsets
from tidegate.spark.driver.progress import describe_report
from tidegate.spec.models import QualitySpec
from tidegate.views.outlook import plan_pipeline
from tidegate.views.status import project_status


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    held = Held(tmp_path)
    held.project.suite_path(NAME).unlink()
    with commands(lambda: held):
        yield held


DATE, AMOUNT = "received_at: not a TIMESTAMP", "amount: not an INT"


@pytest.mark.parametrize(
    ("quarantined", "verdict", "said"),
    [
        (Quarantined(1000, 1000), "failed", "1,000 of 1,000 records malformed (100.0%), more than half: why (9)"),
        (Quarantined(100, 20, 0, 80, 40), "failed", "60 of 100 records quarantined (60.0%), more than half: why (9)"),
        (Quarantined(100, 50, transformed=50), "unchecked", "50 of 100 records malformed (50.0%): why (9)"),
        (Quarantined(99, 99), "unchecked", "99 of 99 records malformed (100.0%): why (9)"),
        (Quarantined(1, transformed=1, rejected=1), "unchecked", "1 of 1 records rejected (100.0%): why (9)"),
        (Quarantined(1000, 1, transformed=999), "unchecked", "1 of 1,000 records malformed (0.1%): why (9)"),
        # two windows of a thousand records, of which one is rejected and the other as well
        (Quarantined(1000, transformed=2, rejected=2), "unchecked", "2 of 2 rows quarantined (100.0%): why (9)"),
        # a thousand rows of one record
        (Quarantined(1, transformed=1000, rejected=900), "unchecked", "900 of 1,000 rows quarantined (90.0%): why (9)"),
        # late records fitted in their time; all of them late is a matter of the watermark
        (Quarantined(1000, late=1000), "unchecked", None),
        (
            Quarantined(1000, 10, late=800, transformed=190),
            "unchecked",
            "810 of 1,000 records quarantined (81.0%): why (9)",
        ),
        (Quarantined(1000, transformed=1000), "unchecked", None),
        (Quarantined(0), "unchecked", None),
    ],
)
def test_without_a_limit(quarantined: Quarantined, verdict: str, said: str | None) -> None:
    decided = decide_verdict(None, [], quarantined, QualitySpec(), "why (9)")
    told = [*decided.failed_critical.values(), *decided.warnings]
    assert (decided.verdict, told) == (verdict, [said] if said else [])
    assert len(decided.results) == len(decided.failed_critical)


def test_an_explicit_limit_is_the_only_one() -> None:
    allowed = decide_verdict(None, [], Quarantined(1000, 900), QualitySpec(max_quarantine_share=1.0), "why (9)")
    assert (allowed.verdict, allowed.warnings) == ("unchecked", ())
    refused = decide_verdict(None, [], Quarantined(10, 1, late=2), QualitySpec(max_quarantine_share=0.2), "why (9)")
    assert (
        refused.failed_critical["max_quarantine_share"]
        == "3 of 10 records quarantined (30.0%), allowed: 20.0%: why (9)"
    )


@pytest.mark.parametrize(
    ("read", "malformed", "files", "limit", "is_held", "said"),
    [
        # one parquet file of 5,000 rows beside 200 good records
        (201, 1, [(900, 5000)], None, True, "5,000 of 5,200 records malformed (96.2%), more than half: why (9)"),
        (201, 1, [(900, 5000)], 0.5, True, "5,000 of 5,200 records malformed (96.2%), allowed: 50.0%: why (9)"),
        (201, 1, [(900, 5000)], 1.0, False, "1 file is in quarantine whole (900 bytes, 5,000 rows by their footers)"),
        (201, 1, [(900, 10)], None, False, "1 file is in quarantine whole (900 bytes, 10 rows by their footers)"),
        (201, 1, [(900, 0)], None, False, "1 file is in quarantine whole (900 bytes, 0 rows by their footers)"),
        # nothing else came
        (1, 1, [(900, 99)], None, False, "1 file is in quarantine whole (900 bytes, 99 rows by their footers)"),
        (1, 1, [(900, 100)], None, True, "100 of 100 records malformed (100.0%), more than half: why (9)"),
        (1, 1, [(900, None)], None, True, "1 of 1 records malformed (100.0%), nothing of the increment could be read"),
        (1, 1, [(900, None)], 1.0, False, "1 file is in quarantine whole (900 bytes, rows unknown)"),
        # a line was read as well
        (2, 1, [(900, None)], None, False, "1 file is in quarantine whole (900 bytes, rows unknown)"),
        (2, 2, [(900, None), (100, 7)], None, True, "nothing of the increment could be read"),
        (
            *(300, 2, [(900, None), (100, 7)], None, False),
            "2 files are in quarantine whole (1,000 bytes, 7 rows by their footers, 1 of them with unknown rows)",
        ),
    ],
)
def test_files_that_are_in_quarantine_whole(
    read: int, malformed: int, files: list[tuple[int, int | None]], limit: float | None, is_held: bool, said: str
) -> None:
    whole = WholeFiles.of({"size": size, "rows": rows} for size, rows in files)
    quarantined = Quarantined(read, malformed, transformed=read - malformed, whole=whole)
    decided = decide_verdict(None, [], quarantined, QualitySpec(max_quarantine_share=limit), "why (9)")
    told = [*decided.failed_critical.values(), *decided.warnings]
    assert (decided.verdict == "failed") == is_held
    assert any(said in one for one in told), told
    assert any(whole.describe() in warning for warning in decided.warnings), "always a warning"


def test_causes_of_other_records_are_not_given_for_files_that_are_in_quarantine_whole() -> None:
    limit, files = QualitySpec(max_quarantine_share=1.0), WholeFiles(2, 100, uncounted=2)
    (alone,) = decide_verdict(None, [], Quarantined(9, 2, transformed=7, whole=files), limit, "bad header (2)").warnings
    assert alone == "2 files are in quarantine whole (100 bytes, rows unknown): bad header (2)"
    (beside,) = decide_verdict(
        None, [], Quarantined(9, 4, transformed=5, whole=files), limit, "not a DATE (2)"
    ).warnings
    assert beside.endswith("(100 bytes, rows unknown); causes of all quarantined records: not a DATE (2)")


def test_a_wrong_schema_is_held_with_what_most_records_have(held: Held) -> None:
    stage(held, 0, {AMOUNT: 1, DATE: 60})
    stage(held, 2, {DATE: 40})
    for step in ("the first time", "again"):
        with pytest.raises(HeldError) as told:
            held.run("R1")
        assert told.value.message == (
            f"the gate holds this increment: max_quarantine_share: {shown('three causes')}"
        ), step
    assert held.rows() == []
    assert told.value.fix == (
        'tidegate release orders R1 --reason "..."   or   tidegate discard orders R1 --reason "..."   or, after '
        'a correction:   tidegate reread orders R1 --reason "..."; every cause, with an example: '
        "tidegate quarantine list orders"
    )
    assert held.decide("release")["rows"]["published"] == 2


def test_of_many_causes_three_are_named_and_the_others_counted(held: Held) -> None:
    stage(held, 0, {f"{name}: not an INT": 25 for name in "abcde"})
    with pytest.raises(HeldError) as told:
        held.run("R1")
    three = "a: not an INT (25); b: not an INT (25); c: not an INT (25); and 2 more causes"
    assert told.value.message.endswith(f"more than half: {three}")
    assert "tidegate quarantine list orders" in str(told.value.fix)


def test_after_a_rebuild_the_held_records_are_read_again(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "Brokers", FakeBroker({"orders": {0: 0}}, {"orders": {0: 101}}))
    stage(held, 0, {DATE: 101})
    with pytest.raises(HeldError):
        held.run("R1")
    repair_pipeline(held.project, NAME, dry_run=False, rebuild=True)
    plan = plan_pipeline(held.project, NAME)
    assert (plan["summary"], plan["held"], plan["notes"]) == ("there is something to do", None, [])
    assert plan["sources"]["orders"]["pending_offsets"] == 101


def test_less_is_a_warning_in_run_status_and_task_log(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    stage(held, 0, {DATE: 60})
    report: dict[str, Any] = held.run("R1")
    line = f"warning: 60 of 60 records malformed (100.0%): {DATE} (60)"
    assert report["outcome"] == "published" and report["quality"]["results"] == []
    show_report(report)
    assert f"\n    {line}\n" in capsys.readouterr().out
    assert f" | {line}" in describe_report(report)
    show_status([{**row, "sinks": []} for row in project_status(held.project, NAME)])
    assert f"\n    {line}\n" in capsys.readouterr().out


def test_a_file_in_quarantine_whole_is_told_in_run_status_and_task_log(
    held: Held, capsys: pytest.CaptureFixture[str]
) -> None:
    stage(held, 2, {"not a readable parquet file": 1}, [{"size": 900, "rows": 60}])
    report: dict[str, Any] = held.run("R1")
    assert (report["outcome"], report["rows"]["read"], report["rows"]["malformed"]) == ("published", 3, 1)
    line = "warning: 1 file is in quarantine whole (900 bytes, 60 rows by their footers)"
    show_report(report)
    assert f"\n    {line}\n" in capsys.readouterr().out
    assert f" | {line}" in describe_report(report)
    show_status([{**row, "sinks": []} for row in project_status(held.project, NAME)])
    assert f"\n    {line}\n" in capsys.readouterr().out


def test_a_file_of_many_rows_holds_the_increment(held: Held) -> None:
    stage(held, 2, {"price is double, the schema wants INT": 1}, [{"size": 900, "rows": 1000}])
    with pytest.raises(HeldError, match="1,000 of 1,002 records malformed"):
        held.run("R1")
    assert held.decide("release")["rows"]["published"] == 2
