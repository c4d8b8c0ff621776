"""``validate --spark``: a pipeline whose files are wrong is told so once, and Spark is not asked about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.spec.project import load_project
from tidegate.views.validate import validate_pipelines

_SPEC = (
    "version: 1\nname: {}\nschedule: null\nsources:\n  s: {{type: files, path: in, format: csv, schema: id STRING}}\n"
)


def test_spark_looks_at_sound_pipelines_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"tidegate.yaml": "version: 1\n", "expectations/bad_suite.yaml": "name: bad_suite\nexpectations: []\n"}
    texts |= {f"jobs/{name}/pipeline.yaml": _SPEC.format(name) for name in ("sound", "bad_suite", "bad_transform")}
    texts["jobs/bad_transform/transform.sql"] = "DROP TABLE s"
    texts["jobs/bad_transform/pipeline.yaml"] += "transform: transform.sql\n"
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    analysed: list[str] = []
    monkeypatch.setattr(
        "tidegate.spark.inspection.analyse.analyse_pipeline", lambda project, name, jars: analysed.append(name)
    )
    faults = validate_pipelines(load_project(tmp_path, {}), None, with_spark=True)
    assert {fault.file for fault in faults} == {"jobs/bad_transform/transform.sql", "expectations/bad_suite.yaml"}
    assert analysed == ["sound"]
