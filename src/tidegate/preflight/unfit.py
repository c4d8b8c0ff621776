"""Does Spark's checkpoint fit what the pipeline has read?

Spark believes whatever a checkpoint says: a deleted one reads everything again, an older one skips what it does not
remember having written. A query with state needs the checkpoint, so one that does not fit is for a person. Without
state it is disposable: what was read is in the table's log, the manifests and the ledger, and the next run that has
something to read begins a new query where these end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.errors import DisagreementError, catalogue
from tidegate.paths import PipelinePaths
from tidegate.preflight.divergence import find_divergence, find_untaken
from tidegate.preflight.log_end import find_end, was_read_by
from tidegate.sources.files.ledger import open_ledger
from tidegate.staging.birth import Birth, read_births
from tidegate.staging.checkpoint import CheckpointState
from tidegate.staging.manifest import end_positions
from tidegate.staging.seal import CheckpointFiles, Seal, find_edited
from tidegate.staging.topics import Positions

if TYPE_CHECKING:
    from tidegate.preflight.facts import Facts


def pass_over_unfit(paths: PipelinePaths, facts: Facts) -> Facts:
    """The facts without a checkpoint that does not fit and is not needed: as if Spark had committed what is staged or
    in the table, and had planned nothing else. The facts as they are where a person has to decide."""
    birth = facts.birth
    if birth is None or birth.state != [] or facts.log_fault is not None or paths.is_beside:
        return facts
    unfit = _find_unfit(facts, paths.name)
    if unfit is None or any(find_untaken(facts, batch) for batch in facts.given):
        return facts
    query_id = birth.query_id or facts.query_id
    newest = facts.newest_kept(query_id)
    try:
        if _has_unknown_batches(paths, facts, query_id, newest) or not _is_known(paths, facts, birth):
            return facts
        positions = _find_positions(paths, facts, query_id)
    except DisagreementError:  # of the ledger, or a log that was cut: whoever needs it says so
        return facts
    last = None if newest < 0 else newest
    return replace(
        facts,
        checkpoint=CheckpointState(query_id is not None, query_id, last, last),
        files=CheckpointFiles(),
        seal=Seal(),
        given={},
        taken_links=None,
        unfit=unfit,
        positions=positions,
    )


def _find_unfit(facts: Facts, name: str) -> DisagreementError | None:
    """Why the checkpoint cannot be used; None where it can be."""
    try:
        for check in (check_checkpoint, check_content, check_place):
            check(facts, name)
    except DisagreementError as error:
        return error
    return None


def _has_unknown_batches(paths: PipelinePaths, facts: Facts, query_id: str | None, newest: int) -> bool:
    """Whether the ledger has files in batches of the query that are gone from staging: nobody has their rows."""
    if facts.birth is None or not any(source == {} for source in facts.birth.sources.values()):
        return False
    with open_ledger(paths, read_only=True) as ledger:
        return any(row.query_id == query_id and (row.batch_id or 0) > newest for row in ledger.rows(state="staged"))


def _is_known(paths: PipelinePaths, facts: Facts, birth: Birth) -> bool:
    """Whether the table was last written by the query that the birth record names, or by one before it: a stale process
    may have named its own."""
    births = read_births(paths)
    queries = {one.query_id for one in births} | {one.replaces.query_id for one in births if one.replaces is not None}
    return facts.table is None or was_read_by(queries | {birth.query_id}, paths)


def _find_positions(paths: PipelinePaths, facts: Facts, query_id: str | None) -> Positions:
    """The next offsets of each source of topics, behind all that is staged or in the table; a source that has none
    starts where the birth record says."""
    if query_id is None or facts.newest_kept(query_id) < 0:
        return {}
    in_table = find_end(paths).positions if facts.settled_up_to(query_id) >= 0 else {}
    staged = end_positions(facts.manifests.get(query_id, ()))
    return {name: {**in_table.get(name, {}), **staged.get(name, {})} for name in in_table.keys() | staged.keys()}


def check_checkpoint(facts: Facts, name: str) -> None:
    """Raise DisagreementError when the checkpoint is gone, torn, older than what was staged, or of another query."""
    checkpoint, birth = facts.checkpoint, facts.birth
    if checkpoint.faults:
        raise catalogue.CHECKPOINT_TORN(where=f"pipeline {name}", name=name, faults="; ".join(checkpoint.faults))
    if not checkpoint.exists:
        if birth is not None and birth.query_id is not None:
            raise catalogue.CHECKPOINT_GONE(where=f"pipeline {name}", name=name, query_id=birth.query_id)
        return
    if birth is None:
        raise catalogue.BIRTH_GONE(where=f"pipeline {name}", name=name)
    if birth.query_id is not None and birth.query_id != checkpoint.query_id:
        raise catalogue.CHECKPOINT_REPLACED(
            where=f"pipeline {name}", name=name, query_id=checkpoint.query_id, own_query_id=birth.query_id
        )
    newest = facts.newest_kept(checkpoint.query_id)
    if newest > (-1 if checkpoint.last_offset is None else checkpoint.last_offset):
        raise catalogue.CHECKPOINT_BEHIND(
            where=f"pipeline {name}", name=name, last_offset=checkpoint.last_offset, newest=newest
        )


def check_content(facts: Facts, name: str) -> None:
    """The checkpoint's files hold what they held, and say of each batch what manifest, ledger and table say."""
    found = [f"{path} does not hold what it held" for path in find_edited(facts.files, facts.seal)]
    found = found or [f"{path} does not fit its checksum" for path in facts.files.damaged]
    for batch in facts.given:
        found = found or find_divergence(facts, batch)
    if found:
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        raise catalogue.CHECKPOINT_DIVERGED(where=f"pipeline {name}", name=name, faults="; ".join(found[:3]), more=more)


def check_place(facts: Facts, name: str) -> None:
    """Raise DisagreementError PROJECT_MOVED: Spark's lists of files hold absolute paths."""
    if facts.birth is None or not facts.checkpoint.exists or facts.unfit is not None:
        return
    reads_files = any(source == {} for source in facts.birth.sources.values())
    reads_files |= any(path.startswith("sources/") for path in facts.files.digests)  # batch files
    if reads_files and facts.birth.state_folder != facts.state_folder:
        raise catalogue.PROJECT_MOVED(
            where=f"pipeline {name}",
            name=name,
            made_in=facts.birth.state_folder,
            found_in=facts.state_folder,
        )
