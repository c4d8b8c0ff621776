"""Publish: write the intent, move the files into the table folder, commit one version, remove the intent.

A run that finds an intent finishes it before anything else, so a publish that was stopped anywhere is completed by the
next run with the same result. Plain parquet readers see a file when it is renamed, Delta readers from the commit on.
Every row of an intent has passed the gate before, and no row is ever in two places.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError, TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.state.files import damaged
from tidegate.state.manifest import find_attempt
from tidegate.state.published import read_retired
from tidegate.table import errors
from tidegate.table.log.commit import (
    AlreadyCommittedError,
    Commit,
    RetiredError,
    commit_files,
    retired_mark,
    sync_log,
    withdraw,
)
from tidegate.table.log.files import LOG_FOLDER, commit_name, list_versions, torn_versions
from tidegate.table.log.snapshot import read_snapshot
from tidegate.table.log.state import (
    DataFile,
    TableState,
    find_commit,
    first_line,
    list_data_files,
    read_commit_metadata,
    read_table_state,
)
from tidegate.table.publish.fit import (
    check_features,
    check_files,
    check_fit,
    check_nulls,
    is_outdated,
    refuse_unknown_files,
)
from tidegate.table.publish.intent import (
    ATTEMPT,
    COMPANION,
    FileToAdd,
    PublishIntent,
    check_lease,
    fence_taken_back,
    intent_path,
    name_taken_back,
    pending_intents,
    staged_at,
)
from tidegate.table.publish.replace import check_replaced, list_hidden, set_aside, show_again, take_shown


@dataclass(frozen=True)
class CommitResult:
    """The result of a finished intent; the same figures for every process that finishes it, however often."""

    version: int | None
    """The version of the commit; None when the intent was overtaken, or its commit file is missing."""
    files_added: int
    rows_added: int
    files_removed: int
    rows_removed: int
    already: bool
    """The commit existed before."""
    overtaken: bool = False
    """A later plan published a part of these batches, or their query is retired: nothing was done; batches that are
    still unpublished must be planned again."""
    outdated: bool = False
    """The plan no longer fits the staged files and the table: nothing was done, it must be planned again."""


OVERTAKEN = CommitResult(None, 0, 0, 0, 0, already=False, overtaken=True)
_OUTDATED = CommitResult(None, 0, 0, 0, 0, already=False, outdated=True)


def finish_intent(
    paths: PipelinePaths,
    intent: PublishIntent,
    *,
    is_current: Callable[[], bool],
    then: Callable[[PublishIntent, CommitResult], None] | None = None,
) -> CommitResult:
    """Do the remaining steps of the intent, then remove it. Safe to call at any time, repeatedly, by any process.

    If a step fails after files were hidden, the publish is tried once more; if that fails too, plain readers get these
    files back until the intent is finished.

    Args:
        is_current: Whether the caller still holds the pipeline's lease. It is called before each step that readers
            see; the log refuses the commit itself when another process was faster.
        then: Called when all is done, before the intent is removed.

    Raises:
        TryAgainError: LEASE_LOST, DISK_FULL or COMMIT_FAILED (the intent stays); ROWS_OUT_OF_SIGHT when plain readers
            could not get the hidden files back (after a DisagreementError, ``status`` says so).
        DisagreementError: Table and intent do not fit, or a staged file is damaged or missing; STATE_BEHIND when a copy
            of the state has published the batch; PUBLISHED_FILES_GONE, after all is done, when another program has
            removed a file of the version.
    """
    try:
        return _finish(paths, intent, is_current, then)
    except Exception as error:  # a defect too: plain readers must not miss the hidden files until it is fixed
        if getattr(error, "code", "") == "STATE_BEHIND":
            _take_back(paths, intent, is_current)
        if not _replaces(intent) or not _may_go_on(is_current) or getattr(error, "code", "") == "REPLACED_FILES_GONE":
            raise  # the next run abandons such a publish and shows these files to plain readers again
        if isinstance(error, OSError | TryAgainError):  # other errors would occur again
            with contextlib.suppress(Exception):
                return _finish(paths, intent, is_current, then)
        _show_replaced(paths, intent, is_current, error)
        raise


def _may_go_on(is_current: Callable[[], bool]) -> bool:
    """Return whether the lease is still held, or cannot be looked at: then no step is made, but the error is named."""
    try:
        return is_current()
    except (OSError, TidegateError):
        return True


def _take_back(paths: PipelinePaths, intent: PublishIntent, is_current: Callable[[], bool]) -> None:
    """Move the files of a batch that a copy of the state has published back into staging: plain readers would see its
    rows twice."""
    for file in intent.files_to_add:
        target = intent.table_path(paths) / file.path
        if storage.exists(target):
            check_lease(is_current, intent)
            storage.move(target, name_taken_back(paths, file.source))


def _replaces(intent: PublishIntent) -> bool:
    both = [intent] if intent.companion is None else [intent, intent.companion]
    return any(one.files_to_remove and not one.keeps_names for one in both)


def _show_replaced(
    paths: PipelinePaths, intent: PublishIntent, is_current: Callable[[], bool], error: Exception
) -> None:
    """Undo a failed publish for plain readers.

    Raises ROWS_OUT_OF_SIGHT when they still miss rows; not after a DisagreementError, which it would hide.
    """
    check = partial(check_lease, is_current, intent)
    for one in (intent, intent.companion):
        if one is None:
            continue
        with contextlib.suppress(OSError, TidegateError):  # if the log cannot be read, it may have the version
            state = read_table_state(one.table_path(paths), (one.app_id,))
            if (-1 if state is None else state.txns.get(one.app_id, -1)) == one.app_version_before:
                show_again(paths, one, check)
    try:
        missed = describe_missed_of(paths, intent)
    except (OSError, TidegateError) as fault:
        files = count_of(len(intent.files_to_remove), "file")
        missed = [f"plain readers of {intent.table_path(paths)} may miss up to {files}"]
        missed[0] += f" ({first_line(fault)}, so it is not known whether any was hidden)"
    if missed and not isinstance(error, DisagreementError):
        raise errors.ROWS_OUT_OF_SIGHT(
            where=str(intent.table_path(paths)),
            error=first_line(error),
            missed="; ".join(missed),
            pipeline=intent.pipeline,
        ) from error


def _finish(
    paths: PipelinePaths,
    intent: PublishIntent,
    is_current: Callable[[], bool],
    then: Callable[[PublishIntent, CommitResult], None] | None = None,
    *,
    is_whole: bool = True,
) -> CommitResult:
    """``is_whole`` is False for a companion."""
    table_path = intent.table_path(paths)
    fence_taken_back(paths, intent, partial(check_lease, is_current, intent))
    state = read_table_state(table_path, (intent.app_id, retired_mark(intent.app_id)))
    done = OVERTAKEN if _is_void(paths, intent, state) else _settled(paths, intent, state)
    if done is not None and done.already:
        _settle_files(paths, intent, table_path, is_current)
    if done is None and is_outdated(paths, intent, table_path):
        # If a faster process has changed the files, its commit exists by now.
        done = _settled(paths, intent, read_table_state(table_path, (intent.app_id,))) or _OUTDATED
    if done is None:
        refuse_unknown_files(table_path, intent, state)
        check_features(intent, table_path, state)
        try:
            check_fit(paths, intent, table_path, state)
            data_files = check_files(paths, intent, table_path)
            check_nulls(table_path, state, data_files)
            first = intent.companion
            if first is not None and _finish(paths, first, is_current, is_whole=False).outdated:
                done = _OUTDATED
            else:
                version = _publish(paths, intent, table_path, data_files, is_current, state)
                done = _result(intent, version, already=False)
        except RetiredError:
            done = OVERTAKEN
        except (AlreadyCommittedError, DisagreementError, FileNotFoundError) as error:
            # If another process has committed, that explains a file in neither place (it was compacted since).
            done = _settled(paths, intent, read_table_state(table_path, (intent.app_id,)))
            if done is None and isinstance(error, TidegateError):
                raise
            if done is None:
                raise _files_lost(error, intent) from error
    check_lease(is_current, intent)
    if then is not None:
        then(intent, done)
    gone = _find_gone(paths, intent) if is_whole and not (done.overtaken or done.outdated) else None
    storage.remove(intent_path(paths, intent))
    if gone is not None:
        raise gone
    return done


def _find_gone(paths: PipelinePaths, intent: PublishIntent) -> DisagreementError | None:
    """The error for files of the intent that are missing although the log has them: a VACUUM without retention may
    remove a file before the log has it. Files that a later version replaced do not count."""
    for one in (intent, intent.companion) if intent.companion is not None else (intent,):
        table_path = one.table_path(paths)
        gone = [file.path for file in one.files_to_add if not storage.exists(table_path / file.path)]
        if gone:
            counted = {file.path for file in list_data_files(table_path)}
            gone = [path for path in gone if path in counted]
        if gone:
            return errors.PUBLISHED_FILES_GONE(
                where=str(table_path), run_id=one.run_id, number=len(gone), example=gone[0], name=one.pipeline
            )
    return None


def find_hindrance(paths: PipelinePaths, intent: PublishIntent) -> DisagreementError | None:
    """The error with which finishing the intent would fail; None when it can be finished, or nothing is left to do."""
    if intent.given_up:
        return None
    table_path = intent.table_path(paths)
    try:
        state = read_table_state(table_path, (intent.app_id, retired_mark(intent.app_id)))
        is_over = _is_void(paths, intent, state) or _settled(paths, intent, state) is not None
        if is_over or is_outdated(paths, intent, table_path):
            return None
        refuse_unknown_files(table_path, intent, state)
        check_features(intent, table_path, state)
        check_files(paths, intent, table_path)
        check_replaced(table_path, intent)
    except FileNotFoundError as error:
        return _files_lost(error, intent)
    except DisagreementError as error:
        return error
    return None if intent.companion is None else find_hindrance(paths, intent.companion)


def _publish(
    paths: PipelinePaths,
    intent: PublishIntent,
    table_path: Path,
    data_files: list[DataFile],
    is_current: Callable[[], bool],
    state: TableState | None,
) -> int:
    """Hide the old files, move the new ones in, and commit; returns the version."""
    if max(list_versions(table_path), default=-1) != (-1 if state is None else state.version):
        # Another program has committed while the files were read: check its features before the first file moves.
        check_features(intent, table_path, read_table_state(table_path))
    aside = set_aside(intent, table_path, is_current)
    _move_files(paths, intent, table_path, is_current, is_new=state is None)
    check_lease(is_current, intent)
    commit = Commit(
        app_id=intent.app_id,
        app_version=intent.app_version,
        app_version_before=intent.app_version_before,
        add=data_files,
        remove=aside,
        schema_json=intent.schema_json,
        partition_by=intent.partition_by,
        replaces_schema=intent.replaces_schema,
        custom_metadata=_commit_metadata(intent),
        rearranges=intent.rearranges,
        retires=None if intent.hand_over is None else intent.hand_over.replaces,
    )
    return commit_files(table_path, commit, check_lease=partial(check_lease, is_current, intent))


def _is_void(paths: PipelinePaths, intent: PublishIntent, state: TableState | None) -> bool:
    """Return whether the plan's query is retired, so that its batches no longer count."""
    txns = {} if state is None else state.txns
    if txns.get(intent.app_id, -1) >= intent.app_version:
        return False
    by_log = txns.get(retired_mark(intent.app_id), intent.app_version + 1) - 1
    return intent.app_version > min(by_log, read_retired(paths).get(intent.app_id, intent.app_version))


