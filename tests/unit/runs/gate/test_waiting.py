"""``on_critical: continue``: a failed increment waits alone, later ones go on, a person decides on it at any time."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.delta import open_table
from tests.support.held import BAD, GOOD, NAME, Held, Stage, commands
from tests.support.page_outputs import shown
from tests.support.readers import read_agreed
from tests.support.staged import QUERY
from tests.support.storage_calls import KilledHere, Sleeper, StorageCalls, kill
from tidegate.core.errors import DisagreementError, HeldError, TidegateError, TryAgainError, UsageError
from tidegate.rework.backfill.lineage import read_lineage
from tidegate.rework.held import find_held_records
from tidegate.runs import decide, gate_steps, steps
from tidegate.runs.gate import increment
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Ruling, list_waiting, load_waiting
from tidegate.runs.restart import repair_steps
from tidegate.runs.restart.recorded import look_at_reread
from tidegate.runs.rollback import roll_back
from tidegate.spec.pipeline import load_pipeline
from tidegate.table.quarantine.read import QuarantineFilter, list_quarantine, show_quarantine
from tidegate.views.outlook import plan_pipeline
from tidegate.views.pages.pipeline import look_at_quarantine
from tidegate.views.status import needs_a_person, project_status
from tidegate.views.stream import stream_pipeline

LATER = [{"id": n, "n": n} for n in (8, 9)]
WORSE = [{"id": None, "n": n} for n in (20, 21)]
ASIDE_OF_BAD = ["0.0", "0.1"]
ASIDE_OF_GOOD = ["1.0", "1.1"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(Held(tmp_path / "held", on_critical="continue", malformed=2))
    with commands(lambda: stage.held) as leases:
        stage.leases = leases
        yield stage


def go_on(held: Held, run_id: str, *arriving: list[dict[str, Any]]) -> None:
    """A run that may be held."""
    with contextlib.suppress(HeldError):
        held.run(run_id, *arriving)


def exactly(held: Held) -> list[int]:
    """The table's rows, after all readers agreed on them."""
    rows = read_agreed(held.paths.table)
    assert sorted(row["n"] for row in rows) == held.rows()
    return held.rows()


def commits(held: Held) -> list[dict[str, Any]]:
    """What the table's commits say of the rows, oldest first."""
    history = open_table(held.paths.table).history()
    return [{key: one.get(f"tidegate.{key}") for key in ("outcome", "run_id", "decision")} for one in history[::-1]]


def test_it_waits_alone_and_later_ones_go_on(stage: Stage) -> None:
    held = stage.held
    with pytest.raises(HeldError) as error:
        held.run("R1", BAD)
    assert error.value.code == "INCREMENT_WAITS" and error.value.exit_code == 65
    assert "good" in error.value.message and "continues" in str(error.value.next_run)
    assert held.run("R2", GOOD)["outcome"] == "published"
    assert exactly(held) == [4, 5, 6, 7]
    assert held.quarantined() == ASIDE_OF_GOOD, "what a waiting increment would set aside is not in quarantine"
    report = load_report(held.paths, "R1")
    assert report is not None and report.error is not None
    assert (report.outcome, report.error["code"], report.rows["published"]) == ("held", "INCREMENT_WAITS", 0)
    assert report.quality["verdict"] == "failed" and report.rows["staged"] == 3
    assert held.drained == [[], []], "the second run owed nothing of the first"


def test_status_plan_and_check_name_it(stage: Stage) -> None:
    held = stage.held
    go_on(held, "R1", BAD)
    held.run("R2", GOOD)
    (row,) = project_status(held.project, NAME)
    assert [one["run_id"] for one in row["waiting"]] == ["R1"] and row["held"] is None
    assert f"{NAME}: run R1 waits for a decision; later runs continue" in needs_a_person([row])
    (note,) = [note for note in row["notes"] if note.startswith("deferred since ")]
    assert re.sub(r"since \S+", "since T:", note) == re.sub(r"since \S+", "since T:", shown("waits alone"))
    plan = plan_pipeline(held.project, NAME)
    assert [one["run_id"] for one in plan["waiting"]] == ["R1"]
    held.decide("discard")
    (row,) = project_status(held.project, NAME)
    assert row["waiting"] == [] and not any("waits" in line for line in needs_a_person([row]))


