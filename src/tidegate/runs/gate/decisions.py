"""Decisions on held increments: recorded first, then carried out by the next process, before anything else."""

from __future__ import annotations

from tidegate.core import outputs
from tidegate.core.errors import TryAgainError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import name_person, now_text
from tidegate.core.words import count_of
from tidegate.runs import errors
from tidegate.runs.gate.increment import publish_increment
from tidegate.runs.gate.merging import load_judged
from tidegate.runs.gate.waiting import publish_waiting
from tidegate.runs.preflight.agreement import check_agreement, check_table
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import FINAL_OUTCOMES, LIVE_MODES, RunReport, load_report
from tidegate.runs.reports.verdicts import (
    Decision,
    Ruling,
    StoredVerdict,
    forget,
    list_decided,
    list_rereads,
    load_verdict,
    quote_word,
    save_decision,
)
from tidegate.runs.reports.waiting import WaitingIncrement


def carry_out(context: RunContext, facts: Facts, *, for_repair: bool = False) -> bool:
    """Carry out the oldest open decision: publish or discard exactly its batches. Returns whether there was one; the
    facts have to be gathered again then.

    Raises DisagreementError when checkpoint, table and spec do not fit: nothing is published then. With ``for_repair``
    only discards are carried out, and only if the table is the known one; otherwise the repair would read and judge
    their records again. Released records are read again by the repair and need a new decision.
    """
    decided = [
        (verdict, ruling) for verdict, ruling in list_decided(context.paths) if verdict.choose(facts.unpublished)
    ]
    decided = [one for one in decided if one[1].decision == "discard" or not for_repair]
    decided = [one for one in decided if one[1].decision != "reread"]  # tidegate.runs.restart.reread carries these out
    if not decided or any(one.at < min(ruling.at for _, ruling in decided) for one in list_rereads(context.paths)):
        return False  # of two decisions the first counts, and that is carried out by tidegate.runs.restart.reread
    (check_table if for_repair else check_agreement)(facts, context.name)
    verdict, ruling = min(decided, key=lambda one: one[1].at)
    try:
        publish_increment(context, facts, verdict, ruling)
    except TryAgainError as error:
        if error.code != "NOT_AUDITED":
            raise
        # What was decided on is no longer there as it was: the increment is judged, and decided on, again.
        context.lease.check()
        forget(context.paths, ruling)
    return True


def find_decidable(context: RunContext, facts: Facts) -> StoredVerdict:
    """The verdict of the context's run, on an increment that waits for a decision. Raises UsageError NOT_HELD or
    DECIDED_ALREADY."""
    return find_held(context.paths, facts, context.name, context.report.run_id)


def find_held(paths: PipelinePaths, facts: Facts, name: str, run_id: str) -> StoredVerdict:
    """The verdict on a run's increment that waits for a decision. Raises UsageError NOT_HELD or DECIDED_ALREADY."""
    verdict = load_verdict(paths, run_id)
    if verdict is not None and not verdict.passed and verdict.comes_next(facts.unpublished):
        return verdict
    report = load_report(paths, run_id)
    if report is not None and report.outcome in FINAL_OUTCOMES and report.decision and report.published_by is None:
        raise decided_already(name, run_id, report.decision)
    raise not_held(name, run_id, report)


def check_decided(context: RunContext, ruling: Ruling) -> None:
    """Whether a run that is over ended as ``ruling`` asks for. Raises UsageError NOT_HELD or DECIDED_ALREADY."""
    report, name = context.report, context.name
    before = report.decision
    if before is None or report.published_by is not None:
        raise not_held(name, report.run_id, report)
    if before["decision"] != ruling:
        raise decided_already(name, report.run_id, before)


def decided_already(name: str, run_id: str, before: outputs.Ruling) -> UsageError:
    """The error of a decision on what was decided otherwise before."""
    where = f"run {run_id} of pipeline {name}"
    if before["decision"] == "reread":
        return errors.REREAD_ALREADY(where=where, who=before["who"], at=before["at"])
    return errors.DECIDED_ALREADY(
        where=where,
        who=before["who"],
        decision=before["decision"],
        at=before["at"],
        name=name,
    )


def not_held(name: str, run_id: str, report: RunReport | None) -> UsageError:
    """The error of a decision on a run whose increment does not wait for one: how the run ended, and what leads to
    having the records of one that is over read again."""
    if report is not None and report.mode not in LIVE_MODES and report.outcome in (None, "held"):
        return errors.HELD_SIDE_JOB(
            where=f"run {run_id} of pipeline {name}", kind=report.mode, name=name, run_id=quote_word(run_id)
        )
    if report is None or report.outcome in (None, "held"):
        return errors.NOTHING_HELD(where=f"pipeline {name}", name=name, run_id=run_id)
    rows = report.rows
    is_over = report.outcome in ("published", "discarded")
    entry = errors.NOT_HELD_ANY_MORE if is_over else errors.NEVER_HELD
    return entry(
        where=f"run {run_id} of pipeline {name}",
        run_id=run_id,
        name=name,
        outcome=report.outcome.replace("_", " "),
        read=count_of(rows["read"], "record"),
        published=count_of(rows["published"], "row"),
        quarantined=rows["malformed"] + rows["late"] + rows["rejected"],
    )


def decide_waiting(
    context: RunContext, waiting: WaitingIncrement, ruling: Ruling, reason: str, who: str | None = None
) -> None:
    """Decide on a deferred increment. Its publish is the record: once that is planned, it is carried out,
    whatever happens to this process. Raises as :func:`tidegate.runs.gate.waiting.publish_waiting`."""
    judged = sorted(waiting.verdict.batches)
    decision = Decision(waiting.run_id, ruling, who or name_person(), reason.strip(), now_text(), judged)
    publish_waiting(context, waiting, decision)


def record(context: RunContext, verdict: StoredVerdict, ruling: Ruling, reason: str, who: str | None = None) -> None:
    """Write the decision down: from here on it is carried out, whatever happens to this process. ``who`` is by default
    the person at this terminal.

    Raises DisagreementError, or TryAgainError NOT_AUDITED, when it could not be.
    """
    assert context.facts is not None
    check_agreement(context.facts, context.name)
    if ruling == "release":
        for query_id in dict.fromkeys(query_id for query_id, _ in verdict.batches):
            batches = [one for one in verdict.choose(context.facts.unpublished) if one.query_id == query_id]
            if batches:
                load_judged(context, batches, verdict, decided=True)
    context.lease.check()
    judged, folds = sorted(verdict.batches), list(verdict.folds)
    decision = Decision(verdict.run_id, ruling, who or name_person(), reason.strip(), now_text(), judged, folds)
    save_decision(context.paths, decision)
