"""Do checkpoint, manifests, table and spec fit together? Compared before anything runs (promise 10).

Stock Spark notices none of these: a deleted checkpoint reads everything again, an older one skips what it does not
remember having written, a restored table misses what the checkpoint calls done. Everything here is a pure function of
:class:`Facts`, so that each disagreement is a unit test.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.runs import errors
from tidegate.runs.preflight.facts import Facts, UnusableCheckpoint
from tidegate.runs.preflight.table_log import find_end, was_written_by
from tidegate.sources import errors as sources_errors
from tidegate.sources.files.ledger import open_ledger
from tidegate.state.batch_files import Given
from tidegate.state.birth import Birth, Fingerprint, changed_keys, read_births
from tidegate.state.checkpoint import CheckpointState
from tidegate.state.files import damaged
from tidegate.state.manifest import end_positions
from tidegate.state.published import Published
from tidegate.state.seal import CheckpointFiles, find_edited
from tidegate.state.topics import Offsets, Positions, offsets_from_json, positions_from_json
from tidegate.table import errors as table_errors
from tidegate.table.log.features import append_only, unsupported
from tidegate.table.log.state import TableState


def check_agreement(facts: Facts, name: str) -> None:
    """Raise the first disagreement, the one nearest to the table first."""
    _check_log(facts, name)
    _check_partitions(facts, name)
    living = facts.living_query
    if living in facts.retired:
        raise errors.CHECKPOINT_OF_ENDED_QUERY(where=f"pipeline {name}", name=name, living=living)
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
            raise errors.FOREIGN_TABLE(
                where=facts.table_folder,
                name=name,
                first_foreign_file=facts.foreign_files[0],
                quoted_table_folder=shlex.quote(facts.table_folder),
                quoted_path=shlex.quote(facts.table_folder + ".before"),
            )
        return
    if before is None:
        if not facts.has_state:
            raise errors.STATE_BEHIND(
                where=f"pipeline {name}", version=facts.table.version, found="rows", way_on=_new_start(facts, name)
            )
        return
    refuse_another_table(facts.table, before, name)
    settled = facts.settled_up_to(str(before.query_id))
    if facts.table.version < before.version or settled < before.batch_id:
        found = f"it is at version {facts.table.version}, batch {settled}; the last publish was "
        found += f"version {before.version}, batch {before.batch_id}"
        raise table_errors.TABLE_BEHIND(where=f"pipeline {name}", name=name, found=found)


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
        sentences[-1] += list_first(found.files)
    for query, (counts, last) in found.batches.items():
        sentences.append(
            f"query {query} was at batch {counts} when the table was adopted, and has committed batch {last}"
        )
    if sentences:
        raise errors.OLD_JOB_WROTE(where=facts.table_folder, name=name, found="; ".join(sentences))


def check_state(facts: Facts, name: str) -> None:
    """The table's log holds what nothing here, or in quarantine, knows of: an older copy of these was restored."""
    if facts.table is None or not facts.has_state:
        return
    where, version, later = f"pipeline {name}", facts.table.version, facts.later
    if later.read is not None:
        way_on = _new_start(facts, name)
        if later.back_to is not None:
            way_on = (
                f"`tidegate repair {name}`: the table goes back to version {later.back_to}, the newest of which this "
                "state folder knows all records, and what came since is read again from the sources"
            )
        raise errors.STATE_BEHIND(where=where, version=version, found=later.read, way_on=way_on)
    if later.rollback is not None:
        raise errors.STATE_BEHIND(where=where, version=version, found=later.rollback, way_on=_at_the_end(name))
    if later.moved is not None:
        raise errors.QUARANTINE_BEHIND(
            where=where, found=f"is from before {later.moved}, which the table holds at version {version}", name=name
        )


def _at_the_end(name: str) -> str:
    return f"`tidegate repair {name}`: a new checkpoint that starts exactly where the table's log ends"


def _new_start(facts: Facts, name: str) -> str:
    """How to continue without the state folder, which alone knows the files that are in the table."""
    if all(source["type"] == "kafka" for source in facts.fingerprint["sources"].values()):
        return _at_the_end(name)
    return (
        f"`tidegate repair {name} --rebuild`: a new table from all records still in the sources; the old one is kept "
        f"as a backup (`tidegate repair {name} --rebuild --dry-run` shows what that reads)"
    )


def _check_staging(facts: Facts, name: str) -> None:
    query, last = facts.checkpoint.query_id, facts.checkpoint.last_commit
    gone = list(facts.gone_of_replaced)
    if query is not None and last is not None:
        gone += sorted(set(range(facts.settled_up_to(query) + 1, last + 1)) - facts.staged(query))
    if gone:
        raise _staging_gone(gone, name)
    if missing := facts.missing_staged_files:
        found = f"{count_of(len(missing), 'file')} of them, for example {missing[0]}"
        raise errors.STAGING_GONE(where=f"pipeline {name}", name=name, found=found)
    if wrong := facts.damaged_staged_files:
        found = f"{count_of(len(wrong), 'file')} of another size than was written"
        raise damaged(Path(facts.state_folder) / wrong[0], found, name)


