"""After a power cut: remove torn files of a checkpoint that nothing refers to.

Spark syncs nothing. What a manifest refers to was synced before the manifest (:mod:`tidegate.state.durable`); after
that there is at most a batch that was planned and not staged, a commit that Spark gives again, or a checkpoint that
never staged anything. Spark plans all of these again when they are not there, but cannot read them when they are torn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

from tidegate.core import storage
from tidegate.state.checkpoint import (
    batch_ids,
    describe_torn_commit,
    describe_torn_plan,
    hadoop_checksum,
    read_offsets,
)


def drop_torn_plan(
    checkpoint: Path, last_known: int, *, is_named: bool, sealed: Collection[str], check: Callable[[], None]
) -> list[str]:
    """Remove torn files that nothing refers to; the names of these files, relative to ``checkpoint``.

    ``last_known`` is the last batch that a manifest or the table's log holds, -1 for none; ``is_named`` whether the
    birth record knows the query, which it does before anything is staged. ``sealed`` are the files that were seen to
    fit: one of them that can be read and holds something else was edited, and is left for a person. ``check`` is called
    before each removal.
    """
    torn: list[Path] = []
    if (
        not is_named
        and last_known < 0
        and storage.exists(checkpoint)
        and not _is_whole_metadata(checkpoint / "metadata")
    ):
        torn = [checkpoint]
    else:
        commits = batch_ids(checkpoint / "commits")
        for batch in commits[-1:]:
            edited = f"commits/{batch}" in sealed
            differs = not edited and _differs(checkpoint, "commits", batch)
            if batch <= last_known and (differs or describe_torn_commit(checkpoint, batch)):
                torn.append(checkpoint / "commits" / str(batch))
        for batch in batch_ids(checkpoint / "offsets"):
            # Without the commit before it, Spark could not take up a planned batch.
            if batch > last_known and batch not in commits and (torn or _is_torn_plan(checkpoint, batch)):
                torn.append(checkpoint / "offsets" / str(batch))
        torn += _torn_file_lists(checkpoint, {path.name for path in torn if path.parent.name == "offsets"})
    for path in torn:
        check()
        if path == checkpoint:
            storage.remove_tree(path)
        else:
            storage.remove(path)
            storage.remove(path.with_name(f".{path.name}.crc"))
            storage.sync_folder(path.parent)
    return [str(path.relative_to(checkpoint)) for path in torn]


def _is_whole_metadata(path: Path) -> bool:
    try:
        return isinstance(json.loads(storage.read(path))["id"], str) and _fits_checksum(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        if storage.is_failure(error):
            raise  # what cannot be read now is not torn
        return False


def _is_torn_plan(checkpoint: Path, batch: int) -> bool:
    return bool(describe_torn_plan(checkpoint, batch)) or _differs(checkpoint, "offsets", batch)


def _torn_file_lists(checkpoint: Path, dropped: set[str]) -> list[Path]:
    """Entries of file sources behind the last batch that stays planned."""
    kept = [batch for batch in batch_ids(checkpoint / "offsets") if str(batch) not in dropped]
    try:
        ends = read_offsets(checkpoint, kept[-1]) if kept else {}
    except ValueError:
        return []  # a batch that counts is torn: that is for a person
    torn = []
    for folder in storage.list_folders(checkpoint / "sources"):
        end = ends.get(folder.name)
        last = end if isinstance(end, int) else -1
        for path in storage.list_folder(folder):
            number = path.name.removesuffix(".compact")
            if number.isdigit() and int(number) > last and not _is_whole_list(path):
                torn.append(path)
    return torn


def _is_whole_list(path: Path) -> bool:
    try:
        version, *lines = storage.read(path).split(b"\n")
        entries = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        if storage.is_failure(error):
            raise
        return False
    return version == b"v1" and entries != [] and all(isinstance(one, dict) for one in entries) and _fits_checksum(path)


def _differs(checkpoint: Path, folder: str, batch: int) -> bool:
    return not _fits_checksum(checkpoint / folder / str(batch))


def _fits_checksum(path: Path) -> bool:
    """Whether Hadoop's hidden checksum file, where there is one, is that of the file: else Spark cannot read it."""
    try:
        return storage.read(path.with_name(f".{path.name}.crc")) == hadoop_checksum(storage.read(path))
    except FileNotFoundError:
        return True
