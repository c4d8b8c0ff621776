"""``tidegate validate``: all faults of specs, suites and transforms at once; with Spark also those of the query."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path, PurePath

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, UsageError
from tidegate.core.extras import check_spark
from tidegate.quality.suite import upgrade_file
from tidegate.runs.preflight.files import find_file_faults, find_suite_faults
from tidegate.sinks.user_code import read_user_code
from tidegate.sources.files.findings import list_changed_starts
from tidegate.sources.files.scan import check_no_table
from tidegate.spark.driver.packages import find_packages
from tidegate.spark.driver.submit import find_spark_submit
from tidegate.spec.faults import Fault, SpecError
from tidegate.spec.literal_secrets import find_in_pipeline, find_in_project
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import check_name, list_pipelines, read_pipeline
from tidegate.spec.project import Project
from tidegate.spec.transform import describe_lost_backslashes
from tidegate.spec.yaml_file import parse_document
from tidegate.views.buckets import PATIENCE_SECONDS, list_places


def validate_pipelines(project: Project, names: Sequence[str] | None, *, with_spark: bool) -> list[Fault]:
    """List the faults; ``with_spark`` also those that Spark's analyser finds in pipelines without other faults."""
    faults = find_in_project(project.root) + validate_project(project, names)
    if with_spark:
        bad = {_name_pipeline(fault.file) for fault in faults}
        chosen = list(names or list_pipelines(project))
        faults += analyse_with_spark(project, [name for name in chosen if name not in bad])
    return faults


def find_in_buckets(project: Project, names: Sequence[str] | None) -> list[Fault]:
    """List what keeps runs from using the buckets that the project and these pipelines (None: all) name."""
    specs: list[PipelineSpec] = []
    for name in names or list_pipelines(project):
        with contextlib.suppress(UsageError):  # its faults are listed elsewhere
            specs += [spec for spec in read_pipeline(project, name)[:1] if spec is not None]
    faults: list[Fault] = []
    for place in list_places(project, specs):
        if (error := place.find_fault()) is not None:
            document = parse_document((project.root / place.file).read_bytes(), place.file)
            document.add_fault(place.key, error.message, error.fix or "", error.code)
            faults += document.faults[-1:]
    return faults


def list_notes(project: Project, names: Sequence[str] | None) -> list[str]:
    """List what may be a mistake in these pipelines (None: in all) and keeps no run from starting."""
    notes = list_changed_starts(project, names)
    for name in names or list_pipelines(project):
        with contextlib.suppress(UsageError):  # its faults are listed elsewhere
            spec, _ = read_pipeline(project, name)
            notes += [] if spec is None else describe_lost_backslashes(project, spec)
    return notes


def upgrade_suites(project: Project, names: Sequence[str] | None) -> list[tuple[Path, Path]]:
    """Rewrite suites of these pipelines (None: of all) that were written for Great Expectations before 1.0.

    Returns (suite, its backup) of each."""
    paths = [(name, project.suite_path(check_name(name))) for name in names or list_pipelines(project)]
    return [(path, kept) for name, path in paths if (kept := upgrade_file(path, name)) is not None]


def _name_pipeline(file: str) -> str | None:
    """The pipeline of a file ``jobs/NAME/...`` or ``expectations/NAME.yaml``; None for the project's own files."""
    parts = PurePath(file).parts
    if len(parts) > 2 and parts[0] == "jobs":
        return parts[1]
    return PurePath(file).stem if len(parts) == 2 and parts[0] == "expectations" else None


def analyse_with_spark(project: Project, names: Sequence[str]) -> list[Fault]:
    """List what Spark's analyser finds in each pipeline's query. No data is read; only a session is started."""
    check_spark()
    if names:
        find_spark_submit()  # Spark reports a missing Java by a traceback
    jars = find_packages(project)
    faults = []
    for name in names:
        try:
            from tidegate.spark.inspection.analyse import analyse_pipeline  # pyspark: only for --spark

            analyse_pipeline(project, name, jars)
        except SpecError as error:
            faults += list(error.faults)
        except (UsageError, DisagreementError) as error:
            file, _, line = (error.where or "").rpartition(":")
            number = int(line) if line.isdigit() else None
            # A place such as "the rows that leave the transform" does not name the pipeline.
            place = file if number else (error.where if "/" in (error.where or "") else name)
            faults.append(Fault(str(place), number, "", error.message, error.fix or "", error.code))
    return faults


def validate_project(project: Project, names: Sequence[str] | None = None) -> list[Fault]:
    """List the faults of the pipelines ``names``, None for all."""
    chosen = names if names is not None else list_pipelines(project)
    return [fault for name in chosen for fault in _validate_pipeline(project, name)]


def _validate_pipeline(project: Project, name: str) -> list[Fault]:
    """List the faults of a pipeline, in the order of files and lines."""
    file = f"jobs/{name}/pipeline.yaml"
    try:
        spec, faults = read_pipeline(project, name)
    except UsageError as error:
        return [_to_fault(file, error)]
    faults = list(faults)
    if spec is not None and spec.name != name:  # its folder has its files, whatever its name is
        spec = spec.replace(name=name)
    # Transform and columns can be checked only when all sources are valid.
    if spec is not None and not any(fault.key.startswith(("sources", "transform")) for fault in faults):
        faults += find_file_faults(project, spec)
    else:
        faults += find_suite_faults(project, name, None) + ([] if spec is None else read_user_code(project, spec))
    if spec is not None:
        faults += _find_tables(project, spec, file)
    faults += find_in_pipeline(project.paths(name).spec, file)
    return sorted(faults, key=lambda fault: (fault.file, fault.line or 0))


def _find_tables(project: Project, spec: PipelineSpec, file: str) -> list[Fault]:
    """List sources that would read files of a table."""
    faults: list[Fault] = []
    for name, source in spec.file_streams.items():
        try:
            with storage.limit_patience(PATIENCE_SECONDS):
                check_no_table(project, project.paths(spec.name), name, source)
        except storage.StoreError:
            continue  # see find_in_buckets
        except UsageError as error:
            document = parse_document((project.root / file).read_bytes(), file)
            document.add_fault(("sources", name, "path"), error.message, error.fix or "", error.code)
            faults += document.faults[-1:]
    return faults


def _to_fault(file: str, error: UsageError) -> Fault:
    return Fault(error.where or file, None, "", error.message, error.fix or "correct the file", error.code)