def _settled(paths: PipelinePaths, intent: PublishIntent, state: TableState | None) -> CommitResult | None:
    """The result when nothing is left to do, according to the log; None when the intent is still to be done."""
    table_path = intent.table_path(paths)
    current = -1 if state is None else state.txns.get(intent.app_id, -1)
    if current < intent.app_version:
        if current == intent.app_version_before:
            return None
        if current > intent.app_version_before:
            return OVERTAKEN
        batches = f"batches {intent.app_version_before + 1} to {intent.app_version}"
        found = f"a publish of {batches} was begun, but the log of the {intent.target} ends at batch {current}"
        raise errors.TABLE_BEHIND(where=str(table_path), found=found, name=intent.pipeline)
    if state is not None:
        sync_log(table_path, state.version)  # the process that committed it may have been killed before that
    version = find_commit(table_path, intent.app_id, intent.app_version)
    if version is not None:
        _refuse_copy(paths, intent, table_path, version)
    return _result(intent, version, already=True)


def _refuse_copy(paths: PipelinePaths, intent: PublishIntent, table_path: Path, version: int) -> None:
    """Raise DisagreementError STATE_BEHIND if ``version`` has the intent's last batch as another copy of the state
    staged it. A batch has one manifest in a state, whichever of its runs plans and finishes its publish."""
    info = read_commit_metadata(table_path, version)
    staged = find_attempt(paths.manifest(intent.app_id, intent.app_version)) if ATTEMPT in info else None
    if staged not in (None, info.get(ATTEMPT)):
        raise errors.COPY_PUBLISHED(
            where=str(table_path),
            version=version,
            batch=intent.app_version,
            query=intent.app_id,
            run_id=info.get("tidegate.run_id"),
            name=intent.pipeline,
        )


