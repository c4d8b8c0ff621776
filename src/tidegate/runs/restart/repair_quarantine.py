"""Repair of a quarantine that is an older copy, where the checkpoint stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.quarantine import note_quarantine
from tidegate.runs.reports.run_ids import new_run_id
from tidegate.runs.restart.quarantine_mismatch import (
    QuarantineMismatch,
    compare_with_table,
    move_to_backup,
    remove_files,
    take_out,
)
from tidegate.runs.restart.repair_plan import known_queries, last_by_prefix, list_orphans, quarantine_to_take_back
from tidegate.state.lease import Lease
from tidegate.state.published import write_published
from tidegate.state.retired import read_retired
from tidegate.table.log.commit import retire_in_log
from tidegate.table.log.state import DataFile
from tidegate.table.log.taken import settled_batches
from tidegate.table.quarantine.moves import TAKEN_BACK


def look_at_quarantine(paths: PipelinePaths, facts: Facts) -> tuple[list[DataFile], QuarantineMismatch]:
    """Find the files that are read again and leave quarantine, and the mismatch with the table."""
    settled = settled_batches(paths.table, known_queries(paths, facts))
    return quarantine_to_take_back(paths, settled), compare_with_table(paths, last_by_prefix(paths, settled))


def describe_quarantine_repair(again: list[DataFile], mismatch: QuarantineMismatch) -> list[str]:
    """What :func:`repair_quarantine` does, a sentence for each step."""
    records = count_of(sum(file.rows for file in again), "record")
    steps = [f"take {records} out of quarantine that are read again"] if again else []
    return [*steps, *mismatch.describe()] or ["keep quarantine as it is now: it lacks no record"]


def repair_quarantine(paths: PipelinePaths, lease: Lease, facts: Facts, backup: Path) -> None:
    """Keep the older copy, without what is read again, or may be in the table by now."""
    again, mismatch = look_at_quarantine(paths, facts)
    before, table = facts.published, facts.table
    lease.check()
    if again:
        take_back(paths, again)
    take_out(paths, lease, mismatch, backup)
    for name in list_orphans(paths, paths.quarantine):
        move_to_backup(paths.quarantine / name, backup / "quarantine" / name, lease)
    for query_id, last in read_retired(paths).items():  # an older copy does not know that it is over
        lease.check()
        retire_in_log(paths.quarantine, query_id, last_batch=last)
    if facts.later.moved is not None and before is not None and table is not None:
        write_published(paths, replace(before, version=table.version))
    note_quarantine(paths, lease)


def take_back(paths: PipelinePaths, files: list[DataFile]) -> None:
    """Take files of batches that are read again out of quarantine's log."""
    remove_files(paths, files, new_run_id("repair"), TAKEN_BACK)
