"""What a run finds on disk before it does anything: checkpoint, manifests, table, staged files, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate import storage
from tidegate.errors import DisagreementError
from tidegate.paths import PipelinePaths
from tidegate.preflight.later import Later, look_later
from tidegate.preflight.old_job import OldJob, find_old_job
from tidegate.preflight.unfit import pass_over_unfit
from tidegate.sources.files.ledger import open_ledger
from tidegate.spec.models import PipelineSpec
from tidegate.staging.batch_files import Given, read_given
from tidegate.staging.birth import Birth, Fingerprint, fingerprint, read_birth
from tidegate.staging.checkpoint import CheckpointState, read_checkpoint
from tidegate.staging.manifest import BatchManifest, read_all_manifests
from tidegate.staging.open_state import read_open_state
from tidegate.staging.published import Published, read_published
from tidegate.staging.retired import read_retired, read_taken_back
from tidegate.staging.seal import CheckpointFiles, Seal, find_edited, look_at_files, read_seal, set_seal
from tidegate.staging.topics import Positions
from tidegate.table.log.retire import retired_mark
from tidegate.table.log.state import TableState, glance_at_table, read_table_state
from tidegate.table.publish.intent import pending_intents, staged_at


@dataclass(frozen=True)
class Facts:
    """Everything the comparison looks at. ``owed`` are the manifests of batches that the table's log does not hold."""

    checkpoint: CheckpointState
    birth: Birth | None
    manifests: Mapping[str, Sequence[BatchManifest]]
    table: TableState | None
    published: Published | None
    fingerprint: Fingerprint
    missing_staged_files: Sequence[str] = ()
    damaged_staged_files: Sequence[str] = ()
    """Those that are not what was written, by their size; digests are compared where the files are read anyway."""
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
    seal: Seal = field(default_factory=Seal)
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
    unfit: DisagreementError | None = None
    """Why the checkpoint of a query without state is not used any more; ``checkpoint`` then says what it would say if
    it fitted."""
    positions: Positions = field(default_factory=dict)
    """Where such a query goes on with each source of topics; one that is missing starts where the birth record says."""

    @property
    def query_id(self) -> str | None:
        """The query of the living checkpoint."""
        return self.checkpoint.query_id

    @property
    def has_state(self) -> bool:
        """Whether the state folder is of a pipeline that has begun to read."""
        return self.birth is not None or self.checkpoint.exists

    @property
    def owed(self) -> list[BatchManifest]:
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
        """Whether a batch was staged after its query was over, or was not to be published any more then."""
        last = self.retired.get(manifest.query_id)
        if manifest.batch_id > self.taken_back.get(manifest.query_id, manifest.batch_id):
            return True
        return last is not None and manifest.batch_id > max(last, self.settled_up_to(manifest.query_id))

    def settled_up_to(self, query_id: str) -> int:
        """The last batch of a query that the table's log holds; -1 for none."""
        return -1 if self.table is None else self.table.txns.get(query_id, -1)

    def newest_kept(self, query_id: str | None) -> int:
        """The last batch of a query that is staged or in the table; -1 for none."""
        staged = [manifest.batch_id for manifest in self.manifests.get(str(query_id), ())]
        return max([self.settled_up_to(str(query_id)), *staged])

    def describe_unfit(self, begins: str) -> str:
        """What becomes of the checkpoint that is not used any more; ``begins`` is who makes a new one, and when."""
        assert self.unfit is not None
        return (
            f"{self.unfit.code}: {self.unfit.message}; the query keeps no state, so {begins} a new checkpoint behind "
            "what is staged and in the table"
        )

    @property
    def next_to_stage(self) -> int | None:
        """The batch that a process which lost its lease could still stage, as far as that is known."""
        return self.newest_kept(self.query_id) + 1 if self.unfit is not None else self.in_flight

    @property
    def in_flight(self) -> int | None:
        """A batch that only Spark can finish: it was planned, and is neither staged nor in the table; or it is, and
        Spark has not committed its state, without which it closes nothing and goes on with nothing."""
        batch = self.checkpoint.in_flight
        query_id = self.checkpoint.query_id
        if batch is None or query_id is None:
            return None
        if self.keeps_state:
            return batch
        if batch <= self.settled_up_to(query_id):
            return None
        staged = {manifest.batch_id for manifest in self.manifests.get(query_id, ())}
        return None if batch in staged else batch

    @property
    def begun_and_staged(self) -> int | None:
        """The batch in flight when its rows are staged or in the table, and only its state is missing."""
        batch = self.in_flight
        if batch is None or self.query_id is None:
            return None
        staged = {manifest.batch_id for manifest in self.manifests.get(self.query_id, ())}
        return batch if batch in staged or batch <= self.settled_up_to(self.query_id) else None


