"""A spark-submit as a run plans it, for tests of masters and connections."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.examples import REPOSITORY
from tidegate.spark.driver.submit import Load, SubmitPlan, plan_submit
from tidegate.spec.project import Project, load_project


def plan(root: Path, master: str, pending_bytes: int = 0, files: int = 1, **conf: str) -> SubmitPlan:
    (root / "jobs").mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "jobs/tidegate_job.py", root / "jobs")
    (root / "tidegate.yaml").write_text("version: 1\n")
    return plan_project(load_project(root).on_master(master), pending_bytes, files, **conf)


def plan_project(project: Project, pending_bytes: int = 0, files: int = 1, **conf: str) -> SubmitPlan:
    """The same for a project that is there."""
    return plan_submit(
        project,
        order_path=project.root / "order.json",
        log_path=project.root / "log",
        pipeline_conf=conf,
        load=Load(pending_bytes, files),
        settings={},
    )
