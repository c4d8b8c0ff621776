"""What a run finds on disk before it does anything: checkpoint, manifests, table, staged files, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.table_log import Later, OldJob
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.batch_files import Given
from tidegate.state.birth import Birth, Fingerprint
from tidegate.state.checkpoint import CheckpointState
from tidegate.state.manifest import BatchManifest
from tidegate.state.published import Published
from tidegate.state.seal import CheckpointFiles, Seal
from tidegate.state.topics import Positions
from tidegate.table.log.state import TableState


@dataclass(frozen=True)
class UnusableCheckpoint:
    """A checkpoint that is ignored, because the query keeps no state: what was read is known without it."""

    reason: DisagreementError
    positions: Positions
    """Where the query continues with each source of topics; one that is missing starts where the birth record says."""

    def describe(self) -> str:
        """What takes its place, and why."""
        return (
            f"a new checkpoint after the last staged or published record ({self.reason.code}: {self.reason.message}; "
            "the query keeps no state)"
        )


@dataclass(frozen=True)
class Facts:
    """Everything the comparison looks at."""

    checkpoint: CheckpointState
    birth: Birth | None
    manifests: Mapping[str, Sequence[BatchManifest]]
    table: TableState | None
    published: Published | None
    fingerprint: Fingerprint
    missing_staged_files: Sequence[str] = ()
    damaged_staged_files: Sequence[str] = ()
    """Those that are not what was written, by their size; digests are compared where the files are read anyway."""
    gone_of_replaced: Sequence[int] = ()
    """Batches of the query that this one replaces which still count, and are neither staged nor in the table."""
    state_folder: str = ""
    table_folder: str = ""
    foreign_files: Sequence[str] = ()
    """A parquet file in the table's folder that is not ours, where there is no log; [] for none."""
    keeps_state: bool = False
    """Whether batches depend on the state that earlier ones left."""
    later: Later = field(default_factory=Later)
    """What the table's log says behind the note, and nothing here knows."""
    given: Mapping[int, Mapping[str, Given]] = field(default_factory=dict)
    """What the checkpoint gives its last committed and its last planned batch, by source."""
    taken_links: Mapping[str, Mapping[str, tuple[str | None, int | None]]] | None = None
    """{source: {link: (query id, batch) it was staged in, Nones for not yet}} of these links, as the ledger has it;
    None when the ledger cannot be asked, or need not be."""
    files: CheckpointFiles = field(default_factory=CheckpointFiles)
    seal: Seal = field(default_factory=dict)
    adopting: Mapping[str, object] | None = None
    """The adoption of a table that was begun and is not finished."""
    old_job: OldJob = field(default_factory=OldJob)
    """What another job has written into the table's folder."""
    retired: Mapping[str, int] = field(default_factory=dict)
    """Queries that are over, with the last batch of each that counts: later ones came late, and are never published."""
    taken_back: Mapping[str, int] = field(default_factory=dict)
    """Of these the ones of which a rollback took batches back, with the last that it left: the log still has them all,
    and their records are read again."""
    log_fault: DisagreementError | None = None
    """Why the table's log cannot be read; ``table`` is None then."""
    unknown: DisagreementError | None = None
    """Why it is unknown what such a query has read, and its checkpoint cannot be ignored though it does not fit."""
    unusable: UnusableCheckpoint | None = None
    """Set where the checkpoint of a query without state is ignored: ``checkpoint`` is then what it would say if Spark
    had committed what is staged or in the table, and had planned nothing else."""

    @property
    def query_id(self) -> str | None:
        """The query of the living checkpoint."""
        return self.checkpoint.query_id

    @property
    def living_query(self) -> str | None:
        """The living query, by the checkpoint, else by the birth record."""
        return self.query_id or (self.birth.query_id if self.birth is not None else None)

    @property
    def has_state(self) -> bool:
        """Return whether the state folder is of a pipeline that has begun to read."""
        return self.birth is not None or self.checkpoint.exists

    @property
    def settled(self) -> list[BatchManifest]:
        """Staged batches that the table's log holds."""
        found = [manifest for manifests in self.manifests.values() for manifest in manifests]
        return [manifest for manifest in found if manifest.batch_id <= self.settled_up_to(manifest.query_id)]

    @property
    def unpublished(self) -> list[BatchManifest]:
        """Staged batches that count and that the table's log does not hold, older queries first, then by batch."""
        found = []
        for query_id in sorted(self.manifests, key=lambda query: query == self.query_id):
            settled = self.settled_up_to(query_id)
            found += [
                manifest
                for manifest in self.manifests[query_id]
                if manifest.batch_id > settled and not self.came_late(manifest)
            ]
        return found

    def came_late(self, manifest: BatchManifest) -> bool:
        """Return whether a batch was staged after its query was over, or was not to be published any more then."""
        last = self.retired.get(manifest.query_id)
        if manifest.batch_id > self.taken_back.get(manifest.query_id, manifest.batch_id):
            return True
        return last is not None and manifest.batch_id > max(last, self.settled_up_to(manifest.query_id))

    def settled_up_to(self, query_id: str) -> int:
        """The last batch of a query that the table's log holds; -1 for none."""
        return -1 if self.table is None else self.table.txns.get(query_id, -1)

    def staged(self, query_id: str | None) -> set[int]:
        """The batches of a query that have a manifest."""
        return {manifest.batch_id for manifest in self.manifests.get(str(query_id), ())}

    def newest_kept(self, query_id: str | None) -> int:
        """The last batch of a query that is staged or in the table; -1 for none."""
        return max([self.settled_up_to(str(query_id)), *self.staged(query_id)])

    @property
    def next_to_stage(self) -> int | None:
        """The batch that a process which lost its lease could still stage, as far as that is known."""
        return self.newest_kept(self.query_id) + 1 if self.unusable is not None else self.in_flight

    @property
    def in_flight(self) -> int | None:
        """A batch that only Spark can finish: it was planned, and is neither staged nor in the table; or it is, and
        Spark has not committed its state, without which it closes nothing and continues nothing."""
        batch = self.checkpoint.in_flight
        query_id = self.checkpoint.query_id
        if batch is None or query_id is None:
            return None
        if self.keeps_state:
            return batch
        if batch <= self.settled_up_to(query_id):
            return None
        return None if batch in self.staged(query_id) else batch

    @property
    def begun_and_staged(self) -> int | None:
        """The batch in flight when its rows are staged or in the table, and only its state is missing."""
        batch = self.in_flight
        if batch is None or self.query_id is None:
            return None
        is_kept = batch in self.staged(self.query_id) or batch <= self.settled_up_to(self.query_id)
        return batch if is_kept else None


def query_keeps_state(facts: Facts, spec: PipelineSpec) -> bool:
    """True if the pipeline's query keeps state; without a birth record the note of what is open, or the spec, decides,
    as far as they can."""
    if facts.birth is not None and facts.birth.state is not None:
        return facts.birth.keeps_state
    return facts.keeps_state or bool(spec.watermarks) or spec.output_mode != "append"


@dataclass(frozen=True)
class Situation:
    """A pipeline as a command finds it."""

    project: Project
    spec: PipelineSpec
    paths: PipelinePaths
    facts: Facts
