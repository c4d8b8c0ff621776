"""What an increment was committed as: the figures that its manifests do not know come from the table's own log."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tidegate.project import PipelinePaths
from tidegate.run.verdicts import StoredVerdict
from tidegate.staging.manifest import BatchManifest
from tidegate.table.log import find_commit, read_commit_metadata

_SUMMED = ("files_added", "files_removed", "rows_added", "rows_removed")


@dataclass(frozen=True)
class Commits:
    """The commits of one increment, one per query.

    ``version`` is the newest; None when their commit files are gone. ``figures`` are those of the report's ``table``,
    and empty for commits that only add what the manifests name.
    """

    version: int | None
    figures: dict[str, int] = field(default_factory=dict)
    superseded: dict[tuple[str, int], int] = field(default_factory=dict)
    """Rows by query and batch that a later batch of the increment replaced."""

    def superseded_of(self, manifest: BatchManifest) -> int:
        """Rows of this batch that never came into the table."""
        return self.superseded.get((manifest.query_id, manifest.batch_id), 0)


def read_commits(paths: PipelinePaths, verdict: StoredVerdict) -> Commits:
    """The commits of the increment that a verdict is on: each carries its last batch of the query."""
    last: dict[str, int] = {}
    for query_id, batch_id in verdict.batches:
        last[query_id] = max(last.get(query_id, -1), int(batch_id))
    newest: int | None = None
    figures: dict[str, int] = {}
    superseded: dict[tuple[str, int], int] = {}
    for query_id, batch_id in last.items():
        version = find_commit(paths.table, query_id, batch_id)
        if version is None:
            continue
        newest = version if newest is None else max(newest, version)
        merged = read_commit_metadata(paths.table, version).get("tidegate.table") if verdict.folds else None
        if merged is not None:
            value = json.loads(merged)
            figures = {key: figures.get(key, 0) + int(value[key]) for key in _SUMMED}
            superseded |= {(query_id, int(batch)): int(rows) for batch, rows in value["superseded"].items()}
    return Commits(newest, figures, superseded)
