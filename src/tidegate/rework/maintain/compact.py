"""Compact small files of a partition into few larger ones, in versions of bounded size that change no row."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegate.core import storage
from tidegate.rework.maintain.bins import Bin, choose_part, find_small
from tidegate.rework.maintain.commits import Change, new_folder, publish_change
from tidegate.rework.maintain.waiting import find_held_partitions, without_partitions
from tidegate.runs.recovery.context import RunContext
from tidegate.state.manifest import StagedFile
from tidegate.table.log.state import DataFile
from tidegate.table.publish.rework import Rework

_AT_ONCE = 2
"""Bins that are rewritten in parallel: pyarrow encodes a file in one thread."""


def compact_table(context: RunContext) -> list[DataFile]:
    """Compact until no small files remain that can be combined; return the files that were left as they are.

    A kill wastes at most one version. Raises what
    :func:`tidegate.runs.gate.increment.publish_plan` and :func:`tidegate.rework.maintain.rewrite.rewrite_bin` do.
    """
    left: dict[str, DataFile] = {}
    held = find_held_partitions(context.paths)

    def make(work: Rework, files: Sequence[DataFile]) -> Change | None:
        return _rewrite_part(context, work, without_partitions(files, held), left)

    while publish_change(context, make) is not None:
        pass
    return list(left.values())


def _rewrite_part(
    context: RunContext, work: Rework, files: Sequence[DataFile], left: dict[str, DataFile]
) -> Change | None:
    from tidegate.rework.maintain.rewrite import Layout, Rewritten, rewrite_bin

    paths = context.paths
    layout = Layout(context.spec.table.cluster_by, context.spec.maintenance.compact_below)
    while chosen := choose_part(find_small(files, layout.below, left)):
        token = secrets.token_hex(6)
        folder = new_folder(context, work, token)

        def rewrite(place: int, one: Bin, folder: Path = folder) -> Rewritten:
            context.lease.check()
            new_paths = (folder / f"{place:05d}-{number:05d}.parquet" for number in itertools.count())
            return rewrite_bin(one, paths.table, new_paths, paths.state, layout)

        replaced: list[DataFile] = []
        carried: list[StagedFile] = []
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rewrite") as pool:
            rewritten = list(pool.map(rewrite, itertools.count(), chosen))
        for done in rewritten:
            replaced += done.replaced
            carried += done.files
            left.update({file.path: file for file in done.left})
        storage.sync_names_in(folder, paths.state)
        if replaced:
            return Change("compact", replaced, carried, token)
        storage.remove_tree(folder)
    return None
