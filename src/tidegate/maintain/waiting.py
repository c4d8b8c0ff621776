"""What waits for a person and must find the table as it is: backfills and refreshes that are held."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.backfill.held import list_held, list_held_files
from tidegate.maintain.bins import Place, place_of
from tidegate.paths import PipelinePaths
from tidegate.table.log.state import DataFile


def find_waiting(paths: PipelinePaths) -> set[Place]:
    """The partitions of a held backfill: released, it takes out the files that it was built for."""
    found = list_held_files(paths)
    return {place_of(DataFile(file.path, file.rows, file.size_bytes, file.partition)) for file in found}


def leave_waiting(files: Sequence[DataFile], waiting: set[Place]) -> list[DataFile]:
    """The files that are not in such a partition."""
    return [file for file in files if place_of(file) not in waiting] if waiting else list(files)


def needs_source(paths: PipelinePaths) -> bool:
    """Whether a backfill or a refresh is held: corrected, it has to read files of the source again."""
    return bool(list_held(paths))
