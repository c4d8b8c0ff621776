"""Held work, which needs the table and the source files unchanged until a person decides."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.held import list_held_files
from tidegate.runs.reports.verdicts import list_waiting
from tidegate.state.manifest import BatchKey
from tidegate.table.log.snapshot import Partition, partition_of
from tidegate.table.log.state import DataFile


def find_held_partitions(paths: PipelinePaths) -> set[Partition]:
    """The partitions of held work, whose files must not change before its release."""
    return {partition_of(file.partition) for file in list_held_files(paths)}


def without_partitions(files: Sequence[DataFile], held: set[Partition]) -> list[DataFile]:
    """The files that are not in a held partition."""
    return [file for file in files if partition_of(file.partition) not in held] if held else list(files)


def needed_batches(paths: PipelinePaths) -> set[BatchKey]:
    """The batches of deferred increments, whose rows are only in staging and in the source."""
    return {manifest.key for one in list_waiting(paths) for manifest in one.manifests}
