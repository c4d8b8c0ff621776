"""Find and remove files in a pipeline's state folder that nothing needs any more, and unfinished copies beside its
tables.

In doubt a file stays. Birth records of retired queries always stay (:mod:`tidegate.runs.restart.repair_plan` reads
them), and so do backups with a birth record, unreadable files, and records of losses.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths, encode_run_id
from tidegate.rework.backfill.held import list_held_attempts
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.recover import find_dead_attempts
from tidegate.runs.reports.report import FINAL_OUTCOMES
from tidegate.runs.reports.verdicts import list_decided, list_rereads, list_verdicts
from tidegate.state.birth import read_birth
from tidegate.state.checkpoint import read_checkpoint
from tidegate.table.publish.intent import pending_intents

LitterKind = Literal["staging", "reports", "backups", "checkpoints"]

_STAMP = "%Y%m%dT%H%M%S%fZ"
"""The name of a backup folder that a repair creates."""


@dataclass(frozen=True)
class Litter:
    """Folders and single files of one kind that can be removed, with the number of ``files`` and ``bytes``."""

    work: LitterKind
    folders: Sequence[Path]
    singles: Sequence[Path] = ()
    files: int = 0
    bytes: int = 0

    def measured(self) -> Litter:
        """A copy with ``files`` and ``bytes`` counted."""
        sizes = []
        for path in itertools.chain(self.singles, *map(storage.list_tree, self.folders)):
            with contextlib.suppress(FileNotFoundError):
                sizes.append(storage.stat(path).size_bytes)
        return replace(self, files=len(sizes), bytes=sum(sizes))


def find_litter(paths: PipelinePaths, facts: Facts, *, before: datetime, run_id: str | None = None) -> list[Litter]:
    """Find everything that can be removed: unreferenced staging, side jobs that were stopped, copies that a process
    was making when it was killed, and older files ``before`` a time.

    Files of the calling run (``run_id``) stay. To be called after recovery.
    """
    found = [
        Litter("staging", [*find_dead_attempts(paths, facts), *_find_jobs(paths)], _find_copies(paths)),
        _find_reports(paths, facts, before, run_id),
        Litter("backups", _find_backups(paths, before)),
        Litter("checkpoints", _find_checkpoints(paths, before)),
    ]
    return [one.measured() for one in found if one.folders or one.singles]


def remove_litter(litter: Litter, check_lease: Callable[[], None]) -> None:
    """Remove the files. May be repeated; after a kill the rest is found again."""
    for folder in litter.folders:
        check_lease()
        storage.remove_tree(folder)
    check_lease()
    for path in litter.singles:
        storage.remove(path)
    if litter.work == "staging":
        for folder in {folder.parent for folder in litter.folders}:
            storage.remove_empty_folder(folder)
            storage.remove_empty_folder(folder.parent)


def _is_before(path: Path, moment: datetime) -> bool:
    """Return whether everything at or below a path was written before a moment; False if it does not exist."""
    limit = int(moment.timestamp() * 1e9)
    try:
        return all(storage.stat(one).modified_ns < limit for one in (path, *storage.list_tree(path)))
    except FileNotFoundError:
        return False


def _find_jobs(paths: PipelinePaths) -> list[Path]:
    """Find the staging of stopped backfills, refreshes and replays, which start their part again when resumed. Held
    files stay, and files that are being published."""
    intents = [one for intent in pending_intents(paths) for one in (intent, intent.companion) if one is not None]
    named = {paths.state / file.source for intent in intents for file in intent.files_to_add}
    jobs = [*storage.list_folders(paths.backfills), *storage.list_folders(paths.replays)]
    attempts = [one for job in jobs for one in storage.list_folders(job)]  # each has a unique name
    held = list_held_attempts(paths)
    return [one for one in attempts if one not in held and not any(file.is_relative_to(one) for file in named)]


def _find_copies(paths: PipelinePaths) -> list[Path]:
    """Find hidden copies in the tables' folders. After recovery with the lease none is needed: a process that is
    suspended while it makes one has lost the lease."""
    tables = (paths.table, paths.quarantine)
    return [copy for table_path in tables for copy in storage.list_tree(table_path, f".*{storage.COPY_SUFFIX}")]


def _find_reports(paths: PipelinePaths, facts: Facts, before: datetime, run_id: str | None) -> Litter:
    """Find reports of finished runs with their files, and files whose report is gone.

    The newest report stays, and the newest one of a successful run, because ``status`` needs them.
    """
    reports = storage.list_folder(paths.runs, "[!.]*.json")
    times: dict[Path, int] = {}
    for path in reports:
        with contextlib.suppress(FileNotFoundError):  # a dry run has no lease: others may remove it
            times[path] = storage.stat(path).modified_ns
    newest = sorted(times, key=lambda path: times[path], reverse=True)
    outcomes: dict[Path, str | None] = {}
    kept = set(newest[:1])
    for path in newest:
        outcomes[path] = _outcome_of(path)
        if outcomes[path] in FINAL_OUTCOMES:
            kept.add(path)
            break
    needed = {encode_run_id(one) for one in _needed_runs(paths, facts, run_id)}
    limit = int(before.timestamp() * 1e9)
    found: list[Path] = []
    stay = set()
    for path in newest:
        name = path.name.removesuffix(".json")
        if path in kept or name in needed or times[path] >= limit:
            stay.add(name)
            continue
        outcome = outcomes[path] if path in outcomes else _outcome_of(path)
        if outcome in (*FINAL_OUTCOMES, "failed"):
            found.append(path)
        else:
            stay.add(name)
    gone = {path.name.removesuffix(".json") for path in found}
    exchanges, progress = storage.list_folders(paths.exchanges), storage.list_folder(paths.runs, "[!.]*.jsonl")

    def can_go(path: Path, name: str) -> bool:
        return name in gone or (name not in stay | needed and _is_before(path, before))

    folders = [path for path in exchanges if can_go(path, path.name)]
    singles = [path for path in progress if can_go(path, path.name.removesuffix(".progress.jsonl"))]
    unreported = storage.list_folder(paths.untold, "[!.]*.json")
    singles += [path for path in unreported if can_go(path, path.name.removesuffix(".json"))]
    return Litter("reports", folders, [*singles, *found])  # reports last: their files are found by them


def _outcome_of(report: Path) -> str | None:
    """The outcome of a run; None for an unfinished run or an unreadable report."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        value = storage.read_json(report)
        return None if value is None else value.get("outcome")
    return None


