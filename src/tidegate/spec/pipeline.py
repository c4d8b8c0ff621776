"""``pipeline.yaml`` from the disk: every fault of the file at once, or a :class:`PipelineSpec`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidegate.core import storage
from tidegate.core.errors import UsageError
from tidegate.spec import errors
from tidegate.spec.checks import check_pipeline, find_unheard
from tidegate.spec.document import Document, Finding
from tidegate.spec.faults import Fault, SpecError, name_nearest
from tidegate.spec.model import build_model
from tidegate.spec.models import NAME_PATTERN, FilesSource, PipelineSpec
from tidegate.spec.project import Project, check_readers, check_table_path
from tidegate.spec.yaml_file import parse_document

_NAME = re.compile(NAME_PATTERN.removeprefix("^").removesuffix("$"))


def check_name(name: str) -> str:
    """``name`` when it can be a pipeline's name. Raises UsageError BAD_NAME: nothing else may become part of a path."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    shown = repr(name)
    raise errors.BAD_NAME(where="the pipeline's name", name=shown if len(shown) <= 80 else shown[:77] + "...")


def list_pipelines(project: Project) -> list[str]:
    """The names of the folders under ``jobs/`` that hold a ``pipeline.yaml``, sorted; also ones with a bad name."""
    try:
        folders = sorted(project.jobs.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder.name for folder in folders if (folder / "pipeline.yaml").is_file()]


def load_pipeline(project: Project, name: str) -> PipelineSpec:
    """The spec of pipeline ``name``.

    Raises UsageError: BAD_NAME, NO_SUCH_PIPELINE, or a :class:`SpecError` (BAD_SPEC) with every
    fault of the file. Reads one file, starts nothing, imports no Spark.
    """
    spec, faults = read_pipeline(project, name)
    if faults or spec is None:
        raise SpecError(faults, fix=f"correct the lines above, then: tidegate validate {name}")
    return spec


def read_pipeline(project: Project, name: str) -> tuple[PipelineSpec | None, list[Fault]]:
    """The spec and the faults of its file. With faults the spec is only the part that could be understood.

    Raises UsageError BAD_NAME or NO_SUCH_PIPELINE.
    """
    check_name(name)
    path = project.paths(name).spec
    file = f"jobs/{name}/pipeline.yaml"
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _no_such_pipeline(project, name) from None
    except OSError as error:
        if (failed := storage.name_failure(error, path)) is not None:
            raise failed from error
        fault = Fault(file, None, "", f"the file cannot be read: {error.strerror}", "make it a readable file")
        return None, [fault]
    document = parse_document(data, file)
    spec = check_document(document, name)
    if spec is not None:
        if spec.table.path is not None:
            document.add_findings(check_table_path(project, spec, list_pipelines(project)))
        document.add_findings(check_readers(project, spec))
        alerts = spec.alerts.over(project.spec.alerts)
        document.add_findings(find_unheard(alerts))
        maintenance = spec.maintenance.over(project.spec.maintenance)
        spec = spec.replace(maintenance=maintenance, alerts=alerts)
    return spec, document.faults


def check_document(document: Document, name: str) -> PipelineSpec | None:
    """The spec in ``document``, which should be pipeline ``name``; faults go into the document."""
    spec = build_model(document, PipelineSpec)
    if spec is None:
        return None
    is_written = document.data.get("name") == spec.name
    if is_written and spec.name != name and not any(fault.key == "name" for fault in document.faults):
        document.add_fault(
            ("name",), f"the folder is named {name!r}, the pipeline {spec.name!r}", f"write name: {name}"
        )
    document.add_findings(_find_faults(spec, document.data.get("sources")))
    return spec


_ANY_SOURCE = FilesSource.construct(
    type="files", path="any", format="json", schema="infer", event_time="any", watermark=1.0
)
"""A source of which nothing is known: it may have any columns, and a watermark."""


def _find_faults(spec: PipelineSpec, written: object) -> Iterator[Finding]:
    """Check ``spec`` across its keys. A source of ``written`` that could not be read may be any: what depends on it
    is not reported. Where none could be, there may be one or several."""
    names = list(written) if isinstance(written, dict) else []
    read = {name: source for name, source in spec.sources.items() if name in names}
    lost = [name for name in names if name not in read] or ([] if read else ["first", "second"])
    for finding in check_pipeline(spec.replace(sources={**read, **dict.fromkeys(lost, _ANY_SOURCE)})):
        if not (finding.path[0] == "sources" and set(finding.path) & set(lost)):
            yield finding


def _no_such_pipeline(project: Project, name: str) -> UsageError:
    known = list_pipelines(project)
    nearest = name_nearest(name, known)
    return errors.NO_SUCH_PIPELINE(
        where=f"jobs/{name}/pipeline.yaml",
        name=name,
        known=", ".join(known) or "none",
        nearest=f"write {nearest}, or create it: " if nearest else "",
    )
