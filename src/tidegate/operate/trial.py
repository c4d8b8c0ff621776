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
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from tidegate.errors import HeldError, TryAgainError
from tidegate.pipeline import load_pipeline
from tidegate.project import PROJECT_FILE, Project, load_project
from tidegate.recovery.context import Submit
from tidegate.reports.report import load_report
from tidegate.run.steps import decide, run_pipeline
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.scan import scan_files, source_roots
from tidegate.sources.kafka.offsets import resolve_birth
from tidegate.spec.encodings import is_wide
from tidegate.spec.environment import name_variable
from tidegate.spec.models import LINE_FORMATS, FilesSource, KafkaSource, PipelineSpec, SourceSpec
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.delivery import delivered_rows
from tidegate.table.publish.fit import check_rows_fit
from tidegate.transform.load import check_transform

_RUN_ID = "try"
_PACKED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz")


def try_pipeline(project: Project, name: str, *, rows: int, submit: Submit) -> dict[str, Any]:
    """Run ``name`` on about ``rows`` of the newest records of each source, and say what would become of them.

    A file that cannot be cut at a line (parquet, a packed one) is read whole; static sources are read as they are.
    Raises what a run does, but HeldError: the verdict says it. So rows that do not fit the table that is there are
    refused as a run would refuse them.
    """
    spec = load_pipeline(project, name)
    check_transform(project, spec)
    with tempfile.TemporaryDirectory(prefix="tidegate-try-") as folder, _settings_of(project, Path(folder)):
        looked: dict[str, dict[str, Any]] = {}
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
        counts, quality = dict(report.rows), dict(report.quality)
        if held is not None:  # only so that its rows can be shown
            decide(copy, name, _RUN_ID, decision="release", reason="it is thrown away")
        _check_fits_table(project, copy, spec)
        return {
            "pipeline": name,
            "sources": {source: {"rows": one.get("rows", 0)} for source, one in report.sources.items()},
            "looked": looked,
            "counts": counts,
            "quality": quality,
            "held": held,
            "rows": _published(copy, name, rows),
            "set_aside": _set_aside(copy, name, rows),
        }


@contextlib.contextmanager
def _settings_of(project: Project, folder: Path) -> Iterator[None]:
    """The copy's folders by the variables that go over every file, in this process and in the driver it starts."""
    wanted = {name_variable((key,)): str(folder / "data" / key) for key in ("warehouse", "state", "quarantine")}
    jars = project.root / ".tools" / "jars"
    if "TIDEGATE_JARS" not in os.environ and jars.is_dir():
        wanted["TIDEGATE_JARS"] = str(jars)
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


def _copy(project: Project, spec: PipelineSpec, root: Path, rows: int, looked: dict[str, dict[str, Any]]) -> Project:
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
    for source, one in spec.sources.items():
        document["sources"][source] |= _sample(project, spec, source, one, root, rows, looked)
    document.pop("sinks", None)
    (root / "jobs" / name / "pipeline.yaml").write_text(json.dumps(document), encoding="utf-8")
    return load_project(root)


