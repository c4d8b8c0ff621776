"""Lists files with their stats: a folder with its ``k=v`` sub-folders, or a glob.

The writers of the folder are not trusted: a symbolic link is followed only when it leads below the folder itself, or
below one that the spec names. The folder itself may be a link, since the spec names it.

Tables whose files a source would read are found and refused: a compaction, a backfill, a refresh, a rollback or a
publish in ``update`` mode replaces files of a table by others with the same rows, and a source that reads each new file
once would read these rows again.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidegate.core import storage
from tidegate.spec.pipeline import list_pipelines
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.core.storage.user_objects import StoredObject

    FileStat = os.stat_result | StoredObject
    """The stat of a file, or what a list says of an object."""

IN_PROGRESS_SUFFIXES = (".tmp", ".part", ".partial", ".inprogress", ".crdownload", "._copying_")

ARCHIVE_FOLDER = ".tidegate-archive"
"""In the folder of a source: read files that ``tidegate maintain`` has moved there."""

_TABLE_LOGS = ("_delta_log", "_spark_metadata")
"""In the folder of a table: the log of its valid files."""

_WILD = re.compile(r"[*?\[]")
_PARTITION_FOLDER = re.compile(r"^[^.=][^=]*=")

SUB_FOLDER = "sub-folder: only k=v folders are followed"
_HIDDEN_FOLDER = "hidden folder: its name starts with _ or .; renamed, it is read"
_FILTERED = "does not match pathGlobFilter"

NO_RIGHT = "no permission to read it"
TO_READ = "give the user of the runs the right to read it (chmod a+r), or move it away"
"""What a person can do about a file that may not be read."""
_TO_LIST = "give the user of the runs the right to list and search it (chmod a+rx), or move it away"
_TO_MOUNT = "check that its file system is mounted and healthy (findmnt, dmesg)"
_TO_LINK = "mount or restore what it leads to, or remove the link"
_TO_REMOVE = "move it away: only regular files are read"


class Skipped(NamedTuple):
    """A file or folder that is not read, and why. ``fix`` is what a person can do to have it read; it is empty where a
    rule of the source says that it is not read. With ``retry`` the storage failed, and a retry may read it; with
    ``is_outside`` a link leads out of the source."""

    path: str
    why: str
    fix: str = ""
    retry: bool = False
    is_outside: bool = False


@dataclass
class Listing:
    """The files found. ``files`` are (absolute path, stat of the file, after following links); ``unlisted`` folders
    with unknown content; ``base`` the folder of everything; ``roots`` the real paths of the folders that links may
    lead to; ``tables`` visited folders with the log of a table."""

    base: str
    roots: tuple[str, ...]
    links: dict[str, str] = field(default_factory=dict)
    """{symbolic link that was followed, to a file or a folder: where it leads}"""
    files: list[tuple[str, FileStat]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    def skip(self, path: str, why: str, fix: str = "") -> None:
        """Note what is not read."""
        self.skipped.append(Skipped(path, why, fix))

    def skip_outside(self, path: str, why: str) -> None:
        """Note a link that leads out of the source."""
        self.skipped.append(Skipped(path, why, "name the folder in follow_links, or remove the link", is_outside=True))

    def skip_failed(self, path: str, what: str, error: OSError) -> None:
        """Note what the operating system did not let us look at."""
        self.skipped.append(describe_failure(path, what, error, _TO_LIST))


def describe_failure(path: str, what: str, error: OSError, fix: str) -> Skipped:
    """Describe what could not be read because of ``error``; ``fix`` is for a missing right or a wrong file."""
    failure = storage.name_failure(OSError(error.errno, error.strerror, path), Path(path))
    retry = failure is not None and failure.retry
    why = f"{what}: {error.strerror}; the next run tries again"
    return Skipped(path, why, _TO_MOUNT if retry else fix, retry)


def find_roots(top: str, follow_links: Sequence[str] = ()) -> tuple[str, ...]:
    """The real paths of the folders that links of source ``top`` may lead to, its own first."""
    return tuple(storage.real_path(storage.parse_path(folder)) for folder in (_split(top)[0], *follow_links))


def base_of(top: str) -> str:
    """The folder of source ``top``, or of its pattern before the first wildcard; links are not resolved."""
    return _split(top)[0]


def pattern_of(top: str) -> list[str]:
    """The parts of the pattern of source ``top`` below :func:`base_of`; none for a folder or a file."""
    return _split(top)[1]


def find_unreadable(path: str, abs_path: str) -> Skipped | None:
    """Describe why this process cannot open the file at ``abs_path``, which is shown as ``path``; None when it can."""
    if os.access(abs_path, os.R_OK, effective_ids=True):
        return None
    try:  # access does not tell a missing right from a failure of the storage
        os.close(os.open(abs_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError:
        return Skipped(path, NO_RIGHT, TO_READ)
    except OSError as error:
        return describe_failure(path, "cannot be read", error, TO_READ)
    return None


def is_inside(path: str, roots: Sequence[str]) -> bool:
    """Return whether ``path``, a real one, is one of the folders ``roots`` or below it."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def list_source(
    top: str,
    follow_links: Sequence[str] = (),
    *,
    name_filter: object = None,
    is_recursive: bool = False,
    after: str = "",
    named: frozenset[str] | None = None,
) -> Listing:
    """List ``top``, absolute and normalised: an existing folder or file as it is named, else a glob with ``*``, ``?``,
    ``[...]`` and ``**`` (any number of folders).

    ``name_filter`` is Spark's pathGlobFilter on file names, ``is_recursive`` its recursiveFileLookup, ``follow_links``
    further folders, absolute, below which symbolic links may lead. Of objects only those are listed whose URI sorts
    after ``after``, or those of ``named`` that exist. Raises FileNotFoundError, NotADirectoryError or PermissionError,
    with the folder as filename, for the folder itself or the part of a glob before its first wildcard.
    """
    accepts = _name_matcher(str(name_filter)) if name_filter is not None else None
    base, pattern = _split(top)
    listing = Listing(base, find_roots(top, follow_links))
    if isinstance(folder := storage.parse_path(base), storage.ObjectPath):
        found = _find_objects(listing, folder, pattern, after.removeprefix(f"{base}/"), named)
        _list_objects(listing, found, pattern, accepts, is_recursive)
        return listing
    if not pattern:
        if base != top:
            _take_one(listing, top)
        else:
            _list_folder(listing, top, accepts, is_recursive, is_top=True, seen=set())
            _skip_second_paths(listing)
        return listing
    with os.scandir(base):
        pass  # a missing or unreadable base is an error, a folder below it is not
    _list_glob(listing, base, pattern, accepts, is_recursive)
    _skip_second_paths(listing)
    return listing


