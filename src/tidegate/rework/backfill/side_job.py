"""Side jobs (backfill, refresh, replay): run the query on chosen records, in the job's state folder.

One intent has two halves, and recovery always finishes both: rows are added to the table or replace others, and records
are added to quarantine or removed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.order import pin_statics, run_driver
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import RunReport
from tidegate.runs.reports.verdicts import StoredVerdict
from tidegate.sources.files.ledger import LinkedFile
from tidegate.sources.port import Chosen, Cut
from tidegate.sources.registry import open_sources
from tidegate.spark.driver.order import Bounds, IngestOrder
from tidegate.spark.driver.submit import Load
from tidegate.state.birth import Birth, write_birth
from tidegate.state.checkpoint import read_checkpoint
from tidegate.state.manifest import BatchManifest, StagedFile, joined_rule, read_all_manifests
from tidegate.table.log.state import list_data_files, read_table_state
from tidegate.table.publish.intent import PublishIntent, WholeFiles
from tidegate.table.publish.origins import ORIGINS, Batch, dump_origins
from tidegate.table.publish.plan import Changes, Rework, plan_rework
from tidegate.table.upsert.folded import Folded


@dataclass(frozen=True)
class Reading:
    """What a side job reads, and how. ``chosen`` is by source; ``links`` are the files in the job's intake, as in an
    order."""

    birth: Birth
    chosen: Mapping[str, Chosen]
    links: dict[str, dict[str, LinkedFile]]
    cut: Cut = Cut.NOWHERE
    bounds: Bounds | None = None
    of_texts: bool = False
    """True if the files in the intake are the texts of the records (:func:`tidegate.spec.as_read.as_texts`)."""
    replaces_schema: bool = False
    """True if the rows may have other columns than the table: they replace all of its rows."""
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
    whole_files: Sequence[WholeFiles] = ()
    """The whole source files that go into quarantine, or out of it, with these rows."""

    @property
    def published(self) -> list[StagedFile]:
        """The files that are added to the table."""
        return self.files if self.folded is None else self.folded.files


def clear_attempts(context: RunContext, jobs: Sequence[Path], keep: Collection[Path] = ()) -> None:
    """Remove what earlier attempts have left in the folders of some jobs, except those to ``keep``. They are listed
    before the lease is checked, and each has a unique name, so that a stale process removes nothing of its
    successor's."""
    found = [one for job in jobs for one in storage.list_folder(job, "*") if one not in keep]
    context.lease.check()
    for one in found:
        if one.is_dir():
            storage.remove_tree(one)
        else:
            storage.remove(one)
    for job in jobs:
        storage.remove_empty_folder(job)


def build_rows(
    context: RunContext, job: RunContext, folder: str, reading: Reading, submit: Submit
) -> list[BatchManifest]:
    """Let Spark read the chosen records into the staging of ``job``, whose state is in ``folder`` below the pipeline's;
    return the manifests. Raises what a run's ingest raises."""
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
        partition_columns={name: _folder_columns(links) for name, links in reading.links.items()},
        statics=pin_statics(project, side, context.spec, read_checkpoint(side.checkpoint), job.lease),
        table_schema_json=None if reading.replaces_schema else context.facts.table.schema_json,
        table_partition_by=context.facts.table.partition_columns,
        beside=folder,
        bounds=reading.bounds,
        of_texts=reading.of_texts,
        one_row_each=reading.one_row_each,
    )
    files = [file for links in reading.links.values() for file in links.values()]
    run_driver(job, order, Load(sum(file["size"] for file in files), len(files)), submit)
    return [one for found in read_all_manifests(side.manifests).values() for one in found]


def _folder_columns(links: Iterable[str]) -> list[str]:
    """The columns in the names of the folders of some files."""
    return sorted({part.partition("=")[0] for link in links for part in link.split("/")[:-1] if "=" in part})


PlanQuarantine = Callable[[Rework, str], PublishIntent | None]
"""Plans the quarantine half of a job, with the token in its file names; None where nothing changes in quarantine."""


def plan_rows(
    context: RunContext,
    manifests: Sequence[BatchManifest],
    changes: Changes,
    report: RunReport,
    plan_quarantine: PlanQuarantine,
) -> PublishIntent:
    """Plan the publish of the ``changes``, whose new files are of ``manifests``. ``report`` is the final report."""
    paths = context.paths
    work = Rework(context.name, context.report.mode, context.report.run_id)
    table = read_table_state(paths.table, (work.app_id,))
    work = replace(work, part=max(_list_begun(paths, work.app_id)) + 1)
    token = secrets.token_hex(6)
    changes = replace(
        changes,
        token=token,
        metadata={
            **changes.metadata,
            "tidegate.partitioned": json.dumps(joined_rule(manifests)),
            "tidegate.rows": json.dumps(report.rows),
            "tidegate.verdict": str(report.quality.get("verdict")),
        },
        schema_json=manifests[-1].schema_json if manifests and (changes.new or changes.replaces_schema) else None,
    )
    return plan_rework(work, table, changes, report=report.to_json(), companion=plan_quarantine(work, token))


def _list_begun(paths: PipelinePaths, app_id: str) -> tuple[int, int]:
    """The last parts of a job in the logs of table and quarantine, -1 for none. The next one is past both: an attempt
    that stopped between the two, or was abandoned, must not be taken for it."""
    states = [read_table_state(path, (app_id,)) for path in (paths.table, paths.quarantine)]
    table, quarantine = (-1 if state is None else state.txns.get(app_id, -1) for state in states)
    return table, quarantine


def plan_again(paths: PipelinePaths, intent: PublishIntent) -> PublishIntent:
    """Number a plan that was made earlier anew: after the parts that the job has published since."""
    if intent.hand_over is not None:
        return intent
    table, quarantine = _list_begun(paths, intent.app_id)
    part = max(table, quarantine) + 1
    companion = intent.companion
    if companion is not None:
        companion = replace(companion, app_version=part, app_version_before=quarantine)
    return replace(intent, app_version=part, app_version_before=table, companion=companion)


def plan_quarantine_half(
    paths: PipelinePaths,
    work: Rework,
    changes: Changes,
    *,
    of: Collection[Batch],
    carried_of: Sequence[Collection[Batch]] = (),
) -> PublishIntent:
    """Plan the quarantine half: the new records are ``of`` some batches, those of each carried file of others."""
    state = read_table_state(paths.quarantine, (work.app_id,))
    if changes.remove:
        changes = replace(changes, table_files=list_data_files(paths.quarantine))
    plan = plan_rework(work, state, changes, target="quarantine")
    made = [file.path for file in plan.files_to_add]
    new = len(changes.new)
    rest = [([path], batches) for path, batches in zip(made[new:], carried_of, strict=True)]
    plan.custom_metadata[ORIGINS] = dump_origins([(made[:new], of), *rest])
    return plan
