"""The DAG of a pipeline: ``ingest >> audit >> publish``, and ``>> deliver`` where there are further sinks.

A fault in a spec is an import error of that DAG alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from airflow.sdk import DAG, Asset, Param

from tidegate.airflow.alerts import failure_arguments, make_deadline
from tidegate.airflow.form import describe_form
from tidegate.airflow.locate import find_project
from tidegate.airflow.operators import AuditOperator, DeliverOperator, IngestOperator, MaintainOperator, PublishOperator
from tidegate.airflow.retries import retry_arguments
from tidegate.core.errors import TidegateError
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import load_project

if TYPE_CHECKING:
    from tidegate.spec.models import PipelineSpec

# The lease's heartbeat shows that a task is alive, not that it makes progress: one that hangs would block the pipeline
# forever. A first load that takes longer continues in the retry from what was staged.
EXECUTION_TIMEOUT = timedelta(days=1)
# With on_critical: continue a held run stays active until somebody decides, while later runs continue.
WAITING_AT_MOST = 16
# Airflow requires a start date; without catchup its value does not matter, as long as it is past and never changes.
START_DATE = datetime(2024, 1, 1, tzinfo=UTC)


class _OfPipeline(TypedDict):
    pipeline: str
    project_root: str
    takes_turns: bool


class _Pool(TypedDict, total=False):
    pool: str


def build_dag(
    name: str, project_dir: str | os.PathLike[str] | None = None, *, default_args: Mapping[str, object] | None = None
) -> DAG:
    """Build the DAG of pipeline ``name`` from its ``pipeline.yaml``.

    Args:
        name: The pipeline.
        project_dir: The project; by default the nearest folder with a ``tidegate.yaml`` at or above the calling file,
            else the environment's ``TIDEGATE_PROJECT``.
        default_args: Override what the spec and ``tidegate.yaml`` say (retries, callbacks, pool, queue).

    Raises:
        UsageError: With every fault of the project file and the spec.
    """
    caller = sys._getframe(1).f_code.co_filename
    root = find_project(caller, project_dir)
    project = load_project(root)
    spec = load_pipeline(project, name)
    continues = spec.quality.on_critical == "continue"
    theirs = default_args or {}
    with DAG(
        dag_id=name,
        description=spec.description or None,
        doc_md=describe_pipeline(spec),
        schedule=spec.schedule,
        start_date=START_DATE,
        catchup=False,
        max_active_runs=WAITING_AT_MOST if continues else 1,
        tags=sorted({*spec.tags, "tidegate"}),
        params={key: Param(**kwargs) for key, kwargs in describe_form().items()},
        render_template_as_native_obj=False,
        deadline=make_deadline(spec, str(root)),
        default_args={
            "owner": spec.owner or "airflow",
            "execution_timeout": EXECUTION_TIMEOUT,
            **retry_arguments(),
            **theirs,
            **failure_arguments(spec.alerts, theirs),
            # max_active_runs does not count the runs of backfills: this keeps a pipeline to one writer.
            "max_active_tis_per_dag": 1,
        },
    ) as dag:
        common: _OfPipeline = {"pipeline": name, "project_root": str(root), "takes_turns": continues}
        conn_id, wanted = project.spec.spark.connection, project.spec.airflow.pool
        pool: _Pool = {"pool": wanted} if wanted is not None and "pool" not in theirs else {}
        ingest = IngestOperator(task_id="ingest", cron=spec.schedule, conn_id=conn_id, **pool, **common)
        # An audit that waits for a person counts as active: it must not block the audits of later runs.
        at_once = WAITING_AT_MOST if continues else 1
        audit = AuditOperator(task_id="audit", max_active_tis_per_dag=at_once, **common)
        publish = PublishOperator(task_id="publish", asset=table_asset(name), **common)
        ingest >> audit >> publish
        if spec.sinks:
            publish >> DeliverOperator(task_id="deliver", conn_id=conn_id, **pool, **common)
    dag.fileloc = caller
    return dag


def table_asset(name: str) -> Asset:
    """The Airflow asset of pipeline ``name``'s table: ``Asset(name)``, which any DAG can use without tidegate."""
    return Asset(name)