def _skip_second_paths(listing: Listing) -> None:
    """Keep one of several paths to a file, so that its records are read once: its real path, or else the first."""
    if not listing.links:
        return
    base = os.path.realpath(listing.base)
    paths: dict[str, list[str]] = {}
    for path, _ in listing.files:
        paths.setdefault(_real_path(listing, base, path), []).append(path)
    several = {real: ways for real, ways in paths.items() if len(ways) > 1}
    if not several:
        return
    own = {base + path[len(listing.base) :]: path for path, _ in listing.files if path not in listing.links}
    read = {real: own[real] if own.get(real) in ways else min(ways) for real, ways in several.items()}
    second = {path: read[real] for real, ways in several.items() for path in ways if path != read[real]}
    listing.files = [(path, found) for path, found in listing.files if path not in second]
    listing.skipped += [Skipped(path, f"leads to {kept}, which is read") for path, kept in second.items()]


def _real_path(listing: Listing, base: str, path: str) -> str:
    """Resolve ``path`` by the links that were followed; ``base`` is the real path of the base."""
    above = path
    while len(above) > len(listing.base):
        if above in listing.links:
            return listing.links[above] + path[len(above) :]
        above = os.path.dirname(above)
    return base + path[len(listing.base) :]


def _split(top: str) -> tuple[str, list[str]]:
    """Split ``top`` into its folder without wildcards and the parts of the glob below it, if it is a glob."""
    parts = top.split("/")
    first_wild = next((number for number, part in enumerate(parts) if _WILD.search(part)), None)
    if storage.is_object(storage.parse_path(top)):
        # Whether there is a folder with the name of a pattern, only a list could say.
        return (top, []) if first_wild is None else ("/".join(parts[:first_wild]), parts[first_wild:])
    if first_wild is None or os.path.lexists(top):
        return os.path.dirname(top) if os.path.isfile(top) else top, []
    return "/".join(parts[:first_wild]) or "/", parts[first_wild:]


def _take_one(listing: Listing, path: str) -> None:
    if why := _leads_outside(listing, os.path.realpath(path)):
        listing.skip_outside(path, why)
    else:
        listing.files.append((path, os.stat(path)))


