"""What of a pipeline waits for a person's decision, and the choices, from the state folder alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from typing_extensions import TypedDict

from tidegate.core.outputs import Ruling as RulingReport
from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.held import list_held
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Ruling, StoredVerdict, list_rereads, list_verdicts, load_decision
from tidegate.runs.reports.waiting import list_waiting_undecided

UndecidedKind = Literal["increment", "waiting", "backfill", "refresh"]
"""An increment that later runs wait for, a deferred one, or a concurrent job."""
MARK_LENGTH = 16
_BOTH: tuple[Ruling, ...] = ("release", "discard")


class Undecided(TypedDict):
    """What waits for a person's decision, since when.

    ``what`` names the partitions of a backfill or refresh; ``mark`` distinguishes it from others that were, or will be,
    held under the same run id: a decision is on one of them."""

    run_id: str
    mark: str
    kind: UndecidedKind
    what: str
    reasons: list[str]
    since: str | None
    choices: list[Ruling]


def name_kind(kind: UndecidedKind) -> str:
    """The word before its run id in a sentence: ``run``, ``backfill`` or ``refresh``."""
    return kind if kind in ("backfill", "refresh") else "run"


def list_undecided(paths: PipelinePaths) -> list[Undecided]:
    """List all that is undecided. Raises DisagreementError STATE_FILE_MISPLACED, and errors of the table's log."""
    return [*_list_increments(paths), *_list_waiting(paths), *_list_work(paths)]


def find_undecided(paths: PipelinePaths, run_id: str) -> Undecided | None:
    """Find what waits under this run id; None for nothing. Raises as :func:`list_undecided`."""
    return next((one for one in list_undecided(paths) if one["run_id"] == run_id), None)


def find_ruling(paths: PipelinePaths, run_id: str) -> RulingReport | None:
    """Find the decision on this run, carried out or not; None for none."""
    for verdict in list_verdicts(paths):
        if verdict.run_id == run_id and (ruling := load_decision(paths, verdict)) is not None:
            return ruling.to_report()
    for ruling in list_rereads(paths):
        if ruling.run_id == run_id:
            return ruling.to_report()
    report = load_report(paths, run_id)
    return None if report is None else report.decision


def _list_increments(paths: PipelinePaths) -> list[Undecided]:
    choices: list[Ruling] = [*_BOTH, "reread"]
    return [
        {
            "run_id": one.run_id,
            "mark": _mark_increment(one),
            "kind": "increment",
            "what": "",
            "reasons": [str(reason) for reason in one.reasons],
            "since": one.at or None,
            "choices": choices,
        }
        for one in list_verdicts(paths)
        if not one.passed and load_decision(paths, one) is None
    ]


def _list_waiting(paths: PipelinePaths) -> list[Undecided]:
    return [
        {
            "run_id": one.run_id,
            "mark": _mark_increment(one.verdict),
            "kind": "waiting",
            "what": "",
            "reasons": [str(reason) for reason in one.verdict.reasons],
            "since": one.since,
            "choices": list(_BOTH),
        }
        for one in list_waiting_undecided(paths)
    ]


def _list_work(paths: PipelinePaths) -> list[Undecided]:
    reports = [(intent, intent.report) for intent in list_held(paths) if intent.report is not None]
    return [
        {
            "run_id": one["run_id"],
            "mark": _mark(intent.app_id, intent.app_version, one["rebuilt"]),
            "kind": "refresh" if one["mode"] == "refresh" else "backfill",
            "what": one["rebuilt"][-1],
            "reasons": _failed_rules(one),
            "since": one["ended_at"],
            "choices": list(_BOTH),
        }
        for intent, one in reports
    ]


def _mark_increment(verdict: StoredVerdict) -> str:
    return _mark(sorted(verdict.batches), verdict.folds)


def _mark(*what: object) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:MARK_LENGTH]


def _failed_rules(report: Mapping[str, Any]) -> list[str]:
    return [
        f"{one['rule']} does not hold"
        for one in report["quality"]["results"]
        if not one["success"] and one["severity"] == "critical"
    ]
