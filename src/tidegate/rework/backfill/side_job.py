"""Side jobs (backfill, refresh, replay): run the query on chosen records, in the job's state folder.

One intent has two halves, and recovery always finishes both: rows are added to the table or replace others, and records
are added to quarantine or removed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.order import Load, pin_statics, run_driver
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import RunReport
from tidegate.runs.reports.verdicts import StoredVerdict
from tidegate.sources.files.ledger import LinkedFile
from tidegate.sources.port import Chosen, Cut
from tidegate.sources.registry import open_sources
from tidegate.spark.driver.order import Bounds, IngestOrder
from tidegate.state.birth import Birth, write_birth
from tidegate.state.checkpoint import read_checkpoint
from tidegate.state.manifest import BatchManifest, StagedFile, joined_rule, read_all_manifests
from tidegate.table.log.state import DataFile, list_data_files, read_table_state
from tidegate.table.publish.intent import PublishIntent
from tidegate.table.publish.origins import ORIGINS, Batch, dump_origins
from tidegate.table.publish.plan import Rework, plan_rework
from tidegate.table.quarantine.schema import QUARANTINE_SCHEMA_JSON
from tidegate.table.upsert.folded import Folded


@dataclass(frozen=True)
class Reading:
    """What a side job reads, and how. ``chosen`` is by source; ``links`` are the files in the job's intake, as in an
    order."""

    birth: Birth
    chosen: Mapping[str, Chosen]
    links: dict[str, dict[str, LinkedFile]]
    partition_columns: dict[str, list[str]]
    load: Load
    cut: Cut = Cut.NOWHERE
    bounds: Bounds | None = None
    of_texts: bool = False
    """True if the files in the intake are the texts of the records (:func:`tidegate.spec.as_read.as_texts`)."""
    one_row_each: bool = False
    """True if no record may become more than one row."""


@dataclass(frozen=True)
class Built:
    """The files that a side job has staged for an interval; paths are relative to the pipeline's state folder."""

    manifests: list[BatchManifest]
    files: list[StagedFile]
    quarantine: list[StagedFile]
    verdict: StoredVerdict
    side: PipelinePaths
    folded: Folded | None = None
    """Where rows replace others: those that remain."""

    @property
    def published(self) -> list[StagedFile]:
        """The files that are added to the table."""
        return self.files if self.folded is None else self.folded.files


def clear_attempts(context: RunContext, jobs: Sequence[Path]) -> None:
    """Remove what earlier attempts have left in the folders of some jobs. They are listed before the lease is checked,
    and each has a unique name, so that a stale process removes nothing of its successor's."""
    found = [one for job in jobs for one in storage.list_folder(job, "*")]
    context.lease.check()
    for one in found:
        if one.is_dir():
            storage.remove_tree(one)
        else:
            storage.remove(one)
    for job in jobs:
        storage.remove_empty_folder(job)


def build_rows(context: RunContext, job: RunContext, folder: str, reading: Reading, submit: Submit) -> None:
    """Let Spark read the chosen records into the staging of ``job``, whose state is in ``folder`` below the pipeline's.

    :func:`read_built` returns the manifests. Raises what a run's ingest raises."""
    project, side = context.project, job.paths
    assert context.facts is not None and context.facts.table is not None, "there are rows to replace"
    write_birth(side, reading.birth)
    for name, source in open_sources(project, side, job.spec).items():
        source.write_chosen(reading.chosen[name], reading.cut, context.lease.check)
    job.facts = gather_facts(side, job.spec)
    order = IngestOrder(
        project_root=str(project.root),
        pipeline=job.spec.name,
        run_id=job.report.run_id,
        token=job.lease.token,
        master=project.spec.spark.master,
        links=reading.links,
        partition_columns=reading.partition_columns,
        statics=pin_statics(project, side, context.spec, read_checkpoint(side.checkpoint), job.lease),
        table_schema_json=context.facts.table.schema_json,
        table_partition_by=context.facts.table.partition_columns,
        beside=folder,
        bounds=reading.bounds,
        of_texts=reading.of_texts,
        one_row_each=reading.one_row_each,
    )
    run_driver(job, order, reading.load, submit)


def read_built(job: RunContext) -> list[BatchManifest]:
    """The batches that a side job has staged."""
    return [one for found in read_all_manifests(job.paths.manifests).values() for one in found]


PlanQuarantine = Callable[[Rework, str], PublishIntent | None]
"""Plans the quarantine half of a job, with the token in its file names; None where nothing changes in quarantine."""


def plan_rows(
    context: RunContext,
    *,
    new: Sequence[StagedFile],
    table_files: Sequence[DataFile],
    manifests: Sequence[BatchManifest],
    report: RunReport,
    metadata: Mapping[str, str],
    plan_quarantine: PlanQuarantine,
    remove: Sequence[DataFile] = (),
) -> PublishIntent:
    """Plan the publish of the ``new`` files of ``manifests``, replacing ``remove``. ``report`` is the final report,
    ``table_files`` are the files that the plan was made for."""
    paths = context.paths
    work = Rework(context.name, context.report.mode, context.report.run_id)
    table, quarantine = (read_table_state(path, (work.app_id,)) for path in (paths.table, paths.quarantine))
    before = -1 if table is None else table.txns.get(work.app_id, -1)
    # Past both logs: an attempt that stopped between the two, or was abandoned, must not be taken for this one.
    work = replace(work, part=max(before, -1 if quarantine is None else quarantine.txns.get(work.app_id, -1)) + 1)
    token = secrets.token_hex(6)
    return plan_rework(
        work,
        target="table",
        table=table,
        table_files=table_files,
        token=token,
        new=new,
        remove=remove,
        outcome="published",
        metadata={
            **metadata,
            "tidegate.partitioned": json.dumps(joined_rule(manifests)),
            "tidegate.rows": json.dumps(report.rows),
            "tidegate.verdict": str(report.quality.get("verdict")),
        },
        report=report.to_json(),  # type: ignore[arg-type]
        schema_json=manifests[-1].schema_json if new else None,
        before=before,
        companion=plan_quarantine(work, token),
    )


def plan_quarantine_half(
    paths: PipelinePaths,
    work: Rework,
    token: str,
    *,
    new: Sequence[StagedFile],
    of: Collection[Batch],
    remove: Sequence[DataFile] = (),
    carried: Sequence[tuple[StagedFile, Collection[Batch]]] = (),
) -> PublishIntent:
    """Plan the quarantine half: add the ``new`` files, which are ``of`` some batches, and remove the files ``remove``;
    ``carried`` are copies of their remaining records, each with its batches."""
    state = read_table_state(paths.quarantine, (work.app_id,))
    plan = plan_rework(
        work,
        target="quarantine",
        table=state,
        table_files=list_data_files(paths.quarantine) if remove else None,
        token=token,
        new=new,
        carried=[file for file, _ in carried],
        remove=remove,
        outcome="published",
        schema_json=QUARANTINE_SCHEMA_JSON,
        before=-1 if state is None else state.txns.get(work.app_id, -1),
    )
    made = [file.path for file in plan.files_to_add]
    rest = [([path], batches) for path, (_, batches) in zip(made[len(new) :], carried, strict=True)]
    plan.custom_metadata[ORIGINS] = dump_origins([(made[: len(new)], of), *rest])
    return plan
