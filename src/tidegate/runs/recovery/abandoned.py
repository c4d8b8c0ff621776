"""Abandon a side job that was stopped half-way and cannot be finished: it is undone, and can be started again.

A staged file was damaged, say, or another program has replaced files that were to be replaced. Its first half may be
done: records that have left quarantine and are not in the table yet. The intent records that it is abandoned; from then
on the next process undoes the rest, instead of publishing. First the tables' logs get a version under the
number that the publish would have had, so that a stale process comes too late. Every step may be repeated.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.recovery.quarantine import carry_out_plan
from tidegate.state.digest import damaged
from tidegate.state.lease import Lease
from tidegate.state.manifest import StagedFile
from tidegate.table import errors as table_errors
from tidegate.table.footer import read_footer
from tidegate.table.log.commit import AlreadyCommittedError, commit_files, retire_in_log
from tidegate.table.log.state import DataFile, find_commit, list_data_files, read_commit_metadata, read_table_state
from tidegate.table.publish.intent import PublishIntent, intent_path, pending_intents, staged_at
from tidegate.table.publish.origins import ORIGINS, dump_origins, read_origins
from tidegate.table.publish.replace import bring_back, plain_name
from tidegate.table.publish.restore import plan_restore
from tidegate.table.publish.rework import ABANDONED, REWORK, Rework, plan_rework
from tidegate.table.quarantine.moves import UNDOES
from tidegate.table.quarantine.schema import QUARANTINE_SCHEMA_JSON

_KINDS = ("backfill", "refresh", "replay", "maintain", "repair")
_KIND = "give-up"
_UNDONE = ".undone"
_DECIDED = "tidegate.decision"


def can_be_abandoned(intent: PublishIntent) -> bool:
    """Whether a publish belongs to a side job that can be started again from its beginning."""
    return intent.hand_over is not None or intent.custom_metadata.get(REWORK) in _KINDS


def decide_to_abandon(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> PublishIntent:
    """Record that it is abandoned; returns the intent for :func:`tidegate.runs.recovery.hand_over.finish_work`."""
    lease.check()
    given_up = replace(intent, given_up=True)
    storage.replace(intent_path(paths, intent), storage.dump_json(given_up, indent=None))
    return given_up


def list_unfinished_work(paths: PipelinePaths) -> list[PublishIntent]:
    """The publishes that were begun and can be abandoned."""
    return [intent for intent in pending_intents(paths) if can_be_abandoned(intent)]


def describe_work(intent: PublishIntent) -> str:
    """Kind and run id."""
    return f"{'refresh' if intent.hand_over is not None else intent.custom_metadata[REWORK]} {intent.run_id}"


def describe_unfinished_work(name: str, intent: PublishIntent) -> str:
    """A line on an unfinished side job, with the commands that help."""
    return (
        f"{describe_work(intent)} was stopped half-way: `tidegate run {name}` finishes what it has begun, and the same "
        f"command continues after that; if it cannot be finished, `tidegate repair {name}` abandons it"
    )


def undo_publish(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> bool:
    """Undo what was begun, then remove the intent. False when its version was already committed: then it is kept, and
    nothing is undone. Raises DisagreementError REPLACED_FILES_GONE when files of quarantine are gone."""
    if _was_published(paths, intent, lease):
        return False
    first = intent.companion
    for one in (intent,) if first is None else (first, intent):
        if one is first and _was_published(paths, one, lease):
            _take_back(paths, one, lease)
            continue
        table_path = one.table_path(paths)
        _take_out(paths, one, lease)
        bring_back(table_path, app_id=f"{_KIND}-{secrets.token_hex(12)}", check_lease=lease.check)
    lease.check()
    storage.remove(intent_path(paths, intent))
    return True


def _take_out(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> None:
    """Move the files of a publish out of its table, to new names in staging, and those that are not in it yet too.

    A stale process may be suspended between its last check of the lease and the rename that moves a file in: it finds
    nothing under the name that it knows. What a person released keeps its names, since it waits for another decision.
    """
    table_path = intent.table_path(paths)
    keeps_names = _DECIDED in intent.custom_metadata
    held = {file.path for file in list_data_files(table_path)}
    token = secrets.token_hex(6)
    for file in intent.files_to_add:
        target, source, staged = table_path / file.path, paths.state / file.source, staged_at(paths, file.source)
        undone = source if keeps_names else source.with_name(f".{source.name}.{token}{_UNDONE}")
        for place in ([] if file.path in held else [target]) + ([] if keeps_names and staged == source else [staged]):
            if storage.exists(place):
                lease.check()
                storage.move(place, undone)
        if not keeps_names:
            storage.remove_copies(target)


def _was_published(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> bool:
    """Whether the log has the publish. Where it has not, it never will: it gets a version without files instead."""
    table_path = intent.table_path(paths)
    lease.check()
    if intent.hand_over is not None:
        retire_in_log(table_path, intent.app_id, last_batch=-1)
    state = read_table_state(table_path, (intent.app_id,))
    if state is None:
        return False
    current = state.txns.get(intent.app_id, -1)
    if current >= intent.app_version:
        version = find_commit(table_path, intent.app_id, intent.app_version)
        info = {} if version is None else read_commit_metadata(table_path, version)
        return info.get("tidegate.outcome") != ABANDONED
    if intent.hand_over is not None:
        return False
    try:
        commit_files(
            table_path,
            schema_json=state.schema_json,
            partition_by=state.partition_columns,
            add=[],
            remove=[],
            app_id=intent.app_id,
            app_version=intent.app_version,
            app_version_before=current,
            custom_metadata={
                REWORK: intent.custom_metadata[REWORK],
                "tidegate.outcome": ABANDONED,
                "tidegate.spec.pipeline": intent.pipeline,
                "tidegate.run_id": intent.run_id,
                "tidegate.app_version_before": str(current),
            },
            rearranges=True,
        )
    except AlreadyCommittedError:  # a stale process has published meanwhile
        return True
    return False


def _take_back(paths: PipelinePaths, intent: PublishIntent, lease: Lease) -> None:
    """Restore the files that quarantine had before one of its versions."""
    quarantine = paths.quarantine
    work = Rework(intent.pipeline, _KIND, intent.app_id, part=intent.app_version)
    state = read_table_state(quarantine, (work.app_id,))
    version = find_commit(quarantine, intent.app_id, intent.app_version)
    assert state is not None and version is not None, "its version was committed"
    before = state.txns.get(work.app_id, -1)
    if before >= work.part:
        return
    restore = plan_restore(quarantine, version - 1)
    if restore.gone:
        raise table_errors.REPLACED_FILES_GONE(
            where=str(quarantine), number=len(restore.gone), example=restore.gone[0], name=paths.name
        )
    token = secrets.token_hex(6)
    plan = plan_rework(
        work,
        target="quarantine",
        table=state,
        table_files=None,
        token=token,
        carried=prepare_files(paths, work, quarantine, restore.back, token),
        remove=restore.leave,
        outcome=ABANDONED,
        metadata={UNDOES: json.dumps([intent.app_id, intent.app_version])},
        schema_json=QUARANTINE_SCHEMA_JSON,
        before=before,
    )
    names = [plain_name(file.path) or file.path for file in restore.back]
    origins = read_origins(quarantine, names)
    made = zip(plan.files_to_add, names, strict=True)
    plan.custom_metadata[ORIGINS] = dump_origins([([file.path], origins.get(name, ())) for file, name in made])
    carry_out_plan(paths, plan, lease)


def prepare_files(
    paths: PipelinePaths, work: Rework, table_path: Path, files: Sequence[DataFile], token: str
) -> list[StagedFile]:
    """Second names for files that come back into a table, in a folder of staging. The first ones stay: versions in
    between, and sinks that are behind, are read by them."""
    folder = paths.attempts(work.app_id, work.part) / token
    found = []
    for number, file in enumerate(files):
        storage.make_folder(folder)
        path = folder / f"{number:05d}.parquet"
        storage.clone(table_path / file.path, path)
        footer = read_footer(path)
        if footer is None:
            raise damaged(table_path / file.path, "it has no footer", paths.name)
        size = storage.stat(path).size_bytes
        name = str(path.relative_to(paths.state))
        found.append(StagedFile(name, footer.rows, size, dict(file.partition), file.sha256))
    storage.sync_names_above([paths.state / file.path for file in found], paths.state)
    return found
