"""What the next run would refuse with, and what a person can do about it. Looks only."""

from __future__ import annotations

from tidegate.core.errors import DisagreementError, TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.damage import check_damage
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.quarantine import check_ahead, check_quarantine
from tidegate.runs.recovery.staged_files import check_staged
from tidegate.runs.restart.damaged import describe_first, list_damage
from tidegate.sources.files.ledger import open_ledger
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import PublishIntent, pending_intents
from tidegate.table.publish.publish import find_hindrance

RESTORE = "restore what is damaged or gone from a copy, then run again"
_TABLE_CODES = ("TABLE_GONE", "TABLE_REPLACED", "TABLE_BEHIND", "TABLE_BEHIND_INTENT")


def find_disagreement(paths: PipelinePaths, facts: Facts, name: str, *, deep: bool = False) -> TidegateError | None:
    """What the next run would refuse with, or None; ``deep``: also files of the table that have other bytes."""
    found = compare_state(paths, facts, name) or next((error for _, error in list_stuck(paths)), None)
    return found if found is not None or not deep else describe_first(paths, list_damage(paths, deep=True))


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
                return errors.TABLE_BEHIND_ANY_INTENT(target=intent.target)
        check_staged(paths, facts, name)
        check_quarantine(paths)
        check_ahead(paths, facts)
        if facts.birth is not None and facts.birth.reads_files:
            open_ledger(paths, read_only=True).close()
        check_damage(paths, at_most=None)
    except DisagreementError as error:
        return error
    return None


def why_files_are_unknown(paths: PipelinePaths, facts: Facts, found: TidegateError) -> TidegateError | None:
    """The reason why it is unknown which files are in the table; None when the ledger knows, or there is no table."""
    if facts.table is None:
        return None
    if found.code == "STATE_GONE" or (facts.later.read is not None and facts.later.back_to is None):
        return found
    try:
        open_ledger(paths, read_only=True).close()
    except DisagreementError as error:
        return error
    return None


def list_choices(code: str, name: str, chosen: str | None = None) -> list[str]:
    """What a person can do about a disagreement; ``chosen`` is the command that rebuilds all, where another one than
    ``repair --rebuild`` was asked for."""
    rebuild = chosen or f"repair {name} --rebuild"
    if code == "REBUILD":
        return [
            f"leave the table as it is: `tidegate run {name}` continues with it",
            f"`tidegate {rebuild}`: a new table from all that the sources still have; the old one is kept as a backup",
        ]
    if code == "RESET":
        return [
            f"leave the checkpoint as it is: `tidegate run {name}` continues with it",
            f"`tidegate reset {name} --confirm {name}`: a new checkpoint that starts where the table's log ends",
        ]
    if code == "QUARANTINE_BEHIND":
        return [
            RESTORE,
            f"`tidegate {rebuild}`: a new table and quarantine from all that the sources have",
            f"`tidegate repair {name}`: take out what may be in the table, then read again what quarantine lacks",
        ]
    if code == "OLD_JOB_WROTE":
        return [f"pause what starts the other job, then `tidegate repair {name}`: what it has written leaves the table"]
    if code == "SPEC_CHANGED":
        return ["take the change in pipeline.yaml back", f"`tidegate repair {name}`: a new checkpoint for the new spec"]
    if code == "QUARANTINE_AHEAD":
        return [
            "restore the newest copies of the table and of the state folder, then run again",
            f"`tidegate repair {name}`: keep the table as it is now; what it lacks is read again from the source",
        ]
    if code in _TABLE_CODES:
        return [
            "restore the table folder to its newest state, then run again",
            f"`tidegate repair {name}`: keep the table as it is now; what it lacks is read again from the source",
        ]
    return [
        "restore the pipeline's state folder from the same time as the table, then run again",
        f"`tidegate repair {name}`: a new checkpoint that starts exactly where the table's log ends",
    ]
