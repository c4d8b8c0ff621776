"""Publish intents: what is written down before the first file moves, so that anyone can finish it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tidegate.core import storage
from tidegate.core.errors import catalogue
from tidegate.core.paths import PipelinePaths
from tidegate.state.manifest import BatchKey, keys_from_json

Target = Literal["table", "quarantine"]

_TAKEN_BACK = ".taken-back"

REPLACES = "tidegate.replaces"
"""In a commit that begins a new query (:class:`HandOver`): JSON [query id, batch], where the one before it ended. It is
the new query's increment, in the place of all before it that were read again."""

COMPANION = "tidegate.companion"
"""In a commit of work beside the runs: JSON [id, part] of the version of quarantine that came with it."""


@dataclass(frozen=True)
class FileToAdd:
    """A staged parquet file (``source``, relative to the pipeline's state folder) and its ``path`` in the table folder.

    ``partition`` has each partition column's value in Delta's string form. ``carried``: the rows were in the table
    before, in a file that is removed. ``sha256`` is of the bytes as they were written; "" when it is not known.
    """

    source: str
    path: str
    rows: int
    size_bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)
    carried: bool = False
    sha256: str = ""


@dataclass(frozen=True)
class FileToRemove:
    """A file of the table that a version replaces, as the table's log has it."""

    path: str
    rows: int
    size_bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class HandOver:
    """The query that takes the place of the pipeline's own with a publish: that of a job beside the runs, which has
    built the whole table. See :mod:`tidegate.runs.recovery.hand_over`."""

    folder: str
    """The state folder of the job, relative to the pipeline's: its checkpoint goes on as the new query's."""
    generation: int
    """The number that the new query gets."""
    birth: dict[str, Any]
    """The birth record of the new query, as it is stored."""
    replaces: BatchKey
    """The query that is over then, and its last batch in the table's log."""


@dataclass(frozen=True)
class WholeFiles:
    """Files that a publish takes to quarantine whole, and those that it brings back from there, by their links.

    What is kept of ``quarantined`` ones is in ``folder``, relative to the pipeline's state folder. ``read`` ones were
    in quarantine whole, and their rows are in the table from now on.
    """

    folder: str
    quarantined: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PublishIntent:
    """One publish, complete: what to move where, and what the commit carries.

    ``app_id`` is the query id of the checkpoint, ``app_version`` the last batch of the increment, and
    ``app_version_before`` the batch the log had for that query when the intent was made (-1: none). An intent without
    files only moves the log on: that is how an increment is discarded.
    """

    pipeline: str
    run_id: str
    target: Target
    schema_json: str
    partition_by: list[str]
    app_id: str
    app_version: int
    app_version_before: int
    files_to_add: list[FileToAdd] = field(default_factory=list)
    files_to_remove: list[FileToRemove] = field(default_factory=list)
    custom_metadata: dict[str, str] = field(default_factory=dict)
    """What the commit carries beside run and pipeline: the report's key figures as JSON strings."""
    table_files: str | None = None
    """The digest of the table's files that the plan was made for; None when it stands whatever they are."""
    rearranges: bool = False
    """Rows only change their files: readers of changes, sinks among them, have nothing to take."""
    report: dict[str, Any] | None = None
    """The report of work that no batch tells of (a backfill, maintenance), as it is once this is done but for the
    version: whoever finishes the publish stores it."""
    companion: PublishIntent | None = None
    """What goes into quarantine in the same step: done first, and by the same file, so that never one is without the
    other."""
    hand_over: HandOver | None = None
    """The query that lives on after it, where it is not the one that lives now. ``app_id`` and ``app_version`` are of
    that one then."""
    whole_files: WholeFiles | None = None
    """Of work beside the runs: the files that go to quarantine whole with it, or leave it."""
    keeps_names: bool = False
    """Readers of the table go by its log (``readers: delta``): replaced files are not hidden."""
    writer: int = 0
    """The number of the lease under which it was written down; 0 for one that is not looked at."""
    given_up: bool = False
    """It cannot be finished, and somebody decided to have it undone: :mod:`tidegate.runs.recovery.given_up`."""
    nonce: str = field(default_factory=lambda: secrets.token_hex(4))
    """A part of the file's name: who drops a plan never drops another one of the same increment."""

    @property
    def rows_added(self) -> int:
        """New rows; those that only change their file are not counted."""
        return sum(file.rows for file in self.files_to_add if not file.carried)

    @property
    def rows_removed(self) -> int:
        """Rows that are no longer in the table afterwards."""
        carried = sum(file.rows for file in self.files_to_add if file.carried)
        return sum(file.rows for file in self.files_to_remove) - carried

    @property
    def intent_id(self) -> str:
        """One name per target and increment; the intent file's name begins so."""
        return f"{self.target}-{self.app_id}-{self.app_version}"

    def table_path(self, paths: PipelinePaths) -> Path:
        """The folder of the table it publishes to."""
        return paths.table if self.target == "table" else paths.quarantine


