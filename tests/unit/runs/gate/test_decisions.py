"""A decision that was recorded is carried out, whoever comes next and wherever the one who took it died."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.held import BAD, GOOD, NAME, Held, Stage, commands
from tests.support.staged import QUERY
from tests.support.storage_calls import KilledHere, Sleeper, kill
from tidegate.core.errors import DisagreementError, HeldError, TryAgainError, UsageError
from tidegate.runs import decide, gate_steps, opening
from tidegate.runs.gate import decisions, increment
from tidegate.runs.gate.increment import publish_increment
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import (
    Answer,
    Decision,
    Ruling,
    load_decision,
    load_verdict,
    save_decision,
    save_verdict,
)
from tidegate.runs.restart.recorded import look_at_reread
from tidegate.spec.pipeline import load_pipeline
from tidegate.state.manifest import BatchKey
from tidegate.table.publish.intent import write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.views.status import needs_a_person, project_status

OUTCOMES = {"discard": ("discarded", 0), "release": ("published", 3)}
AFTER = {"discard": [4, 5, 6, 7], "release": [1, 2, 3, 4, 5, 6, 7]}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(Held(tmp_path / "held"))
    with commands(lambda: stage.held) as leases:
        stage.leases = leases
        yield stage


def test_a_verdict_that_a_killed_process_had_in_its_hands_counts(stage: Stage) -> None:
    """Under the name by which it is taken away nobody sees it; the plan of another sleeper comes late."""
    held = stage.held
    held.hold()
    spec, verdict = load_pipeline(held.project, NAME), held.paths.verdict("R1")
    planned = plan_publish(
        gather_facts(held.paths, spec).unpublished, run_id="R0", partition_by=[], app_version_before=-1
    )
    write_intent(held.paths, planned)
    verdict.rename(verdict.with_name(f".{verdict.name}.{'0' * 16}.{'a' * 12}.taken"))
    with pytest.raises(HeldError):
        held.run("R2", GOOD)
    assert held.rows() == [] and verdict.exists()


def check_all_is_true(held: Held, decision: str, said: str) -> None:
    assert held.rows() == AFTER[decision], said
    assert held.report("R1") == OUTCOMES[decision], said
    assert held.report("R2") == ("published", 4), said
    report = load_report(held.paths, "R1")
    assert report is not None and report.decision is not None and report.decision["decision"] == decision, said
    assert held.leftovers() == [], said


@pytest.mark.parametrize("decision", ["discard", "release"])
def test_a_decision_that_is_killed_anywhere_is_carried_out_by_the_next_run(
    stage: Stage, tmp_path: Path, decision: Ruling
) -> None:
    stage.held.hold()
    for said in stage.killed_anywhere(tmp_path, lambda held: held.decide(decision)):
        held = stage.held
        if (held.paths.state / "decisions").is_dir() and list((held.paths.state / "decisions").glob("*.json")):
            held.run("R2", GOOD)
            assert held.drained == [[]], f"{said}: the next run read more before it carried the decision out"
        elif load_report(held.paths, "R1").outcome == "held":  # type: ignore[union-attr]
            with pytest.raises(HeldError):  # killed before the decision was on disk: nobody has decided
                held.run("R2", GOOD)
            assert held.rows() == [] and held.drained == [], said
            held.decide(decision)
            held.run("R2", GOOD)
        else:
            held.run("R2", GOOD)
        check_all_is_true(held, decision, said)


@pytest.mark.parametrize("decision", ["discard", "release"])
def test_a_decision_that_is_frozen_anywhere_and_thawed_after_the_next_run_changes_nothing(
    stage: Stage, tmp_path: Path, decision: Ruling
) -> None:
    stage.held.hold()
    before, ended = stage.held, ""
    for at in range(1, 200):
        held = stage.held = before.copy(tmp_path / str(at))
        ended = freeze_and_thaw(held, at, decision)
        said = f"frozen at {at}: {ended}"
        if load_report(held.paths, "R2") is None:
            break
        if held.report("R2") == ("held", 0):  # frozen before the decision was on disk
            held.rows()
            if held.report("R1")[0] == "held":
                held.decide(decision)
            held.run("R2", GOOD)
        held.run("R3")  # what the thawed one wrote after all is taken away
        check_all_is_true(held, decision, said)
    assert ended == "done", "the last one froze nowhere"
    assert at > 20


def freeze_and_thaw(held: Held, at: int, decision: Ruling) -> str:
    """Freeze a decision at its storage call ``at``, run R2 with new rows, thaw it; how it ended."""
    work = Sleeper(at, lambda _: held.decide(decision), (TryAgainError, UsageError))
    if not work.has_ended:
        with contextlib.suppress(HeldError):
            held.run("R2", GOOD)
    work.wake()
    return work.outcome


def test_a_failed_run_after_the_kill_chains_nothing_to_the_bad_rows(stage: Stage) -> None:
    stage.held.hold()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
        patch.setattr("tidegate.runs.gate.decisions.publish_increment", lambda *a, **k: kill("publish"))
        stage.held.decide("discard")
    with pytest.raises(HeldError) as held:
        stage.held.run("R2", GOOD, BAD)
    assert "R2" in str(held.value) and held.value.code == "INCREMENT_HELD"
    assert stage.held.report("R1") == ("discarded", 0)
    assert stage.held.decide("release", "R2")["rows"]["published"] == 7
    assert stage.held.rows() == [1, 2, 3, 4, 5, 6, 7]


def test_status_names_a_decision_that_was_not_carried_out(stage: Stage) -> None:
    held = stage.held
    held.hold()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
        patch.setattr("tidegate.runs.gate.decisions.publish_increment", lambda *a, **k: kill("publish"))
        held.decide("release")
    (row,) = project_status(held.project, NAME)
    assert "orders: the decision to release run R1 was not carried out" in needs_a_person([row])
    assert any(note.startswith("decided, not carried out yet") and "to release run R1" in note for note in row["notes"])
    held.run("R2", GOOD)
    (row,) = project_status(held.project, NAME)
    assert row["decided"] == [] and not any("decision" in line for line in needs_a_person([row]))


@pytest.mark.parametrize("step", [gate_steps.audit_run, gate_steps.publish_run])
def test_each_step_carries_a_decision_out_first(stage: Stage, step: Callable[..., dict[str, Any]]) -> None:
    held = stage.held
    held.hold()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
        patch.setattr("tidegate.runs.gate.decisions.publish_increment", lambda *a, **k: kill("publish"))
        held.decide("release")
    assert step(held.project, NAME, "R1")["outcome"] == "published"
    assert held.rows() == [1, 2, 3]
    with pytest.raises(TryAgainError, match="NOTHING_STAGED"):
        step(held.project, NAME, "R2")


def test_what_was_staged_behind_the_decided_batches_waits_for_its_own_verdict(stage: Stage) -> None:
    held = stage.held
    held.hold()
    held.stage(GOOD)  # by a driver that was thought dead
    assert held.decide("discard")["outcome"] == "discarded"
    assert held.rows() == []
    assert held.run("R2")["rows"]["published"] == 4
    assert (held.rows(), held.report("R1")) == ([4, 5, 6, 7], ("discarded", 0))


@pytest.mark.parametrize("decision", ["discard", "release"])
def test_an_increment_of_two_queries_is_carried_out_and_reported_whole(stage: Stage, decision: Ruling) -> None:
    """As after an accepted loss: one commit for each, and a kill in between."""
    held = stage.held
    held.stage(BAD, run_id="R1")
    first = held.paths.manifest(QUERY, 0)
    old = held.paths.manifest("0ld", 0)
    old.parent.mkdir()
    old.write_text(first.read_text().replace(f'"query_id": "{QUERY}"', '"query_id": "0ld"'))
    first.unlink()
    with pytest.raises(HeldError):
        held.run("R1", [{"id": None, "n": 8}])
    real, done = increment.finish_work, []

    def finish_one(*args: Any, **more: Any) -> Any:
        if done:
            kill("second commit")
        done.append(real(*args, **more))
        return done[0]

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
        patch.setattr(increment, "finish_work", finish_one)
        held.decide(decision)
    assert held.rows() == ([1, 2, 3] if decision == "release" else [])
    held.run("R2", GOOD)
    outcome = OUTCOMES[decision][0]
    assert held.report("R1") == (outcome, 4 if decision == "release" else 0)
    assert held.rows() == ([1, 2, 3, 4, 5, 6, 7, 8] if decision == "release" else [4, 5, 6, 7])
    report = load_report(held.paths, "R1")
    assert report is not None and (report.batches, report.rows["staged"]) == (2, 4)
    assert [one for one in held.leftovers() if "staging" not in one] == []


def test_deciding_again(stage: Stage) -> None:
    held = stage.held
    held.hold()
    first = held.decide("discard")
    assert held.decide("discard") == first
    with pytest.raises(UsageError) as other:
        held.decide("release")
    assert other.value.code == "DECIDED_ALREADY" and "decided to discard it" in other.value.message
    held.run("R2", GOOD)
    with pytest.raises(UsageError) as never_held:
        held.decide("release", "R2")
    assert never_held.value.code == "NOT_HELD"


def test_a_decision_on_a_run_that_was_published_is_told_how_it_ended_and_what_reads_its_records_again(
    stage: Stage,
) -> None:
    held = stage.held
    held.hold()
    held.decide("discard")
    held.run("R2", GOOD)
    told = {
        "R1": ("DECIDED_ALREADY", " decided to discard it at "),
        "R2": ("NOT_HELD", f"run R2 of {NAME} holds no increment: it is published: "),
    }
    for run_id, (code, words) in told.items():
        with pytest.raises(UsageError) as refused:
            look_at_reread(held.project, NAME, run_id)
        error = refused.value
        assert (error.code, error.exit_code) == (code, 64) and words in error.message
        assert "corrected copy under a new name" in str(error.fix)
        assert f"tidegate repair {NAME} --rebuild --dry-run" in str(error.fix)
    with pytest.raises(UsageError) as unknown:
        look_at_reread(held.project, NAME, "nosuch")
    assert "nothing is held under this run id" in unknown.value.message


def test_the_report_says_what_the_commit_says(stage: Stage) -> None:
    """Not what a decision's file says that came after it, or was lost."""
    held = stage.held
    held.hold()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
        patch.setattr("tidegate.runs.recovery.finish.save_report", lambda *a: kill("report"))
        held.decide("discard")
    held.paths.decision("R1").unlink()
    held.run("R2", GOOD)
    check_all_is_true(held, "discard", "its file was lost")


