"""The files that versions replaced: hidden from plain readers, restored for a rollback, and removed in the end.

A publish hides the files that it replaces, so that no reader sees an old and a new row together. Another engine removes
files from the log and leaves them in the folder, and some write checkpoints in parquet: these are hidden afterwards.
Which file can be removed is decided by the log alone. Its commits are never removed, so each is read once; folders are
not listed for it, and a file is never chosen by its name.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError, TryAgainError, on_failure
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.table.log.commit import SET_ASIDE, check_all_replaced, overtake, refuse_gone, rename_files
from tidegate.table.log.compaction import list_needless_checkpoints, remove_checkpoints
from tidegate.table.log.files import (
    LOG_FOLDER,
    Action,
    checkpoints_of,
    commit_name,
    is_inside,
    list_names,
    parse_line,
    path_on_disk,
    read_actions,
    split_lines,
    versions_of,
)
from tidegate.table.log.state import DataFile, list_data_files, read_log, read_log_at, read_log_head
from tidegate.table.publish.intent import FileToRemove, PublishIntent, check_lease, name_taken_back, staged_at
from tidegate.table.publish.plan import parse_file_name
from tidegate.table.schema import extends

_REPLACED = ".replaced"
_REMOVED_AT_ONCE = 50
"""How many plain names are removed between two lease checks: no file gets such a name again, so a late removal does no
harm."""
VERSIONS_AT_ONCE = 1000
"""How many versions one call reads at most; the next call continues."""
_CHANGE_FEED = "_change_data"


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
    shown = take_shown(table_path, intent.files_to_remove)
    for path, (_, hidden) in zip(plain, renamed, strict=True):
        with contextlib.suppress(FileNotFoundError):  # hidden before: the log names it
            storage.refresh_time(path)
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
    """Raise as the publish would: DisagreementError REPLACED_FILES_GONE for files that are no longer in the log,
    COLUMNS_IN_USE for files that another program has added, FileNotFoundError for a file that is no longer on disk."""
    held = {file.path for file in list_data_files(table_path)} if intent.files_to_remove else set()
    names = [(file.path, hidden_name(file.path)) for file in intent.files_to_remove]
    refuse_gone(table_path, [old for old, hidden in names if old not in held and hidden not in held])
    if intent.replaces_schema and not extends(read_log_head(table_path).schema_json, intent.schema_json):
        check_all_replaced(table_path, held, [name for both in names for name in both])
    for old, hidden in names:
        if not (storage.exists(table_path / old) or storage.exists(table_path / hidden)):
            raise FileNotFoundError(table_path / old)


def show_again(paths: PipelinePaths, intent: PublishIntent, check_lease: Callable[[], None]) -> None:
    """Show plain readers the rows that a publish has hidden and cannot replace now: its new files are moved back into
    staging, then the replaced files get plain names again, in addition to the hidden ones in the log.

    All names are new: a process that was suspended before its next step (moving a file in, removing an old name, the
    commit) changes nothing when it resumes. If this process is suspended, the next one fences it
    (:func:`fence_taken_back`, :func:`take_shown`). The publish remains begun, and :func:`set_aside` removes the plain
    names again. Failing steps are skipped, but no plain name comes back while a new file is in place, so plain readers
    never see a row twice. Such a file stays where it cannot be renamed (on an object store, on another device): a copy
    ends with a delete, and a process that is suspended before it would delete a file that another one has published.
    Only for a publish whose version is not in the log.
    """
    table_path = intent.table_path(paths)
    if not list_hidden(table_path, intent):
        return
    with contextlib.suppress(OSError, TidegateError):  # else the next run corrects the effects of a late commit
        overtake(table_path, app_id=intent.app_id, app_version=intent.app_version, check_lease=check_lease)
    for file in intent.files_to_add:
        target, staged = table_path / file.path, staged_at(paths, file.source)
        for place in (target, staged):
            if storage.exists(place):
                kept = name_taken_back(paths, file.source)
                with contextlib.suppress(OSError, TryAgainError):  # a failed rename is detected below
                    storage.make_folder(kept.parent)
                check_lease()  # after the folder was made: the next process finds it
                with contextlib.suppress(OSError):
                    storage.rename(place, kept)
        with contextlib.suppress(OSError):
            storage.remove_copies(target)
    if any(storage.exists(table_path / file.path) for file in intent.files_to_add):
        return
    for one in list_hidden(table_path, intent):
        with contextlib.suppress(OSError):
            _show(table_path / hidden_name(one.path), table_path / _new_name(one.path), check_lease)
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


def _show(hidden: Path, plain: Path, check_lease: Callable[[], None]) -> None:
    """Give a hidden file a plain name too, by way of a second hidden one.

    A process that lost its lease while it was suspended stops at the check, or finds that the second name is gone: the
    next process calls :func:`_remove_begun` before it looks for plain names. A direct link would be made.
    """
    begun = hidden.with_name(f".{hidden.name}.{secrets.token_hex(6)}{storage.COPY_SUFFIX}")
    with on_failure(lambda: _discard(begun)):
        storage.link(hidden, begun)
        check_lease()
        storage.link(begun, plain)
        storage.remove(begun)


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        storage.remove(path)


def _remove_begun(hidden: Collection[Path]) -> None:
    """Remove the names that :func:`_show` began to give, so that no process that is suspended there finds them."""
    for folder in {path.parent for path in hidden}:
        prefixes = tuple(f".{path.name}." for path in hidden if path.parent == folder)
        for begun in storage.list_folder(folder, f".*{storage.COPY_SUFFIX}"):
            if begun.name.startswith(prefixes):
                storage.remove(begun)


def take_shown(table_path: Path, files: Sequence[FileToRemove]) -> list[Path]:
    """The plain names of files that were hidden and shown again; no suspended process can add another one.

    To be called with the lease.
    """
    hidden = _hidden_of(table_path, files)
    if not hidden:
        return []
    _remove_begun(hidden.values())
    return [path for some in find_shown(table_path, files).values() for path in some]


def _hidden_of(table_path: Path, files: Sequence[FileToRemove]) -> dict[str, Path]:
    """{path: its hidden name} of files that no longer have the name they had in the plan."""
    hidden = {file.path: table_path / hidden_name(file.path) for file in files}
    return {
        path: place for path, place in hidden.items() if not storage.exists(table_path / path) and storage.exists(place)
    }


def find_shown(table_path: Path, files: Sequence[FileToRemove]) -> dict[str, list[Path]]:
    """{path: its plain names} of files to replace that were hidden and shown again."""
    hidden = _hidden_of(table_path, files)
    plain: dict[int, list[Path]] = {}
    for folder in {place.parent for place in hidden.values()}:
        for path in storage.list_folder(folder, "[!.]*.parquet"):
            with contextlib.suppress(FileNotFoundError):
                plain.setdefault(storage.stat(path).size_bytes, []).append(path)
    alike = {path: plain.get(storage.stat(place).size_bytes, []) for path, place in hidden.items()}
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
    check_lease()
    _remove_begun([table_path / file.path for file, _ in renamed])
    for file, new in renamed:
        # Never two plain names at a time: readers without a log would count the rows twice.
        hidden = table_path / file.path
        storage.refresh_time(hidden)
        names = storage.list_folder(hidden.parent, "[!.]*.parquet")
        plain = [path for path in names if storage.is_same(path, hidden)]
        check_lease()  # after the look: another process gives these names to no file again, and then takes others
        is_renamed = bool(plain) and not storage.is_object(table_path)  # a store has no rename
        for extra in plain[1 if is_renamed else 0 :]:
            storage.remove(extra)
        if is_renamed:
            storage.move(plain[0], table_path / new)
        else:
            _show(hidden, table_path / new, check_lease)
            storage.sync_folder(hidden.parent)
    if renamed:
        check_lease()
        rename_files(table_path, renamed, app_id=app_id, app_version=0)


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


@dataclass(frozen=True)
class Restore:
    """The changes that give the table the rows of an earlier version: files to add (with the paths where they are
    kept), files to remove, and files that are missing; ``schema_json`` is that of the earlier version."""

    back: list[DataFile]
    leave: list[DataFile]
    gone: list[str]
    schema_json: str


def plan_restore(table_path: Path, version: int) -> Restore:
    """Plan how the table gets the rows of ``version``. Raises FileNotFoundError or ValueError when its log no longer
    has the version."""
    earlier = read_log_at(table_path, version)
    then, now = earlier.files(), list_data_files(table_path)
    names = {_name(file.path) for file in now}
    kept = {_name(file.path) for file in then}
    back, gone = [], []
    for file in then:
        if _name(file.path) not in names:
            place = _find(table_path, file.path)
            if place is not None:
                back.append(replace(file, path=place))
            else:
                gone.append(file.path)
    return Restore(back, [file for file in now if _name(file.path) not in kept], gone, earlier.schema_json)


def nearest_restorable(table_path: Path, version: int, newest: int) -> int:
    """The first version after ``version`` whose files all exist; in the end the newest."""
    now = {_name(file.path) for file in list_data_files(table_path)}
    known: dict[str, bool] = {}

    def is_there(path: str) -> bool:
        if path not in known:
            known[path] = _name(path) in now or _find(table_path, path) is not None
        return known[path]

    first = _first_readable(table_path, version, newest)
    if first == newest:
        return newest
    snapshot = read_log_at(table_path, first)
    for number in range(first, newest):
        if number > first:
            for action in read_actions(table_path, number):
                snapshot.apply(action)
        if number > version and all(is_there(file.path) for file in snapshot.files()):
            return number
    return newest


def _first_readable(table_path: Path, version: int, newest: int) -> int:
    """The first version from ``version`` on that can be read from the log."""
    for number in range(version, newest):
        try:
            read_log_at(table_path, number)
        except (OSError, ValueError) as error:
            if storage.is_failure(error):
                raise
            continue
        return number
    return newest


def _name(path: str) -> str:
    """The plain name of a file, whichever name it has in the log."""
    return plain_name(path) or path


def _find(table_path: Path, path: str) -> str | None:
    """The path of a file that is no longer in the table; None when it was deleted."""
    name = _name(path)
    # The hidden name once more: another run may hide the file between the first two looks.
    places = (hidden_name(name), name, hidden_name(name))
    return next((one for one in places if storage.exists(table_path / one)), None)


def find_replaced(
    table_path: Path, *, after: int, up_to: int, before_ms: int, needed: Collection[str]
) -> tuple[int, list[Path]]:
    """Find existing files that the versions above ``after`` and up to ``up_to`` removed from the table before a time.

    Without these files, older versions of the table can no longer be read. Files that are in the table now are
    excluded. The search ends before a version that removed a file of ``needed`` (paths relative to the table).

    Returns:
        The last version that was examined, which is the next ``after``; and the files.
    """
    done, high = after, _find_time(_read_actions(table_path, after)) if after >= 0 else 0
    gone: set[str] = set()
    unsure: set[str] = set()
    for version in range(after + 1, min(up_to, after + VERSIONS_AT_ONCE) + 1):
        actions = _read_actions(table_path, version)
        removed = {path_on_disk(action["remove"]["path"]) for action in actions if "remove" in action}
        if not any(SET_ASIDE in action.get("commitInfo", {}) for action in actions):
            # Files that another program removed were hidden without a commit.
            removed |= {hidden_name(path) for path in removed if plain_name(path) is None}
        made = _find_time(actions)
        is_ahead = made > before_ms and made > _find_time(_read_actions(table_path, up_to))
        if (made > before_ms and not is_ahead) or not removed.isdisjoint(needed):
            break
        unsure |= removed
        # With a wrong clock, a version seems older than earlier ones or younger than later ones: then the time of a
        # later version counts.
        if not is_ahead and (made >= high or not unsure):
            done, high = version, max(high, made)
            gone |= unsure
            unsure.clear()
    if gone:
        gone -= {file.path for file in list_data_files(table_path)}
    return done, [table_path / path for path in sorted(gone) if is_inside(path) and storage.exists(table_path / path)]


def _read_actions(table_path: Path, version: int) -> list[Action]:
    try:
        return read_actions(table_path, version)
    except (FileNotFoundError, ValueError):  # deleted or torn: it is unknown what it removed
        return []


def _find_time(actions: Sequence[Action]) -> int:
    """The time of a version according to its actions, in milliseconds since 1970 UTC; 0 when they have none."""
    times = [action["remove"].get("deletionTimestamp") for action in actions if "remove" in action]
    times += [action["commitInfo"].get("timestamp") for action in actions if "commitInfo" in action]
    return max((int(time) for time in times if isinstance(time, (int, float))), default=0)


@dataclass(frozen=True)
class LeftBehind:
    """What plain readers read and should not, up to version ``looked_up_to``."""

    looked_up_to: int
    files: list[str]
    """Files that the log no longer has, by their path in the table."""
    change_files: int
    """The number of files of the change feed, which its readers need."""
    checkpoints: list[str]
    """Parquet checkpoints without which the log can be read."""
    needed_checkpoints: list[str]
    """Checkpoints that the log needs, because commits before them are missing."""
    is_cut: bool
    """True if commits of the examined versions are missing."""

    def describe(self) -> list[str]:
        """A line for each finding."""
        lines = []
        if self.files:
            which = f"{count_of(len(self.files), 'file')}, such as {self.files[0]}"
            lines.append(
                "another program, or a publish with `readers: delta`, took rows out of the table, and plain readers "
                f"still see them: {which}"
            )
        if self.checkpoints:
            lines.append(f"plain readers take a checkpoint of the log for rows: {LOG_FOLDER}/{self.checkpoints[-1]}")
        return lines + self.describe_for_good()

    def describe_for_good(self) -> list[str]:
        """A line for each finding that only a person can correct."""
        lines = []
        if self.needed_checkpoints:
            lines.append(
                f"another program removed commits of the log, which now begins with {self.needed_checkpoints[0]}: a "
                f"reader of `**/*.parquet` takes that for rows; restore the commits from a backup, or have such "
                f"readers leave {LOG_FOLDER} out"
            )
        if self.change_files:
            lines.append(
                f"another program wrote {count_of(self.change_files, 'change file')} below {_CHANGE_FEED} for the "
                "table's change feed: a reader of `**/*.parquet` takes them for rows until that program's VACUUM; have "
                "such readers leave the folder out"
            )
        return lines


def find_left_behind(table_path: Path, after: int) -> LeftBehind:
    """Find what versions after ``after`` left in the folder, up to :data:`VERSIONS_AT_ONCE` of them."""
    names = list_names(table_path)
    versions = versions_of(names)
    newest = max(versions, default=-1)
    if after > newest:  # an older copy of the table was restored, or another table
        after = -1
    first = min(versions, default=0)
    up_to = min(newest, max(after, first - 1) + VERSIONS_AT_ONCE)
    removed: set[str] = set()
    is_cut = after + 1 < first
    if is_cut:
        removed |= _read_removed(table_path)
    for version in versions:
        if not after < version <= up_to:
            continue
        try:
            lines = split_lines(storage.read(table_path / LOG_FOLDER / commit_name(version)))
        except FileNotFoundError:  # removed since the folder was listed
            removed |= _read_removed(table_path)
            is_cut = True
            continue
        for line in lines:
            if b'"remove"' in line[:12]:
                with contextlib.suppress(ValueError):  # torn: the next reader that needs the version reports it
                    removed.add(path_on_disk(parse_line(line)["remove"]["path"]))
    found = _there(table_path, removed)
    if found:
        found -= {file.path for file in list_data_files(table_path)}
    needless = list_needless_checkpoints(names)
    needed = [name for name in checkpoints_of(names) if name.endswith(".parquet") and name not in needless]
    # List the folder: checkpoints do not name change files, and the commits that name them may be removed.
    feed = len(storage.list_tree(table_path / _CHANGE_FEED, "*.parquet"))
    return LeftBehind(up_to, sorted(found), feed, needless, needed, is_cut)


def _read_removed(table_path: Path) -> set[str]:
    """The files that deleted commits removed: the checkpoint has them for the engine's retention time. The next reader
    that needs the log reports it if it is unreadable."""
    with contextlib.suppress(DisagreementError):
        return {path_on_disk(remove["path"]) for remove in read_log(table_path).removed.values()}
    return set()


def _there(table_path: Path, paths: set[str]) -> set[str]:
    """The paths that exist in the folder under a name that plain readers see."""
    plain = {path for path in paths if is_inside(path) and plain_name(path) is None}
    return {path for path in plain if path.endswith(".parquet") and storage.exists(table_path / path)}


def hide_left_behind(table_path: Path, left: LeftBehind, check_lease: Callable[[], None]) -> None:
    """Hide the files, as a publish hides what it replaces, and remove the checkpoints. May be repeated.

    Rollbacks find the files by their hidden names; Delta readers of older versions do not.
    """
    if left.files:
        check_lease()
        # Durably: these versions are not examined again, and after a power cut the rows would stay.
        hide_files([(table_path / path, table_path / hidden_name(path)) for path in left.files], check_lease)
        _show_counted(table_path, left.files, check_lease)
    if left.checkpoints:
        check_lease()
        # Listed again: another engine may have removed commits since, so that the log needs its checkpoint.
        remove_checkpoints(table_path, list_needless_checkpoints(list_names(table_path)))


def hide_files(names: Iterable[tuple[Path, Path]], check_lease: Callable[[], None]) -> None:
    """Rename files, those that exist, to hidden names; the new names come first, so that a power cut leaves one."""
    todo = [(old, new) for old, new in names if storage.exists(old)]
    for old, new in todo:
        storage.link(old, new)
    folders = {new.parent for _, new in todo}
    storage.sync_folders(folders)
    for old, _ in todo:
        check_lease()
        storage.remove(old)
    storage.sync_folders(folders)


def _show_counted(table_path: Path, hidden: Sequence[str], check_lease: Callable[[], None]) -> None:
    """Restore the names of files that another program has added to the table again in the meantime (RESTORE)."""
    counted = {file.path for file in list_data_files(table_path)}
    back = [name for name in hidden if name in counted and not storage.exists(table_path / name)]
    for name in back:
        _show(table_path / hidden_name(name), table_path / name, check_lease)
    storage.sync_folders({(table_path / name).parent for name in back})