def staged_at(paths: PipelinePaths, source: str) -> Path:
    """Where a staged file is: under its own name, or under another one since a publish of it was taken back."""
    own = paths.state / source
    if storage.exists(own):
        return own
    return next(iter(storage.list_folder(own.parent, f".{own.name}.*{_TAKEN_BACK}")), own)


def name_taken_back(paths: PipelinePaths, source: str) -> Path:
    """A name for a staged file that nobody knows who was asleep when its publish was taken back."""
    own = paths.state / source
    return own.with_name(f".{own.name}.{secrets.token_hex(6)}{_TAKEN_BACK}")


def write_intent(paths: PipelinePaths, intent: PublishIntent) -> PublishIntent:
    """Write the intent down unless one of the same increment is there; the one that is in force.

    Two are there when a process that was frozen before this call writes its plan late: whoever finishes the first one
    finds that the second one has nothing left to do.
    """
    for other in pending_intents(paths):
        if other.intent_id == intent.intent_id:
            return other
    storage.put_if_absent(intent_path(paths, intent), storage.dump_json(intent, indent=None))
    return intent


def pending_intents(paths: PipelinePaths) -> list[PublishIntent]:
    """Publishes that were begun and not finished, oldest batch first. They must be finished before anything else."""
    found = []
    for path in storage.list_folder(paths.intents, "[!.]*.json"):
        value = storage.read_json(path)
        if value is not None:
            found.append(intent_from_json(value))
    # Of two plans that begin at the same batch the longer one was made by whoever held the lease later.
    return sorted(found, key=lambda intent: (intent.app_version_before, -intent.app_version, intent.target))


def is_handing_over(paths: PipelinePaths) -> bool:
    """Whether a publish was begun after which another query lives: paths and spec are others once it is finished."""
    return any(intent.hand_over is not None for intent in pending_intents(paths))


def list_moving(paths: PipelinePaths, table_path: Path) -> set[str]:
    """The files of a table that publishes which have begun move in, or take out of sight."""
    begun = pending_intents(paths)
    begun += [one.companion for one in begun if one.companion is not None]
    mine = [one for one in begun if one.table_path(paths) == table_path]
    added = {file.path for one in mine for file in one.files_to_add}
    return added | {file.path for one in mine for file in one.files_to_remove}


def intent_path(paths: PipelinePaths, intent: PublishIntent) -> Path:
    """Where the intent is kept until it is finished."""
    return paths.intents / (f"{intent.intent_id}.{intent.nonce}.json" if intent.nonce else f"{intent.intent_id}.json")


def intent_from_json(value: dict[str, Any]) -> PublishIntent:
    """The intent again of what :func:`write_intent` wrote."""
    companion, hand_over, whole = (value.get(key) for key in ("companion", "hand_over", "whole_files"))
    return PublishIntent(
        **{
            "nonce": "",  # written by a version that did not have it
            **value,
            "files_to_add": [FileToAdd(**file) for file in value["files_to_add"]],
            "files_to_remove": [FileToRemove(**file) for file in value["files_to_remove"]],
            "companion": None if companion is None else intent_from_json(companion),
            "whole_files": None if whole is None else WholeFiles(**whole),
            "hand_over": None
            if hand_over is None
            else HandOver(**{**hand_over, "replaces": keys_from_json([hand_over["replaces"]])[0]}),
        }
    )


def check_lease(is_current: Callable[[], bool], intent: PublishIntent) -> None:
    """Raise TryAgainError LEASE_LOST unless the caller still holds the lease; asked before each visible step."""
    if not is_current():
        raise catalogue.LEASE_LOST_PUBLISHING(run_id=intent.run_id, pipeline=intent.pipeline)
