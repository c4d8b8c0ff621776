"""Hiding the files that a version replaces, so that no reader sees an old and a new row together."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import TidegateError, TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.table.log.commit import overtake, refuse_gone, rename_files
from tidegate.table.log.state import DataFile, list_data_files
from tidegate.table.publish.intent import FileToRemove, PublishIntent, check_lease, name_taken_back, staged_at
from tidegate.table.publish.plan import parse_file_name

_REPLACED = ".replaced"
_REMOVED_AT_ONCE = 50
"""How many plain names are removed between two lease checks: no file gets such a name again, so a late removal does no
harm."""


def set_aside(intent: PublishIntent, table_path: Path, is_current: Callable[[], bool]) -> list[DataFile]:
    """Hide the replaced files from plain readers before the new ones are moved in.

    Each file gets a second, hidden name, the log is changed to use it, then the plain name is removed. Delta readers
    see the same rows all the time, and plain readers never see an old and a new row together. The hidden files stay for
    older versions until the table is vacuumed. If all readers use the log, the files keep their names.

    Returns:
        The files as they are now in the log.
    """
    if intent.keeps_names:
        return [DataFile(one.path, one.rows, one.size_bytes, one.partition) for one in intent.files_to_remove]
    renamed = []
    for file in intent.files_to_remove:
        old = DataFile(file.path, file.rows, file.size_bytes, file.partition)
        renamed.append((old, hidden_name(file.path)))
    if not renamed:
        return []
    check_lease(is_current, intent)
    plain = [table_path / old.path for old, _ in renamed]
    folders = {path.parent for path in plain}
    shown = [path for some in find_shown(table_path, intent.files_to_remove).values() for path in some]
    for path, (_, hidden) in zip(plain, renamed, strict=True):
        with contextlib.suppress(FileNotFoundError):  # hidden before: the log names it
            storage.touch(path)  # VACUUM would remove an old file under the hidden name, which is not in the log yet
        storage.link(path, table_path / hidden)
    storage.sync_folders(folders)
    check_lease(is_current, intent)
    rename_files(table_path, renamed, app_id=intent.app_id, app_version=intent.app_version)
    for number, path in enumerate([*plain, *shown]):
        if number % _REMOVED_AT_ONCE == 0:
            check_lease(is_current, intent)
        storage.remove(path)
    storage.sync_folders(folders)  # else a power cut after the commit would bring the old rows back
    return [replace(old, path=hidden) for old, hidden in renamed]


def check_replaced(table_path: Path, intent: PublishIntent) -> None:
    """Raise as :func:`set_aside` would: DisagreementError REPLACED_FILES_GONE for files that are no longer in the log,
    FileNotFoundError for a file that is no longer on disk."""
    held = {file.path for file in list_data_files(table_path)} if intent.files_to_remove else set()
    names = [(file.path, hidden_name(file.path)) for file in intent.files_to_remove]
    refuse_gone(table_path, [old for old, hidden in names if old not in held and hidden not in held])
    for old, hidden in names:
        if not (storage.exists(table_path / old) or storage.exists(table_path / hidden)):
            raise FileNotFoundError(table_path / old)


def show_again(paths: PipelinePaths, intent: PublishIntent, check_lease: Callable[[], None]) -> None:
    """Show plain readers the rows that a publish has hidden and cannot replace now: its new files are moved back into
    staging, then the replaced files get plain names again, in addition to the hidden ones in the log.

    All names are new: a process that was suspended before its next step (moving a file in, removing an old name, the
    commit) changes nothing when it resumes. The publish remains begun, and :func:`set_aside` removes the plain names
    again. Failing steps are skipped, but no plain name comes back while a new file is in place, so plain readers never
    see a row twice. Only for a publish whose version is not in the log.
    """
    table_path = intent.table_path(paths)
    if not list_hidden(table_path, intent):
        return
    check_lease()
    with contextlib.suppress(OSError, TidegateError):  # else the next run corrects the effects of a late commit
        overtake(table_path, app_id=intent.app_id, app_version=intent.app_version)
    for file in intent.files_to_add:
        target, staged = table_path / file.path, staged_at(paths, file.source)
        for place in (target, staged):
            if storage.exists(place):
                check_lease()
                with contextlib.suppress(OSError, TryAgainError):  # of the sync; a failed move is detected below
                    storage.move(place, name_taken_back(paths, file.source))
        with contextlib.suppress(OSError):
            storage.remove_copies(target)
    if any(storage.exists(table_path / file.path) for file in intent.files_to_add):
        return
    for one in list_hidden(table_path, intent):
        check_lease()
        with contextlib.suppress(OSError):
            storage.link(table_path / hidden_name(one.path), table_path / _new_name(one.path))
    with contextlib.suppress(OSError):
        storage.sync_folders({(table_path / one.path).parent for one in intent.files_to_remove})


def list_hidden(table_path: Path, intent: PublishIntent) -> list[FileToRemove]:
    """The files to replace that plain readers no longer see."""
    shown = find_shown(table_path, intent.files_to_remove)
    return [
        file
        for file in intent.files_to_remove
        if not (storage.exists(table_path / file.path) or shown.get(file.path))
        and storage.exists(table_path / hidden_name(file.path))
    ]


def find_shown(table_path: Path, files: Sequence[FileToRemove]) -> dict[str, list[Path]]:
    """{path: its plain names} of files to replace that were hidden and shown again."""
    hidden = {file.path: table_path / hidden_name(file.path) for file in files}
    hidden = {
        path: place for path, place in hidden.items() if not storage.exists(table_path / path) and storage.exists(place)
    }
    plain: dict[storage.Stat, list[Path]] = {}
    for folder in {place.parent for place in hidden.values()}:
        for path in storage.list_folder(folder, "[!.]*.parquet"):
            with contextlib.suppress(FileNotFoundError):
                plain.setdefault(storage.stat(path), []).append(path)
    alike = {path: plain.get(storage.stat(place), []) for path, place in hidden.items()}
    return {path: [one for one in some if storage.is_same(one, hidden[path])] for path, some in alike.items()}


def list_set_aside(table_path: Path) -> list[DataFile]:
    """The files that have their hidden names in the log: a publish began to replace them."""
    return [file for file in list_data_files(table_path) if plain_name(file.path) is not None]


def bring_back(table_path: Path, *, app_id: str, check_lease: Callable[[], None]) -> None:
    """Undo :func:`set_aside` for a publish that will never be finished: plain readers see these files again, under new
    names, which a suspended process that still has to remove an old name does not know. The hidden names stay until the
    table is vacuumed, for sinks that still need these rows and for older versions.

    May be repeated: if it is killed in between, a file has a new name that is not in the log yet, and gets another one.
    """
    renamed = [(file, _new_name(str(plain_name(file.path)))) for file in list_set_aside(table_path)]
    for file, new in renamed:
        # Never two plain names at a time: readers without a log would count the rows twice.
        check_lease()
        storage.touch(table_path / file.path)  # VACUUM would remove an old file under a name that is not in the log yet
        plain = _plain_links(table_path / file.path)
        for extra in plain[1:]:
            storage.remove(extra)
        if plain:
            storage.move(plain[0], table_path / new)
        else:
            storage.link(table_path / file.path, table_path / new)
            storage.sync_folder((table_path / new).parent)
    if renamed:
        check_lease()
        rename_files(table_path, renamed, app_id=app_id, app_version=0)


def _plain_links(hidden: Path) -> list[Path]:
    """The names in the same folder under which plain readers see the file."""
    return [path for path in storage.list_folder(hidden.parent, "[!.]*.parquet") if storage.is_same(path, hidden)]


def _new_name(path: str) -> str:
    """A name that no file had before: ``part-<query>-<batch>-<attempt>-<number>`` gets another attempt."""
    folder, slash, name = path.rpartition("/")
    parts, token = name.split("-"), secrets.token_hex(6)
    if parse_file_name(name) is None:
        return f"{folder}{slash}{name.removesuffix('.parquet')}-{token}.parquet"
    return f"{folder}{slash}{'-'.join([*parts[:3], token, parts[-1]])}"


def hidden_name(path: str) -> str:
    """The name of a file after a version has replaced it."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}{_REPLACED}"


def plain_name(hidden: str) -> str | None:
    """The name of a file before it got this hidden name; None for any other name."""
    folder, slash, name = hidden.rpartition("/")
    if not (name.startswith(".") and name.endswith(_REPLACED)):
        return None
    return f"{folder}{slash}{name[1:].removesuffix(_REPLACED)}"
