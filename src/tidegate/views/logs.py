"""``tidegate logs`` and ``tidegate data-docs``: the output of a run, and its verdict as web pages.

The Spark driver's log is kept until its step succeeds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tidegate.core import storage
from tidegate.core.outputs import DataDocs, Logs, LogStep
from tidegate.core.paths import PipelinePaths
from tidegate.quality.suite import load_suite
from tidegate.runs.reports.report import list_reports, load_report, new_report
from tidegate.spark.driver.progress import READING, describe_event
from tidegate.spec.pipeline import check_name
from tidegate.spec.project import Project
from tidegate.state.lease import read_lease
from tidegate.views import errors
from tidegate.views.faults import Unchecked


def read_logs(project: Project, name: str, run_id: str | None = None) -> Logs:
    """Read progress and driver logs of run ``run_id``, by default of the one in progress, or else of the newest one.

    Raises UsageError NO_SUCH_RUN."""
    paths = project.paths(check_name(name))
    current = read_lease(paths) if run_id is None else None
    if run_id is not None:
        report = load_report(paths, run_id)
    elif current is not None and current.state in ("held", "parked") and current.holder.run_id is not None:
        report = load_report(paths, current.holder.run_id) or new_report(name, current.holder.run_id)
    else:
        report = next(iter(list_reports(paths, 1)), None)
    if report is None:
        missing = "has not run yet" if run_id is None else f"has no run {run_id!r}"
        raise errors.NO_SUCH_RUN(where=str(paths.runs), name=name, missing=missing)
    progress = b""
    with contextlib.suppress(FileNotFoundError):
        progress = storage.read(paths.progress(report.run_id))
    return {
        "pipeline": name,
        "run_id": report.run_id,
        "outcome": report.outcome,
        "error": report.error,
        "report": str(paths.report(report.run_id)),
        "progress": [dict(event) for event in parse_events(progress)],
        "logs": [
            {"step": step, "path": str(path), "text": _read_text(path)}
            for step, path, _ in list_driver_logs(paths, report.run_id)
        ],
    }


def list_driver_logs(paths: PipelinePaths, run_id: str) -> Iterator[tuple[LogStep, Path, int]]:
    """The drivers' logs of a run that are kept: step, path, bytes."""
    logs: tuple[tuple[LogStep, Path], ...] = (
        ("ingest", paths.driver_log(run_id)),
        ("deliver", paths.delivery_log(run_id)),
    )
    for step, path in logs:
        with contextlib.suppress(OSError):
            yield step, path, storage.stat(path).size_bytes


def _read_text(path: Path) -> str:
    text = storage.read(path).decode("utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_events(data: bytes) -> Iterator[Unchecked]:
    """The events of a run's batches; a line that was cut off by a kill is skipped."""
    for line in data.splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


_END_BYTES = 4 << 10


def describe_reading(paths: PipelinePaths, run_id: str) -> str | None:
    """Describe how far a run has read, by its newest progress event; None where that is about something else."""
    with contextlib.suppress(OSError):
        for event in list(parse_events(storage.read_end(paths.progress(run_id), _END_BYTES)))[-1:]:
            if isinstance(event, dict) and event.get("event") == READING:
                return describe_event(event)
    return None


_LOOKED_THROUGH = 100
_PAGES = "validations"
"""The folder that identifies a site of Data Docs."""


def make_data_docs(project: Project, name: str, run_id: str | None, folder: Path) -> DataDocs:
    """Write the Data Docs of run ``run_id``, by default of the newest one with a verdict, into ``folder``.

    Those of another run there are replaced. They contain counts only: no row is read.

    Raises UsageError NO_SUCH_RUN, DATA_DOCS_FOLDER, or a SpecError of the suite.
    """
    paths = project.paths(check_name(name))
    if run_id is None:
        recent = list_reports(paths, _LOOKED_THROUGH)
        report = next((one for one in recent if one.quality["results"]), None)
        if report is None:
            raise errors.NO_SUCH_RUN(where=str(paths.runs), name=name, missing="has no run that was judged")
    else:
        report = load_report(paths, run_id)
        if report is None:
            raise errors.NO_SUCH_RUN(where=str(paths.runs), name=name, missing=f"has no run {run_id!r}")
        if not report.quality["results"]:
            missing = f"has no results of rules of run {run_id}: it is {report.outcome or 'not over'}"
            raise errors.NO_SUCH_RUN(where=f"run {run_id} of pipeline {name}", name=name, missing=missing)
    if folder.exists() and not (folder / _PAGES).is_dir() and any(folder.iterdir()):
        raise errors.DATA_DOCS_FOLDER(where=str(folder))
    suite = load_suite(project, name)
    from tidegate.quality.data_docs import write_data_docs  # it imports the library, which takes seconds

    page = write_data_docs(folder, report.to_json(), suite)
    return {"pipeline": name, "run_id": report.run_id, "index": str(folder / "index.html"), "page": str(page)}
