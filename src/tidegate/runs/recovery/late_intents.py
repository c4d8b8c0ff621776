"""Plans of a publish that came late: written by a stale process, after another run had judged the same batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.verdicts import list_verdicts
from tidegate.state.lease import Lease
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import PublishIntent, intent_path
from tidegate.table.publish.replace import hidden_name


def drop_late_intents(
    paths: PipelinePaths, intents: Sequence[PublishIntent], check: Callable[[], None]
) -> list[PublishIntent]:
    """The intents that are in force; the others are removed, ``check`` is called first.

    A run that holds the lease finishes every intent before it judges anything. So where the verdict of another run on
    some of the batches failed, and nothing of the intent was begun, it was written after that verdict, by a process
    that is stale: what is held now must not become visible by what passed before.
    """
    failed = [verdict for verdict in list_verdicts(paths) if not verdict.passed] if intents else []
    in_force = []
    for intent in intents:
        batches = range(intent.app_version_before + 1, intent.app_version + 1)
        held = any(
            verdict.run_id != intent.run_id and query_id == intent.app_id and batch_id in batches
            for verdict in failed
            for query_id, batch_id in verdict.batches
        )
        if intent.target == "table" and held and not _is_begun(paths, intent):
            check()
            storage.remove(intent_path(paths, intent))
        else:
            in_force.append(intent)
    return in_force


def drop_late_work(paths: PipelinePaths, intents: Sequence[PublishIntent], lease: Lease) -> list[PublishIntent]:
    """The intents that are in force. Removed are those of side jobs that a process wrote long after it
    had lost the lease, and of which nothing was begun. A process that takes a lease finishes what its predecessor
    began, so an intent of an older holder came late: people, and other work, have decided without it. The work can be
    started again.
    """
    in_force = []
    for intent in intents:
        if 0 < intent.writer < lease.number - 1 and not _has_begun(paths, intent):
            lease.check()
            storage.remove(intent_path(paths, intent))
        else:
            in_force.append(intent)
    return in_force


def _has_begun(paths: PipelinePaths, intent: PublishIntent) -> bool:
    """Whether a step of it, or of its companion, was done."""
    both = [intent] if intent.companion is None else [intent, intent.companion]
    for one in both:
        state = read_table_state(one.table_path(paths), (one.app_id,))
        if (state is not None and state.txns.get(one.app_id, -1) >= one.app_version) or _is_begun(paths, one):
            return True
    return False


def _is_begun(paths: PipelinePaths, intent: PublishIntent) -> bool:
    """Whether a file of the intent is in the table's folder, or out of plain sight there."""
    names = [file.path for file in intent.files_to_add] + [hidden_name(file.path) for file in intent.files_to_remove]
    return any(storage.exists(intent.table_path(paths) / name) for name in names)
