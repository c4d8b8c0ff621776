"""Do checkpoint, manifests, table and spec fit together? Compared before anything runs (promise 10).

Stock Spark notices none of these: a deleted checkpoint reads everything again, an older one skips what it does not
remember having written, a restored table misses what the checkpoint calls done. Everything here is a pure function of
:class:`Facts`, so that each disagreement is a unit test.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.errors import DisagreementError
from tidegate.preflight.divergence import find_divergence
from tidegate.project import PipelinePaths
from tidegate.spec.models import PipelineSpec
from tidegate.staging.birth import Birth, changed_keys, fingerprint, read_birth
from tidegate.staging.checkpoint import CheckpointState, read_checkpoint, read_given
from tidegate.staging.manifest import BatchManifest, read_all_manifests
from tidegate.staging.open_state import read_open_state
from tidegate.staging.retired import read_retired
from tidegate.staging.seal import CheckpointFiles, Seal, find_edited, look_at_files, read_seal
from tidegate.table.log.retire import retired_mark
from tidegate.table.log.state import TableState, glance_at_table, read_table_state
from tidegate.table.publish.intent import pending_intents

_REBUILD = (
    "`tidegate repair {name} --rebuild`: a new table from all that the sources still have, and the old one is set "
    "aside (`tidegate repair {name} --rebuild --dry-run` tells what that is)"
)


@dataclass(frozen=True)
class Facts:
    """Everything the comparison looks at. ``owed`` are the manifests of batches that the table's log does not hold."""

    checkpoint: CheckpointState
    birth: Birth | None
    manifests: Mapping[str, Sequence[BatchManifest]]
    table: TableState | None
    published: Mapping[str, Any] | None
    fingerprint: Mapping[str, Any]
    missing_staged_files: Sequence[str] = ()
    damaged_staged_files: Sequence[str] = ()
    """Those that are not what was written, by their size; digests are compared where the files are read anyway."""
    state_folder: str = ""
    table_folder: str = ""
    foreign_files: Sequence[str] = ()
    """A parquet file in the table's folder that is not ours, where there is no log; [] for none."""
    keeps_state: bool = False
    """Whether batches depend on the state that earlier ones left."""
    ledger_knows_settled: bool = False
    """Whether the ledger has files of :attr:`untraced_batch`, so that only the note is lost; looked up only when there
    is such a batch."""
    given: Mapping[int, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """What the checkpoint gives its last committed and its last planned batch, by source: Kafka {"offsets": {topic:
    {partition: [from, until]}}}, from None where it does not say; files {"links": [link, ...]}."""
    taken_links: Mapping[str, Mapping[str, tuple[str | None, int | None]]] | None = None
    """{source: {link: (query id, batch) it was staged in, Nones for not yet}} of these links, as the ledger has it;
    None when the ledger cannot be asked, or need not be."""
    files: CheckpointFiles = field(default_factory=CheckpointFiles)
    seal: Seal = field(default_factory=Seal)
    retired: Mapping[str, int] = field(default_factory=dict)
    """Queries that are over, with the last batch of each that counts: later ones came late, and are never published."""

    @property
    def query_id(self) -> str | None:
        """The query of the living checkpoint."""
        return self.checkpoint.query_id

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
        return last is not None and manifest.batch_id > max(last, self.settled_up_to(manifest.query_id))

    def settled_up_to(self, query_id: str) -> int:
        """The last batch of a query that the table's log holds; -1 for none."""
        return -1 if self.table is None else self.table.txns.get(query_id, -1)

    @property
    def untraced_batch(self) -> tuple[str, int] | None:
        """(query id, batch) that the table's log holds last of the living query, when neither the note of the last
        publish nor a manifest speaks of it."""
        living = self.query_id or (self.birth.query_id if self.birth else None)
        if living is None or self.table is None:
            return None
        before = self.published or {}
        settled = self.settled_up_to(living)
        noted = int(before.get("batch_id", -1)) if before.get("query_id") == living else -1
        staged = {manifest.batch_id for manifest in self.manifests.get(living, ())}
        return (living, settled) if settled > noted and settled not in staged else None

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


def gather_facts(paths: PipelinePaths, spec: PipelineSpec, *, at_a_glance: bool = False) -> Facts:
    """Read checkpoint, birth, manifests and the table's log. No JVM; raises DisagreementError for a torn table log.

    ``at_a_glance``, for a look at many pipelines: where the newest commit is the last publish's own, the log below it
    is not read. Opening a log costs more than everything else here.
    """
    from tidegate import storage

    paths = paths.pinned()
    checkpoint = read_checkpoint(paths.checkpoint)
    birth = read_birth(paths)
    manifests = read_all_manifests(paths.manifests)
    queries = set(manifests)
    published = storage.read_note(paths.published)
    asked = queries | {checkpoint.query_id or "", (birth.query_id if birth else None) or ""}
    asked |= {str((published or {}).get("query_id") or "")}
    asked -= {""}
    marks = {retired_mark(query): query for query in asked}
    table = None
    if at_a_glance and published is not None and asked == {published.get("query_id")} and not spec.sinks:
        table = glance_at_table(paths.table, published)
    if table is None:
        table = read_table_state(paths.table, tuple(sorted({*asked, *marks})))
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
        foreign_files=[] if table is not None else _find_foreign(paths),
        keeps_state=read_open_state(paths, checkpoint.query_id) is not None,
        retired=retired,
    )
    facts = _look_at_staged_files(paths, facts)
    if facts.untraced_batch is not None:
        facts = replace(facts, ledger_knows_settled=is_in_ledger(paths, *facts.untraced_batch))
    return facts if at_a_glance else _look_into_checkpoint(paths, facts)


