"""A new table from all that the sources still have: the way on when a query's state cannot be used any more.

What a query with state has read and not yet published is in its checkpoint and nowhere else, so no new checkpoint can
start where the table's log ends. Table and quarantine are kept as backups under hidden names in their folders, never
deleted.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.facts import Facts
from tidegate.spec.models import PipelineSpec
from tidegate.state.birth import Start
from tidegate.state.lease import Lease


def query_keeps_state(facts: Facts, spec: PipelineSpec) -> bool:
    """Whether the pipeline's query keeps state; without a birth record the note of what is open, or the spec, decides,
    as far as they can."""
    if facts.birth is not None and facts.birth.state is not None:
        return facts.birth.keeps_state
    return facts.keeps_state or bool(spec.watermarks) or spec.output_mode != "append"


def refuse_new_checkpoint(found: TidegateError, name: str) -> DisagreementError:
    """The error for a repair that would lose state."""
    return DisagreementError(
        found.code,
        f"{found.message}; the query keeps state, and what it has read and not yet published is in its checkpoint "
        "alone: a new checkpoint would lose it",
        where=found.where or f"pipeline {name}",
        next_run="fails again until this is fixed; nothing was read or written",
        fix="; or ".join(rebuild_choices(name)),
    )


def rebuild_choices(name: str) -> list[str]:
    """What a person can do about a disagreement of a query with state."""
    return [
        "restore state, table and quarantine of the pipeline from the same time, or take the change of the spec back; "
        "then run again",
        f"`tidegate repair {name} --rebuild`: a new table from all that the sources still have (`--dry-run` shows what "
        "that reads); the old one is kept as a backup",
    ]


def set_tables_aside(paths: PipelinePaths, lease: Lease) -> None:
    """Rename table and quarantine to hidden folders next to their places."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    for folder in (paths.table, paths.quarantine):
        if storage.exists(folder):
            lease.check()
            storage.move(folder, aside_name(folder, stamp))


def aside_name(folder: Path, stamp: str) -> Path:
    """Where a table's folder is kept as a backup."""
    return folder.with_name(f".{folder.name}.{stamp}")


def first_offsets(paths: PipelinePaths, source: str) -> Start | None:
    """What a Kafka source began with when its pipeline was new, by the oldest birth record there is."""
    # Births that an earlier version of tidegate backed up, in folders named by their time; a late one is not the first.
    births = [aside / "birth.json" for aside in storage.list_folder(paths.set_aside, "[0-9]*")]
    births += [replace(paths, generation=number).birth for number in range(paths.newest_generation() + 1)]
    for path in births:
        if storage.exists(path):
            known: Start | None = json.loads(storage.read(path))["sources"].get(source)
            if known:
                return known
    return None