def test_a_decision_is_on_one_verdict_and_not_on_a_later_one_of_the_run_id(stage: Stage) -> None:
    held = stage.held
    held.hold()
    verdict = load_verdict(held.paths, "R1")
    assert verdict is not None
    old = Decision("R1", "release", "ann@host", "old", "then", [BatchKey("another query", 0)])
    save_decision(held.paths, old)
    with pytest.raises(HeldError):
        held.run("R2", GOOD)
    assert load_decision(held.paths, verdict) is None and held.rows() == []
    held.decide("discard")
    held.run("R2", GOOD)
    check_all_is_true(held, "discard", "a decision of another life was there")


def decide_too_late(held: Held, first: Ruling, ruling: Ruling) -> UsageError:
    """What somebody is told who was asleep between looking and writing, while bob decided."""
    with pytest.MonkeyPatch.context() as patch:
        real = decisions.save_decision

        def too_late(paths: Any, decision: Decision) -> None:
            real(paths, replace(decision, decision=first, who="bob@host"))
            real(paths, decision)

        patch.setattr(decisions, "save_decision", too_late)
        with pytest.raises(UsageError) as refused:
            held.decide(ruling)
    assert refused.value.code == "DECIDED_ALREADY"
    assert f"bob@host already decided to {first} it" in refused.value.message
    return refused.value


