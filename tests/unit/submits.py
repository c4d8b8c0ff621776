"""A spark-submit as a run plans it, for tests of masters and connections."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.examples import REPOSITORY
from tidegate.spark.driver.submit import Load, SubmitPlan, plan_submit
from tidegate.spec.project import load_project


def plan(root: Path, master: str, pending_bytes: int = 0, files: int = 1, **conf: str) -> SubmitPlan:
    (root / "jobs").mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "jobs/tidegate_job.py", root / "jobs")
    (root / "tidegate.yaml").write_text("version: 1\n")
    return plan_submit(
        load_project(root).on_master(master),
        order_path=root / "order.json",
        log_path=root / "log",
        pipeline_conf=conf,
        load=Load(pending_bytes, files),
        settings={},
    )