def _sample(
    project: Project,
    spec: PipelineSpec,
    name: str,
    source: SourceSpec,
    root: Path,
    rows: int,
    looked: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """The keys of a source by which it reads a sample."""
    if isinstance(source, FilesSource):
        if source.static:
            return {"path": os.path.join(os.path.abspath(project.root), source.path)}
        folder, looked[name] = _sample_files(project, spec, name, source, root, rows)
        return {
            "path": str(folder),
            "settle": "0 seconds",
            "start": "all",
        }
    if isinstance(source, KafkaSource) and not source.static:
        return {"starting_offsets": _last_offsets(project, source, rows)}
    return {}


def _sample_files(
    project: Project, spec: PipelineSpec, name: str, source: FilesSource, root: Path, rows: int
) -> tuple[Path, dict[str, Any]]:
    """A folder with the newest files, up to ``rows`` lines of those that have lines, and what the source has: {"path",
    "files" to read, "settling", "skipped" [{"path", "why"}]}."""
    folder = root / "sample" / name
    folder.mkdir(parents=True)
    never_run = replace(project.paths(spec.name), state=root / "nothing")
    with open_ledger(never_run, read_only=True) as ledger:
        scan = scan_files(project, never_run, name, source.model_copy(update={"start": "all"}), ledger)
    found = scan.new
    looked: dict[str, Any] = {"path": source.path, "files": len(found), "settling": list(scan.settling)}
    looked["skipped"] = list(scan.skipped)
    top = source_roots(project, source)[0]
    left = rows
    is_pattern = any(sign in source.path for sign in "*?[{")
    for number, entry in enumerate(sorted(found, key=lambda one: one.mtime_ns, reverse=True)):
        if left <= 0:
            break
        inner = os.path.relpath(entry.abs_path, top)
        flat = is_pattern or inner.startswith("..") or inner == "."
        target = folder / (f"{number:06d}-{os.path.basename(entry.abs_path)}" if flat else inner)
        target.parent.mkdir(parents=True, exist_ok=True)
        left -= _take_lines(Path(entry.abs_path), target, source, left)
    return folder, looked


def _take_lines(file: Path, target: Path, source: FilesSource, wanted: int) -> int:
    """Copy the file, or its first lines; how many rows that counts for."""
    whole = source.format not in LINE_FORMATS or file.name.endswith(_PACKED)
    whole = whole or is_wide(str(source.options.get("encoding", "")))
    if whole or any(key.lower() in ("multiline", "linesep", "wholetext") for key in source.options):
        shutil.copyfile(file, target)
        return wanted
    has_header = source.format == "csv" and str(source.options.get("header", "")).lower() == "true"
    with open(file, "rb") as reader, open(target, "wb") as writer:
        lines = 0
        for line in islice(reader, wanted + has_header):
            writer.write(line)
            lines += 1
    return lines - has_header


def _last_offsets(project: Project, source: KafkaSource, rows: int) -> dict[str, dict[str, int]]:
    """About ``rows`` records before the end, divided among the partitions."""
    begin, end = (
        resolve_birth(project.spec.kafka, source.model_copy(update={"starting_offsets": where})).offsets
        for where in ("earliest", "latest")
    )
    share = max(1, rows // max(1, sum(map(len, end.values()))))
    return {
        topic: {str(number): max(begin[topic][number], until - share) for number, until in numbers.items()}
        for topic, numbers in end.items()
    }


def _check_fits_table(project: Project, copy: Project, spec: PipelineSpec) -> None:
    """Raise what a run would: UsageError where such rows cannot be added to the table that is there."""
    there, tried = (read_table_state(one.paths(spec.name).table) for one in (project, copy))
    if there is not None and tried is not None:
        check_rows_fit(tried.schema_json, spec.table.partition_by, there)


def _published(copy: Project, name: str, limit: int) -> list[dict[str, Any]]:
    from tidegate.quarantine.read import to_json
    from tidegate.sink.rows import read_file

    table = copy.paths(name).table
    state = read_table_state(table)
    found: list[dict[str, Any]] = []
    for version in range(0 if state is None else state.version + 1):
        delivery = delivered_rows(table, version)
        for file in delivery.files if delivery is not None else ():
            for batch in read_file(table, file, state.schema_json if state is not None else ""):
                found += batch.to_pylist()
                if len(found) >= limit:
                    return [to_json(row) for row in found[:limit]]
    return [to_json(row) for row in found]


def _set_aside(copy: Project, name: str, limit: int) -> list[dict[str, Any]]:
    from tidegate.quarantine.read import show_quarantine

    keys = ("reason", "detail", "source", "position", "raw")
    return [{key: one[key] for key in keys} for one in show_quarantine(copy.paths(name).quarantine, None, limit)]
