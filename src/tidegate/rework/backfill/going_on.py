"""Work that goes on under its run id: what it has rebuilt before is still there, and was made by the same."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tidegate.core.errors import catalogue
from tidegate.rework.backfill.examine import Ground
from tidegate.runs.recovery.context import RunContext
from tidegate.table.log.state import read_commit_metadata
from tidegate.table.publish.rework import REWORK

MADE_BY = "tidegate.made_by"
"""In a commit: by what its rows were made, so that no other part of the same work is made by something else."""


def check_goes_on(context: RunContext, ground: Ground) -> None:
    """Raise UsageError BACKFILL_UNDONE when an interval that this work has swapped in is not in the table any more, and
    BACKFILL_EDITED when what rows are made by was edited since then: one run id is one version of it."""
    report, where = context.report, f"pipeline {context.name}"
    version = report.table.get("version")
    if version is None:
        return
    done = ", ".join(report.rebuilt)
    if version not in {one.version for one in ground.lineage.rebuilt}:
        raise catalogue.BACKFILL_UNDONE(where=where, run_id=report.run_id, done=done)
    info = read_commit_metadata(context.paths.table, version)
    if (info.get(REWORK), info.get("tidegate.run_id")) != (report.mode, report.run_id):  # a table that was built anew
        raise catalogue.BACKFILL_UNDONE(where=where, run_id=report.run_id, done=done)
    told = info.get(MADE_BY)
    then: Mapping[str, str] = ground.made_by if told is None else json.loads(str(told))  # earlier versions did not tell
    changed = [name for name in sorted({*then, *ground.made_by}) if then.get(name) != ground.made_by.get(name)]
    if changed:
        raise catalogue.BACKFILL_EDITED(where=where, run_id=report.run_id, done=done, changed=", ".join(changed))
