"""Commit the versions of a maintenance run, and find them again in the table's log by its run id.

The figures of a run are read from these commits, so they are the same after a kill, a resume or a repeated command.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tidegate.core import storage
from tidegate.runs.gate.increment import publish_plan
from tidegate.runs.recovery.context import RunContext
from tidegate.state.manifest import StagedFile
from tidegate.table.log.commit import refuse_gone
from tidegate.table.log.state import DataFile, find_commit, list_data_files, read_commit_metadata, read_table_state
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.rework import ABANDONED, Rework, plan_rework

KIND = "maintain"
WORK = "tidegate.maintenance"
"""In a commit: ``compact``, or ``expire`` for partitions that left the table."""
Work = Literal["compact", "expire"]


@dataclass(frozen=True)
class Change:
    """The change that one version makes to the table."""

    work: Work
    remove: Sequence[DataFile]
    carried: Sequence[StagedFile] = ()
    token: str = ""


def publish_change(context: RunContext, make: Callable[[Rework, Sequence[DataFile]], Change | None]) -> Change | None:
    """Publish one version, which ``make`` creates from the next part and the table's files. None when it has
    nothing."""
    work = Rework(context.name, KIND, context.report.run_id)
    state = read_table_state(context.paths.table, (work.app_id,))
    if state is None:
        return None
    work = replace(work, part=state.txns.get(work.app_id, -1) + 1)
    made: list[Change] = []

    def plan() -> PublishIntent | None:
        table = read_table_state(context.paths.table)
        files = list_data_files(context.paths.table)
        change = make(work, files)
        if change is None or table is None:
            return None
        made.append(change)
        return plan_rework(
            work,
            target="table",
            table=table,
            table_files=files,
            token=change.token or secrets.token_hex(6),
            carried=change.carried,
            remove=change.remove,
            outcome="maintained",
            metadata={WORK: change.work},
            rearranges=change.work == "compact",
        )

    first = plan()
    if first is None:
        return None
    plans = [first]

    def next_plan() -> PublishIntent:
        planned = plans.pop() if plans else plan()
        if planned is None:  # another program has replaced all files meanwhile
            refuse_gone(context.paths.table, [file.path for file in first.files_to_remove])
        assert planned is not None, "no other tidegate process changes the table's files while we hold the lease"
        return planned

    publish_plan(context, next_plan)
    prepared = context.paths.attempts(work.app_id, work.part)
    storage.remove_tree(prepared)
    storage.remove_empty_folder(prepared.parent)
    return made[-1]


def new_folder(context: RunContext, work: Rework, token: str) -> Path:
    """Create the folder in which a part is prepared; files there that no intent names are removed by the next run."""
    folder = context.paths.attempts(work.app_id, work.part) / token
    storage.make_folder(folder)
    return folder


def count_done(table_path: Path, pipeline: str, run_id: str) -> dict[Work, Counter[str]]:
    """Add up the figures of this maintenance run's commits by kind of work, with the newest ``version``."""
    app_id = Rework(pipeline, KIND, run_id).app_id
    state = read_table_state(table_path, (app_id,))
    done: dict[Work, Counter[str]] = {}
    for part in range(-1 if state is None else state.txns.get(app_id, -1), -1, -1):
        version = find_commit(table_path, app_id, part)
        if version is None:
            continue
        info = read_commit_metadata(table_path, version)
        if info.get("tidegate.outcome") == ABANDONED:
            continue
        counts = done.setdefault(info.get(WORK, "compact"), Counter())
        version_before = counts["version"]
        counts.update(json.loads(info.get("tidegate.figures", "{}")))
        counts["commits"] += 1
        counts["version"] = max(version_before, version)
    return done
