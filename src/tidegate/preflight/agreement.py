"""Do checkpoint, manifests, table and spec fit together? Compared before anything runs (promise 10).

Stock Spark notices none of these: a deleted checkpoint reads everything again, an older one skips what it does not
remember having written, a restored table misses what the checkpoint calls done. Everything here is a pure function of
:class:`Facts`, so that each disagreement is a unit test.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from tidegate.errors import DisagreementError
from tidegate.preflight.divergence import find_divergence
from tidegate.preflight.facts import Facts
from tidegate.staging.birth import changed_keys
from tidegate.staging.seal import find_edited
from tidegate.table.log.state import TableState

_REBUILD = (
    "`tidegate repair {name} --rebuild`: a new table from all that the sources still have, and the old one is set "
    "aside (`tidegate repair {name} --rebuild --dry-run` tells what that is)"
)


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
