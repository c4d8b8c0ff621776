"""What is held until a person decides, and has to find the table and the files of the sources as they are."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.held import list_held, list_held_files
from tidegate.rework.maintain.bins import Place, place_of
from tidegate.runs.reports.waiting import list_waiting
from tidegate.state.manifest import BatchKey
from tidegate.table.log.state import DataFile


def find_waiting(paths: PipelinePaths) -> set[Place]:
    """The partitions of held work: released, it must find the files that it replaces, and those that stay."""
    return {place_of(file) for file in list_held_files(paths)}


def leave_waiting(files: Sequence[DataFile], waiting: set[Place]) -> list[DataFile]:
    """The files that are not in such a partition."""
    return [file for file in files if place_of(file) not in waiting] if waiting else list(files)


def needs_source(paths: PipelinePaths) -> bool:
    """Whether a backfill or a refresh is held: corrected, it has to read files of the source again."""
    return bool(list_held(paths))


def needed_batches(paths: PipelinePaths) -> set[BatchKey]:
    """The batches of deferred increments: their staged files are the only copy of their rows, but for the source."""
    return {manifest.key for one in list_waiting(paths) for manifest in one.manifests}
