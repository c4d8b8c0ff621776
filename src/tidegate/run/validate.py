"""Looking at every file of a project without running anything: specs, transforms, and what other rooms add."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidegate.errors import UsageError
from tidegate.project import Project
from tidegate.spec.faults import Fault
from tidegate.spec.load import list_pipelines, read_pipeline
from tidegate.spec.models import PipelineSpec
from tidegate.transform.load import read_transform

PipelineCheck = Callable[[Project, str, PipelineSpec | None], Iterable[Fault]]
"""One more check of a pipeline: (project, name, spec or None when it cannot be read) -> faults."""


def validate_project(
    project: Project, names: Sequence[str] | None = None, checks: Sequence[PipelineCheck] = ()
) -> list[Fault]:
    """Every fault of the pipelines ``names`` (None: of all), in the order of files and lines. Empty: all is sound.

    ``checks`` are called for each pipeline too; a UsageError that one raises becomes a fault.
    """
    faults: list[Fault] = []
    for name in names if names is not None else list_pipelines(project):
        faults += _validate_pipeline(project, name, checks)
    return faults


def _validate_pipeline(project: Project, name: str, checks: Sequence[PipelineCheck]) -> list[Fault]:
    file = f"jobs/{name}/pipeline.yaml"
    try:
        spec, faults = read_pipeline(project, name)
    except UsageError as error:
        return [_to_fault(file, error)]
    faults = list(faults)
    # A transform can only be held against sources that were all understood.
    if spec is not None and not any(fault.key.startswith(("sources", "transform")) for fault in faults):
        faults += read_transform(project, spec)[1]
    for check in checks:
        try:
            faults += check(project, name, spec)
        except UsageError as error:
            faults += getattr(error, "faults", None) or [_to_fault(file, error)]
    return sorted(faults, key=lambda fault: (fault.file, fault.line or 0))


def _to_fault(file: str, error: UsageError) -> Fault:
    return Fault(error.where or file, None, "", error.message, error.fix or "correct the file", error.code)