@pytest.mark.parametrize(
    ("decision", "outcome", "rows"),
    [("release", "published", [1, 2, 3, 4, 5, 6, 7]), ("discard", "discarded", [4, 5, 6, 7])],
)
def test_a_decision_later_on(stage: Stage, decision: Ruling, outcome: str, rows: list[int]) -> None:
    held = stage.held
    go_on(held, "R1", BAD)
    held.run("R2", GOOD)
    report = held.decide(decision)
    assert (report["outcome"], report["rows"]["published"]) == (outcome, 3 if decision == "release" else 0)
    assert report["decision"] is not None and report["decision"]["reason"] == "looked at it"
    assert exactly(held) == rows
    assert held.quarantined() == [*ASIDE_OF_BAD, *ASIDE_OF_GOOD]
    assert [one["outcome"] for one in commits(held)] == ["waiting", "published", outcome]
    last = commits(held)[-1]
    assert last["run_id"] == "R1" and json.loads(last["decision"])["decision"] == decision
    assert held.leftovers() == [] and list_waiting(held.paths) == []
    assert held.decide(decision) == report, "deciding the same again changes nothing"
    with pytest.raises(UsageError) as other:
        held.decide("release" if decision == "discard" else "discard")
    assert other.value.code == "DECIDED_ALREADY"
    held.run("R3", LATER)
    assert exactly(held) == sorted([*rows, 8, 9])


@pytest.mark.parametrize("on_critical", ["hold", "continue"])
def test_what_a_held_increment_would_set_aside_can_be_looked_at_before_the_decision(
    tmp_path: Path, on_critical: str
) -> None:
    held = Held(tmp_path / "held", on_critical=on_critical, malformed=2)
    with commands(lambda: held):
        go_on(held, "R1", BAD)
        assert held.quarantined() == [], "nothing is in the table before somebody decides"
        files = find_held_records(held.paths)
        part = look_at_quarantine(held.project, NAME, shows_data=False)  # on the page of the pipeline
        assert (part.held, part.records) == (2, 0)
        (cause,) = list_quarantine(held.paths.quarantine, staged=files)
        assert (cause["run_id"], cause["records"], cause["held"], cause["example"]) == ("R1", 2, True, "0.0")
        shown = show_quarantine(held.paths.quarantine, QuarantineFilter(run_id="R1"), 20, files)
        assert sorted(str(one["raw"]) for one in shown) == ASIDE_OF_BAD and all(one["held"] for one in shown)
        held.decide("discard")
        assert held.quarantined() == ASIDE_OF_BAD and find_held_records(held.paths) == []
        (cause,) = list_quarantine(held.paths.quarantine)
        assert (cause["records"], cause["held"]) == (2, False)


def test_two_that_wait_are_decided_in_the_other_order(stage: Stage) -> None:
    held = stage.held
    go_on(held, "R1", BAD)
    held.run("R2", GOOD)
    go_on(held, "R3", WORSE)
    held.run("R4", LATER)
    assert exactly(held) == [4, 5, 6, 7, 8, 9]
    assert [one.run_id for one in list_waiting(held.paths)] == ["R1", "R3"]
    held.decide("release", "R3")
    assert exactly(held) == [4, 5, 6, 7, 8, 9, 20, 21]
    assert held.quarantined() == ["1.0", "1.1", "2.0", "2.1", "3.0", "3.1"]
    held.run("R5")
    held.decide("release", "R1")
    assert exactly(held) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21]
    assert held.quarantined() == [f"{batch}.{n}" for batch in range(4) for n in range(2)]
    assert (held.report("R1"), held.report("R3")) == (("published", 3), ("published", 2))
    assert held.leftovers() == []