def _find_foreign(paths: PipelinePaths) -> list[str]:
    """The first parquet file in the folder of a table without a log that no publish of ours has moved there."""
    if not paths.table.is_dir():
        return []
    ours = {intent.table_path(paths) / file.path for intent in pending_intents(paths) for file in intent.files_to_add}
    return [str(path) for path in paths.table.rglob("*.parquet") if path not in ours][:1]


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
        return replace(facts, checkpoint=replace(checkpoint, faults=[str(error)]))
    links: dict[str, list[str]] = {}
    for batch, given in facts.given.items():
        if f"offsets/{batch}" not in facts.seal.files or batch > facts.settled_up_to(str(facts.query_id)):
            for source, taken in given.items():
                links.setdefault(source, []).extend(taken.get("links", ()))
    return replace(facts, taken_links=_ask_ledger(paths, links)) if any(links.values()) else facts


def _ask_ledger(
    paths: PipelinePaths, links: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, tuple[str | None, int | None]]] | None:
    from tidegate.sources.files.ledger import open_ledger

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
                if (paths.state / file.path).stat().st_size != file.size_bytes:
                    damaged.append(file.path)
            except FileNotFoundError:
                if file in manifest.files:  # the others may be in the quarantine table
                    missing.append(file.path)
    if missing:  # a publish that was stopped half-way has moved them: the next run finishes it
        begun = [(intent.table_path(paths), file) for intent in pending_intents(paths) for file in intent.files_to_add]
        moved = {file.source for table_path, file in begun if (table_path / file.path).exists()}
        missing = [path for path in missing if path not in moved]
    return replace(facts, missing_staged_files=missing, damaged_staged_files=damaged)


def is_in_ledger(paths: PipelinePaths, query_id: str, batch_id: int) -> bool:
    """Whether the ledger has a file of the batch; False when it cannot be read."""
    from tidegate.sources.files.ledger import open_ledger

    try:
        with open_ledger(paths, read_only=True) as ledger:
            return ledger.has_batch(query_id, batch_id)
    except DisagreementError:
        return False


def check_agreement(facts: Facts, name: str) -> None:
    """Raise the first disagreement, the one nearest to the table first."""
    check_table(facts, name)
    _check_partitions(facts, name)
    _check_checkpoint(facts, name)
    _check_staging(facts, name)
    _check_content(facts, name)
    _check_spec(facts, name)
    _check_retired(facts, name)


def check_table(facts: Facts, name: str) -> None:
    """Raise DisagreementError when the table is not the one of the last publish, or is ahead of the state folder."""
    _check_table(facts, name)
    _check_state(facts, name)


def _check_table(facts: Facts, name: str) -> None:
    before = facts.published
    if facts.table is None:
        if before is not None and before.get("version") is not None:
            raise _disagree(
                "TABLE_GONE",
                f"the table was at version {before['version']} and is gone",
                name,
                "restore the table folder and run again, or `tidegate repair {name}`: a new table, all read again",
            )
        if facts.foreign_files:
            raise _foreign(facts, name)
        return
    if before is None:
        if facts.birth is None and not facts.checkpoint.exists:
            raise _disagree(
                "STATE_GONE",
                f"the table exists (version {facts.table.version}), but nothing is known of what was read for it",
                name,
                f"restore the pipeline's state folder and run again, or {_new_start(facts)}",
                see=None,
            )
        return
    refuse_another_table(facts.table, before, name)
    query = str(before.get("query_id"))
    behind_by_txn = facts.table.txns.get(query, -1) < int(before.get("batch_id", -1))
    if facts.table.version < int(before.get("version", -1)) or behind_by_txn:
        raise _disagree(
            "TABLE_BEHIND",
            f"the table is at version {facts.table.version}, batch {facts.table.txns.get(query, -1)}; published was "
            f"version {before.get('version')}, batch {before.get('batch_id')}: an older copy was restored",
            name,
            "restore the newer copy, or `tidegate repair {name}`: what this copy lacks is read again from the source",
        )


