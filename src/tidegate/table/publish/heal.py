"""Repair of a log that a power cut tore: a torn version is hidden if it can be committed again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate.core import storage
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_versions, torn_versions
from tidegate.table.log.snapshot import read_snapshot
from tidegate.table.publish.intent import PublishIntent


def heal_log(table_path: Path, intents: Sequence[PublishIntent], check_lease: Callable[[], None]) -> int | None:
    """Hide the newest version of a log if its file is torn and one of ``intents`` (those begun on this table) continues
    from the version before: finishing the intent commits it again.

    Returns:
        The number of the version; None when hiding it would not help.
    """
    versions = list_versions(table_path)
    if not versions or torn_versions(table_path) != versions[-1:]:
        return None
    newest = versions[-1]
    if not _is_continued(table_path, newest - 1, intents):
        return None
    check_lease()
    log = table_path / LOG_FOLDER
    storage.move(log / commit_name(newest), log / f".{commit_name(newest)}.{secrets.token_hex(4)}.torn")
    return newest


def _is_continued(table_path: Path, version: int, intents: Sequence[PublishIntent]) -> bool:
    """Whether an intent begins at the batch where ``version`` ends; -1: before the table exists."""
    if version < 0:
        return any(intent.app_version_before == -1 for intent in intents)
    try:
        table = read_snapshot(table_path, version)
    except (OSError, ValueError) as error:
        if storage.is_failure(error):
            raise
        return False
    held = {intent.app_id: table.transaction_version(intent.app_id) for intent in intents}
    batches = {app_id: -1 if batch is None else batch for app_id, batch in held.items()}
    return any(intent.app_version_before == batches[intent.app_id] for intent in intents)