def _list_folder(
    listing: Listing,
    folder: str,
    accepts: Callable[[str], bool] | None,
    is_recursive: bool,
    *,
    is_top: bool,
    seen: set[tuple[int, int]],
) -> None:
    # When several paths lead to one folder, each run takes the same one: its own path before links, and links by name.
    # The ledger identifies files by path.
    entries = sorted(_scan(listing, folder, is_top=is_top, seen=seen), key=lambda one: (one.is_symlink(), one.name))
    for entry in entries:
        found = _look_at(listing, entry)
        if found is None:
            continue
        if stat.S_ISDIR(found.st_mode):
            if _is_hidden_folder(entry.name):
                listing.skip(entry.path, _HIDDEN_FOLDER)
            elif _is_followed(entry.name, is_recursive=is_recursive):
                _list_folder(listing, entry.path, accepts, is_recursive, is_top=False, seen=seen)
            else:
                listing.skip(entry.path, SUB_FOLDER)
        else:
            _take(listing, entry, found, accepts)


def _list_glob(
    listing: Listing, base: str, parts: list[str], accepts: Callable[[str], bool] | None, is_recursive: bool
) -> None:
    taken: set[str] = set()
    # (folder, number of the pattern's part that its entries have to match)
    waiting = [(base, 0)]
    visited: set[tuple[str, int]] = set()
    listed: dict[str, list[os.DirEntry[str]]] = {}
    while waiting:
        step = waiting.pop()
        folder, number = step
        if step in visited:
            continue
        visited.add(step)
        part, is_last = parts[number], number == len(parts) - 1
        if part == "**" and not is_last:
            waiting.append((folder, number + 1))
        matches = re.compile(fnmatch.translate(part)).match
        if folder not in listed:
            # Only ** can go round in a circle of symbolic links; a path of over 40 links ends in ELOOP by itself.
            listed[folder] = list(_scan(listing, folder, is_top=False, seen=None))
        for entry in listed[folder]:
            if (part != "**" and not matches(entry.name)) or (is_last and entry.path in taken):
                continue
            found = _look_at(listing, entry, is_quiet=not is_last)
            if found is None:
                continue
            if stat.S_ISDIR(found.st_mode):
                why_not = _why_not_followed(entry, part)
                if why_not is not None:
                    listing.skip(entry.path, why_not)
                elif part == "**" or not is_last:
                    waiting.append((entry.path, number if part == "**" else number + 1))
                else:
                    taken.add(entry.path)
                    _list_folder(listing, entry.path, accepts, is_recursive, is_top=False, seen=set())
            elif is_last:
                taken.add(entry.path)
                _take(listing, entry, found, accepts)


def _find_objects(
    listing: Listing, folder: storage.ObjectPath, parts: Sequence[str], after: str, named: frozenset[str] | None
) -> dict[str, StoredObject]:
    """The objects below ``folder`` by their keys from there: those ``named``, or a list of all that sort after
    ``after``. Where the folder is an object itself, that is added to the listing."""
    # It brings the client of object stores, which a project on local disks does without.
    from tidegate.core.storage.user_objects import if_allowed, list_below, look_at, look_at_all

    if named is not None:
        looks = look_at_all(sorted(named))
        return {uri.removeprefix(f"{listing.base}/"): one for uri, one in looks.items() if one is not None}
    found = list_below(folder, after)
    if not (found or parts or after) and (alone := if_allowed(lambda: look_at(listing.base))) is not None:
        listing.files.append((listing.base, alone))
    return found


def _list_objects(
    listing: Listing,
    found: Mapping[str, StoredObject],
    parts: Sequence[str],
    accepts: Callable[[str], bool] | None,
    is_recursive: bool,
) -> None:
    """As a folder or a glob, from the keys below its base; a folder is what keys have before a slash."""
    states: dict[str, set[int]] = {"": _closure({0}, parts)}

    def states_in(above: str) -> set[int]:
        if above not in states:
            outer, _, name = above.rpartition("/")
            states[above] = _enter(listing, outer, name, states_in(outer), parts, deep=is_recursive)
        return states[above]

    fits = re.compile(fnmatch.translate(parts[-1])).match if parts else None
    for key, one in found.items():
        above, _, name = key.rpartition("/")
        here = states_in(above)
        is_matched = len(parts) in here or (
            len(parts) - 1 in here and fits is not None and (parts[-1] == "**" or fits(name) is not None)
        )
        if not is_matched:
            continue
        uri = f"{listing.base}/{key}"
        why = _why_not_a_name(name)
        if why is None and accepts is not None and not accepts(name):
            why = _FILTERED
        if why is None:
            listing.files.append((uri, one))
        else:
            listing.skip(uri, why)


