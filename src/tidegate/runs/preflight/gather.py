"""What a run finds before it does anything: the facts on disk, and what is pending in the sources. No JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.agreement import ignore_unusable
from tidegate.runs.preflight.facts import Facts, Situation
from tidegate.runs.preflight.table_log import Later, OldJob, find_old_job, look_later
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.scan import FilesScan
from tidegate.sources.port import Arrival, SoFar
from tidegate.sources.registry import Connections, open_streams, scans_of
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.batch_files import BatchFiles, read_given
from tidegate.state.birth import Birth, as_read, fingerprint, read_birth
from tidegate.state.checkpoint import CheckpointState, read_checkpoint
from tidegate.state.manifest import read_all_manifests
from tidegate.state.open_state import read_open_state
from tidegate.state.published import Published, read_published, read_retired, read_taken_back
from tidegate.state.seal import find_edited, look_at_files, read_seal, set_seal
from tidegate.table.log.commit import retired_mark
from tidegate.table.log.state import glance_at_table, read_table_state
from tidegate.table.publish.intent import pending_intents, staged_at

if TYPE_CHECKING:
    from tidegate.core.outputs import SourceReport


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
    if not at_a_glance and birth is not None and birth.replaces is not None:
        asked |= {birth.replaces.query_id}
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
        state_folder=paths.state_name,
        table_folder=str(paths.table),
        foreign_files=[] if table is not None or log_fault is not None else _find_foreign(paths),
        keeps_state=_keeps_state(paths, checkpoint, birth, published),
        adopting=storage.read_json(paths.adoption),
        old_job=OldJob() if table is None else find_old_job(paths),
        retired=retired,
        taken_back=read_taken_back(paths) if retired else {},
        log_fault=log_fault,
        later=Later()
        if table is None
        else look_later(paths, table, published, manifests, can_go_back=_can_go_back(spec, birth)),
    )
    facts = _look_at_staged_files(paths, facts if at_a_glance else _look_at_replaced(facts))
    return ignore_unusable(paths, facts if at_a_glance else _look_into_checkpoint(paths, facts))


def _keeps_state(
    paths: PipelinePaths, checkpoint: CheckpointState, birth: Birth | None, published: Published | None
) -> bool:
    """Return whether the living query keeps state, by its notes; the birth record, if it is there, says more."""
    if birth is None and published is not None and published.keeps_state:
        return True
    query_id = checkpoint.query_id or (birth.query_id if birth is not None else None)
    query_id = query_id or (published.query_id if published is not None else None)
    return read_open_state(paths, query_id) is not None


def look_at_pipeline(project: Project, name: str, *, needs_log: bool = True) -> Situation:
    """Load the spec of a pipeline as it was read, and gather the facts; arguments as for :func:`gather_facts`."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    return Situation(project, spec, paths, gather_facts(paths, spec, needs_log=needs_log))


def seal_checkpoint(paths: PipelinePaths, facts: Facts) -> None:
    """Seal the checkpoint as it is: it agrees with everything else. One that is ignored is not sealed."""
    if facts.unusable is None:
        set_seal(paths, facts.checkpoint, facts.files, facts.seal)


def _can_go_back(spec: PipelineSpec, birth: Birth | None) -> bool:
    """True if what came after a version can be read again though the state folder does not know what that was: files
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
    files, seal = look_at_files(paths, checkpoint.last_commit), read_seal(paths, checkpoint.query_id)
    facts = replace(facts, files=files, seal=seal)
    batches = {checkpoint.last_commit, checkpoint.last_offset} - {None}
    try:
        facts = replace(
            facts, given={batch: read_given(paths.checkpoint, batch) for batch in batches if batch is not None}
        )
        for name in _list_left_out(facts):
            BatchFiles(paths.checkpoint, name).read_position()
    except ValueError as error:
        if find_edited(files, seal):
            return facts  # which says more
        return replace(facts, checkpoint=replace(checkpoint, faults=[str(error)]))
    links: dict[str, list[str]] = {}
    for batch, given in facts.given.items():
        if f"offsets/{batch}" not in facts.seal or batch > facts.settled_up_to(str(facts.query_id)):
            for source, taken in given.items():
                links.setdefault(source, []).extend(taken.links)
    if not any(links.values()):
        return facts
    try:
        with open_ledger(paths, read_only=True) as ledger:
            return replace(facts, taken_links={name: ledger.batches_of(name, some) for name, some in links.items()})
    except DisagreementError:
        return facts  # the code that needs the ledger reports what is wrong with it


def _list_left_out(facts: Facts) -> list[str]:
    """The sources of topics that the last planned batch does not name, as the spec has left them out."""
    if facts.birth is None or facts.checkpoint.last_offset is None:
        return []
    given = facts.given[facts.checkpoint.last_offset]
    return [name for name, start in facts.birth.sources.items() if "offsets" in start and name not in given]


def _look_at_replaced(facts: Facts) -> Facts:
    """The facts with what is gone of the query before: what it had staged still counts."""
    if facts.birth is None or facts.birth.replaces is None or facts.log_fault is not None:
        return facts
    query_id, last = facts.birth.replaces
    last = min(last, facts.retired.get(query_id, last), facts.taken_back.get(query_id, last))
    gone = sorted(set(range(facts.settled_up_to(query_id) + 1, last + 1)) - facts.staged(query_id))
    return replace(facts, gone_of_replaced=gone)


def _look_at_staged_files(paths: PipelinePaths, facts: Facts) -> Facts:
    missing, damaged = [], []
    for manifest in facts.unpublished:
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


@dataclass(frozen=True)
class Pending:
    """The pending records, by source."""

    arrivals: Mapping[str, Arrival]

    @property
    def summaries(self) -> dict[str, SourceReport]:
        """What ``plan`` and the report show."""
        return {name: one.summary for name, one in self.arrivals.items()}

    @property
    def scans(self) -> dict[str, FilesScan]:
        """The listings of those that are files."""
        return scans_of(self.arrivals)

    @property
    def files(self) -> int:
        """How many files wait."""
        return sum(one.files for one in self.arrivals.values())

    @property
    def bytes(self) -> int:
        """How much waits, as it lies there; of Kafka a guess."""
        return sum(one.bytes for one in self.arrivals.values())

    @property
    def has_new(self) -> bool:
        """Return whether a run would read anything."""
        return any(one.has_new for one in self.arrivals.values())

    @property
    def comes_later(self) -> bool:
        """Return whether a source has files that are still settling."""
        return any(one.comes_later for one in self.arrivals.values())


def find_pending(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, connections: Connections | None = None
) -> Pending:
    """Look at every source. Raises SourceLostError (folder or topic missing), TryAgainError (broker away).

    What a batch in flight will read is pending too: nobody has it yet. ``connections`` has the ledger of a pipeline
    with files.
    """
    starts = None if facts.birth is None else facts.birth.sources
    positions = None if facts.unusable is None else facts.unusable.positions
    so_far = SoFar(starts, facts.checkpoint, facts.in_flight, positions)
    streams = open_streams(project, paths, spec, connections)
    return Pending({name: stream.look(so_far) for name, stream in streams.items()})
