"""The pages: what :mod:`tidegate.monitor` knows of a pipeline, as HTML."""

# No `from __future__ import annotations`: FastAPI resolves the annotations of endpoints at run time.
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from tidegate.airflow.ui import access
from tidegate.airflow.ui.render import render
from tidegate.airflow.ui.served import find_project_of, open_project
from tidegate.errors import TidegateError
from tidegate.monitor import pipelines

router = APIRouter()
_may_read_dag = Depends(access.may_read_dag)
User = Annotated[Any, access.current_user]


@router.get("/pipelines")
def show_pipelines(request: Request, user: User) -> HTMLResponse:
    """Every pipeline that the user may see."""
    try:
        project = open_project()
    except TidegateError as error:
        return render(request, "unusable.html", {"error": error.to_dict()}, 503)
    names = access.list_readable(user, pipelines.list_names(project))
    return render(request, "pipelines.html", {"overview": pipelines.overview(project, names)})


@router.get("/dags/{dag_id}", dependencies=[_may_read_dag])
def show_pipeline(dag_id: str, request: Request, user: User) -> HTMLResponse:
    """A pipeline."""
    project = find_project_of(dag_id)
    row = pipelines.look_at(project, dag_id)
    return render(request, "pipeline.html", {"row": row, "rights": access.list_rights(user, dag_id)})


@router.get("/dags/{dag_id}/run", dependencies=[_may_read_dag])
def show_run(dag_id: str, run_id: Annotated[str, Query()], request: Request, user: User) -> HTMLResponse:
    """A run."""
    project = find_project_of(dag_id)
    row = pipelines.look_at(project, dag_id)
    context = {"row": row, "run_id": run_id, "rights": access.list_rights(user, dag_id)}
    return render(request, "run.html", context)
