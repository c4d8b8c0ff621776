"""The rows that plain readers miss while a publish is unfinished that has hidden files."""

from __future__ import annotations

from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import PublishIntent, pending_intents
from tidegate.table.publish.replace import list_hidden


def describe_missed(paths: PipelinePaths) -> list[str]:
    """A line for each unfinished publish on what plain readers of the pipeline's tables miss."""
    return [line for intent in pending_intents(paths) for line in describe_missed_of(paths, intent)]


def describe_missed_of(paths: PipelinePaths, intent: PublishIntent) -> list[str]:
    """What plain readers miss because of one publish; [] for nothing."""
    first = intent.companion
    found = [] if first is None else describe_missed_of(paths, first)
    table_path = intent.table_path(paths)
    new = intent.files_to_add
    placed = [file for file in new if storage.exists(table_path / file.path)]
    if (new and len(placed) == len(new)) or _is_committed(table_path, intent):
        return found
    hidden = list_hidden(table_path, intent)
    if hidden and new:
        rows = count_of(sum(file.rows for file in hidden), "row")
        found.append(
            f"plain readers of {table_path} miss {count_of(len(hidden), 'file')} with {rows}: run {intent.run_id} was "
            f"replacing them and did not finish; {len(placed)} of {count_of(len(new), 'new file')} are in place"
        )
    if first is not None and first.rows_removed and _is_committed(first.table_path(paths), first):
        found.append(
            f"{count_of(first.rows_removed, 'record')} left quarantine with run {intent.run_id}, which did not finish, "
            f"and {count_of(intent.rows_added, 'row')} made of them are not in {table_path} yet"
        )
    return found


def _is_committed(table_path: Path, intent: PublishIntent) -> bool:
    state = read_table_state(table_path, (intent.app_id,))
    return state is not None and state.txns.get(intent.app_id, -1) >= intent.app_version
