"""Publish intents, written down before the first file moves so that any later process can finish them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.state.manifest import BatchKey, keys_from_json
from tidegate.table import errors

if TYPE_CHECKING:
    from tidegate.core.outputs import RunReport

Target = Literal["table", "quarantine"]

_TAKEN_BACK = ".taken-back"

REPLACES = "tidegate.replaces"
"""In the commit that begins a new query (:class:`HandOver`): JSON [query id, batch], where the previous query ended.
The commit is the new query's increment, and replaces all earlier ones, which were read again."""

ATTEMPT = "tidegate.attempt"
"""In a commit of an increment: the attempt that staged its last batch, another one for each copy of the state."""

COMPANION = "tidegate.companion"
"""In a commit of a side job: JSON [id, part] of the version of quarantine that was committed with it."""


@dataclass(frozen=True)
class FileToAdd:
    """A staged parquet file (``source``, relative to the pipeline's state folder) and its ``path`` in the table folder.

    ``partition`` has each partition column's value in Delta's string form. ``carried``: the rows were in the table
    before, in a file that is removed. ``sha256`` is the digest of the file as it was written; "" when unknown.
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
    """A file of the table that a version replaces, as in the table's log."""

    path: str
    rows: int
    size_bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class HandOver:
    """The query of a side job that has built the whole table, and becomes the pipeline's query with the publish. See
    :mod:`tidegate.runs.recovery.side_jobs`."""

    folder: str
    """The state folder of the job, relative to the pipeline's: its checkpoint becomes that of the new query."""
    generation: int
    """The number of the new query."""
    birth: Mapping[str, object]
    """The birth record of the new query, as it is stored."""
    replaces: BatchKey
    """The query that ends, and its last batch in the table's log."""


@dataclass(frozen=True)
class WholeFiles:
    """Whole source files that a publish moves into quarantine, and those that it moves out, by their links.

    Copies of the ``quarantined`` files are in ``folder``, relative to the pipeline's state folder. The ``read`` files
    were in quarantine, and their rows are in the table from now on.
    """

    folder: str
    quarantined: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PublishIntent:
    """The complete plan of one publish: which files to move where, and the metadata of the commit.

    ``app_id`` is the query id of the checkpoint, ``app_version`` the last batch of the increment, and
    ``app_version_before`` the last batch of that query in the log when the intent was made (-1: none). An intent
    without files only records the batch in the log: that is how an increment is discarded.
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
    """Metadata of the commit in addition to run and pipeline: the report's key figures as JSON strings."""
    table_files: str | None = None
    """The digest of the table's files for which the plan was made; None when it does not depend on them."""
    replaces_schema: bool = False
    """The table gets the schema of the new rows (:attr:`tidegate.table.log.commit.Commit.replaces_schema`)."""
    rearranges: bool = False
    """No rows change, only their files: there is nothing to deliver to sinks and other readers of changes."""
    report: RunReport | None = None
    """The final report of work without batches (a backfill, maintenance), except for the version: it is stored when the
    publish is finished."""
    companion: PublishIntent | None = None
    """The publish to quarantine that belongs to this one: it is done first, and recorded in the same file, so that
    neither is done without the other."""
    hand_over: HandOver | None = None
    """The pipeline's new query, if the publish changes it. ``app_id`` and ``app_version`` are of the new query then."""
    whole_files: list[WholeFiles] = field(default_factory=list)
    """Of a side job: the whole source files that it moves into or out of quarantine, by the folder of their copies."""
    keeps_names: bool = False
    """All readers use the table's log (``readers: delta``): replaced files are not hidden."""
    writer: int = 0
    """The number of the lease under which it was written; 0: not checked."""
    given_up: bool = False
    """It is abandoned: it cannot be finished, and a person decided to undo it
    (:mod:`tidegate.runs.recovery.side_jobs`)."""
    nonce: str = field(default_factory=lambda: secrets.token_hex(4))
    """A part of the file's name, so that removing a plan never removes another one of the same increment."""

    @property
    def rows_added(self) -> int:
        """The number of new rows, without rows that only change their file."""
        return sum(file.rows for file in self.files_to_add if not file.carried)

    @property
    def rows_removed(self) -> int:
        """The number of rows that are no longer in the table afterwards."""
        carried = sum(file.rows for file in self.files_to_add if file.carried)
        return sum(file.rows for file in self.files_to_remove) - carried

    @property
    def intent_id(self) -> str:
        """One name per target and increment, with which the name of the intent's file begins."""
        return f"{self.target}-{self.app_id}-{self.app_version}"

    def table_path(self, paths: PipelinePaths) -> Path:
        """The folder of the table it publishes to."""
        return paths.table if self.target == "table" else paths.quarantine