def _needed_runs(paths: PipelinePaths, facts: Facts, run_id: str | None) -> set[str]:
    """Runs whose increment is unfinished: staged, held, decided on, or being published."""
    open_runs = {one.run_id for manifests in facts.manifests.values() for one in manifests}
    open_runs |= {verdict.run_id for verdict in list_verdicts(paths)}
    open_runs |= {decision.run_id for decision in list_rereads(paths)}
    open_runs |= {intent.run_id for intent in pending_intents(paths)}
    return open_runs | ({run_id} if run_id is not None else set())


def _find_backups(paths: PipelinePaths, before: datetime) -> list[Path]:
    """Find old backup folders of repairs."""
    if list_rereads(paths) or list_decided(paths):
        return []
    found = []
    for folder in storage.list_folders(paths.set_aside):
        if storage.exists(folder / "birth.json"):
            continue
        made_at = _read_stamp(folder.name)
        if made_at < before if made_at is not None else _is_before(folder, before):
            found.append(folder)
    return found


def _read_stamp(name: str) -> datetime | None:
    try:
        return datetime.strptime(name, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None


def _find_checkpoints(paths: PipelinePaths, before: datetime) -> list[Path]:
    """Find checkpoints, and their records, of queries that were retired before a moment."""
    newest = paths.newest_generation()
    found = []
    for number in range(newest):
        old = replace(paths, generation=number)
        birth = read_birth(old)
        query_id = (birth.query_id if birth is not None else None) or read_checkpoint(old.checkpoint).query_id
        if query_id is None:
            continue
        record = storage.read_json(paths.retired(query_id))
        if record is None or datetime.fromisoformat(str(record["at"])) >= before:
            continue
        found += [old.checkpoint, old.batches, paths.seals / query_id, paths.open_state / query_id]
    return [path for path in found if storage.exists(path)]
