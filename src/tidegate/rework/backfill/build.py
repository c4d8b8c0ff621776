"""Run the query of a side job (backfill, refresh or replay) on chosen records, in the job's own state folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.runs.drive import Load, run_driver
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.statics import pin_statics
from tidegate.sources.files.ledger import LinkedFile
from tidegate.sources.port import Chosen, Cut
from tidegate.sources.registry import open_sources
from tidegate.spark.driver.order import Bounds, IngestOrder
from tidegate.state.birth import Birth, write_birth
from tidegate.state.checkpoint import read_checkpoint
from tidegate.state.manifest import BatchManifest, read_all_manifests


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
    """Whether the files in the intake are the texts of the records (:func:`tidegate.spec.as_read.as_texts`)."""
    one_row_each: bool = False
    """Whether no record may become more than one row."""


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