def gather_facts(
    paths: PipelinePaths, spec: PipelineSpec, *, at_a_glance: bool = False, needs_log: bool = True
) -> Facts:
    """Read checkpoint, birth, manifests and the table's log. No JVM; raises DisagreementError for a table log that
    cannot be read, unless it can do without (``needs_log`` is off): the facts then say why, and have no table.

    ``at_a_glance``, for a look at many pipelines: where the newest commit is the last publish's own, the log below it
    is not read. Opening a log costs more than everything else here.
    """
    paths = paths.pinned()
    checkpoint = read_checkpoint(paths.checkpoint)
    birth = read_birth(paths)
    manifests = read_all_manifests(paths.manifests)
    queries = set(manifests)
    published = read_published(paths)
    asked = queries | {checkpoint.query_id or "", (birth.query_id if birth else None) or ""}
    asked |= {(published.query_id if published else None) or ""}
    asked -= {""}
    marks = {retired_mark(query): query for query in asked}
    table = None
    if at_a_glance and published is not None and asked == {published.query_id} and not spec.sinks:
        table = glance_at_table(paths.table, published)
    log_fault = None
    if table is None:
        try:
            table = read_table_state(paths.table, tuple(sorted({*asked, *marks})))
        except DisagreementError as error:
            if needs_log:
                raise
            log_fault = error
    retired = read_retired(paths)
    for mark, first_refused in [] if table is None else list(table.txns.items()):
        if mark in marks:
            retired[marks[mark]] = min(first_refused - 1, retired.get(marks[mark], first_refused))
    facts = Facts(
        checkpoint=checkpoint,
        birth=birth,
        manifests=manifests,
        table=table,
        published=published,
        fingerprint=fingerprint(spec),
        state_folder=str(paths.state),
        table_folder=str(paths.table),
        foreign_files=[] if table is not None or log_fault is not None else _find_foreign(paths),
        keeps_state=read_open_state(paths, checkpoint.query_id) is not None,
        adopting=storage.read_json(paths.adoption),
        old_job=OldJob() if table is None else find_old_job(paths),
        retired=retired,
        taken_back=read_taken_back(paths) if retired else {},
        log_fault=log_fault,
        later=Later()
        if table is None
        else look_later(paths, table, published, manifests, can_go_back=_can_go_back(spec, birth)),
    )
    facts = _look_at_staged_files(paths, facts)
    return pass_over_unfit(paths, facts if at_a_glance else _look_into_checkpoint(paths, facts))


def seal(paths: PipelinePaths, facts: Facts) -> None:
    """Seal the checkpoint as it is: it agrees with everything else. One that is not used is passed over."""
    if facts.unfit is None:
        set_seal(paths, facts.checkpoint, facts.files, facts.seal)


def _can_go_back(spec: PipelineSpec, birth: Birth | None) -> bool:
    """Whether what came after a version can be read again though the state folder does not know what that was: files
    stay where they are, and no state has counted it."""
    stays = bool(spec.file_streams) and spec.maintenance.source == "keep"
    stays = stays and spec.record_streams.keys() == spec.streams.keys()
    return stays and birth is not None and not birth.keeps_state


def _find_foreign(paths: PipelinePaths) -> list[str]:
    """The first parquet file in the folder of a table without a log that no publish of ours has moved there."""
    found = storage.list_tree(paths.table, "*.parquet")
    if not found:
        return []
    ours = {intent.table_path(paths) / file.path for intent in pending_intents(paths) for file in intent.files_to_add}
    return [str(path) for path in found if path not in ours][:1]


def _look_into_checkpoint(paths: PipelinePaths, facts: Facts) -> Facts:
    """The facts with what the checkpoint's files hold, and what seal and ledger know of it."""
    checkpoint = facts.checkpoint
    if not checkpoint.exists or checkpoint.faults:
        return facts
    files, seal = look_at_files(paths.checkpoint, checkpoint.last_commit), read_seal(paths, checkpoint.query_id)
    facts = replace(facts, files=files, seal=seal)
    batches = {checkpoint.last_commit, checkpoint.last_offset} - {None}
    try:
        facts = replace(
            facts, given={batch: read_given(paths.checkpoint, batch) for batch in batches if batch is not None}
        )
    except ValueError as error:
        if find_edited(files, seal):
            return facts  # which says more
        return replace(facts, checkpoint=replace(checkpoint, faults=[str(error)]))
    links: dict[str, list[str]] = {}
    for batch, given in facts.given.items():
        if f"offsets/{batch}" not in facts.seal.files or batch > facts.settled_up_to(str(facts.query_id)):
            for source, taken in given.items():
                links.setdefault(source, []).extend(taken.links)
    return replace(facts, taken_links=_ask_ledger(paths, links)) if any(links.values()) else facts


def _ask_ledger(
    paths: PipelinePaths, links: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, tuple[str | None, int | None]]] | None:
    try:
        with open_ledger(paths, read_only=True) as ledger:
            rows = {source: ledger.rows(source, links=some) for source, some in links.items()}
    except DisagreementError:
        return None  # whoever needs the ledger says what is wrong with it
    return {source: {row.link: (row.query_id, row.batch_id) for row in some} for source, some in rows.items()}


def _look_at_staged_files(paths: PipelinePaths, facts: Facts) -> Facts:
    missing, damaged = [], []
    for manifest in facts.owed:
        for file in (*manifest.files, *manifest.quarantine_files):
            try:
                if storage.stat(paths.state / file.path).size_bytes != file.size_bytes:
                    damaged.append(file.path)
            except FileNotFoundError:
                if file in manifest.files:  # the others may be in the quarantine table
                    missing.append(file.path)
    if missing:  # a publish that was stopped half-way has moved them: the next run finishes it
        begun = [(intent.table_path(paths), file) for intent in pending_intents(paths) for file in intent.files_to_add]
        places = {file.source: (table_path / file.path, staged_at(paths, file.source)) for table_path, file in begun}
        moved = {source for source, both in places.items() if any(map(storage.exists, both))}
        missing = [path for path in missing if path not in moved]
    return replace(facts, missing_staged_files=missing, damaged_staged_files=damaged)
