"""Does Spark's checkpoint fit what the pipeline has read?

A query with state needs it, so one that does not fit needs a decision. Without state it is disposable: what was read is
in the table's log, the manifests and the ledger, and the next run that has something to read begins a new query where
these end.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.preflight.divergence import find_divergence, list_files_missing_from_ledger
from tidegate.runs.preflight.facts import Facts, UnusableCheckpoint
from tidegate.runs.preflight.log_end import find_end, was_written_by
from tidegate.sources import errors as sources_errors
from tidegate.sources.files.ledger import open_ledger
from tidegate.spark import errors as spark_errors
from tidegate.state.birth import Birth, read_births
from tidegate.state.checkpoint import CheckpointState
from tidegate.state.manifest import end_positions
from tidegate.state.seal import CheckpointFiles, Seal, find_edited
from tidegate.state.topics import Positions, offsets_from_json


def ignore_unusable(paths: PipelinePaths, facts: Facts) -> Facts:
    """The facts without a checkpoint that does not fit and is not needed (:attr:`Facts.unusable`).

    The facts as they are where the query keeps state, or nobody knows yet whether it does, and where the rest does not
    say what was read. Side jobs have their own checkpoints, and begin again where one does not fit.
    """
    birth = facts.birth
    if birth is None or birth.state != [] or facts.log_fault is not None or paths.is_side_job:
        return facts
    reason = _find_fault(facts, paths.name)
    if reason is None or any(list_files_missing_from_ledger(facts, batch) for batch in facts.given):
        return facts
    query_id = birth.query_id or facts.query_id
    try:
        positions = _find_positions(paths, facts, birth, query_id)
    except DisagreementError as unknown:
        return replace(facts, unknown=unknown)
    if positions is None:
        return facts
    newest = facts.newest_kept(query_id)
    last = None if newest < 0 else newest
    return replace(
        facts,
        checkpoint=CheckpointState(query_id is not None, query_id, last, last),
        files=CheckpointFiles(),
        seal=Seal(),
        given={},
        taken_links=None,
        unusable=UnusableCheckpoint(reason, positions),
    )


def _find_fault(facts: Facts, name: str) -> DisagreementError | None:
    """Why the checkpoint cannot be used; None where it can be."""
    try:
        for check in (check_checkpoint, check_content, check_place):  # as `check_agreement` does between its own
            check(facts, name)
    except DisagreementError as error:
        return error
    return None


def _find_positions(paths: PipelinePaths, facts: Facts, birth: Birth, query_id: str | None) -> Positions | None:
    """The next offsets of each source of topics, after all that the query has staged or published; None where what is
    staged, or the table, is not what the query has read from its beginning on.

    Raises DisagreementError STAGING_GONE, and what keeps ledger or log from being read.
    """
    name, newest = paths.name, facts.newest_kept(query_id)
    if birth.reads_files:
        with open_ledger(paths, read_only=True) as ledger:
            staged = {row.batch_id or 0 for row in ledger.rows(state="staged") if row.query_id == query_id}
        if gone := sorted(batch for batch in staged if batch > newest):
            raise errors.STAGING_GONE(where=f"pipeline {name}", name=name, gone=", ".join(map(str, gone[:10])))
    if query_id is None or newest < 0:
        return {} if _is_table_of_known_query(paths, facts) else None
    in_table = find_end(paths, of_query=query_id).positions if facts.settled_up_to(query_id) >= 0 else {}
    born = {
        source: offsets_from_json(start["offsets"]) for source, start in birth.sources.items() if "offsets" in start
    }
    positions: Positions = {source: dict(offsets) for source, offsets in {**born, **in_table}.items()}
    links: set[tuple[str, str]] = set()
    for manifest in facts.manifests.get(query_id, ()):
        if manifest.batch_id <= facts.settled_up_to(query_id):
            continue
        for source, taken in manifest.sources.items():
            at = positions.setdefault(source, {})
            read = {(source, file["link"]) for file in taken.files or ()}
            ranges = (taken.offsets or {}).items()
            if read & links or any(at.get(partition, one.begin) != one.begin for partition, one in ranges):
                return None  # a driver has planned it from a checkpoint that was exchanged meanwhile
            links |= read
            at |= {partition: one.end for partition, one in ranges}
    known = in_table.keys() | end_positions(facts.manifests.get(query_id, ())).keys()
    return {source: positions[source] for source in known} if _is_table_of_known_query(paths, facts) else None


def _is_table_of_known_query(paths: PipelinePaths, facts: Facts) -> bool:
    """Whether the table was last written by the query that the birth record names, or by one before it: a stale process
    may have put its own query id there."""
    births = read_births(paths)
    queries = {one.query_id for one in births} | {one.replaces.query_id for one in births if one.replaces is not None}
    return facts.table is None or was_written_by(paths, queries)


def check_checkpoint(facts: Facts, name: str) -> None:
    """Raise DisagreementError when the checkpoint is gone, torn, older than what was staged, or of another query."""
    checkpoint, birth = facts.checkpoint, facts.birth
    where = f"pipeline {name}, {facts.state_folder}"
    if facts.unknown is not None:
        raise facts.unknown
    if checkpoint.faults:
        raise sources_errors.CHECKPOINT_TORN(where=where, name=name, faults="; ".join(checkpoint.faults))
    if not checkpoint.exists:
        if birth is not None and birth.query_id is not None:
            raise spark_errors.CHECKPOINT_GONE(where=where, name=name, query_id=birth.query_id)
        if birth is None and _has_had_a_birth(facts):
            raise errors.BIRTH_AND_CHECKPOINT_GONE(where=where, name=name)
        return
    if birth is None:
        raise errors.BIRTH_GONE(where=where, name=name)
    if birth.query_id is not None and birth.query_id != checkpoint.query_id:
        raise errors.CHECKPOINT_REPLACED(
            where=where, name=name, query_id=checkpoint.query_id, own_query_id=birth.query_id
        )
    newest = facts.newest_kept(checkpoint.query_id)
    if newest > (-1 if checkpoint.last_offset is None else checkpoint.last_offset):
        raise errors.CHECKPOINT_BEHIND(where=where, name=name, last_offset=checkpoint.last_offset, newest=newest)


def _has_had_a_birth(facts: Facts) -> bool:
    """Whether a query has staged or published something, or a topic continues behind an adopted table; files have the
    ledger for that, and no birth record before the first run."""
    if facts.manifests or facts.published is None:
        return bool(facts.manifests)
    reads_topics = any(source["type"] == "kafka" for source in facts.fingerprint["sources"].values())
    return facts.published.query_id is not None or reads_topics


def check_content(facts: Facts, name: str) -> None:
    """The checkpoint's files hold what they held, and say of each batch what manifest, ledger and table say."""
    found = [f"{path} does not hold what it held" for path in find_edited(facts.files, facts.seal)]
    found = found or [f"{path} does not fit its checksum" for path in facts.files.damaged]
    for batch in facts.given:
        found = found or find_divergence(facts, batch)
    if found:
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        raise errors.CHECKPOINT_DIVERGED(where=f"pipeline {name}", name=name, faults="; ".join(found[:3]), more=more)


def check_place(facts: Facts, name: str) -> None:
    """Raise DisagreementError PROJECT_MOVED: Spark's lists of batch files hold absolute paths."""
    if facts.birth is None or not facts.checkpoint.exists or facts.unusable is not None:
        return
    reads_files = facts.birth.reads_files
    reads_files |= any(path.startswith("sources/") for path in facts.files.digests)  # batch files
    if reads_files and facts.birth.state_folder != facts.state_folder:
        raise errors.PROJECT_MOVED(
            where=f"pipeline {name}",
            name=name,
            made_in=facts.birth.state_folder,
            found_in=facts.state_folder,
        )