def test_of_two_decisions_on_one_verdict_the_first_stands(stage: Stage) -> None:
    held = stage.held
    held.hold()
    decide_too_late(held, "discard", "release")
    held.run("R2", GOOD)
    check_all_is_true(held, "discard", "the first one")


def test_who_decides_after_a_read_again_is_not_told_to_send_the_records_again(stage: Stage) -> None:
    """The next run reads them by itself: sent again they would be there twice."""
    stage.held.hold()
    told = decide_too_late(stage.held, "reread", "discard")
    assert "wait for the run that reads them" in str(told.fix) and "new name" not in str(told.fix)


def test_another_runs_verdict_does_not_publish_what_is_held_or_decided(stage: Stage) -> None:
    held = stage.held
    held.hold()
    verdict = load_verdict(held.paths, "R1")
    assert verdict is not None
    save_verdict(held.paths, replace(verdict, run_id="R2", failed_critical=[]))
    with pytest.raises(HeldError) as refused:
        gate_steps.publish_run(held.project, NAME, "R2")
    assert refused.value.code == "EARLIER_INCREMENT_HELD" and held.rows() == []
    save_decision(held.paths, Decision("R1", "discard", "ann@host", "bad", "now", verdict.batches))
    with opening.open_run(held.project, NAME, "R2", "publish") as context:
        facts = gather_facts(held.paths, context.spec)
        with pytest.raises(TryAgainError) as pending:
            publish_increment(context, facts, replace(verdict, run_id="R2", failed_critical=[]))
    assert pending.value.code == "DECISION_PENDING" and held.rows() == []