def _staging_gone(gone: Sequence[int], name: str) -> DisagreementError:
    batches = ", ".join(map(str, gone[:10]))
    return errors.STAGING_GONE(
        where=f"pipeline {name}", name=name, found=f"batches {batches}, which Spark has committed"
    )


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
        seal={},
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
            raise _staging_gone(gone, name)
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
    """True if the table was last written by the query that the birth record names, or by one before it: a stale process
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
            faults = f"the checkpoint of query {birth.query_id} is gone"
            raise sources_errors.CHECKPOINT_TORN(where=where, name=name, faults=faults)
        if birth is None and _has_had_a_birth(facts):
            found = "the checkpoint and its birth record are gone"
            raise errors.CHECKPOINT_DIVERGED(where=where, name=name, found=found)
        return
    if birth is None:
        raise errors.CHECKPOINT_DIVERGED(where=where, name=name, found="its birth record is gone")
    if birth.query_id is not None and birth.query_id != checkpoint.query_id:
        found = f"it is of query {checkpoint.query_id}, and the pipeline's is {birth.query_id}"
        raise errors.CHECKPOINT_DIVERGED(where=where, name=name, found=found)
    newest = facts.newest_kept(checkpoint.query_id)
    if newest > (-1 if checkpoint.last_offset is None else checkpoint.last_offset):
        found = f"it ends at batch {checkpoint.last_offset}, and batch {newest} was staged or published"
        raise errors.CHECKPOINT_DIVERGED(where=where, name=name, found=found)


def _has_had_a_birth(facts: Facts) -> bool:
    """True if a query has staged or published something, or a topic continues behind an adopted table; files have the
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
        raise errors.CHECKPOINT_DIVERGED(where=f"pipeline {name}", name=name, found=list_first(found, 3, "; "))


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


def find_divergence(facts: Facts, batch: int) -> list[str]:
    """Where the checkpoint says something else about ``batch`` than the others do, as far as they are there."""
    found = [
        f"batch {batch} of source {name} ends before it begins"
        for name, taken in facts.given[batch].items()
        if taken.is_backwards
    ]
    for name, begins, ends, where in _known_offsets(facts, batch):
        found += _compare_offsets(facts, batch, name, begins, ends, where)
    return found + _compare_files(facts, batch) + _compare_ledger(facts, batch)


def _known_offsets(facts: Facts, batch: int) -> Iterator[tuple[str, Offsets, Offsets, str]]:
    """(source, where its ranges begin, as far as that is known, and where they end, by whom)."""
    for manifest in facts.manifests.get(str(facts.query_id), ()):
        if manifest.batch_id == batch:
            for name, taken in manifest.sources.items():
                if taken.offsets is not None:
                    begins = {partition: one.begin for partition, one in taken.offsets.items()}
                    ends = {partition: one.end for partition, one in taken.offsets.items()}
                    yield name, begins, ends, "its manifest"
    note = facts.published
    if note is not None and (note.query_id, note.batch_id) == (facts.query_id, batch):
        for name, ends in (note.positions or {}).items():
            yield name, {}, ends, "the note of its publish"
    commit = facts.table.metadata if facts.table is not None else {}
    if commit.get("tidegate.query_id") == facts.query_id and commit.get("tidegate.positions"):
        _, last = json.loads(commit["tidegate.batches"])
        if last == batch:
            for name, ends in positions_from_json(json.loads(commit["tidegate.positions"])).items():
                yield name, {}, ends, "the table's log"


def _compare_offsets(facts: Facts, batch: int, source: str, begins: Offsets, ends: Offsets, where: str) -> list[str]:
    """Each partition that the batch file names must be where ``begins`` and ``ends`` say."""
    given = facts.given[batch].get(source, Given())
    if given.is_former:
        return []
    found = []
    for partition, until in given.ends.items():
        start, known_start, known_until = given.begins.get(partition), begins.get(partition), ends.get(partition)
        if until != known_until or (None not in (start, known_start) and start != known_start):
            found.append(
                f"batch {batch} has offsets {_show(start, until)} of {partition} of source {source}, "
                f"and {where} has {'none' if known_until is None else _show(known_start, known_until)}"
            )
    if where == "its manifest":  # a commit may hold batches of when there were more topics
        given_topics = {topic for topic, _ in given.ends}
        gone = dict.fromkeys(topic for topic, _ in ends if topic not in given_topics)
        found += [f"batch {batch} lacks topic {topic} of source {source}, and {where} has it" for topic in gone]
    return found


def _show(start: int | None, until: int) -> str:
    return f"up to {until}" if start is None else f"{start} to {until}"


def _compare_files(facts: Facts, batch: int) -> list[str]:
    given = facts.given[batch]
    return [
        f"batch {batch} has other files of source {name} than its manifest"
        for manifest in facts.manifests.get(str(facts.query_id), ())
        if manifest.batch_id == batch
        for name, taken in manifest.sources.items()
        if taken.files is not None
        and sorted(file["link"] for file in taken.files) != list(given[name].links if name in given else ())
    ]


def _compare_ledger(facts: Facts, batch: int) -> list[str]:
    """The files of a batch were staged in it and in no other; those of a batch that was only planned in none yet."""
    mine, nowhere = (facts.query_id, batch), (None, None)
    settled = batch <= facts.settled_up_to(str(facts.query_id))
    staged = batch in facts.staged(facts.query_id)
    fit: set[tuple[str | None, int | None] | None] = {mine} if settled else {mine, nowhere} if staged else {nowhere}
    found = []
    for source, taken in facts.given[batch].items():
        known = (facts.taken_links or {}).get(source)
        for link in taken.links if known is not None else ():
            assert known is not None
            if known.get(link) not in fit and not (settled and link not in known):
                found.append(f"batch {batch} has file {link} of source {source}, which is not of this batch")
    return found


def list_files_missing_from_ledger(facts: Facts, batch: int) -> list[str]:
    """The files of a batch which the table's log holds, and the ledger does not: it is an older copy."""
    if batch > facts.settled_up_to(str(facts.query_id)) or facts.taken_links is None:
        return []
    return [
        link
        for source, taken in facts.given[batch].items()
        for link in taken.links
        if facts.taken_links.get(source, {}).get(link) == (None, None)
    ]