def test_a_retry_of_the_run_reads_nothing_and_says_the_same(stage: Stage) -> None:
    held = stage.held
    go_on(held, "R1", BAD)
    before = len(held.drained)
    with pytest.raises(HeldError) as again:
        held.run("R1", GOOD)
    assert again.value.code == "INCREMENT_WAITS" and len(held.drained) == before
    held.arriving = []
    held.decide("release")
    assert held.run("R1")["rows"]["published"] == 3 and exactly(held) == [1, 2, 3]


def lift_the_rule(held: Held) -> None:
    suite = held.root / f"expectations/{NAME}.yaml"
    suite.write_text(suite.read_text().replace("severity: critical", "severity: info"))


def test_it_is_judged_again_by_the_suite_as_it_stands(stage: Stage) -> None:
    held = stage.held
    go_on(held, "R1", BAD)
    held.run("R2", GOOD)
    with pytest.raises(HeldError):
        gate_steps.audit_run(held.project, NAME, "R1")
    with pytest.raises(HeldError):
        gate_steps.publish_run(held.project, NAME, "R1")
    lift_the_rule(held)
    with pytest.raises(HeldError):  # nobody has judged it by the new suite yet
        gate_steps.publish_run(held.project, NAME, "R1")
    assert exactly(held) == [4, 5, 6, 7]
    assert gate_steps.audit_run(held.project, NAME, "R1")["quality"]["verdict"] == "passed"
    report = gate_steps.publish_run(held.project, NAME, "R1")
    assert (report["outcome"], report["rows"]["published"], report["decision"]) == ("published", 3, None)
    assert exactly(held) == [1, 2, 3, 4, 5, 6, 7] and held.quarantined() == [*ASIDE_OF_BAD, *ASIDE_OF_GOOD]
    assert held.leftovers() == []


def test_the_suite_changed_again_before_the_publish(stage: Stage) -> None:
    held = stage.held
    go_on(held, "R1", BAD)
    suite = held.root / f"expectations/{NAME}.yaml"
    before = suite.read_text()
    lift_the_rule(held)
    gate_steps.audit_run(held.project, NAME, "R1")
    suite.write_text(before)
    with pytest.raises(TryAgainError, match="NOT_AUDITED"):
        gate_steps.publish_run(held.project, NAME, "R1")
    assert exactly(held) == []


def test_a_stream_goes_on_past_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    held, told, complained = stage.held, [], []
    arriving = [[BAD], [GOOD]]

    def tick(seconds: float) -> None:
        if not arriving:
            raise TryAgainError("STOPPED", "stopped")
        held.arriving = arriving.pop(0)

    monkeypatch.setattr("tidegate.views.stream.time.sleep", tick)
    monkeypatch.setattr("tidegate.views.stream.run_pipeline", steps.run_pipeline)
    tick(0)
    stream_pipeline(
        held.project,
        NAME,
        every_seconds=None,
        submit=lambda plan: 0,
        on_report=lambda report: told.append(report["outcome"]),
        on_error=lambda error: complained.append(error.code),
    )
    assert (told, complained) == (["published"], ["INCREMENT_WAITS"])
    assert exactly(held) == [4, 5, 6, 7]


def test_it_is_not_read_again(stage: Stage) -> None:
    held = stage.held
    go_on(held, "R1", BAD)
    with pytest.raises(UsageError) as error:
        decide.reread_run(held.project, NAME, "R1", reason="corrected", submit=lambda plan: 0)
    assert error.value.code == "WAITING_NOT_READ_AGAIN" and "tidegate release" in str(error.value.fix)
    with pytest.raises(UsageError) as look:
        look_at_reread(held.project, NAME, "R1")
    assert look.value.code == "WAITING_NOT_READ_AGAIN"
    assert [one.run_id for one in list_waiting(held.paths)] == ["R1"]


