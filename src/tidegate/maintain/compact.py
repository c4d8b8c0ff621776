"""Compaction: small files of a partition become few larger ones, in versions of bounded size that change no row."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence

from tidegate import storage
from tidegate.maintain.bins import choose_part, find_small
from tidegate.maintain.commits import Change, new_folder, publish_change
from tidegate.maintain.waiting import find_waiting, leave_waiting
from tidegate.recovery.context import RunContext
from tidegate.staging.manifest import StagedFile
from tidegate.table.log.state import DataFile
from tidegate.table.publish.rework import Rework


def compact_table(context: RunContext) -> list[DataFile]:
    """Put small files together until there is nothing more to put together; the files that were left as they are.

    One version after another: what a kill makes for nothing is a part of one. Raises what
    :func:`tidegate.gate.increment.publish_plan` and :func:`tidegate.maintain.rewrite.rewrite_bin` do.
    """
    left: dict[str, DataFile] = {}
    waiting = find_waiting(context.paths)

    def make(work: Rework, files: Sequence[DataFile]) -> Change | None:
        return _rewrite_part(context, work, leave_waiting(files, waiting), left)

    while publish_change(context, make) is not None:
        pass
    return list(left.values())


def _rewrite_part(
    context: RunContext, work: Rework, files: Sequence[DataFile], left: dict[str, DataFile]
) -> Change | None:
    from tidegate.maintain.rewrite import Layout, rewrite_bin

    paths = context.paths
    layout = Layout(context.spec.table.cluster_by, context.spec.maintenance.compact_below)
    while chosen := choose_part(find_small(files, layout.below, left)):
        token = secrets.token_hex(6)
        folder = new_folder(context, work, token)
        new_paths = (folder / f"{number:05d}.parquet" for number in itertools.count())
        replaced: list[DataFile] = []
        carried: list[StagedFile] = []
        for one in chosen:
            context.lease.check()
            done = rewrite_bin(one, paths.table, new_paths, paths.state, layout)
            replaced += done.replaced
            carried += done.files
            left.update({file.path: file for file in done.left})
        storage.sync_names_in(folder, paths.state)
        if replaced:
            return Change("compact", replaced, carried, token)
        storage.remove_tree(folder)
    return None
