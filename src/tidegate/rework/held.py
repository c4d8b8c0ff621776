"""Held work: an increment, a deferred increment, or a backfill or refresh, until a person decides on it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

from tidegate.core import outputs, storage
from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.held import KINDS, decide_backfill, describe_runs, is_held_backfill, list_held
from tidegate.runs.decide import decide
from tidegate.runs.recovery.context import Submit
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import (
    Answer,
    Ruling,
    StoredVerdict,
    list_rereads,
    list_verdicts,
    list_waiting,
    list_waiting_undecided,
    load_decision,
)
from tidegate.spec.project import Project
from tidegate.state.manifest import BatchManifest, read_all_manifests

HeldKind = Literal["increment", "waiting", "backfill", "refresh"]
"""An increment that later runs wait for, a deferred one, or a concurrent job."""
MARK_LENGTH = 16
_BOTH: tuple[Ruling, ...] = ("release", "discard")


class HeldWork(TypedDict):
    """Work that waits for a person's decision since a time; from the state folder alone.

    ``what`` names the partitions of a backfill or refresh, ``runs`` what becomes of runs meanwhile; ``mark``
    distinguishes it from others that were, or will be, held under the same run id: a decision is on one of them."""

    run_id: str
    mark: str
    kind: HeldKind
    what: str
    runs: str
    reasons: list[str]
    since: str | None
    choices: list[Ruling]


def name_kind(kind: HeldKind) -> str:
    """The word before its run id in a sentence: ``run``, ``backfill`` or ``refresh``."""
    return kind if kind in ("backfill", "refresh") else "run"


def decide_held_work(
    project: Project, name: str, run_id: str, answer: Answer, *, submit: Submit | None = None
) -> outputs.RunReport:
    """Release or discard held work of any kind, and return its report. Deciding the same again changes nothing.

    Raises as :func:`tidegate.rework.backfill.held.decide_backfill` and :func:`tidegate.runs.decide.decide`.
    """
    if is_held_backfill(project, name, run_id):
        return decide_backfill(project, name, run_id, answer, submit=submit)
    report = load_report(project.paths(name), run_id)
    if report is not None and report.mode in KINDS and report.decision is not None:
        has_sinks_to_feed = report.outcome is not None and submit is not None
        if not has_sinks_to_feed and report.decision["decision"] == answer.decision:
            return report.to_json()
    return decide(project, name, run_id, answer, submit=submit)


def list_held_work(paths: PipelinePaths) -> list[HeldWork]:
    """List all that is undecided. Raises DisagreementError STATE_FILE_MISPLACED, and errors of the table's log."""
    undecided = [one for one in list_verdicts(paths) if not one.passed and load_decision(paths, one) is None]
    held = [_describe_increment(one, "increment", one.at or None, [*_BOTH, "reread"]) for one in undecided]
    deferred = list_waiting_undecided(paths)
    held += [_describe_increment(one.verdict, "waiting", one.since, [*_BOTH]) for one in deferred]
    return held + list_held_side_jobs(paths)


def find_held_work(paths: PipelinePaths, run_id: str) -> HeldWork | None:
    """Find the held work under this run id; None for nothing. Raises as :func:`list_held_work`."""
    return next((one for one in list_held_work(paths) if one["run_id"] == run_id), None)


def find_ruling(paths: PipelinePaths, run_id: str) -> outputs.Ruling | None:
    """Find the decision on this run, carried out or not; None for none."""
    for verdict in list_verdicts(paths):
        if verdict.run_id == run_id and (ruling := load_decision(paths, verdict)) is not None:
            return ruling.to_report()
    for ruling in list_rereads(paths):
        if ruling.run_id == run_id:
            return ruling.to_report()
    report = load_report(paths, run_id)
    return None if report is None else report.decision


def _describe_increment(verdict: StoredVerdict, kind: HeldKind, since: str | None, choices: list[Ruling]) -> HeldWork:
    return {
        "run_id": verdict.run_id,
        "mark": _mark(sorted(verdict.batches), verdict.folds),
        "kind": kind,
        "what": "",
        "runs": "later runs wait for it" if kind == "increment" else "later runs continue",
        "reasons": [str(reason) for reason in verdict.reasons],
        "since": since,
        "choices": choices,
    }


def list_held_side_jobs(paths: PipelinePaths) -> list[HeldWork]:
    """List held backfills and refreshes, each with the partitions that it would rebuild."""
    reports = [(held, held.intent, held.intent.report) for held in list_held(paths)]
    return [
        {
            "run_id": one["run_id"],
            "mark": _mark(intent.app_id, intent.app_version, one["rebuilt"]),
            "kind": "refresh" if one["mode"] == "refresh" else "backfill",
            "what": held.label,
            "runs": describe_runs(changes_columns=held.changes_columns),
            "reasons": _failed_rules(one),
            "since": one["ended_at"],
            "choices": list(_BOTH),
        }
        for held, intent, one in reports
        if one is not None
    ]


def _mark(*what: object) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:MARK_LENGTH]


def _failed_rules(report: outputs.RunReport) -> list[str]:
    return [
        f"{one['rule']} does not hold"
        for one in report["quality"]["results"]
        if not one["success"] and one["severity"] == "critical"
    ]


def find_held_records(paths: PipelinePaths) -> list[Path]:
    """List the staged files with quarantined records of held and deferred increments, oldest first; the quarantine
    table has them only after a decision."""
    held: list[BatchManifest] = [manifest for one in list_waiting(paths) for manifest in one.manifests]
    failed = [verdict for verdict in list_verdicts(paths) if not verdict.passed]
    if failed:
        staged = [manifest for found in read_all_manifests(paths.manifests).values() for manifest in found]
        held += [manifest for manifest in staged if any(manifest.key in one.batches for one in failed)]
    files = dict.fromkeys(paths.state / file.path for manifest in held for file in manifest.quarantine_files)
    return [path for path in files if storage.exists(path)]  # a decision may have published them meanwhile
