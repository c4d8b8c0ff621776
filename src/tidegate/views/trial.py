"""``tidegate try``: read, transform and check real records by a complete run in a temporary folder.

Nothing of the project is written: neither state, table nor quarantine, and no further sink is fed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from tidegate.core import storage
from tidegate.core.errors import HeldError, TidegateError
from tidegate.core.outputs import Trial, TriedLook, TriedRecord
from tidegate.runs.decide import decide
from tidegate.runs.recovery.context import Submit
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Answer
from tidegate.runs.steps import run_pipeline
from tidegate.sinks.rows import read_versions
from tidegate.sources.registry import open_sources
from tidegate.spec.as_read import read_spec
from tidegate.spec.environment import name_variable
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import PROJECT_FILE, Project, load_project
from tidegate.spec.transform import check_transform
from tidegate.spec.yaml_file import read_document
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.fit import check_rows_fit
from tidegate.table.quarantine.read import row_to_json, show_quarantine

_RUN_ID = "try"
YamlSource = dict[str, object]


def try_pipeline(project: Project, name: str, *, rows: int, submit: Submit) -> Trial:
    """Run ``name`` on about ``rows`` of the newest records of each source, and return the result.

    A file that cannot be cut at a line (parquet, a compressed one) is read whole; so are static sources.
    Raises what a run does, except HeldError: the verdict contains it. So rows that do not fit the existing table are
    refused as by a run.
    """
    spec = load_pipeline(project, name)
    check_transform(project, spec)
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-try-") as temporary,
        _own_files_named(project, name, folder := Path(temporary).resolve()),
        _settings_of(project, folder),
    ):
        looked: dict[str, TriedLook] = {}
        copy = _copy(project, spec, folder, rows, looked)
        held = None
        try:
            run_pipeline(copy, name, _RUN_ID, submit=submit)
        except HeldError as error:
            held = error.message
        report = load_report(copy.paths(name), _RUN_ID)
        assert report is not None, "a run that ends without an error leaves its report"
        tried = report.to_json()
        if held is not None:  # only so that its rows can be shown
            decide(copy, name, _RUN_ID, Answer("release", "it is thrown away"))
        _check_fits_table(project, copy, spec)
        return {
            "pipeline": name,
            "sources": {source: {"rows": one.get("rows", 0)} for source, one in tried["sources"].items()},
            "looked": looked,
            "counts": tried["rows"],
            "quality": tried["quality"],
            "held": held,
            "rows": _published(copy, name, rows),
            "set_aside": _quarantined(copy, name, rows),
        }


@contextlib.contextmanager
def _own_files_named(project: Project, name: str, folder: Path) -> Iterator[None]:
    """Have an error within name the project's own files in place of their copies in ``folder``, which is removed."""

    def rename(text: str) -> str:
        return name_originals(text, folder, project.root).replace(f"tidegate run {name}", f"tidegate try {name}")

    try:
        yield
    except TidegateError as error:
        error.message, error.where = rename(error.message), rename(error.where or "")
        error.fix = rename(error.fix or "")
        error.next_run = "is not affected: `tidegate try` writes nothing to the project"
        if str(folder) in error.where:
            error.where = f"pipeline {name}, tried in a temporary folder, which is removed"
        if error.code == "DRIVER_DIED":  # the message has the last lines of the log
            error.fix = f"tidegate doctor, which checks Java and all else that Spark needs; then `tidegate try {name}`"
        raise


@contextlib.contextmanager
def _settings_of(project: Project, folder: Path) -> Iterator[None]:
    """Set the variables that override the folders of tidegate.yaml, for this process and the driver it starts."""
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
    """Copy the project's settings and the one pipeline, whose sources become samples. Fills ``looked`` with what each
    file source has."""
    shutil.copy(project.root / PROJECT_FILE, root / PROJECT_FILE)
    samples = _sample(project, spec, root, rows, looked)
    copy_pipeline(project, spec.name, root, lambda source, given: {**given, **samples.get(source, {})})
    application = project.jobs / "tidegate_job.py"
    if application.is_file():
        shutil.copy(application, root / "jobs")
    if project.fetched_jars.is_dir():
        copied = root / project.fetched_jars.relative_to(project.root)
        copied.parent.mkdir()
        copied.symlink_to(project.fetched_jars.absolute())
    return load_project(root)


def name_originals(text: str, copy: Path, original: Path) -> str:
    """``text`` with the files of the project ``original`` in place of those that :func:`copy_pipeline` made."""
    for folder in ("jobs", "expectations"):
        text = text.replace(str(copy / folder), str(original / folder))
    return text


def copy_pipeline(project: Project, name: str, root: Path, change: Callable[[str, YamlSource], YamlSource]) -> None:
    """Copy a pipeline and its suite into the project folder ``root``: without sinks, and with its own table.

    ``change`` returns what the spec of the copy has for a source, from its name and what the spec has now.
    """
    shutil.copytree(project.jobs / name, root / "jobs" / name, dirs_exist_ok=True)
    if project.suite_path(name).exists():
        (root / "expectations").mkdir()
        shutil.copy(project.suite_path(name), root / "expectations")
    document = read_document(project.paths(name).spec, name).data
    document["sources"] = {source: change(source, given) for source, given in document["sources"].items()}
    document.pop("sinks", None)
    (document.get("table") or {}).pop("path", None)  # the copy writes to its own warehouse
    (root / "jobs" / name / "pipeline.yaml").write_text(json.dumps(document), encoding="utf-8")


def _sample(
    project: Project, spec: PipelineSpec, root: Path, rows: int, looked: dict[str, TriedLook]
) -> dict[str, dict[str, object]]:
    """{source: the keys of its spec that make it read a sample}; fills ``looked`` for file sources."""
    statics = {name: one for name, one in spec.file_sources.items() if one.static}
    folder = os.path.abspath(project.root)
    keys: dict[str, dict[str, object]] = {
        name: {"path": one.path if one.is_on_store else os.path.join(folder, one.path)} for name, one in statics.items()
    }
    paths = project.paths(spec.name)
    for name, source in open_sources(project, paths, read_spec(spec, paths.spool, {})).items():
        keys[name], found = source.sample(root, rows)
        if found is not None:
            looked[name] = found
    return keys


def _check_fits_table(project: Project, copy: Project, spec: PipelineSpec) -> None:
    """Raise UsageError, as a run would, where such rows cannot be added to the existing table."""
    there, tried = (read_table_state(one.paths(spec.name).table) for one in (project, copy))
    if there is not None and tried is not None:
        check_rows_fit(tried.schema_json, spec.table.partition_by, there, spec.name)


def _name_object(position: object) -> object:
    """A position; the sample of an object is in a folder that has the scheme for a name."""
    if isinstance(position, dict) and isinstance(file := position.get("file"), str):
        scheme, _, rest = file.partition(":/")
        if rest and scheme in storage.SCHEMES:
            return {**position, "file": f"{scheme}://{rest}"}
    return position


def _published(copy: Project, name: str, limit: int) -> list[dict[str, object]]:
    return [row_to_json(row) for row in islice(read_versions(copy.paths(name).table, 0), limit)]


def _quarantined(copy: Project, name: str, limit: int) -> list[TriedRecord]:
    return [
        {
            "reason": one["reason"],
            "detail": one["detail"],
            "source": one["source"],
            "position": _name_object(one["position"]),
            "raw": one["raw"],
        }
        for one in show_quarantine(copy.paths(name).quarantine, None, limit)
    ]
