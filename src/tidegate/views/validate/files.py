"""Check every file of a project without running anything: specs, transforms, and one more check by the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidegate.core.errors import UsageError
from tidegate.sinks.user_code import read_user_code
from tidegate.sources.files.scan import check_no_table
from tidegate.spec.document import parse_document
from tidegate.spec.faults import Fault
from tidegate.spec.findings import Finding
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import list_pipelines, read_pipeline
from tidegate.spec.project import Project
from tidegate.spec.transform.load import read_transform

PipelineCheck = Callable[[Project, str], Iterable[Fault]]
"""One more check of a pipeline, for example of its suite: (project, name) -> faults."""


def validate_project(
    project: Project, names: Sequence[str] | None = None, check: PipelineCheck | None = None
) -> list[Fault]:
    """List all faults of the pipelines ``names`` (None: of all), in the order of files and lines.

    ``check`` is called for each existing pipeline; a UsageError that it raises becomes a fault.
    """
    faults: list[Fault] = []
    for name in names if names is not None else list_pipelines(project):
        faults += _validate_pipeline(project, name, check)
    return faults


def _validate_pipeline(project: Project, name: str, check: PipelineCheck | None) -> list[Fault]:
    file = f"jobs/{name}/pipeline.yaml"
    try:
        spec, faults = read_pipeline(project, name)
    except UsageError as error:
        return [_to_fault(file, error)]
    faults = list(faults)
    # A transform can be checked only when all sources are valid.
    if spec is not None and spec.name != name:  # its folder has its files, whatever its name is
        spec = spec.replace(name=name)
    if spec is not None and not any(fault.key.startswith(("sources", "transform")) for fault in faults):
        faults += read_transform(project, spec)[1]
    if spec is not None:
        faults += read_user_code(project, spec)
        faults += _find_tables(project, spec, file)
    if check is not None:
        try:
            faults += check(project, name)
        except UsageError as error:
            faults += getattr(error, "faults", None) or [_to_fault(file, error)]
    return sorted(faults, key=lambda fault: (fault.file, fault.line or 0))


def _find_tables(project: Project, spec: PipelineSpec, file: str) -> list[Fault]:
    """List sources that would read files of a table."""
    faults = []
    for name, source in spec.file_streams.items():
        try:
            check_no_table(project, project.paths(spec.name), name, source)
        except UsageError as error:
            document = parse_document((project.root / file).read_bytes(), file)
            finding = Finding(("sources", name, "path"), error.message, error.fix or "", error.code)
            faults.append(finding.to_fault(document, error.code))
    return faults


def _to_fault(file: str, error: UsageError) -> Fault:
    return Fault(error.where or file, None, "", error.message, error.fix or "correct the file", error.code)
