"""``tidegate try`` where Spark does not answer, and where there is nothing to read."""

from __future__ import annotations

import glob
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.show_runs import show_trial
from tidegate.core.errors import TryAgainError
from tidegate.sources.registry import open_sources
from tidegate.spec.as_read import read_spec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.views.trial import try_pipeline

NAME = "orders"
_SPEC = f"""version: 1
name: {NAME}
schedule: null
sources:
  orders: {{type: files, path: data/inbox, format: csv, schema: 'id STRING', settle: 10 minutes}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    (tmp_path / "jobs" / NAME).mkdir(parents=True)
    (tmp_path / "jobs" / "tidegate_job.py").write_text("")
    (tmp_path / "jobs" / NAME / "pipeline.yaml").write_text(_SPEC)
    (tmp_path / "data" / "inbox").mkdir(parents=True)
    return load_project(tmp_path)


def test_a_driver_that_cannot_start_is_told_with_the_end_of_its_log(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate.spark.driver.submit import run_spark_submit

    file = project.root / "data" / "inbox" / "a.csv"
    file.write_text("1\n")
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3600)  # it has settled
    java = project.root / "broken-java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho no such library; exit 127\n")
    (java.parents[1] / "release").write_text('JAVA_VERSION="17.0.2"\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(project.root / "broken-java"))
    with pytest.raises(TryAgainError) as told:
        try_pipeline(project, NAME, rows=5, submit=run_spark_submit)
    error = told.value
    assert (error.code, error.exit_code) == ("DRIVER_DIED", 75)
    assert "its log ends: " in error.message and "no such library" in error.message
    assert "tidegate-try-" not in str(error.where) and str(error.fix).startswith("tidegate doctor")


def test_where_nothing_is_read_it_says_where_it_looked(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    def submit(plan: Any) -> int:
        raise AssertionError("there is nothing to read")

    inbox = project.root / "data" / "inbox"
    (inbox / "new.csv").write_text("1\n")
    (inbox / "empty.csv").write_text("")
    os.symlink("/etc/hostname", inbox / "away.csv")
    value = try_pipeline(project, NAME, rows=5, submit=submit)
    assert value["counts"]["read"] == 0
    assert value["looked"]["orders"]["path"] == "data/inbox"
    show_trial(value, {})
    told = capsys.readouterr().out
    assert "the gate would let this pass" not in told
    assert "source orders: 0 files to read in data/inbox, 1 settling, 2 skipped" in told
    assert "data/inbox/new.csv: " in told and "data/inbox/empty.csv: empty" in told


@pytest.mark.parametrize("path", ["data/inbox", "data/*/*.csv", "./data/inbox/a.csv", "{root}/data/inbox", "{outside}"])
def test_sampled_files_keep_their_paths(project: Project, tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    outside = tmp_path_factory.mktemp("elsewhere") / "inbox"
    source = path.format(root=project.root, outside=outside)
    spec = project.root / "jobs" / NAME / "pipeline.yaml"
    spec.write_text(
        _SPEC.replace("path: data/inbox", f"path: '{source}'").replace("settle: 10 minutes", "settle: 0 seconds")
    )
    for file in (outside / "a.csv", project.root / "data" / "inbox" / "a.csv"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\n2\n3\n")
    paths = project.paths(NAME)
    stream = open_sources(project, paths, read_spec(load_pipeline(project, NAME), paths.spool, {}))["orders"]
    copy = tmp_path_factory.mktemp("copy")
    keys, _ = stream.sample(copy, 2)
    found = [str(one.relative_to(copy)) for one in copy.rglob("*") if one.is_file()]
    assert found == [str(outside / "a.csv").lstrip("/") if path == "{outside}" else "data/inbox/a.csv"]
    assert (copy / found[0]).read_text() == "1\n2\n"
    read = glob.glob(f"{keys['path']}/*") or glob.glob(str(keys["path"]))
    assert [str(Path(one).relative_to(copy)) for one in read] == found
