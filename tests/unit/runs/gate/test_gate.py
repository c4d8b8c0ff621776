"""What is published is what was judged: the same rows, by the rules as they are now."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.held import BAD, GOOD, NAME, Held, commands, no_spark
from tidegate.core import storage
from tidegate.core.errors import HeldError, TidegateError, TryAgainError, UsageError
from tidegate.quality.engine import RuleResult
from tidegate.quality.suite import digest_suite, load_suite
from tidegate.runs import gate_steps, steps
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.reports.report import load_report
from tidegate.spec.pipeline import load_pipeline
from tidegate.state.manifest import batch_keys

MORE = "  - {type: expect_column_values_to_not_be_null, kwargs: {column: n}, severity: warning, meta: {rule: more}}\n"

BROKEN = """  - type: unexpected_rows_expectation
    kwargs: {unexpected_rows_query: "SELECT * FROM {batch} WHERE CAST('a' || n AS INT) > 0"}
    meta: {rule: broken}
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    held = Held(tmp_path)
    with commands(lambda: held):
        yield held


def edit(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text()))


def suite_of(held: Held) -> Path:
    return held.project.suite_path(NAME)


def ingest(held: Held, run_id: str, rows: list[dict[str, int | None]]) -> None:
    held.arriving = [rows]
    steps.ingest_run(held.project, NAME, run_id, submit=no_spark)


CHANGES: dict[str, Callable[[Held], None]] = {
    "a rule more": lambda held: edit(suite_of(held), lambda text: text + MORE),
    "another severity": lambda held: edit(suite_of(held), lambda text: text.replace("critical", "warning")),
    "another argument": lambda held: edit(suite_of(held), lambda text: text.replace("{column: id}", "{column: n}")),
    "no suite": lambda held: suite_of(held).unlink(),
    "a limit": lambda held: edit(held.paths.spec, lambda text: text + "quality: {max_quarantine_share: 0.5}\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_rules_that_changed_after_the_audit_are_asked_before_the_publish(
    held: Held, change: Callable[[Held], None]
) -> None:
    ingest(held, "R1", GOOD)
    gate_steps.audit_run(held.project, NAME, "R1")
    change(held)
    with pytest.raises(TryAgainError) as refused:
        gate_steps.publish_run(held.project, NAME, "R1")
    assert refused.value.code == "NOT_AUDITED" and held.rows() == []
    assert refused.value.fix == f"tidegate audit {NAME} --run-id R1, or tidegate run {NAME}"
    gate_steps.audit_run(held.project, NAME, "R1")
    assert gate_steps.publish_run(held.project, NAME, "R1")["rows"]["published"] == 4


def test_other_edits_of_the_suite_change_nothing(held: Held) -> None:
    ingest(held, "R1", GOOD)
    gate_steps.audit_run(held.project, NAME, "R1")
    edit(suite_of(held), lambda text: "# a comment, and two lines\n\n" + text)
    assert gate_steps.publish_run(held.project, NAME, "R1")["outcome"] == "published"


def test_another_run_judges_by_the_new_rules_what_was_not_published(held: Held) -> None:
    ingest(held, "R1", BAD)
    edit(suite_of(held), lambda text: text.replace("critical", "warning"))
    gate_steps.audit_run(held.project, NAME, "R1")
    edit(suite_of(held), lambda text: text.replace("warning", "critical"))
    for step in (gate_steps.publish_run, lambda *a: held.run("R2")):
        with pytest.raises(TidegateError):
            step(held.project, NAME, "R1")
        assert held.rows() == [], "rows that the suite calls bad were published"


@pytest.mark.parametrize("on_critical", ["hold", "continue"])
@pytest.mark.parametrize("rows", [GOOD, BAD], ids=["passed", "failed"])
def test_a_report_has_no_verdict_of_an_earlier_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, int | None]], on_critical: str
) -> None:
    held = Held(tmp_path, on_critical=on_critical)
    stored: list[object] = []

    def stop(*_: object) -> None:
        stored.append(verdict_of(held))  # what a kill would leave
        raise TryAgainError("STOPPED", "stopped", where="project here")

    with commands(lambda: held):
        ingest(held, "R1", rows)
        is_held = pytest.raises(HeldError) if rows is BAD else contextlib.nullcontext()
        with is_held:
            gate_steps.audit_run(held.project, NAME, "R1")
        expected = "failed" if rows is BAD else "passed"
        assert verdict_of(held) == expected
        edit(suite_of(held), lambda text: text + BROKEN)
        with pytest.raises(UsageError, match="BAD_SUITE"):
            gate_steps.audit_run(held.project, NAME, "R1")
        assert verdict_of(held) is None
        with pytest.raises(TidegateError, match="NOT_AUDITED" if rows is GOOD else "HELD|WAITS"):
            gate_steps.publish_run(held.project, NAME, "R1")
        assert verdict_of(held) == (None if rows is GOOD else expected)
        with monkeypatch.context() as patch, pytest.raises(TryAgainError) as stopped:
            patch.setattr("tidegate.quality.pandas_engine.judge_files", stop)
            gate_steps.audit_run(held.project, NAME, "R1")
        assert (stored, verdict_of(held)) == ([None], None)
        assert stopped.value.where == f"audit of run R1 of pipeline {NAME}, project here"
        edit(suite_of(held), lambda text: text.removesuffix(BROKEN))
        with is_held:
            gate_steps.audit_run(held.project, NAME, "R1")
        assert verdict_of(held) == expected