def describe_pipeline(spec: PipelineSpec) -> str:
    """The documentation of the DAG, in Markdown."""
    sources = "\n".join(f"- `{name}` ({source.type})" for name, source in spec.sources.items())
    sinks = ", ".join(f"`{sink.name}`" for sink in spec.sinks)
    return (
        f"{spec.description}\n\n**Sources**\n\n{sources}\n\n"
        f"{f'**Further sinks** {sinks}' if sinks else ''}\n\n"
        f"**Table** `{spec.name}`: other DAGs follow it with `schedule=[Asset({spec.name!r})]`.\n\n"
        f"**When a run is held**: answer its Required Action here; or `tidegate status {spec.name}`, then "
        f'`tidegate release {spec.name} RUN_ID --reason "..."`, `tidegate discard {spec.name} RUN_ID --reason "..."`, '
        f'or after a correction `tidegate reread {spec.name} RUN_ID --reason "..."`.\n'
    )


MAINTENANCE_DAG = "tidegate_maintenance"
RETRIES = 12
RETRY_DELAY = timedelta(minutes=1)
"""A running pipeline has the lease: maintenance retries at growing intervals for about two hours."""


def build_maintenance_dag(
    project_dir: str | os.PathLike[str] | None = None, *, default_args: Mapping[str, object] | None = None
) -> DAG:
    """Build the DAG ``tidegate_maintenance``, and ``tidegate_maintenance.<name>`` for each pipeline with a separate
    maintenance schedule.

    The project is found as for :func:`tidegate.airflow.build_dag`; ``default_args`` override what is set here. A
    pipeline whose spec has a fault is skipped: its own DAG shows the fault. Raises :class:`UsageError` with every fault
    of the project file.
    """
    caller = sys._getframe(1).f_code.co_filename
    root = find_project(caller, project_dir)
    project = load_project(root)
    shared: list[PipelineSpec] = []
    separate: list[PipelineSpec] = []
    for name in list_pipelines(project):
        try:
            spec = load_pipeline(project, name)
        except TidegateError:
            continue
        is_own = "schedule" in spec.maintenance.fields_set
        if not is_own or spec.maintenance.schedule == project.spec.maintenance.schedule:
            shared.append(spec)
        elif spec.maintenance.schedule is not None:
            separate.append(spec)
    for spec in separate:  # Airflow registers these although nothing returns them: their block ends in a DAG file
        _make_dag(f"{MAINTENANCE_DAG}.{spec.name}", spec.maintenance.schedule, [spec], root, caller, default_args)
    return _make_dag(MAINTENANCE_DAG, project.spec.maintenance.schedule, shared, root, caller, default_args)


def _make_dag(
    dag_id: str,
    schedule: str | None,
    specs: list[PipelineSpec],
    root: Path,
    caller: str,
    default_args: Mapping[str, object] | None,
) -> DAG:
    with DAG(
        dag_id=dag_id,
        description="Compacts small files and removes files that nothing needs any more, as maintenance: says",
        doc_md=_DESCRIPTION,
        schedule=schedule,
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        max_active_tasks=1,  # each may read and write with two threads
        tags=["maintenance", "tidegate"],
        render_template_as_native_obj=False,
        default_args={
            "execution_timeout": EXECUTION_TIMEOUT,
            **retry_arguments(),
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
            **(default_args or {}),
            "max_active_tis_per_dag": 1,
        },
    ) as dag:
        for spec in specs:
            MaintainOperator(
                task_id=spec.name,
                owner=spec.owner or "airflow",
                pipeline=spec.name,
                project_root=str(root),
                **failure_arguments(spec.alerts, default_args),
            )
    dag.fileloc = caller
    return dag


_DESCRIPTION = """One task for each pipeline: `tidegate maintain NAME`, under the pipeline's lease. A task that finds
the pipeline running is retried until it is idle.

`tidegate maintain NAME --dry-run` shows what it would do. `maintenance:` in `tidegate.yaml` and `pipeline.yaml` says
what it keeps, and for how long.
"""
