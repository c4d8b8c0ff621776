"""The project whose pipelines are shown."""

from __future__ import annotations

from fastapi import HTTPException

from tidegate.airflow.locate import find_served_project
from tidegate.airflow.ui.refusals import Refused
from tidegate.errors import TidegateError
from tidegate.paths import PipelinePaths
from tidegate.pipeline import check_name
from tidegate.project import Project, load_project


def open_project() -> Project:
    """The project that this Airflow serves. Raises TidegateError: there is none, or its settings have a fault."""
    return load_project(find_served_project())


def find_project_of(dag_id: str) -> Project:
    """The project, for a DAG that may be a pipeline of it: what is not a pipeline's name never becomes part of a path,
    it is not found. Raises HTTPException, and :class:`Refused` for a project that cannot be read."""
    try:
        check_name(dag_id)
    except TidegateError as error:
        raise HTTPException(404, error.code) from None
    try:
        return open_project()
    except TidegateError as error:
        raise Refused(error, 503) from None


def find_paths(dag_id: str) -> PipelinePaths:
    """The pipeline's paths. Raises as :func:`find_project_of`."""
    return find_project_of(dag_id).paths(dag_id)