def staged_at(paths: PipelinePaths, source: str) -> Path:
    """The path of a staged file: it has another name after its publish was taken back."""
    own = paths.state / source
    if storage.exists(own):
        return own
    folders = storage.list_folder(own.parent, f".{own.name}.*{_TAKEN_BACK}")
    return next((folder / own.name for folder in folders if storage.exists(folder / own.name)), own)


def name_taken_back(paths: PipelinePaths, source: str) -> Path:
    """A new name, in a folder of its own, for a staged file whose publish is taken back. A process that is suspended
    before it moves the file in does not know it."""
    own = paths.state / source
    return own.with_name(f".{own.name}.{secrets.token_hex(6)}{_TAKEN_BACK}") / own.name


def fence_taken_back(paths: PipelinePaths, intent: PublishIntent, check: Callable[[], None]) -> None:
    """Rename the folders of :func:`name_taken_back`: a process that is suspended before it moves a file out of the
    table finds its folder gone when it resumes, and the file stays where it is. To be called with the lease."""
    for staging in {(paths.state / file.source).parent for file in intent.files_to_add}:
        for folder in storage.list_folder(staging, f".*{_TAKEN_BACK}"):
            name = folder.name.removesuffix(_TAKEN_BACK).rpartition(".")[0]
            check()
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                storage.rename(folder, folder.with_name(f"{name}.{secrets.token_hex(6)}{_TAKEN_BACK}"))


def write_intent(paths: PipelinePaths, intent: PublishIntent) -> PublishIntent:
    """Write the intent unless there is one of the same increment; returns the one in force.

    Two exist when a process that was suspended before this call writes its plan late: once the first is finished,
    nothing is left to do for the second.
    """
    for other in pending_intents(paths):
        if other.intent_id == intent.intent_id:
            return other
    storage.put_if_absent(intent_path(paths, intent), storage.dump_json(intent, indent=None))
    return intent


def pending_intents(paths: PipelinePaths) -> list[PublishIntent]:
    """The publishes that were begun and not finished, oldest batch first. They must be finished first."""
    found = []
    for path in storage.list_folder(paths.intents, "[!.]*.json"):
        value = storage.read_json(path)
        if value is not None:
            found.append(intent_from_json(value))
    # Of two plans that begin at the same batch, the longer one was made under the later lease.
    return sorted(found, key=lambda intent: (intent.app_version_before, -intent.app_version, intent.target))


def is_handing_over(paths: PipelinePaths) -> bool:
    """True if a publish was begun that changes the pipeline's query: paths and spec change when it is finished."""
    return any(intent.hand_over is not None for intent in pending_intents(paths))


def list_moving(paths: PipelinePaths, table_path: Path) -> set[str]:
    """The files of a table that pending publishes move in or hide."""
    begun = pending_intents(paths)
    begun += [one.companion for one in begun if one.companion is not None]
    mine = [one for one in begun if one.table_path(paths) == table_path]
    added = {file.path for one in mine for file in one.files_to_add}
    return added | {file.path for one in mine for file in one.files_to_remove}


def intent_path(paths: PipelinePaths, intent: PublishIntent) -> Path:
    """Where the intent is kept until it is finished."""
    return paths.intents / f"{intent.intent_id}.{intent.nonce}.json"


def intent_from_json(value: dict[str, Any]) -> PublishIntent:
    """Parse what :func:`write_intent` wrote."""
    companion, hand_over, whole = (value.get(key) for key in ("companion", "hand_over", "whole_files"))
    if isinstance(whole, dict):  # of an earlier version
        whole = [whole]
    return PublishIntent(
        **{
            **value,
            "files_to_add": [FileToAdd(**file) for file in value["files_to_add"]],
            "files_to_remove": [FileToRemove(**file) for file in value["files_to_remove"]],
            "companion": None if companion is None else intent_from_json(companion),
            "whole_files": [WholeFiles(**one) for one in whole or ()],
            "hand_over": None
            if hand_over is None
            else HandOver(**{**hand_over, "replaces": keys_from_json([hand_over["replaces"]])[0]}),
        }
    )


def check_lease(is_current: Callable[[], bool], intent: PublishIntent) -> None:
    """Raise TryAgainError LEASE_LOST unless the caller still holds the lease; called before each visible step."""
    if not is_current():
        raise errors.LEASE_LOST_PUBLISHING(run_id=intent.run_id, pipeline=intent.pipeline)
