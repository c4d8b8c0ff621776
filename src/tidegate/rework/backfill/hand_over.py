"""The refresh of a stateful query: rows *and* state are created again, and live runs continue with both.

The side job reads all records from an empty checkpoint, as a first run would. With the version that swaps the rows, its
checkpoint becomes the pipeline's, at its last batch (:mod:`tidegate.runs.recovery.side_jobs`): live runs do not read
again what the job has read, and read everything else.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.rework import errors
from tidegate.rework.backfill.side_job import Built, PlanQuarantine
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import RunReport
from tidegate.spec.models import CloseWhen, PipelineSpec
from tidegate.state.birth import read_birth
from tidegate.state.checkpoint import move_lists, read_checkpoint
from tidegate.state.manifest import BatchKey, BatchManifest, StagedFile, end_positions, event_times, joined_rule
from tidegate.state.open_state import read_open_state
from tidegate.state.seal import set_seal
from tidegate.state.topics import positions_to_json
from tidegate.table.log.snapshot import Replacement
from tidegate.table.log.state import DataFile, read_table_state
from tidegate.table.publish.intent import REPLACES, HandOver, PublishIntent
from tidegate.table.publish.plan import Rework, plan_publish, plan_replacement
from tidegate.table.upsert.folded import Folded


def refuse_pending(paths: PipelinePaths, facts: Facts, name: str) -> None:
    """Raise UsageError REFRESH_PENDING where records that a run has read are not yet published or discarded.

    A new query would lose them, and their rows do not fit new columns. A batch that was only planned does not count:
    the next run reads its records.
    """
    if (why := describe_pending(paths, facts)) is not None:
        raise errors.REFRESH_PENDING(where=f"pipeline {name}", why=why, name=name)


def describe_pending(paths: PipelinePaths, facts: Facts) -> str | None:
    """What runs have read that is neither published nor discarded; None for nothing."""
    if storage.list_folder(paths.waiting, "*.json"):
        return "an increment is deferred until a decision"
    if facts.unpublished:
        return f"{count_of(len(facts.unpublished), 'batch', 'batches')} of runs are staged, and not in the table"
    if facts.begun_and_staged is not None:
        return f"Spark has not committed batch {facts.begun_and_staged}, which is in the table"
    return None


def is_unchanged(paths: PipelinePaths, facts: Facts, given: HandOver) -> bool:
    """Return whether the query to replace has read nothing since the side job was started."""
    pinned, (query_id, last) = paths.pinned(), given.replaces
    is_current = pinned.generation == given.generation - 1 and current_query(facts) == query_id
    return is_current and describe_pending(paths, facts) is None and facts.settled_up_to(query_id) == last


def current_query(facts: Facts) -> str:
    """The id of the query to replace; there is one, because there is a table."""
    query_id = facts.query_id or (facts.birth.query_id if facts.birth is not None else None)
    return str(query_id)


def closes_all(paths: PipelinePaths, spec: PipelineSpec, facts: Facts) -> bool:
    """True if the current query has closed its open windows because no data came for the time in ``close_windows``: the
    new query has to close them too."""
    note, policy = read_open_state(paths, facts.query_id), spec.close_windows
    if note is None or not isinstance(policy, CloseWhen):
        return False
    return time.time() * 1000 - note.last_data_at_ms >= policy.when * 1000


def prepare_checkpoint(job: RunContext, folder: str, paths: PipelinePaths) -> None:
    """Make the checkpoint of a finished job refer to the pipeline's own folders (``paths``), and seal it."""
    side, new = job.paths, _next_generation(paths)
    move_lists(side.checkpoint, f"{folder}/intake", "intake")
    move_lists(side.checkpoint, f"{folder}/batches", str(new.batches.relative_to(paths.state)))
    facts = gather_facts(side, job.spec)
    set_seal(side, facts.checkpoint, facts.files, {})


def plan_hand_over(
    context: RunContext,
    built: Built,
    table_files: Sequence[DataFile],
    report: RunReport,
    plan_quarantine: PlanQuarantine,
) -> PublishIntent:
    """Plan the publish that replaces the whole table by the files that the job has staged, and the query by the job's.
    ``report`` is the final report."""
    paths, spec, facts, manifests = context.paths, context.spec, context.facts, built.manifests
    born, checkpoint = read_birth(built.side), read_checkpoint(built.side.checkpoint)
    assert facts is not None and born is not None and checkpoint.query_id == manifests[-1].query_id
    work = Rework(context.name, context.report.mode, context.report.run_id)
    quarantine = read_table_state(paths.quarantine, (work.app_id,))
    work = replace(work, part=0 if quarantine is None else quarantine.txns.get(work.app_id, -1) + 1)
    replaced, last = current_query(facts), manifests[-1].batch_id
    ends_at = facts.settled_up_to(replaced)
    empty = plan_publish(
        manifests,
        run_id=work.run_id,
        partition_by=spec.table.partition_by,
        app_version_before=-1,
        discard=True,
        custom_metadata={
            "tidegate.outcome": "published",
            "tidegate.rows": json.dumps(report.rows),
            "tidegate.query_id": manifests[-1].query_id,
            "tidegate.batches": json.dumps([0, last]),
            "tidegate.positions": json.dumps(positions_to_json(end_positions(manifests))),
            "tidegate.verdict": str(built.verdict.quality.get("verdict")),
            "tidegate.partitioned": json.dumps(joined_rule(manifests)),
            **({"tidegate.event_times": json.dumps(event_times(manifests))} if spec.watermarks else {}),
            REPLACES: json.dumps([replaced, ends_at]),
        },
    )
    folded, replacement = built.folded or _all_of(manifests), Replacement(remove=list(table_files))
    intent = plan_replacement(empty, manifests, folded, replacement, token="", table_files=table_files)
    key = BatchKey(replaced, ends_at)
    before = {} if facts.birth is None else facts.birth.sources  # also sources that are not in the spec for now
    birth = replace(
        born,
        sources={**before, **born.sources},
        state_folder=paths.state_name,
        replaces=key,
        rebuilt_up_to=last,
    )
    given = HandOver(
        folder=str(built.side.state.relative_to(paths.state)),
        generation=_next_generation(paths).generation or 0,
        birth=asdict(birth),
        replaces=key,
    )
    companion = plan_quarantine(work, secrets.token_hex(6))
    return replace(intent, report=report.to_json(), companion=companion, hand_over=given, replaces_schema=True)


def _next_generation(paths: PipelinePaths) -> PipelinePaths:
    """The paths of the query that replaces the current one."""
    return replace(paths, generation=(paths.pinned().generation or 0) + 1)


def _all_of(manifests: Sequence[BatchManifest]) -> Folded:
    """All rows of all batches, which remain in append mode."""
    files = [file for manifest in manifests for file in manifest.files]
    batches = [manifest.batch_id for manifest in manifests]
    return Folded(manifests[-1].query_id, batches, "update", {}, "", files, {})


def within_pipeline(
    manifests: Sequence[BatchManifest], folded: Folded | None, folder: str
) -> tuple[list[BatchManifest], Folded | None]:
    """Rewrite manifests and ``folded`` with paths relative to the pipeline's state folder."""

    def below(files: Sequence[StagedFile]) -> list[StagedFile]:
        return [file.below(folder) for file in files]

    moved = [replace(one, files=below(one.files), quarantine_files=below(one.quarantine_files)) for one in manifests]
    return moved, None if folded is None else replace(folded, files=below(folded.files))
