"""Do checkpoint, manifests, table and spec fit together? Compared before anything runs (promise 10).

Stock Spark notices none of these: a deleted checkpoint reads everything again, an older one skips what it does not
remember having written, a restored table misses what the checkpoint calls done. Everything here is a pure function of
:class:`Facts`, so that each disagreement is a unit test.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from tidegate.core.errors import DisagreementError
from tidegate.core.words import count_of, list_first
from tidegate.runs import errors
from tidegate.runs.preflight.checkpoint import check_checkpoint, check_content, check_place
from tidegate.runs.preflight.facts import Facts
from tidegate.state.birth import Birth, Fingerprint, changed_keys
from tidegate.state.published import Published
from tidegate.table.log.features import append_only, unsupported
from tidegate.table.log.state import TableState

_NAMED_AT_MOST = 5


def check_agreement(facts: Facts, name: str) -> None:
    """Raise the first disagreement, the one nearest to the table first."""
    _check_log(facts, name)
    _check_partitions(facts, name)
    _check_retired(facts, name)
    check_checkpoint(facts, name)
    _check_staging(facts, name)
    check_content(facts, name)
    _check_spec(facts, name)
    _check_old_job(facts, name)


def check_table(facts: Facts, name: str) -> None:
    """Raise DisagreementError when the table is not the one of the last publish, is ahead of the state folder, or was
    written to by the job that the pipeline has replaced."""
    _check_log(facts, name)
    _check_old_job(facts, name)


def _check_log(facts: Facts, name: str) -> None:
    if facts.adopting is not None:
        raise adoption_unfinished(facts.adopting, name)
    _check_table(facts, name)
    _check_features(facts)
    check_state(facts, name)


def adoption_unfinished(begun: Mapping[str, object], name: str) -> DisagreementError:
    """The error for whatever is not the adoption that was begun."""
    words = ["tidegate", "adopt", name, "--table", str(begun["table"])]
    words += [] if begun["checkpoint"] is None else ["--checkpoint", str(begun["checkpoint"])]
    return errors.ADOPTION_UNFINISHED(where=f"pipeline {name}", begun_at=begun["at"], command=shlex.join(words))


def _check_table(facts: Facts, name: str) -> None:
    before = facts.published
    if facts.table is None:
        if before is not None and before.version >= 0:
            raise errors.TABLE_GONE(where=f"pipeline {name}", name=name, version=before.version)
        if facts.foreign_files:
            raise _foreign(facts, name)
        return
    if before is None:
        if not facts.has_state:
            raise errors.STATE_GONE(
                where=f"pipeline {name}", version=facts.table.version, way_on=_new_start(facts, name)
            )
        return
    refuse_another_table(facts.table, before, name)
    settled = facts.settled_up_to(str(before.query_id))
    if facts.table.version < before.version or settled < before.batch_id:
        raise errors.TABLE_BEHIND(
            where=f"pipeline {name}",
            name=name,
            version=facts.table.version,
            batch_id=settled,
            published_version=before.version,
            published_batch_id=before.batch_id,
        )


def _check_features(facts: Facts) -> None:
    """Another program changed what the table asks of its writers: known before anything is staged for it."""
    if facts.table is None:
        return
    if facts.table.unsupported:
        raise unsupported(Path(facts.table_folder), facts.table.unsupported)
    if facts.table.is_append_only and facts.fingerprint["output_mode"] != "append":
        raise append_only(Path(facts.table_folder))


def _check_partitions(facts: Facts, name: str) -> None:
    """Files of a table lie in folders of its partition columns: no new checkpoint makes other ones of them."""
    if facts.table is None:
        return
    wanted = facts.fingerprint["partition_by"]
    has = facts.table.partition_columns
    if not facts.table.schema_json:  # at a glance: what the spec said then
        has = facts.birth.fingerprint.get("partition_by", wanted) if facts.birth is not None else wanted
    if [one.lower() for one in has] != [one.lower() for one in wanted]:
        raise errors.PARTITION_BY_CHANGED(
            where=f"jobs/{name}/pipeline.yaml, table.partition_by", has=has, wanted=wanted, name=name
        )


def refuse_another_table(table: TableState, published: Published, name: str) -> None:
    """Raise DisagreementError TABLE_REPLACED when the table is not the one of the last publish."""
    if table.table_id != published.table_id:
        raise errors.TABLE_REPLACED(
            where=f"pipeline {name}", name=name, table_id=table.table_id, published_table_id=published.table_id
        )


def _check_old_job(facts: Facts, name: str) -> None:
    """After everything else: repair of this leaves checkpoint and state as they are."""
    found = facts.old_job
    sentences = []
    if found.has_sink_log:
        sentences.append(
            "there is a new _spark_metadata, so that plain Spark reads the files that it lists and no others"
        )
    if found.files:
        files = count_of(len(found.files), "data file")
        sentences.append(f"the log names none of these, and plain readers see their rows: {files}: ")
        sentences[-1] += list_first(found.files, _NAMED_AT_MOST, ", ")
    for query, (counts, last) in found.batches.items():
        sentences.append(
            f"query {query} was at batch {counts} when the table was adopted, and has committed batch {last}"
        )
    if sentences:
        raise errors.OLD_JOB_WROTE(where=facts.table_folder, name=name, found="; ".join(sentences))


def _check_retired(facts: Facts, name: str) -> None:
    living = facts.query_id or (facts.birth.query_id if facts.birth else None)
    if living in facts.retired:
        raise errors.CHECKPOINT_OF_RETIRED_QUERY(where=f"pipeline {name}", name=name, living=living)


def check_state(facts: Facts, name: str) -> None:
    """The table's log holds what nothing here, or in quarantine, knows of: an older copy of these was restored."""
    if facts.table is None or not facts.has_state:
        return
    where, version, later = f"pipeline {name}", facts.table.version, facts.later
    if later.read is not None:
        way_on = _new_start(facts, name) if later.back_to is None else _go_back(later.back_to, name)
        raise errors.STATE_BEHIND(where=where, version=version, found=later.read, way_on=way_on)
    if later.rollback is not None:
        raise errors.STATE_BEHIND(where=where, version=version, found=later.rollback, way_on=_at_the_end(name))
    if later.moved is not None:
        raise errors.QUARANTINE_BEHIND(
            where=where, found=f"is from before {later.moved}, which the table holds at version {version}", name=name
        )