def _check_partitions(facts: Facts, name: str) -> None:
    """Files of a table lie in folders of its partition columns: no new checkpoint makes other ones of them."""
    if facts.table is None:
        return
    wanted = facts.fingerprint["partition_by"]
    has = facts.table.partition_columns
    if not facts.table.schema_json:  # at a glance: what the spec said then
        has = facts.birth.fingerprint.get("partition_by", wanted) if facts.birth is not None else wanted
    if [one.lower() for one in has] != [one.lower() for one in wanted]:
        raise DisagreementError(
            "PARTITION_BY_CHANGED",
            f"the table is partitioned by {has}, the spec says {wanted}",
            where=f"jobs/{name}/pipeline.yaml, table.partition_by",
            next_run="refuses again; nothing was read or written",
            fix=f"take the change back, or {_REBUILD}".replace("{name}", name),
        )


def refuse_another_table(table: TableState, published: Mapping[str, Any], name: str) -> None:
    """Raise DisagreementError TABLE_REPLACED when the table is not the one of the last publish."""
    if table.table_id != published.get("table_id"):
        raise _disagree(
            "TABLE_REPLACED",
            f"another table is in its place (id {table.table_id}, was {published.get('table_id')})",
            name,
            "bring back the table, or `tidegate repair {name}`: go on from where this table's log ends",
        )


def _check_retired(facts: Facts, name: str) -> None:
    living = facts.query_id or (facts.birth.query_id if facts.birth else None)
    if living in facts.retired:
        raise _disagree(
            "QUERY_RETIRED",
            f"query {living}, of this checkpoint, is over since a repair or an accepted loss: a repair was stopped "
            "half-way, or the checkpoint of the query that followed is gone",
            name,
            "restore the state folder from the same time as the table, or `tidegate repair {name}`: a new checkpoint "
            "that starts exactly where the table's log ends",
        )


def _check_state(facts: Facts, name: str) -> None:
    """The table's log holds a batch that nothing here knows of: an older copy of the state folder was restored."""
    if facts.table is None:
        return
    before = facts.published or {}
    found = None
    if facts.untraced_batch is not None and not facts.ledger_knows_settled:
        found = "batch {1} of query {0}".format(*facts.untraced_batch)
    newest = facts.table.metadata.get("tidegate.query_id")
    known = {facts.query_id, facts.birth.query_id if facts.birth else None, before.get("query_id"), None}
    known |= set(facts.manifests)
    if newest not in known and facts.table.version > int(before.get("version", -1)):
        found = f"batches of query {newest}"
    if found is not None:
        raise _disagree(
            "STATE_BEHIND",
            f"the table, at version {facts.table.version}, holds {found}, of which the state folder knows nothing: an "
            "older copy of it was restored",
            name,
            f"restore the state folder from the same time as the table, or {_new_start(facts)}",
            see=None,
        )


def _new_start(facts: Facts) -> str:
    """How to go on without the state folder. Only that can tell which files are in the table; of Kafka its log can."""
    if all(source["type"] == "kafka" for source in facts.fingerprint["sources"].values()):
        return "`tidegate repair {name}`: a new checkpoint that starts exactly where the table's log ends"
    return _REBUILD


def _check_checkpoint(facts: Facts, name: str) -> None:
    checkpoint, birth = facts.checkpoint, facts.birth
    restore = (
        "restore it from the same time as the table, or `tidegate repair {name}`: a new checkpoint that starts exactly "
        "where the table's log ends"
    )
    if checkpoint.faults:
        raise _disagree(
            "CHECKPOINT_TORN", f"the checkpoint is not whole: {'; '.join(checkpoint.faults)}", name, restore
        )
    if not checkpoint.exists:
        if birth is not None and birth.query_id is not None:
            raise _disagree("CHECKPOINT_GONE", f"the checkpoint of query {birth.query_id} is gone", name, restore)
        return
    if birth is None:
        raise _disagree("BIRTH_GONE", "there is a checkpoint, but its birth record is gone", name, restore)
    if birth.query_id is not None and birth.query_id != checkpoint.query_id:
        raise _disagree(
            "CHECKPOINT_REPLACED",
            f"the checkpoint belongs to query {checkpoint.query_id}; this pipeline's is {birth.query_id}",
            name,
            restore,
        )
    query = str(checkpoint.query_id)
    known = [manifest.batch_id for manifest in facts.manifests.get(query, ())]
    newest = max([*known, facts.settled_up_to(query)])
    if newest > (-1 if checkpoint.last_offset is None else checkpoint.last_offset):
        raise _disagree(
            "CHECKPOINT_BEHIND",
            f"the checkpoint ends at batch {checkpoint.last_offset}, but batch {newest} was staged or published: an "
            "older copy was restored",
            name,
            restore,
        )