def test_a_backfill_leaves_out_what_waits_and_knows_what_was_released(stage: Stage) -> None:
    held = stage.held

    def look() -> list[tuple[int, bool, int]]:
        found = read_lineage(held.paths.table, open_table(held.paths.table).version())
        assert found.unknown == [] and found.foreign == frozenset()
        rows = [sum(sum(parts.values()) for parts in one.given.values()) for one in found.increments]
        return [(one.last, one.is_excluded, n) for one, n in zip(found.increments, rows, strict=True)]

    go_on(held, "R1", BAD)
    held.run("R2", GOOD)
    go_on(held, "R3", WORSE)
    assert look() == [(0, True, 0), (1, False, 4), (2, True, 0)]
    held.decide("release", "R1")
    held.decide("discard", "R3")
    assert look() == [(0, False, 3), (1, False, 4), (2, True, 0)]


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_table_whose_rows_replace_others_cannot_go_on(tmp_path: Path, mode: str) -> None:
    held = Held(tmp_path, mode=mode, on_critical="continue")
    with pytest.raises(UsageError, match="the order counts"):
        load_pipeline(held.project, NAME)


def test_what_was_held_goes_to_wait_when_the_spec_says_so_and_stays_waiting_when_it_says_hold_again(
    tmp_path: Path,
) -> None:
    held = Held(tmp_path / "held", malformed=2)
    with commands(lambda: held):
        held.hold("R1")
        Held(held.root, on_critical="continue")
        held.run("R2", GOOD)
        assert exactly(held) == [4, 5, 6, 7]
        Held(held.root)
        with pytest.raises(HeldError) as error:
            held.run("R3", WORSE)
        assert error.value.code == "INCREMENT_HELD"
        held.decide("release", "R1")
        assert exactly(held) == [1, 2, 3, 4, 5, 6, 7]
        held.decide("discard", "R3")
        assert held.quarantined() == [f"{batch}.{n}" for batch in range(3) for n in range(2)]


def test_a_damaged_file_is_found_before_anything_is_written(stage: Stage) -> None:
    held = stage.held
    go_on(held, "R1", BAD)
    (waiting,) = list_waiting(held.paths)
    path = held.paths.state / waiting.manifests[0].files[0].path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"X")
    with pytest.raises(DisagreementError) as error:
        held.decide("release")
    assert error.value.code == "STAGED_FILE_DAMAGED"
    held.run("R2", GOOD)  # it hinders nobody else
    path.write_bytes(whole)
    held.decide("release")
    assert exactly(held) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("settled", "stays"), [(2, True), (0, True), (-1, False)])
def test_a_repair_leaves_what_waits_alone_unless_its_records_are_read_again(
    stage: Stage, settled: int, *, stays: bool
) -> None:
    held = stage.held
    go_on(held, "R1", BAD)
    (waiting,) = list_waiting(held.paths)
    other = held.paths.attempts(QUERY, 1) / "a1" / "rows.parquet"
    other.parent.mkdir(parents=True)
    other.touch()
    folder = held.paths.set_aside / "now"
    plan: Any = SimpleNamespace(settled={QUERY: settled})
    repair_steps._move_staging(held.paths, plan, folder, stage.leases.acquire(held.paths))  # type: ignore[arg-type]
    assert not other.exists() and (folder / "staging" / QUERY / f"{1:012d}" / "a1" / "rows.parquet").exists()
    places = [held.paths.state / attempt for attempt in waiting.attempts]
    assert all(place.exists() == stays for place in places)
    assert (load_waiting(held.paths, "R1") is not None) == stays
    assert stays or (folder / "waiting-R1.json").exists()
    if stays:
        held.decide("release")
        assert exactly(held) == [1, 2, 3]


