"""What a repair does, and what comes of it, in sentences."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.runs.recovery.abandoned import describe_work
from tidegate.runs.reports.waiting import list_waiting
from tidegate.runs.restart.repair_plan import RepairPlan
from tidegate.sources.files.differences import IS_GONE
from tidegate.sources.files.ledger import LedgerRow
from tidegate.table.log.state import list_data_files
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.origins import read_origins

_NAMED_AT_MOST = 20


def describe_abandoning(begun: Sequence[PublishIntent]) -> list[str]:
    """The side jobs that are abandoned."""
    return [
        f"abandon {describe_work(intent)}, which was stopped half-way: the table, and quarantine, have what they had "
        "before it"
        for intent in begun
    ]


def describe_plan(plan: RepairPlan) -> list[str]:
    """What the repair does, a sentence for each step."""
    sentences = describe_abandoning(plan.begun)
    if plan.back_to is not None:
        sentences.append(
            f"take the table back to version {plan.back_to}, the newest of which the state folder knows all records; "
            "versions in between can be read as long as `maintenance.keep_versions` keeps them"
        )
    sentences += ["end the query in the logs, and leave its checkpoint where it is, unused"]
    if plan.unpublished:
        count, records = len(plan.unpublished), sum(manifest.read for manifest in plan.unpublished)
        sentences.append(f"back up {count_of(count, 'staged batch', 'staged batches')} ({count_of(records, 'record')})")
    if plan.taken_back:
        sentences.append(f"take {count_of(len(plan.taken_back), 'file')} of those batches out of quarantine")
    sentences += plan.mismatch.describe()
    if plan.orphans:
        files = count_of(plan.orphans, "data file")
        sentences.append(f"back up {files} that no log holds, or will no longer hold")
    if plan.hidden:
        names = "a new plain name" if plan.hidden == 1 else "new plain names"
        sentences.append(f"give {count_of(plan.hidden, 'data file')} {names}, which a publish had begun to replace")
    return sentences


def describe_next_run(
    paths: PipelinePaths, plan: RepairPlan, differing: Sequence[tuple[LedgerRow, str]], *, keeps_rows: bool
) -> list[str]:
    """What comes of the repair. ``differing`` are files that no longer hold what was read, ``keeps_rows`` is whether
    the table that is backed up has rows that are each of one record."""
    sentences = ["begins a new checkpoint"]
    gone = [(row, why) for row, why in differing if why.endswith(IS_GONE)]
    if there := len(plan.again) - len(gone):
        sentences.append(f"reads {count_of(there, 'file')} that the table's log does not hold")
    if gone:
        names = list_first([why.removesuffix(f" {IS_GONE}") for _, why in gone], _NAMED_AT_MOST, "; ")
        lost = _describe_lost_rows(paths, plan.again, [row for row, _ in gone]) if keeps_rows else ""
        sentences.append(f"does not find {count_of(len(gone), 'file')} of those that were read: {names}{lost}")
    if changed := [why for _, why in differing if not why.endswith(IS_GONE)]:
        names = list_first(changed, _NAMED_AT_MOST, "; ")
        sentences.append(f"finds these changed since they were read: {names}")
    sentences += _describe_waiting(paths, plan)
    return [*sentences, *(f"starts source {name} at {json.dumps(one['offsets'])}" for name, one in plan.starts.items())]


def _describe_waiting(paths: PipelinePaths, plan: RepairPlan) -> list[str]:
    """The deferred increments that are read again. Without this line nobody knows that their bad records can hold
    the good ones, or be published with them."""
    again = [
        one
        for one in list_waiting(paths)
        if any(manifest.batch_id > plan.settled.get(manifest.query_id, -1) for manifest in one.manifests)
    ]
    return [
        f"reads run {one.run_id} ({count_of(sum(manifest.read for manifest in one.manifests), 'record')}, deferred) "
        "again together with the others, and the gate judges all of them as one increment; a discard before that does "
        "not keep these records out: correct the source or the suite first"
        for one in again
    ]


def _describe_lost_rows(paths: PipelinePaths, again: Sequence[LedgerRow], gone: Sequence[LedgerRow]) -> str:
    """How many rows of the table cannot be built again, by the batches that its files are of."""
    batches = {(str(row.query_id)[:8], row.batch_id) for row in gone}
    others = sum((str(row.query_id)[:8], row.batch_id) in batches for row in again) - len(gone)
    files = list_data_files(paths.table)
    origins = read_origins(paths.table, [file.path for file in files])
    rows = sum(file.rows for file in files if origins.get(file.path, frozenset()) & batches)
    if not others:
        return f"; {count_of(rows, 'row')} of the table came of that"
    return (
        f"; at most {count_of(rows, 'row')} of the table came of that: so many are of the batches that "
        f"had it and {count_of(others, 'file')} more"
    )