def _settle_files(
    paths: PipelinePaths, intent: PublishIntent, table_path: Path, is_current: Callable[[], bool]
) -> None:
    """Move the files to the paths that the version has. They are elsewhere if the committing process was suspended
    before the commit, and another process undid the publish for plain readers."""
    removed = () if intent.keeps_names else intent.files_to_remove
    old = [file.path for file in removed if storage.exists(table_path / file.path)]
    old += [path.relative_to(table_path).as_posix() for path in take_shown(table_path, removed)]
    new = [file for file in intent.files_to_add if not storage.exists(table_path / file.path)]
    held = {file.path for file in list_data_files(table_path)} if old or new else set()
    new = [file for file in new if file.path in held and storage.exists(staged_at(paths, file.source))]
    for path in old:
        if path not in held:
            check_lease(is_current, intent)
            storage.remove(table_path / path)
    if new:
        _move_files(paths, replace(intent, files_to_add=new), table_path, is_current, is_new=False)


def _result(intent: PublishIntent, version: int | None, *, already: bool) -> CommitResult:
    return CommitResult(
        version=version,
        files_added=len(intent.files_to_add),
        rows_added=intent.rows_added,
        files_removed=len(intent.files_to_remove),
        rows_removed=intent.rows_removed,
        already=already,
    )


