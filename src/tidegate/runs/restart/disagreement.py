"""What the next run would refuse with, and what a person can do about it. Looks only."""

from __future__ import annotations

from pathlib import Path

from tidegate.core.errors import DisagreementError, TidegateError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.preflight.agreement import check_agreement, check_table
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.tables import check_ahead, check_damage, check_quarantine, damage_error
from tidegate.runs.recovery.after_commit import find_unsent
from tidegate.runs.restart.table_repair import list_damage
from tidegate.sources.files.ledger import open_ledger
from tidegate.state.files import damaged, describe_damage
from tidegate.state.manifest import StagedFile
from tidegate.table import errors as table_errors
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import PublishIntent, pending_intents, staged_at
from tidegate.table.publish.publish import find_hindrance
from tidegate.table.upsert.folded import is_copy

SETTLED_BY_READING_AGAIN = "SPEC_CHANGED"
RESTORE = "restore what is damaged or gone from a copy, then run again"


def find_disagreement(paths: PipelinePaths, facts: Facts, name: str, *, deep: bool = False) -> TidegateError | None:
    """What the next run would refuse with, or None; ``deep``: also files of the table that have other bytes."""
    found = compare_state(paths, facts, name) or next((error for _, error in list_stuck(paths)), None)
    if found is None and deep:
        for path, damages in list_damage(paths, deep=True).items():
            return damage_error(paths, path == paths.table, list(damages))
    return found


def find_remaining(paths: PipelinePaths, facts: Facts, name: str) -> TidegateError | None:
    """What the next run would refuse with, or None; without a changed spec, which reading again settles."""
    found = find_disagreement(paths, facts, name)
    return None if found is None or found.code == SETTLED_BY_READING_AGAIN else found


def list_stuck(paths: PipelinePaths) -> list[tuple[PublishIntent, DisagreementError]]:
    """The publishes that were begun and cannot be finished, each with the reason."""
    found = [(intent, find_hindrance(paths, intent)) for intent in pending_intents(paths)]
    return [(intent, error) for intent, error in found if error is not None]


def compare_state(paths: PipelinePaths, facts: Facts, name: str) -> TidegateError | None:
    """What disagrees, but for publishes that cannot be finished. Files that are gone come last: what else disagrees has
    to be put right first."""
    if facts.log_fault is not None:
        return facts.log_fault
    try:
        check_agreement(facts, name)
        for intent in pending_intents(paths):
            if intent.app_version > facts.retired.get(intent.app_id, intent.app_version):
                continue
            state = facts.table if intent.target == "table" else read_table_state(paths.quarantine, (intent.app_id,))
            current = -1 if state is None else state.txns.get(intent.app_id, -1)
            if current < intent.app_version_before:
                found = f"a publish was begun on a newer {intent.target}"
                return table_errors.TABLE_BEHIND(where=f"pipeline {name}", name=name, found=found)
        check_staged(paths, facts, name)
        check_quarantine(paths)
        check_ahead(paths, facts)
        if facts.birth is not None and facts.birth.reads_files:
            open_ledger(paths, read_only=True).close()
        check_damage(paths, at_most=None)
    except DisagreementError as error:
        return error
    return None


def why_files_are_unknown(paths: PipelinePaths, facts: Facts, found: TidegateError | None) -> TidegateError | None:
    """The reason why it is unknown which files are in the table; None when the ledger knows, or there is no table.
    ``found`` is the disagreement, if there is one."""
    if facts.table is None:
        return None
    is_gone = facts.published is None and not facts.has_state
    try:
        if is_gone or (facts.later.read is not None and facts.later.back_to is None):
            if found is not None:
                return found
            check_table(facts, paths.name)
        open_ledger(paths, read_only=True).close()
    except DisagreementError as error:
        return error
    return None


_REBUILD = "`tidegate {rebuild}`: a new table from all records still in the sources; the old one is kept as a backup"
_READ_LACKING = "`tidegate repair {name}`: keep the table as it is now; what it lacks is read again from the source"
_TABLE_CHOICES = ("restore the table folder to its newest state, then run again", _READ_LACKING)
_OTHER_CHOICES = (
    "restore the pipeline's state folder from the same time as the table, then run again",
    "`tidegate repair {name}`: a new checkpoint that starts exactly where the table's log ends",
)
_CHOICES = {
    "REBUILD": ("leave the table as it is: `tidegate run {name}` continues with it", _REBUILD),
    "TABLE_DAMAGED": (RESTORE, _REBUILD),
    "RESET": (
        "leave the checkpoint as it is: `tidegate run {name}` continues with it",
        "`tidegate reset {name} --confirm {name}`: a new checkpoint that starts where the table's log ends",
    ),
    "QUARANTINE_BEHIND": (
        RESTORE,
        "`tidegate {rebuild}`: a new table and quarantine from all that the sources have",
        "`tidegate repair {name}`: take out what may be in the table, then read again what quarantine lacks",
    ),
    "OLD_JOB_WROTE": (
        "pause what starts the other job, then `tidegate repair {name}`: what it has written leaves the table",
    ),
    "SPEC_CHANGED": (
        "take the change in pipeline.yaml back",
        "`tidegate repair {name}`: a new checkpoint for the new spec",
    ),
    "QUARANTINE_AHEAD": (
        "restore the newest copies of the table and of the state folder, then run again",
        _READ_LACKING,
    ),
    "TABLE_GONE": _TABLE_CHOICES,
    "TABLE_REPLACED": _TABLE_CHOICES,
    "TABLE_BEHIND": _TABLE_CHOICES,
}


def list_choices(code: str, name: str, chosen: str | None = None) -> list[str]:
    """What a person can do about a disagreement; ``chosen`` is the command that rebuilds all, if not ``repair``."""
    rebuild = chosen or f"repair {name} --rebuild"
    return [choice.format(name=name, rebuild=rebuild) for choice in _CHOICES.get(code, _OTHER_CHOICES)]


def check_staged(paths: PipelinePaths, facts: Facts, name: str) -> None:
    """Raise DisagreementError STAGED_FILE_DAMAGED or STAGING_GONE for what the next run cannot publish.

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
    for manifest in find_unsent(paths, facts.settled):  # the table has its rows, quarantine not yet its records
        files += manifest.quarantine_files
    for file in files:
        for path in (staged_at(paths, file.path), moved.get(file.path, paths.state / file.path)):
            try:
                damage = describe_damage(path, file.size_bytes, file.sha256)
            except FileNotFoundError:
                continue
            if damage is not None:
                raise damaged(path, damage, name)
            break
        else:
            raise errors.STAGING_GONE(where=f"pipeline {name}", found=f"the file {file.path}", name=name)


READ_TWICE = "if they were read again, they would be counted twice"


def state_needed(name: str, records: str, why: str, *, kept: str = "", others: str = "") -> UsageError:
    """The error of what a query with state cannot do with ``records`` that are in its state."""
    where = f"pipeline {name}"
    return errors.STATE_NEEDED(where=where, name=name, records=records, why=why, kept=kept, others=others)


def refuse_new_checkpoint(found: TidegateError, name: str) -> DisagreementError:
    """The error for a repair that would lose state."""
    return DisagreementError(
        found.code,
        f"{found.message}; the query keeps state, and what it has read and not yet published is in its checkpoint "
        "alone: a new checkpoint would lose it",
        where=found.where or f"pipeline {name}",
        next_run="fails again until this is fixed; nothing was read or written",
        fix="; or ".join(errors.REBUILD_CHOICES).format(name=name),
    )
