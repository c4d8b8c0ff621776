"""``tidegate validate``: all faults of specs, suites and transforms at once; with Spark also those of the query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

from tidegate.core.errors import DisagreementError, UsageError
from tidegate.core.extras import check_spark
from tidegate.quality.old_suite import upgrade_file
from tidegate.quality.suite import load_suite
from tidegate.spark.driver.packages import find_packages
from tidegate.spark.driver.submit import find_spark_submit
from tidegate.spec.faults import Fault, SpecError
from tidegate.spec.literal_secrets import find_in_pipeline, find_in_project
from tidegate.spec.pipeline import check_name, list_pipelines
from tidegate.spec.project import Project
from tidegate.views.validate.files import validate_project


def validate_pipelines(project: Project, names: Sequence[str] | None, *, with_spark: bool) -> list[Fault]:
    """List the faults; ``with_spark`` also those that Spark's analyser finds in pipelines without other faults."""

    def check_further(project: Project, name: str) -> list[Fault]:
        secrets = find_in_pipeline(project.paths(name).spec, f"jobs/{name}/pipeline.yaml")
        try:
            load_suite(project, name)
        except SpecError as error:
            return [*error.faults, *secrets]
        return secrets

    faults = find_in_project(project.root)
    faults += validate_project(project, names, check_further)
    if with_spark:
        bad = {_name_pipeline(fault.file) for fault in faults}
        chosen = list(names or list_pipelines(project))
        faults += analyse_with_spark(project, [name for name in chosen if name not in bad])
    return faults


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