def _go_back(version: int, name: str) -> str:
    return (
        f"`tidegate repair {name}`: the table goes back to version {version}, the newest of which this state folder "
        "knows all records, and what came since is read again from the sources"
    )


def _at_the_end(name: str) -> str:
    return f"`tidegate repair {name}`: a new checkpoint that starts exactly where the table's log ends"


def _new_start(facts: Facts, name: str) -> str:
    """How to continue without the state folder. Only that knows which files are in the table; for Kafka the log
    does."""
    if all(source["type"] == "kafka" for source in facts.fingerprint["sources"].values()):
        return _at_the_end(name)
    return (
        f"`tidegate repair {name} --rebuild`: a new table from all that the sources still have; the old one is kept "
        f"as a backup (`tidegate repair {name} --rebuild --dry-run` shows what that reads)"
    )


def _check_staging(facts: Facts, name: str) -> None:
    query, last = facts.checkpoint.query_id, facts.checkpoint.last_commit
    gone = list(facts.gone_of_replaced)
    if query is not None and last is not None:
        staged = {manifest.batch_id for manifest in facts.manifests.get(query, ())}
        gone += [batch for batch in range(facts.settled_up_to(query) + 1, last + 1) if batch not in staged]
    if gone:
        raise errors.STAGING_GONE(where=f"pipeline {name}", name=name, gone=", ".join(map(str, gone[:10])))
    if facts.missing_staged_files:
        missing = facts.missing_staged_files
        raise errors.STAGED_FILES_GONE(where=f"pipeline {name}", name=name, number=len(missing), example=missing[0])
    if facts.damaged_staged_files:
        damaged = facts.damaged_staged_files
        raise errors.MANIFESTS_DAMAGED(where=f"pipeline {name}", name=name, number=len(damaged), example=damaged[0])


def _check_spec(facts: Facts, name: str) -> None:
    if facts.birth is None:
        return
    changes = _changed_kinds(facts.birth, facts.fingerprint)
    if changes:
        raise errors.SPEC_CHANGED(where=f"pipeline {name}", name=name, changes="; ".join(changes))
    if not facts.checkpoint.exists:
        return
    check_place(facts, name)
    then, now = facts.birth.fingerprint, facts.fingerprint
    if facts.checkpoint.in_flight is None:
        # A source may come or go between two batches: the checkpoint knows them by name.
        both = set(then["sources"]) & set(now["sources"])
        then = {**then, "sources": {name: then["sources"][name] for name in both}}
        now = {**now, "sources": {name: now["sources"][name] for name in both}}
    changes = changed_keys(then, now)
    if changes:
        raise errors.SPEC_CHANGED(where=f"pipeline {name}", name=name, changes="; ".join(changes))


def _changed_kinds(birth: Birth, now: Fingerprint) -> list[str]:
    """Sources that were missing in the spec for a while, and come back under their old name as another kind. The
    birth record and the checkpoint still say how far the old ones were read; a name can mean one place only."""
    returned = birth.sources.keys() & now["sources"].keys() - birth.fingerprint["sources"].keys()
    kinds = {name: now["sources"][name]["type"] for name in returned}
    return [
        f"sources.{name}.type: {'was' if birth.sources[name] else 'was not'} kafka, is {kind} (give it another name)"
        for name, kind in sorted(kinds.items())
        if bool(birth.sources[name]) != (kind == "kafka")
    ]


def _foreign(facts: Facts, name: str) -> DisagreementError:
    return errors.FOREIGN_TABLE(
        where=facts.table_folder,
        name=name,
        first_foreign_file=facts.foreign_files[0],
        quoted_table_folder=shlex.quote(facts.table_folder),
        quoted_path=shlex.quote(facts.table_folder + ".before"),
    )
