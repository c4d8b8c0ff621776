"""The files of a pipeline beside its spec: transform, code of the sinks, suite. Their faults are reported together."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.core.errors import UsageError
from tidegate.core.extras import check_extra
from tidegate.quality.suite import check_columns, load_suite
from tidegate.sinks.user_code import read_user_code
from tidegate.spec.faults import Fault, SpecError
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.spec.source_checks import find_row_types
from tidegate.spec.transform import read_transform


def check_files(project: Project, spec: PipelineSpec) -> None:
    """Raise SpecError, with every fault that :func:`find_file_faults` finds."""
    if faults := find_file_faults(project, spec):
        raise SpecError(faults, fix=f"correct the lines above, then: tidegate validate {spec.name}")


def find_file_faults(project: Project, spec: PipelineSpec) -> list[Fault]:
    """List what is wrong with transform, code of sinks and suite, as far as it is known without Spark."""
    transform, code = read_transform(project, spec)[1], read_user_code(project, spec)
    return [*transform, *code, *find_suite_faults(project, spec.name, find_row_types(spec))]


def find_suite_faults(project: Project, name: str, types: Mapping[str, str] | None) -> list[Fault]:
    """List what is wrong with the suite, also that a package is missing which runs its custom SQL. ``types`` of the
    columns are None where only Spark knows them."""
    try:
        suite = load_suite(project, name)
        if suite is not None and types is not None:
            check_columns(suite, types)
        if suite is None or not suite.queries:
            return []
        check_extra("duckdb")
        from tidegate.quality.queries import find_query_faults

        return find_query_faults(suite)
    except SpecError as error:
        return list(error.faults)
    except UsageError as error:
        where = f"expectations/{name}.yaml"
        return [Fault(where, None, "", error.message, error.fix or "correct the file", error.code)]