def _commit_metadata(intent: PublishIntent) -> dict[str, str]:
    first = intent.companion
    return {
        **intent.custom_metadata,
        **({} if first is None else {COMPANION: json.dumps([first.app_id, first.app_version])}),
        "tidegate.pipeline": intent.pipeline,
        "tidegate.run_id": intent.run_id,
        "tidegate.app_version_before": str(intent.app_version_before),
    }


def _move_files(
    paths: PipelinePaths,
    intent: PublishIntent,
    table_path: Path,
    is_current: Callable[[], bool],
    *,
    is_new: bool,
) -> None:
    targets = [table_path / file.path for file in intent.files_to_add]
    check_lease(is_current, intent)
    for folder in {target.parent for target in targets}:
        storage.make_folder(folder)
    for file, target in zip(intent.files_to_add, targets, strict=True):
        check_lease(is_current, intent)
        source = staged_at(paths, file.source)
        stored = None if paths.mirror is None else paths.mirror.find_object(source)
        storage.place(source, target, partial(_check_copied, source, file, intent, is_current), stored=stored)
    for target in targets:
        storage.remove_copies(target)
    folders = {parent for target in targets for parent in target.parents if parent.is_relative_to(table_path)}
    above = {table_path.parent} if targets else set()
    if is_new and targets:
        above.add(table_path.parents[1])  # the warehouse may be new, and its creator killed before it was synced
    for folder in sorted(folders | above, reverse=True):
        storage.sync_folder(folder)


def _check_copied(
    source: Path, file: FileToAdd, intent: PublishIntent, is_current: Callable[[], bool], sha256: str
) -> None:
    """Before a copied file gets its name: a process that was suspended while it copied may have been overtaken."""
    if sha256 and file.sha256 not in ("", sha256):
        raise damaged(source, "copying it read other bytes than were written", intent.pipeline)
    check_lease(is_current, intent)


def _files_lost(error: Exception, intent: PublishIntent) -> DisagreementError:
    return errors.STAGED_FILES_LOST(
        where=f"intent {intent.intent_id}",
        target=intent.target,
        app_version=intent.app_version,
        error=error,
        pipeline=intent.pipeline,
    )


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


def heal_log(table_path: Path, intents: Sequence[PublishIntent], check_lease: Callable[[], None]) -> int | None:
    """Hide the newest version of a log if its file is torn and one of ``intents`` (those begun on this table) continues
    from the version before: finishing the intent commits it again.

    Returns:
        The number of the version; None when hiding it would not help.
    """
    torn, newest = torn_versions(table_path), max(list_versions(table_path), default=-1)
    if [*torn] != [newest] or not _is_continued(table_path, newest - 1, intents):
        return None
    check_lease()
    copy = table_path / LOG_FOLDER / f".{commit_name(newest)}.{secrets.token_hex(4)}.torn"
    withdraw(table_path, newest, torn[newest], copy)
    return newest


def _is_continued(table_path: Path, version: int, intents: Sequence[PublishIntent]) -> bool:
    """Return whether an intent begins at the batch where ``version`` ends; -1: before the table exists."""
    if version < 0:
        return any(intent.app_version_before == -1 for intent in intents)
    try:
        table = read_snapshot(table_path, version)
    except (OSError, ValueError) as error:
        if storage.is_failure(error):
            raise
        return False
    return any(intent.app_version_before == table.last_batch(intent.app_id) for intent in intents)
