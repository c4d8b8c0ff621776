"""``tidegate list``: the pipelines of a project and what each of them reads. Reads specs only."""

from __future__ import annotations

from tidegate.core.errors import TidegateError
from tidegate.core.outputs import CatalogEntry
from tidegate.spec.pipeline import list_pipelines, load_pipeline
from tidegate.spec.project import Project


def catalog_pipelines(project: Project) -> list[CatalogEntry]:
    """List each pipeline with schedule, types of sources and description; a faulty spec is an ``error`` in its row."""
    return [_describe(project, name) for name in list_pipelines(project)]


def _describe(project: Project, name: str) -> CatalogEntry:
    row: CatalogEntry = {"pipeline": name, "schedule": None, "sources": {}, "description": None, "error": None}
    try:
        spec = load_pipeline(project, name)
    except TidegateError as error:
        return {**row, "error": error.to_dict()}
    row["sources"] = {source: one.type for source, one in spec.sources.items()}
    return {**row, "schedule": spec.schedule, "description": spec.description}
