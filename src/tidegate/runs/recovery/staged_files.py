"""Whether every staged file that is still to be published is there and is, by its digest, what was written.

A run compares digests where it reads the files anyway: before the audit, and when it publishes. ``repair`` looks at all
files, so that it finds whatever made a run refuse, and has it read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.recovery.quarantine import find_unsent
from tidegate.state.digest import damaged, describe_damage
from tidegate.state.manifest import StagedFile
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import pending_intents, staged_at
from tidegate.table.upsert.folded import is_copy


def check_staged(paths: PipelinePaths, facts: Facts, name: str) -> None:
    """Raise DisagreementError STAGED_FILE_DAMAGED or STAGED_FILES_GONE for what the next run cannot publish.

    A file may be staged, or moved into its table by a publish that was begun. Copies for an update that no publish was
    begun with are made again by the next run.
    """
    moved: dict[str, Path] = {}
    files: list[StagedFile] = []
    for intent in pending_intents(paths):
        moved |= {file.source: intent.table_path(paths) / file.path for file in intent.files_to_add}
        copies = [file for file in intent.files_to_add if is_copy(file.source)]
        files += [StagedFile(file.source, file.rows, file.size_bytes, sha256=file.sha256) for file in copies]
    queries = {manifest.query_id for manifest in facts.unpublished if manifest.quarantine_files}
    quarantine = read_table_state(paths.quarantine, tuple(sorted(queries))) if queries else None
    for manifest in facts.unpublished:
        files += manifest.files
        if quarantine is None or manifest.batch_id > quarantine.txns.get(manifest.query_id, -1):
            files += manifest.quarantine_files
    found = [manifest for manifests in facts.manifests.values() for manifest in manifests]
    settled = [manifest for manifest in found if manifest.batch_id <= facts.settled_up_to(manifest.query_id)]
    for manifest in find_unsent(paths, settled):  # the table has its rows, quarantine not yet its records
        files += manifest.quarantine_files
    for file in files:
        _check(file, [staged_at(paths, file.path), moved.get(file.path, paths.state / file.path)], name)


def _check(file: StagedFile, places: Sequence[Path], name: str) -> None:
    for path in places:
        try:
            damage = describe_damage(path, file.size_bytes, file.sha256)
        except FileNotFoundError:
            continue
        if damage is not None:
            raise damaged(path, damage, name)
        return
    raise errors.STAGED_FILE_GONE(where=f"pipeline {name}", file_path=file.path, name=name)
