"""The refresh of a query that keeps state: rows *and* state are made anew, and live runs go on with both.

The job beside the runs drains all records from an empty checkpoint, as a first run would. With the version that swaps
the rows its checkpoint becomes the pipeline's, at its last batch (:mod:`tidegate.runs.recovery.hand_over`): what the
job has read, live runs do not read again, and what it has not read they do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from tidegate.core import storage
from tidegate.core.errors import catalogue
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.verdicts import StoredVerdict
from tidegate.spec.models import CloseWhen, PipelineSpec
from tidegate.state.birth import Birth, read_birth
from tidegate.state.checkpoint import move_lists, read_checkpoint
from tidegate.state.manifest import BatchKey, BatchManifest, StagedFile, end_positions, event_times, joined_rule
from tidegate.state.open_state import read_open_state
from tidegate.state.seal import Seal, set_seal
from tidegate.state.topics import positions_to_json
from tidegate.table.log.state import DataFile, digest_files
from tidegate.table.publish.intent import REPLACES, HandOver, PublishIntent
from tidegate.table.publish.plan import plan_replacement
from tidegate.table.upsert.folded import Folded


def refuse_pending(paths: PipelinePaths, facts: Facts, name: str) -> None:
    """Raise UsageError REFRESH_PENDING where it is not settled what becomes of records that a run has read: the new
    query would not know. A batch that was only planned is none of these: its records are the next run's."""
    if (why := _what_is_pending(paths, facts)) is not None:
        raise catalogue.REFRESH_PENDING(where=f"pipeline {name}", why=why, name=name)


def _what_is_pending(paths: PipelinePaths, facts: Facts) -> str | None:
    if storage.list_folder(paths.waiting, "*.json"):
        return "an increment waits alone for a decision"
    if facts.owed:
        return f"{count_of(len(facts.owed), 'batch', 'batches')} of runs are staged, and not in the table"
    if facts.begun_and_staged is not None:
        return f"Spark has not committed batch {facts.begun_and_staged}, which is in the table"
    return None


def is_unchanged(paths: PipelinePaths, facts: Facts, given: HandOver) -> bool:
    """Whether the query that is to be replaced is where it was when the job beside it was begun: nothing that runs have
    read since is missing."""
    pinned, (query_id, last) = paths.pinned(), given.replaces
    is_living = pinned.generation == given.generation - 1 and living_query(facts) == query_id
    return is_living and _what_is_pending(paths, facts) is None and facts.settled_up_to(query_id) == last


def living_query(facts: Facts) -> str:
    """The id of the query that is to be replaced: a table is there, so it has one."""
    query_id = facts.query_id or (facts.birth.query_id if facts.birth is not None else None)
    return str(query_id)


def closes_all(paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> bool:
    """Whether the living query has closed what was open, because nothing came for as long as ``close_windows`` says: it
    would come back open with the new one."""
    note, policy = read_open_state(paths, facts.query_id), spec.close_windows
    if note is None or not isinstance(policy, CloseWhen):
        return False
    return time.time() * 1000 - note.last_data_at_ms >= policy.when * 1000


def make_ready(beside: RunContext, folder: str, paths: PipelinePaths) -> None:
    """Have the job's checkpoint fit the pipeline's own folders (``paths``), once the job is done; it is sealed as it is
    then."""
    side, begun = beside.paths, _begun(paths)
    move_lists(side.checkpoint, f"{folder}/intake", "intake")
    move_lists(side.checkpoint, f"{folder}/batches", str(begun.batches.relative_to(paths.state)))
    facts = gather_facts(side, beside.spec)
    set_seal(side, facts.checkpoint, facts.files, Seal())


def plan_hand_over(
    paths: PipelinePaths,
    side: PipelinePaths,
    facts: Facts,
    spec: PipelineSpec,
    *,
    run_id: str,
    manifests: Sequence[BatchManifest],
    folded: Folded | None,
    verdict: StoredVerdict,
    table_files: Sequence[DataFile],
    report: dict[str, Any],
    companion: PublishIntent | None,
) -> PublishIntent:
    """The publish that replaces the whole table by what the job in ``side`` has staged, and its query by the job's.

    Files of ``manifests`` and ``folded`` are named relative to the pipeline's state folder. ``facts`` are the
    pipeline's.
    """
    from tidegate.table.upsert.merge import Replacement

    born, checkpoint = read_birth(side), read_checkpoint(side.checkpoint)
    assert born is not None and checkpoint.query_id == manifests[-1].query_id
    replaced, last = living_query(facts), manifests[-1].batch_id
    ends_at = facts.settled_up_to(replaced)
    remaining = folded or _all_of(manifests)
    intent = plan_replacement(
        manifests,
        remaining,
        Replacement(remove=list(table_files)),
        token="",
        table_files=digest_files(table_files),
        run_id=run_id,
        partition_by=list(spec.table.partition_by),
        app_version_before=-1,
        custom_metadata={
            "tidegate.outcome": "published",
            "tidegate.rows": json.dumps(report["rows"]),
            "tidegate.query_id": manifests[-1].query_id,
            "tidegate.batches": json.dumps([0, last]),
            "tidegate.positions": json.dumps(positions_to_json(end_positions(manifests))),
            "tidegate.verdict": str(verdict.quality.get("verdict")),
            "tidegate.partitioned": json.dumps(joined_rule(manifests)),
            **({"tidegate.event_times": json.dumps(event_times(manifests))} if spec.watermarks else {}),
            REPLACES: json.dumps([replaced, ends_at]),
        },
    )
    key = BatchKey(replaced, ends_at)
    birth = _birth_of(born, paths, facts, key, last)
    given = HandOver(
        folder=str(side.state.relative_to(paths.state)),
        generation=_begun(paths).generation or 0,
        birth=birth,
        replaces=key,
    )
    return replace(intent, report=report, companion=companion, hand_over=given)


def _begun(paths: PipelinePaths) -> PipelinePaths:
    """The paths of the query that takes the place of the living one."""
    return replace(paths, generation=(paths.pinned().generation or 0) + 1)


def _all_of(manifests: Sequence[BatchManifest]) -> Folded:
    """In append mode all rows of all batches remain."""
    files = [file for manifest in manifests for file in manifest.files]
    batches = [manifest.batch_id for manifest in manifests]
    return Folded(manifests[-1].query_id, batches, "update", {}, "", files, {})


def _birth_of(born: Birth, paths: PipelinePaths, facts: Facts, replaces: BatchKey, last: int) -> dict[str, Any]:
    """The job's birth as the pipeline's: sources that the spec leaves out for now stay known."""
    before = {} if facts.birth is None else facts.birth.sources
    birth = replace(
        born,
        sources={**before, **born.sources},
        state_folder=str(paths.state),
        replaces=replaces,
        rebuilt_up_to=last,
    )
    return asdict(birth)


def within_pipeline(
    manifests: Sequence[BatchManifest], folded: Folded | None, folder: str
) -> tuple[list[BatchManifest], Folded | None]:
    """Manifests, and what remains of them, with their files as the pipeline's state folder has them."""

    def below(files: Sequence[StagedFile]) -> list[StagedFile]:
        return [file.below(folder) for file in files]

    moved = [replace(one, files=below(one.files), quarantine_files=below(one.quarantine_files)) for one in manifests]
    return moved, None if folded is None else replace(folded, files=below(folded.files))
