"""Finds tables whose files a file source would read. They are refused, since their files may repeat rows of other
files.

A compaction, a backfill, a refresh, a rollback or a publish in ``update`` mode replaces files of a table by others with
the same rows, and a source that reads each new file once would read these rows again.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tidegate.sources.files.listing import TABLE_LOGS, Listing, is_followed, is_hidden_folder, is_inside, is_wild
from tidegate.spec.pipeline import list_pipelines
from tidegate.spec.project import Project


def find_table_above(folder: str) -> str | None:
    """Find the table that contains ``folder``, a real path, by the log in its folder."""
    while True:
        if any(os.path.lexists(os.path.join(folder, log)) for log in TABLE_LOGS):
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
    top = os.path.realpath(base)
    for what, folder in _list_tables(project):
        table = os.path.realpath(folder)
        if reaches(top, parts, table, deep=deep) or any(is_inside(link, [table]) for link in links):
            return f"{what} is in {folder}"
    return None


def _list_tables(project: Project) -> Iterator[tuple[str, Path]]:
    for name in list_pipelines(project):
        paths = project.paths(name)
        yield f"the table of pipeline {name}", paths.table
        yield f"the quarantine table of pipeline {name}", paths.quarantine


def reaches(base: str, parts: Sequence[str], folder: str, *, deep: bool) -> bool:
    """Whether a listing of ``base`` with these ``parts`` of a pattern reads ``folder`` or below it; real paths."""
    if is_inside(base, [folder]):
        return True
    if not is_inside(folder, [base]):
        return False
    # Numbers of parts that may be matched so far; with all of them, the folder is listed as a whole.
    states = _closure({0}, parts)
    for name in os.path.relpath(folder, base).split("/"):
        after = set()
        for number in states:
            if number == len(parts):
                if not is_hidden_folder(name) and is_followed(name, is_recursive=deep):
                    after.add(number)
            elif parts[number] == "**":
                if not is_hidden_folder(name):
                    after.add(number)
            elif fnmatch.fnmatchcase(name, parts[number]) and not (is_hidden_folder(name) and is_wild(parts[number])):
                after.add(number + 1)
        states = _closure(after, parts)
    return bool(states)


def _closure(states: set[int], parts: Sequence[str]) -> set[int]:
    """Add the states in which ``**``, unless it is the last part, matches no folder."""
    more = {number + 1 for number in states if number < len(parts) - 1 and parts[number] == "**"} - states
    return _closure(states | more, parts) if more else states
