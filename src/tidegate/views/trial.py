"""``tidegate try``: real records read, transformed and checked by a whole run in a folder of its own, which is thrown
away. Nothing of the project is written: neither state, table nor quarantine, and no further sink is fed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from tidegate.core.errors import HeldError, TryAgainError
from tidegate.core.outputs import Trial, TriedLook, TriedRecord
from tidegate.runs.recovery.context import Submit
from tidegate.runs.reports.report import load_report
from tidegate.runs.steps import decide, run_pipeline
from tidegate.sources.registry import open_sources
from tidegate.spec.as_read import read_spec
from tidegate.spec.environment import name_variable
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import PROJECT_FILE, Project, load_project
from tidegate.spec.transform.load import check_transform
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.delivery import delivered_rows
from tidegate.table.publish.fit import check_rows_fit

_RUN_ID = "try"


def try_pipeline(project: Project, name: str, *, rows: int, submit: Submit) -> Trial:
    """Run ``name`` on about ``rows`` of the newest records of each source, and say what would become of them.

    A file that cannot be cut at a line (parquet, a packed one) is read whole; static sources are read as they are.
    Raises what a run does, but HeldError: the verdict says it. So rows that do not fit the table that is there are
    refused as a run would refuse them.
    """
    spec = load_pipeline(project, name)
    check_transform(project, spec)
    with tempfile.TemporaryDirectory(prefix="tidegate-try-") as folder, _settings_of(project, Path(folder)):
        looked: dict[str, TriedLook] = {}
        copy = _copy(project, spec, Path(folder), rows, looked)
        held = None
        try:
            run_pipeline(copy, name, _RUN_ID, submit=submit)
        except HeldError as error:
            held = error.message
        except TryAgainError as error:
            if error.code != "DRIVER_DIED":
                raise
            raise TryAgainError(  # the log that it names goes with the folder; its last lines are in the message
                error.code,
                error.message,
                where=f"pipeline {name}, tried in a folder that is removed",
                next_run="is not touched; nothing was written",
                fix=f"tidegate doctor, which looks at Java and all else that Spark needs; then `tidegate try {name}`",
            ) from None
        report = load_report(copy.paths(name), _RUN_ID)
        assert report is not None, "a run that ends without an error leaves its report"
        tried = report.to_json()
        if held is not None:  # only so that its rows can be shown
            decide(copy, name, _RUN_ID, decision="release", reason="it is thrown away")
        _check_fits_table(project, copy, spec)
        return {
            "pipeline": name,
            "sources": {source: {"rows": one.get("rows", 0)} for source, one in tried["sources"].items()},
            "looked": looked,
            "counts": tried["rows"],
            "quality": tried["quality"],
            "held": held,
            "rows": _published(copy, name, rows),
            "set_aside": _set_aside(copy, name, rows),
        }


@contextlib.contextmanager
def _settings_of(project: Project, folder: Path) -> Iterator[None]:
    """The copy's folders by the variables that go over every file, in this process and in the driver it starts."""
    wanted = {name_variable((key,)): str(folder / "data" / key) for key in ("warehouse", "state", "quarantine")}
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _copy(project: Project, spec: PipelineSpec, root: Path, rows: int, looked: dict[str, TriedLook]) -> Project:
    """The project's settings, and the one pipeline, whose sources are samples. ``looked`` is filled in with what each
    source of files has."""
    name = spec.name
    shutil.copytree(project.jobs / name, root / "jobs" / name)
    shutil.copy(project.root / PROJECT_FILE, root / PROJECT_FILE)
    application = project.jobs / "tidegate_job.py"
    if application.is_file():
        shutil.copy(application, root / "jobs")
    if project.fetched_jars.is_dir():
        copied = root / project.fetched_jars.relative_to(project.root)
        copied.parent.mkdir()
        copied.symlink_to(project.fetched_jars.absolute())
    if project.suite_path(name).exists():
        (root / "expectations").mkdir()
        shutil.copy(project.suite_path(name), root / "expectations")
    document = yaml.safe_load(project.paths(name).spec.read_text(encoding="utf-8"))
    for source, keys in _sample(project, spec, root, rows, looked).items():
        document["sources"][source] |= keys
    document.pop("sinks", None)
    (document.get("table") or {}).pop("path", None)  # what is tried is written to the copy's own warehouse
    (root / "jobs" / name / "pipeline.yaml").write_text(json.dumps(document), encoding="utf-8")
    return load_project(root)


def _sample(
    project: Project, spec: PipelineSpec, root: Path, rows: int, looked: dict[str, TriedLook]
) -> dict[str, dict[str, object]]:
    """The keys of each source by which it reads a sample; of files also what is there, in ``looked``."""
    statics = {name: one for name, one in spec.file_sources.items() if one.static}
    folder = os.path.abspath(project.root)
    keys: dict[str, dict[str, object]] = {
        name: {"path": os.path.join(folder, one.path)} for name, one in statics.items()
    }
    paths = project.paths(spec.name)
    for name, source in open_sources(project, paths, read_spec(spec, paths.spool, {})).items():
        keys[name], found = source.sample(root, rows)
        if found is not None:
            looked[name] = found
    return keys


def _check_fits_table(project: Project, copy: Project, spec: PipelineSpec) -> None:
    """Raise what a run would: UsageError where such rows cannot be added to the table that is there."""
    there, tried = (read_table_state(one.paths(spec.name).table) for one in (project, copy))
    if there is not None and tried is not None:
        check_rows_fit(tried.schema_json, spec.table.partition_by, there)


def _published(copy: Project, name: str, limit: int) -> list[dict[str, object]]:
    from tidegate.sinks.rows import read_file
    from tidegate.table.quarantine.read import row_to_json

    table = copy.paths(name).table
    state = read_table_state(table)
    found: list[dict[str, object]] = []
    for version in range(0 if state is None else state.version + 1):
        delivery = delivered_rows(table, version)
        for file in delivery.files if delivery is not None else ():
            for batch in read_file(table, file, state.schema_json if state is not None else ""):
                found += batch.to_pylist()
                if len(found) >= limit:
                    return [row_to_json(row) for row in found[:limit]]
    return [row_to_json(row) for row in found]


def _set_aside(copy: Project, name: str, limit: int) -> list[TriedRecord]:
    from tidegate.table.quarantine.read import show_quarantine

    return [
        {
            "reason": one["reason"],
            "detail": one["detail"],
            "source": one["source"],
            "position": one["position"],
            "raw": one["raw"],
        }
        for one in show_quarantine(copy.paths(name).quarantine, None, limit)
    ]