def _enter(listing: Listing, outer: str, name: str, states: set[int], parts: Sequence[str], *, deep: bool) -> set[int]:
    """The states in the folder ``name`` of ``outer``, which has these; says why it is not followed."""
    if not states or name == ARCHIVE_FOLDER:
        return set()
    folder = "/".join(filter(None, (listing.base, outer)))
    if name in _TABLE_LOGS:
        listing.tables.append(folder)
    below = _states_below(name, states, parts, deep=deep)
    if not below and _is_hidden_folder(name):
        if len(parts) in states or any(fnmatch.fnmatchcase(name, parts[number]) for number in states):
            listing.skip(f"{folder}/{name}", _HIDDEN_FOLDER)
    elif not below and len(parts) in states:
        listing.skip(f"{folder}/{name}", SUB_FOLDER)
    return below


def _is_hidden_folder(name: str) -> bool:
    """Return whether a folder is skipped because of its name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _is_followed(name: str, *, is_recursive: bool) -> bool:
    """Return whether a sub-folder of this name is listed together with its parent folder."""
    return is_recursive or _PARTITION_FOLDER.match(name) is not None


def _is_wild(part: str) -> bool:
    """Return whether a part of a path is a pattern."""
    return _WILD.search(part) is not None


def _why_not_followed(entry: os.DirEntry[str], part: str) -> str | None:
    """Why a folder that matches this part of a pattern is skipped, or None."""
    is_hidden = entry.name.startswith((".", "_")) and not _PARTITION_FOLDER.match(entry.name)
    if part == "**":
        if is_hidden or (entry.is_symlink() and _leads_back(entry.path)):
            return "hidden folder, or a link to a folder above it: not followed"
    elif is_hidden and _WILD.search(part):
        return "hidden folder: its name starts with _ or ."
    return None


def _scan(
    listing: Listing, folder: str, *, is_top: bool, seen: set[tuple[int, int]] | None
) -> Iterator[os.DirEntry[str]]:
    try:
        if seen is not None:
            here = os.stat(folder)
            if (here.st_dev, here.st_ino) in seen:
                listing.skip(folder, "leads back to a folder that is listed already")
                return
            seen.add((here.st_dev, here.st_ino))
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name != ARCHIVE_FOLDER]
        if any(entry.name in _TABLE_LOGS for entry in found):
            listing.tables.append(folder)
        yield from found
    except OSError as error:
        if is_top:
            raise
        if not isinstance(error, FileNotFoundError):
            listing.skip_failed(folder, "cannot be listed", error)
            listing.unlisted.append(folder)


def _look_at(listing: Listing, entry: os.DirEntry[str], *, is_quiet: bool = False) -> os.stat_result | None:
    """Stat an entry, following links; None where that fails or the link leads outside. ``is_quiet``: only folders are
    wanted, so what is none by its kind is not reported."""
    try:
        found = entry.stat()
        if entry.is_symlink():
            real = os.path.realpath(entry.path)
            if why := _leads_outside(listing, real):
                listing.skip_outside(entry.path, why)
                return None
            listing.links[entry.path] = real
        return found
    except FileNotFoundError:
        if entry.is_symlink() and not is_quiet:
            listing.skip(entry.path, "symbolic link to nothing", _TO_LINK)
    except OSError as error:
        if not is_quiet or entry.is_symlink() or entry.is_dir(follow_symlinks=False):
            listing.skip_failed(entry.path, "cannot be looked at", error)
    return None


def _take(
    listing: Listing, entry: os.DirEntry[str], found: os.stat_result, accepts: Callable[[str], bool] | None
) -> None:
    if (why := _why_not_a_name(entry.name)) is not None:
        listing.skip(entry.path, why)
    elif not stat.S_ISREG(found.st_mode):
        listing.skip(entry.path, "not a regular file", _TO_REMOVE)
    elif accepts is not None and not accepts(entry.name):
        listing.skip(entry.path, _FILTERED)
    else:
        listing.files.append((entry.path, found))


def _why_not_a_name(name: str) -> str | None:
    """Why a file of this name is not read; None when it is."""
    if name[0] in "._":
        return "hidden: its name starts with _ or .; renamed, it is read"
    if name.lower().endswith(IN_PROGRESS_SUFFIXES):
        return "still being written, by its suffix; renamed, it is read"
    return None


def _leads_outside(listing: Listing, real: str) -> str | None:
    if is_inside(real, listing.roots):
        return None
    return f"leads outside the source's folder, to {real}: not followed (follow_links names folders it may lead to)"


def _leads_back(path: str) -> bool:
    return os.path.dirname(path).startswith(os.path.realpath(path))


def _name_matcher(pattern: str) -> Callable[[str], bool]:
    """Hadoop's glob on a file name: ``*``, ``?``, ``[a-z]``, ``[^a]`` and ``{a,b}``."""
    translated = "|".join(fnmatch.translate(one.replace("[^", "[!")) for one in _spread_braces(pattern))
    compiled = re.compile(translated)
    return lambda name: compiled.match(name) is not None