def test_a_released_increment_is_published_under_the_keys_it_was_judged_by(tmp_path: Path) -> None:
    held = Held(tmp_path, "update")
    with commands(lambda: held):
        held.hold()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
            patch.setattr("tidegate.runs.gate.decisions.publish_increment", lambda *a, **k: kill("publish"))
            held.decide("release")
        spec = held.paths.spec
        spec.write_text(spec.read_text().replace("keys: [n]", "keys: [n, id]"))
        held.run("R2", GOOD)
        check_all_is_true(held, "release", "keys were changed in between")


def test_a_decision_on_rows_that_are_gone_is_taken_anew(tmp_path: Path) -> None:
    held = Held(tmp_path, "update")
    with commands(lambda: held):
        held.hold()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
            patch.setattr("tidegate.runs.gate.decisions.publish_increment", lambda *a, **k: kill("publish"))
            held.decide("release")
        for note in held.paths.manifests.glob("*/folded-*"):
            note.unlink()
        with pytest.raises(HeldError):
            held.run("R2", GOOD)
        with pytest.raises(TryAgainError) as refused:
            held.decide("release")
        assert refused.value.code == "NOT_AUDITED" and "tidegate audit orders --run-id R1" in str(refused.value.fix)
        with pytest.raises(HeldError):
            gate_steps.audit_run(held.project, NAME, "R1")
        held.decide("release")
        held.run("R2", GOOD)
        check_all_is_true(held, "release", "folded and decided again")


def test_nothing_is_carried_out_into_another_table(stage: Stage, tmp_path: Path) -> None:
    held = stage.held
    held.run("R0", GOOD)
    held.hold()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledHere):
        patch.setattr("tidegate.runs.gate.decisions.publish_increment", lambda *a, **k: kill("publish"))
        held.decide("release")
    held.paths.table.rename(tmp_path / "away")
    with pytest.raises(DisagreementError) as refused:
        held.run("R2", GOOD)
    assert refused.value.code == "TABLE_GONE" and not held.paths.table.exists()
    (tmp_path / "away").rename(held.paths.table)
    held.run("R2", [])
    assert held.rows() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("name", ["verdicts", "decisions"])
def test_a_file_of_the_wrong_kind_is_refused_and_can_be_moved_away(stage: Stage, name: str) -> None:
    held = stage.held
    held.hold()
    verdict = held.paths.verdict("R1")
    path = held.paths.state / name / ("R1.json" if name == "decisions" else "other.json")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(verdict.read_bytes())
    with pytest.raises(DisagreementError) as refused:
        held.run("R2", GOOD)
    assert refused.value.code == "STATE_FILE_MISPLACED" and held.rows() == []
    assert refused.value.fix is not None
    subprocess.run(refused.value.fix.partition(", then")[0], shell=True, check=True)
    held.decide("discard")
    held.run("R2", GOOD)
    check_all_is_true(held, "discard", "moved away")


def test_a_decision_of_an_unknown_kind_publishes_nothing(stage: Stage) -> None:
    """What is neither discard nor reread would be taken for a release."""
    held = stage.held
    held.hold()
    verdict = load_verdict(held.paths, "R1")
    assert verdict is not None
    save_decision(held.paths, Decision("R1", "discard", "ann@host", "half of it", "now", verdict.batches))
    path = held.paths.decision("R1")
    path.write_text(path.read_text().replace('"discard"', '"divide"'))
    with pytest.raises(DisagreementError) as refused:
        held.run("R2", GOOD)
    assert refused.value.code == "STATE_FILE_MISPLACED" and held.rows() == []


@pytest.mark.parametrize("decision", ["discard", "release"])
def test_a_reason_that_is_no_unicode_leaves_a_log_that_can_be_read(stage: Stage, decision: Ruling) -> None:
    stage.held.hold()
    said = b"gepr\xfcft".decode("utf-8", "surrogateescape")  # as it comes from a terminal of another encoding
    decide.decide(stage.held.project, NAME, "R1", Answer(decision, said))
    stage.held.run("R2", GOOD)
    assert stage.held.rows() == AFTER[decision]


def test_a_query_that_keeps_state_does_not_read_an_increment_again(stage: Stage) -> None:
    held = stage.held
    held.run("R0", GOOD)
    held.hold()
    with held.paths.spec.open("a") as spec:
        spec.write("output_mode: update\ntable: {keys: [id]}\n")
    hindrance = look_at_reread(held.project, NAME, "R1")["hindrance"]
    assert hindrance["code"] == "STATE_NEEDED" and "tidegate release orders R1" in hindrance["fix"]
