"""The maintenance DAG: a task for each pipeline, on the schedule of ``maintenance:`` in ``tidegate.yaml``.

A DAG file holds ``from tidegate.airflow import build_maintenance_dag; dag = build_maintenance_dag()``. A pipeline whose
spec has another schedule gets a separate DAG; one with ``schedule: null`` is maintained by hand only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import DAG

from tidegate.airflow.alerts import failure_arguments
from tidegate.airflow.dag import EXECUTION_TIMEOUT, START_DATE
from tidegate.airflow.locate import find_project
from tidegate.airflow.operators import MaintainOperator
from tidegate.airflow.retries import retry_arguments
from tidegate.core.errors import TidegateError
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import load_project

if TYPE_CHECKING:
    from tidegate.spec.models import PipelineSpec

DAG_ID = "tidegate_maintenance"
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
        _make_dag(f"{DAG_ID}.{spec.name}", spec.maintenance.schedule, [spec], root, caller, default_args)
    return _make_dag(DAG_ID, project.spec.maintenance.schedule, shared, root, caller, default_args)


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
