"""The project whose pipelines are shown. Every look at it has a time limit, see :mod:`patience`."""

# No `from __future__ import annotations`: FastAPI resolves the annotations of dependencies at run time.
from typing import Annotated

from fastapi import Depends, HTTPException

from tidegate.airflow.locate import find_served_project
from tidegate.airflow.ui.patience import look_soon
from tidegate.airflow.ui.refusals import Refused
from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.spec.pipeline import check_name
from tidegate.spec.project import Project, load_project


def open_project() -> Project:
    """The project that this Airflow serves.

    Raises:
        TidegateError: There is none, or its settings have a fault.
        HTTPException: The disk takes too long.
    """
    return look_soon("project", lambda: load_project(find_served_project()))


def find_project_of(dag_id: str) -> Project:
    """The project, for a DAG that may be one of its pipelines.

    Raises:
        HTTPException: 404 for a name that a pipeline cannot have, so that it never becomes part of a path.
        Refused: The project cannot be read.
    """
    try:
        check_name(dag_id)
    except TidegateError as error:
        raise HTTPException(404, error.code) from None
    try:
        return open_project()
    except TidegateError as error:
        raise Refused(error, 503) from None


def find_project_with(dag_id: str) -> Project:
    """The project, for a DAG that is or was one of its pipelines. Raises HTTPException for any other DAG, and as
    :func:`find_project_of`."""
    project = find_project_of(dag_id)
    folders = project.jobs / dag_id, project.state / dag_id
    key = (project.root, "is there", dag_id)
    if not look_soon(key, lambda: any(storage.exists(folder) for folder in folders)):
        raise HTTPException(404, f"{dag_id} is not a pipeline of tidegate in the project that is shown here.")
    return project


ServedProject = Annotated[Project, Depends(find_project_with)]
"""The project, for a route of a DAG: FastAPI calls it in a thread, so that a slow disk does not block the server."""
