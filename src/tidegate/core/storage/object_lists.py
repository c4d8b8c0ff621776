"""The lists of the storage port on object stores; folders are the beginnings of keys."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.storage.listed import listing_of
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.stores import list_objects, list_pages, note_pages

if TYPE_CHECKING:
    from obstore.store import ObjectStore


def _prefix(folder: ObjectPath) -> str | None:
    return f"{folder.key}/" if folder.key else None


def list_below(folder: ObjectPath) -> Iterator[ObjectPath]:
    """Every object below a folder, empty ones excluded; a bucket that is missing is an error and not an empty one."""
    bucket = ObjectPath(f"{folder.scheme}://{folder.bucket}")
    if (listing := listing_of(folder)) is not None:
        prefix = _prefix(folder) or ""
        yield from (bucket / key for key in listing.entries if key.startswith(prefix))
        return

    def ask(store: ObjectStore) -> list[str]:
        return [one["path"] for page in list_pages(store, _prefix(folder)) for one in page if one["size"]]

    for key in list_objects(folder, ask):
        yield bucket / key


def list_right_in(folder: ObjectPath) -> tuple[list[str], list[str]]:
    """The names of objects and of folders right in a folder."""
    if (listing := listing_of(folder)) is not None:
        prefix = _prefix(folder) or ""
        rest = [key.removeprefix(prefix).split("/") for key in listing.entries if key.startswith(prefix)]
        folders = dict.fromkeys(names[0] for names in rest if len(names) > 1)
        return [names[0] for names in rest if len(names) == 1], [*folders]

    def ask(store: ObjectStore) -> tuple[list[str], list[str]]:
        answer = store.list_with_delimiter(_prefix(folder))
        note_pages(len(answer["objects"]) + len(answer["common_prefixes"]))
        objects = [one["path"].rpartition("/")[2] for one in answer["objects"] if one["size"]]
        return objects, [one.rstrip("/").rpartition("/")[2] for one in answer["common_prefixes"]]

    return list_objects(folder, ask)


def list_names(folder: ObjectPath) -> list[str]:
    objects, folders = list_right_in(folder)
    return [*objects, *folders]


def has_name(folder: ObjectPath, fits: Callable[[str], bool]) -> bool:
    return any(fits(name) for name in list_names(folder))


def list_folders(folder: ObjectPath) -> list[Path]:
    return sorted(folder / name for name in list_right_in(folder)[1])


def list_tree(folder: ObjectPath, pattern: str = "*") -> list[Path]:
    return sorted(path for path in list_below(folder) if fnmatch.fnmatch(path.name, pattern))


@dataclass(frozen=True)
class Entry:
    """An object as a listing has it; ``modified_at`` is by the clock of the store, in seconds since 1970."""

    name: str
    size: int
    tag: str
    """Another one after each change: its ETag."""
    modified_at: float


def list_entries(folder: ObjectPath) -> list[Entry]:
    """The objects right in a folder that has no folders in it, in the order of their names."""

    def ask(store: ObjectStore) -> list[Entry]:
        return [
            Entry(one["path"].rpartition("/")[2], one["size"], one["e_tag"] or "", one["last_modified"].timestamp())
            for page in list_pages(store, _prefix(folder))
            for one in page
            if one["size"]
        ]

    found = list_objects(folder, ask)
    return sorted(found, key=lambda one: one.name)
