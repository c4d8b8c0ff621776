"""What of a pipeline waits for a person's decision, of every kind, and which choices there are. From the state folder;
nothing is judged again, and no JVM is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from typing_extensions import TypedDict

from tidegate.backfill.held import list_held
from tidegate.outputs import Ruling as RulingReport
from tidegate.paths import PipelinePaths
from tidegate.reports.report import load_report
from tidegate.reports.verdicts import Ruling, list_rereads, list_verdicts, load_decision
from tidegate.reports.waiting import list_undecided

HeldKind = Literal["increment", "waiting", "backfill", "refresh"]
"""An increment that later runs wait for, or that waits alone, or work beside the runs."""
_BOTH: tuple[Ruling, ...] = ("release", "discard")


class Open(TypedDict):
    """Something that waits for a decision. ``what`` names the partitions of work beside the runs."""

    run_id: str
    kind: HeldKind
    what: str
    reasons: list[str]
    choices: list[Ruling]


def list_open(paths: PipelinePaths) -> list[Open]:
    """All that waits. Raises DisagreementError STATE_FILE_MISPLACED, and what reading the table's log raises."""
    return [*_list_increments(paths), *_list_waiting(paths), *_list_work(paths)]


def describe_open(one: Open) -> str:
    """``backfill B1 (day=2026-01-02) waits for a decision``."""
    work = one["kind"] if one["kind"] in ("backfill", "refresh") else "run"
    what = f" ({one['what']})" if one["what"] else ""
    return f"{work} {one['run_id']}{what} waits for a decision"


def find_open(paths: PipelinePaths, run_id: str) -> Open | None:
    """What waits under this run id; None for nothing. Raises as :func:`list_open`."""
    return next((one for one in list_open(paths) if one["run_id"] == run_id), None)


def find_ruling(paths: PipelinePaths, run_id: str) -> RulingReport | None:
    """What was decided on this run, carried out or not; None for nothing."""
    for verdict in list_verdicts(paths):
        if verdict.run_id == run_id and (ruling := load_decision(paths, verdict)) is not None:
            return ruling.to_report()
    for ruling in list_rereads(paths):
        if ruling.run_id == run_id:
            return ruling.to_report()
    report = load_report(paths, run_id)
    return None if report is None else report.decision


def _list_increments(paths: PipelinePaths) -> list[Open]:
    choices: list[Ruling] = [*_BOTH, "reread"]
    return [
        {"run_id": one.run_id, "kind": "increment", "what": "", "reasons": one.reasons, "choices": choices}
        for one in list_verdicts(paths)
        if not one.passed and load_decision(paths, one) is None
    ]


def _list_waiting(paths: PipelinePaths) -> list[Open]:
    return [
        {
            "run_id": one.run_id,
            "kind": "waiting",
            "what": "",
            "reasons": one.verdict.reasons,
            "choices": list(_BOTH),
        }
        for one in list_undecided(paths)
    ]


def _list_work(paths: PipelinePaths) -> list[Open]:
    reports = [intent.report for intent in list_held(paths) if intent.report is not None]
    return [
        {
            "run_id": one["run_id"],
            "kind": "refresh" if one["mode"] == "refresh" else "backfill",
            "what": one["rebuilt"][-1],
            "reasons": _failed_rules(one),
            "choices": list(_BOTH),
        }
        for one in reports
    ]


def _failed_rules(report: Mapping[str, Any]) -> list[str]:
    return [
        f"{one['rule']} does not hold"
        for one in report["quality"]["results"]
        if not one["success"] and one["severity"] == "critical"
    ]
