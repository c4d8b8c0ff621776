"""What became of batches: the figures that their manifests do not know come from the commits in the table's own log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

from tidegate.core.paths import PipelinePaths
from tidegate.state.manifest import BatchManifest
from tidegate.table.log.state import find_commit, read_commit_metadata

if TYPE_CHECKING:
    from tidegate.core.outputs import Ruling, VerdictName


class Figures(NamedTuple):
    """What versions added to the table and removed from it."""

    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    rows_removed: int = 0


class Merged(TypedDict):
    """A commit's own figures, and by batch the staged rows that a later one replaced."""

    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int
    superseded: dict[str, int]


@dataclass(frozen=True)
class Commit:
    """One version of the table: the batches of ``query_id`` from behind ``after`` up to ``last``.

    ``outcome`` is ``published``, ``discarded`` or ``waiting``; a commit that says something else settled nothing.
    """

    version: int
    run_id: str
    outcome: str
    query_id: str
    after: int
    last: int
    decision: Ruling | None = None
    """Who decided on the increment, when it was held: as the report carries it."""
    verdict: VerdictName | None = None
    merged: Merged | None = None
    """What the version replaced in the table, and which staged rows never came into it (update and complete mode)."""

    def holds(self, manifest: BatchManifest) -> bool:
        """Whether this commit dealt with the batch."""
        return manifest.query_id == self.query_id and self.after < manifest.batch_id <= self.last


@dataclass(frozen=True)
class Increment:
    """What one run published, or excluded: its commits, one per query, and the batches they dealt with.

    If the commit files were removed, ``commits`` is empty, ``run_id`` is the run of the verdict on the batches, and
    ``presumed`` is the outcome if it can be inferred.
    """

    run_id: str
    commits: list[Commit]
    manifests: list[BatchManifest]
    presumed: Literal["waiting", "published", "discarded"] | None = None

    @property
    def outcome(self) -> str | None:
        """What became of it; None when the commit files are gone and it cannot be inferred."""
        return self.commits[0].outcome if self.commits else self.presumed

    @property
    def version(self) -> int | None:
        """The newest version; None when the commit files are gone."""
        return max((commit.version for commit in self.commits), default=None)

    @property
    def verdict(self) -> VerdictName | None:
        """As the commit has it; None when the commit files are gone."""
        return self.commits[0].verdict if self.commits else None

    @property
    def figures(self) -> Figures | None:
        """Those of the report's ``table``; None for commits that only add what the manifests name."""
        merged = [commit.merged for commit in self.commits if commit.merged is not None]
        if not merged:
            return None
        return Figures(
            sum(one["files_added"] for one in merged),
            sum(one["files_removed"] for one in merged),
            sum(one["rows_added"] for one in merged),
            sum(one["rows_removed"] for one in merged),
        )

    def superseded_of(self, manifest: BatchManifest) -> int:
        """Rows of this batch that a later one replaced, so that they never came into the table."""
        merged = [commit.merged for commit in self.commits if commit.query_id == manifest.query_id and commit.merged]
        return sum(one["superseded"].get(str(manifest.batch_id), 0) for one in merged)


def find_increments(paths: PipelinePaths, settled: Sequence[BatchManifest], newest: dict[str, int]) -> list[Increment]:
    """The increments that the settled batches went into, newest first, by the run that each commit names.

    ``newest`` is the last batch of each query that the log holds. Batches whose commit files are gone are excluded.
    """
    commits: list[Commit] = []
    for query_id in dict.fromkeys(manifest.query_id for manifest in settled):
        oldest = min(manifest.batch_id for manifest in settled if manifest.query_id == query_id)
        commits += _commits_back_to(paths, query_id, newest[query_id], oldest)
    commits.sort(key=lambda commit: -commit.version)
    found = []
    for run_id in dict.fromkeys(commit.run_id for commit in commits):
        own = [commit for commit in commits if commit.run_id == run_id]
        batches = [manifest for manifest in settled if any(commit.holds(manifest) for commit in own)]
        if batches:
            found.append(Increment(run_id, own, batches))
    return found


def _commits_back_to(paths: PipelinePaths, query_id: str, last: int, oldest: int) -> list[Commit]:
    """The commits of a query, newest first, down to the one that holds batch ``oldest``."""
    found = []
    while last >= oldest:
        version = find_commit(paths.table, query_id, last)
        if version is None:
            break
        info = read_commit_metadata(paths.table, version)
        after = int(info.get("tidegate.app_version_before", last - 1))
        merged, decision = info.get("tidegate.table"), info.get("tidegate.decision")
        found.append(
            Commit(
                version,
                str(info.get("tidegate.run_id")),
                str(info.get("tidegate.outcome")),
                query_id,
                after,
                last,
                json.loads(decision) if decision else None,
                info.get("tidegate.verdict"),
                json.loads(merged) if merged else None,
            )
        )
        if after >= last:
            break
        last = after
    return found