def test_an_increment_of_two_queries_waits_and_is_released_whole(stage: Stage) -> None:
    """As after an accepted loss: one commit for each passes it, and a kill in between."""
    held = stage.held
    held.stage(BAD, run_id="R1")
    first = held.paths.manifest(QUERY, 0)
    old = held.paths.manifest("0ld", 0)
    old.parent.mkdir()
    old.write_text(first.read_text().replace(f'"query_id": "{QUERY}"', '"query_id": "0ld"'))
    first.unlink()
    real, done = increment.finish_work, []

    def finish_one(*args: Any, **more: Any) -> Any:
        if done:
            kill("second commit")
        done.append(real(*args, **more))
        return done[0]

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
        patch.setattr(increment, "finish_work", finish_one)
        held.run("R1", WORSE)
    assert list_waiting(held.paths) == []
    held.run("R2", GOOD)
    (waiting,) = list_waiting(held.paths)
    assert [one.query_id for one in waiting.manifests] == ["0ld", QUERY]
    assert exactly(held) == [4, 5, 6, 7] and held.quarantined() == ["2.0", "2.1"]
    report = held.decide("release", "R1")
    assert report["rows"]["published"] == 5
    assert exactly(held) == [1, 2, 3, 4, 5, 6, 7, 20, 21]
    assert held.quarantined() == [f"{batch}.{n}" for batch in range(3) for n in range(2)]


def check_all_is_true(held: Held, decision: str, said: str) -> None:
    bad = [1, 2, 3] if decision == "release" else []
    assert exactly(held) == [*bad, 4, 5, 6, 7, 8, 9], said
    assert held.quarantined() == [f"{batch}.{n}" for batch in range(3) for n in range(2)], said
    assert held.report("R1") == (("published", 3) if bad else ("discarded", 0)), said
    report = load_report(held.paths, "R1")
    assert report is not None and report.decision is not None and report.decision["decision"] == decision, said
    assert (held.report("R2"), held.report("R3")) == (("published", 4), ("published", 2)), said
    assert held.leftovers() == [] and list_waiting(held.paths) == [], said


def test_killed_anywhere_while_it_goes_to_wait(stage: Stage, tmp_path: Path) -> None:
    points: list[str] = []
    for at in range(1, 200):
        held = stage.held = Held(tmp_path / str(at), on_critical="continue", malformed=2)
        held.stage(BAD, run_id="R1")
        with pytest.MonkeyPatch.context() as patch:
            calls = StorageCalls(patch, at, kill)
            with contextlib.suppress(KilledHere, HeldError):
                held.run("R1")
        points, done = calls.names, calls.count < at
        said = f"killed at {at} ({points[-1]})"
        assert held.rows() == [] and held.quarantined() == [], said
        go_on(held, "R1")  # a retry: judges what is there, and changes nothing where it waits already
        assert exactly(held) == [] and held.quarantined() == [], said
        assert load_waiting(held.paths, "R1") is not None, said
        held.run("R2", GOOD)
        held.run("R3", LATER)
        assert held.report("R1")[0] == "held", said
        held.decide("release")
        check_all_is_true(held, "release", said)
        if done:
            break
    assert len(points) > 20 and done


def test_killed_anywhere_while_it_goes_to_wait_and_the_next_run_is_another(stage: Stage, tmp_path: Path) -> None:
    """Killed before its verdict was on disk it is judged with what comes next, and waits with it."""
    apart = 0
    for at in range(1, 200):
        held = stage.held = Held(tmp_path / str(at), on_critical="continue", malformed=2)
        held.stage(BAD, run_id="R1")
        with pytest.MonkeyPatch.context() as patch:
            calls = StorageCalls(patch, at, kill)
            with contextlib.suppress(KilledHere, HeldError):
                held.run("R1")
        go_on(held, "R2", GOOD)
        go_on(held, "R3", LATER)
        (waiting,) = list_waiting(held.paths)
        apart += waiting.run_id == "R1"
        assert exactly(held) == ([4, 5, 6, 7, 8, 9] if waiting.run_id == "R1" else [8, 9])
        held.decide("release", waiting.run_id)
        assert exactly(held) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
        assert held.quarantined() == [f"{batch}.{n}" for batch in range(3) for n in range(2)]
        assert held.leftovers() == []
        if calls.count < at:
            break
    assert apart > 10