def test_a_second_ingest_has_no_verdict_of_the_rows_before(held: Held) -> None:
    ingest(held, "R1", GOOD)
    gate_steps.audit_run(held.project, NAME, "R1")
    ingest(held, "R1", BAD)
    assert verdict_of(held) is None


def verdict_of(held: Held) -> str | None:
    report = load_report(held.paths, "R1")
    assert report is not None
    return report.quality["verdict"]


def test_a_held_increment_is_judged_again_with_the_suite_as_it_stands(held: Held) -> None:
    held.hold()
    with pytest.raises(HeldError):
        gate_steps.audit_run(held.project, NAME, "R1")
    edit(suite_of(held), lambda text: text.replace("critical", "warning"))
    assert gate_steps.audit_run(held.project, NAME, "R1")["quality"]["verdict"] == "warned"
    assert gate_steps.publish_run(held.project, NAME, "R1")["rows"]["published"] == 3


@pytest.mark.parametrize("edited", [False, True])
def test_what_the_driver_found_counts_for_the_suite_it_was_asked_about(held: Held, edited: bool) -> None:
    ingest(held, "R1", GOOD)
    manifests = gather_facts(held.paths, load_pipeline(held.project, NAME)).unpublished
    found = RuleResult("good", "expect_column_values_to_not_be_null", "critical", True, 0, "by Spark")
    stored = {"batches": batch_keys(manifests), "folds": [], "suite": digest_suite(load_suite(held.project, NAME))}
    storage.replace(held.paths.driver_results("R1"), storage.dump_json({**stored, "results": [found.to_dict()]}))
    if edited:
        edit(suite_of(held), lambda text: text.replace("{column: id}", "{column: n}"))
    (result,) = gate_steps.audit_run(held.project, NAME, "R1")["quality"]["results"]
    assert result["observed_value"] == (None if edited else "by Spark")
    gate_steps.publish_run(held.project, NAME, "R1")
    assert not held.paths.exchange("R1").exists(), "left behind"


def test_rows_that_were_judged_folded_are_not_published_unfolded(tmp_path: Path) -> None:
    held = Held(tmp_path, "update")
    with commands(lambda: held):
        ingest(held, "R1", GOOD)
        gate_steps.audit_run(held.project, NAME, "R1")
        edit(held.paths.spec, lambda text: text.partition("output_mode")[0])
        with pytest.raises(TryAgainError, match="NOT_AUDITED"):
            gate_steps.publish_run(held.project, NAME, "R1")
        assert held.rows() == []