def _check_staging(facts: Facts, name: str) -> None:
    query, last = facts.checkpoint.query_id, facts.checkpoint.last_commit
    fix = "restore the state folder, or `tidegate repair {name}`: what the table lacks is read again from the source"
    if query is not None and last is not None:
        staged = {manifest.batch_id for manifest in facts.manifests.get(query, ())}
        gone = [batch for batch in range(facts.settled_up_to(query) + 1, last + 1) if batch not in staged]
        if gone:
            raise _disagree(
                "STAGING_GONE",
                f"batches {', '.join(map(str, gone[:10]))} are done in the checkpoint, but not staged or published",
                name,
                fix,
            )
    if facts.missing_staged_files:
        missing = facts.missing_staged_files
        raise _disagree(
            "STAGED_FILES_GONE",
            f"{len(missing)} staged files are gone, first {missing[0]}",
            name,
            fix,
        )
    if facts.damaged_staged_files:
        damaged = facts.damaged_staged_files
        raise _disagree(
            "STAGED_FILE_DAMAGED",
            f"{len(damaged)} staged files do not have the size that was written, first {damaged[0]}",
            name,
            fix,
        )


def _check_content(facts: Facts, name: str) -> None:
    """The checkpoint's files hold what they held, and say of each batch what manifest, ledger and table say."""
    found = [f"{path} does not hold what it held" for path in find_edited(facts.files, facts.seal)]
    found = found or [f"{path} does not fit its checksum" for path in facts.files.damaged]
    for batch in facts.given:
        found = found or find_divergence(facts, batch)
    if found:
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        raise _disagree(
            "CHECKPOINT_DIVERGED",
            f"the checkpoint was edited, or its files were exchanged: {'; '.join(found[:3])}{more}",
            name,
            "restore the state folder from the same time as the table, or `tidegate repair {name}`: a new checkpoint "
            "that starts exactly where the table's log ends",
        )


def _check_spec(facts: Facts, name: str) -> None:
    if facts.birth is None or not facts.checkpoint.exists:
        return
    reads_files = any(source == {} for source in facts.birth.sources.values())
    if reads_files and facts.birth.state_folder != facts.state_folder:
        raise _disagree(
            "PROJECT_MOVED",
            f"the checkpoint was made in {facts.birth.state_folder} and holds paths of it; it is now in "
            f"{facts.state_folder}",
            name,
            "move the project back, or `tidegate repair {name}`: a new checkpoint here, where the table's log ends",
        )
    then, now = dict(facts.birth.fingerprint), dict(facts.fingerprint)
    if facts.checkpoint.in_flight is None:
        # A source may come or go between two batches: the checkpoint knows them by name.
        both = set(then["sources"]) & set(now["sources"])
        then, now = ({**one, "sources": {name: one["sources"][name] for name in both}} for one in (then, now))
    changes = changed_keys(then, now)
    if changes:
        raise _disagree(
            "SPEC_CHANGED",
            f"the spec was changed under a living checkpoint: {'; '.join(changes)}",
            name,
            "take the change back, or `tidegate repair {name}`: a new checkpoint for the new spec",
        )


def _foreign(facts: Facts, name: str) -> DisagreementError:
    return DisagreementError(
        "FOREIGN_TABLE",
        f"the folder of the table holds parquet files that no run of this pipeline wrote, for example "
        f"{facts.foreign_files[0]}, and no _delta_log: its readers would see their rows among the new ones",
        where=facts.table_folder,
        next_run="refuses again; nothing was read or written",
        fix=f"move them away (mv {shlex.quote(facts.table_folder)} {shlex.quote(facts.table_folder + '.before')}), or "
        "give the pipeline another name or the project another warehouse; then run again",
    )


def _disagree(
    code: str,
    message: str,
    name: str,
    fix: str,
    see: str | None = "`tidegate repair {name} --dry-run` shows the choices",
) -> DisagreementError:
    return DisagreementError(
        code,
        message,
        where=f"pipeline {name}",
        next_run="refuses again; nothing was read or written",
        fix="; ".join([fix, *([see] if see else [])]).replace("{name}", name),
    )