@pytest.mark.parametrize("decision", ["discard", "release"])
def test_a_decision_killed_anywhere(stage: Stage, tmp_path: Path, decision: Ruling) -> None:
    go_on(stage.held, "R1", BAD)
    stage.held.run("R2", GOOD)
    for said in stage.killed_anywhere(tmp_path, lambda held: held.decide(decision)):
        held = stage.held
        held.run("R3", LATER)
        if load_waiting(held.paths, "R1") is not None:  # killed before it was recorded: nobody has decided
            assert exactly(held) == [4, 5, 6, 7, 8, 9], said
            held.decide(decision)
        check_all_is_true(held, decision, said)


@pytest.mark.parametrize("decision", ["discard", "release"])
def test_a_decision_frozen_anywhere_while_another_person_decides_the_opposite(
    stage: Stage, tmp_path: Path, decision: Ruling
) -> None:
    """The first one that is recorded counts; whoever was frozen changes nothing when it thaws."""
    opposite: Ruling = "discard" if decision == "release" else "release"
    go_on(stage.held, "R1", BAD)
    stage.held.run("R2", GOOD)
    before, won = stage.held, {decision: 0, opposite: 0}
    for at in range(1, 200):
        held = stage.held = before.copy(tmp_path / str(at))
        ended = freeze_and_thaw(at, partial(held.decide, decision), partial(decide_or_find_decided, held, opposite))
        said = f"frozen at {at}: {ended}"
        held.run("R3", LATER)
        report = load_report(held.paths, "R1")
        assert report is not None and report.decision is not None, said
        counts = report.decision["decision"]
        won[counts] += 1
        check_all_is_true(held, counts, said)
        if ended == "never":
            break
    assert won[decision] > 5 and won[opposite] > 1


def decide_or_find_decided(held: Held, decision: Ruling) -> None:
    try:
        held.decide(decision)
    except UsageError as error:
        assert error.code == "DECIDED_ALREADY"


def freeze_and_thaw(at: int, work: Callable[[], object], meanwhile: Callable[[], None]) -> str:
    """Freeze ``work`` at its storage call ``at``, do something, thaw it; how it ended ("never": nothing froze)."""
    frozen = Sleeper(at, lambda _: work(), (TidegateError,))
    meanwhile()
    frozen.wake()
    return "never" if frozen.has_ended else frozen.outcome


def test_a_run_frozen_anywhere_while_it_goes_to_wait(stage: Stage, tmp_path: Path) -> None:
    for at in range(1, 200):
        held = stage.held = Held(tmp_path / str(at), on_critical="continue", malformed=2)
        held.stage(BAD, run_id="R1")
        ended = freeze_and_thaw(at, partial(held.run, "R1"), partial(go_on, held, "R2", GOOD))
        said = f"frozen at {at}: {ended}"
        go_on(held, "R3", LATER)
        (waiting,) = list_waiting(held.paths)
        held.decide("release", waiting.run_id)
        held.run("R4")
        assert exactly(held) == [1, 2, 3, 4, 5, 6, 7, 8, 9], said
        assert held.quarantined() == [f"{batch}.{n}" for batch in range(3) for n in range(2)], said
        assert held.leftovers() == [] and list_waiting(held.paths) == [], said
        if ended == "never":
            break
    assert ended == "never" and at > 20


@pytest.mark.parametrize("decision", ["release", "discard"])
def test_a_rollback_does_not_go_back_over_a_decision(stage: Stage, decision: str) -> None:
    """The increment does not wait any more: its records would be in no place. One that waits is decided on first."""
    held = stage.held
    held.run("R0", GOOD)
    go_on(held, "R1", BAD)
    held.run("R2", GOOD)
    with pytest.raises(HeldError) as waits:
        roll_back(held.project, NAME, 0, "leave-out", "back")
    assert waits.value.code == "ROLLBACK_HELD" and "is deferred" in waits.value.message
    fix = str(waits.value.fix)
    assert "tidegate refresh" in fix and "reread" not in fix, "what is said to do is not refused"
    held.decide(decision, "R1")
    with pytest.raises(UsageError) as refused:
        roll_back(held.project, NAME, 0, "leave-out", "back")
    assert refused.value.code == "ROLLBACK_MOVED"
    assert roll_back(held.project, NAME, 3, "leave-out", "later")["outcome"] == "nothing_new"