def _spread_braces(pattern: str) -> list[str]:
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [spread for choice in match[1].split(",") for spread in _spread_braces(before + choice + after)]


def find_table_above(folder: str) -> str | None:
    """Find the table that contains ``folder``, a real path, by the log in its folder."""
    if isinstance(path := storage.parse_path(folder), storage.ObjectPath):
        from tidegate.core.storage.user_objects import if_allowed  # as above

        prefixes = [above for above in (path, *path.parents) if above.bucket]
        names = ((above, if_allowed(partial(storage.list_names, above))) for above in prefixes)
        return next((str(above) for above, found in names if not {*_TABLE_LOGS}.isdisjoint(found or ())), None)
    while True:
        if any(os.path.lexists(os.path.join(folder, log)) for log in _TABLE_LOGS):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def find_listed_table(listing: Listing) -> str | None:
    """Describe a table in a visited folder of a listing, or behind a link."""
    if listing.tables:
        return f"there is a table in {min(listing.tables)}"
    above = cache(find_table_above)
    for link, real in sorted(listing.links.items()):
        if (table := above(real if os.path.isdir(real) else os.path.dirname(real))) is not None:
            return f"{link} leads into a table, in {table}"
    return None


def find_own_table(project: Project, base: str, parts: Sequence[str], links: Sequence[str], deep: bool) -> str | None:
    """Describe a table of this project whose files a source would read, by the specs: it need not exist yet.

    The source reads the folder ``base`` and what the ``parts`` of a pattern match below it; ``links`` are further real
    paths. ``deep``: all sub-folders are read.
    """
    top = storage.real_path(storage.parse_path(base))
    for what, folder in _list_tables(project):
        table = storage.real_path(folder)
        if reaches(top, parts, table, deep=deep) or any(is_inside(link, [table]) for link in links):
            return f"{what} is in {folder}"
    return None


def _list_tables(project: Project) -> Iterator[tuple[str, Path]]:
    for name in list_pipelines(project):
        paths = project.paths(name)
        yield f"the table of pipeline {name}", paths.table
        yield f"the quarantine table of pipeline {name}", paths.quarantine


def reaches(base: str, parts: Sequence[str], folder: str, *, deep: bool) -> bool:
    """Return whether a listing of ``base`` with these ``parts`` of a pattern reads ``folder`` or a folder below it; all
    are real paths."""
    if is_inside(base, [folder]):
        return True
    if not is_inside(folder, [base]):
        return False
    # Numbers of parts that may be matched so far; with all of them, the folder is listed as a whole.
    states = _closure({0}, parts)
    for name in os.path.relpath(folder, base).split("/"):
        states = _states_below(name, states, parts, deep=deep)
    return bool(states)


def _states_below(name: str, states: set[int], parts: Sequence[str], *, deep: bool) -> set[int]:
    """The numbers of parts that may be matched in the folder ``name`` of one with these ``states``."""
    after = set()
    for number in states:
        if number == len(parts):
            if not _is_hidden_folder(name) and _is_followed(name, is_recursive=deep):
                after.add(number)
        elif parts[number] == "**":
            if not _is_hidden_folder(name):
                after.add(number)
        elif fnmatch.fnmatchcase(name, parts[number]) and not (_is_hidden_folder(name) and _is_wild(parts[number])):
            after.add(number + 1)
    return _closure(after, parts)


def _closure(states: set[int], parts: Sequence[str]) -> set[int]:
    """Add the states in which ``**``, unless it is the last part, matches no folder."""
    more = {number + 1 for number in states if number < len(parts) - 1 and parts[number] == "**"} - states
    return _closure(states | more, parts) if more else states
