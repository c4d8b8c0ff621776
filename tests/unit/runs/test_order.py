"""Where a run cuts what is new into batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.runs.order import find_cut
from tidegate.sources.port import Cut
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import load_project

TIMED = ", event_time: at, watermark: 1 hour"


@pytest.mark.parametrize(("timed", "cut"), [("", Cut.BY_SIZE), (TIMED, Cut.BY_OPTIONS)])
def test_a_watermark_may_drop_what_another_batch_would_have(tmp_path: Path, timed: str, cut: Cut) -> None:
    """As long as no run has found out that the query keeps no state."""
    folder = tmp_path / "jobs/flow"
    folder.mkdir(parents=True)
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (folder / "transform.sql").write_text("SELECT * FROM s")
    source = f"{{type: files, path: in, format: json, schema: 'id INT, at TIMESTAMP'{timed}}}"
    (folder / "pipeline.yaml").write_text(
        f"version: 1\nname: flow\nschedule: null\nsources: {{s: {source}}}\ntransform: transform.sql\n"
    )
    project = load_project(tmp_path)
    assert find_cut(project, load_pipeline(project, "flow"), None) is cut
