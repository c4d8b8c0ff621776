"""The pages: what :mod:`tidegate.monitor` knows of a pipeline, as HTML."""

# No `from __future__ import annotations`: FastAPI resolves the annotations of endpoints at run time.
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import HTMLResponse

from tidegate.airflow.ui import access
from tidegate.airflow.ui.offers import offer
from tidegate.airflow.ui.patience import Patience
from tidegate.airflow.ui.render import render
from tidegate.airflow.ui.served import find_project_of, open_project
from tidegate.errors import TidegateError
from tidegate.monitor import pipelines
from tidegate.monitor.ahead import look_at_ahead
from tidegate.monitor.pipeline import (
    HISTORY_CHOICES,
    look_at_pipeline,
    look_at_quarantine,
    look_at_state,
    look_at_table,
)
from tidegate.monitor.run import look_at_run
from tidegate.project import Project

PATIENCE_SECONDS = 8.0
_HISTORY = 100

router = APIRouter()
patience = Patience()
_for_pages = Patience()
"""Apart from the parts: many slow ones keep no page waiting."""
_may_read_dag = Depends(access.may_read_dag)
User = Annotated[Any, access.current_user]

_T = TypeVar("_T")
_Look = Callable[[Project, str], Any]

PARTS: Mapping[str, tuple[str, _Look]] = {
    "backlog": ("Backlog", look_at_ahead),
    "waiting": ("What waits", look_at_ahead),
    "quarantine": (
        "Quarantine by cause",
        lambda project, name: look_at_quarantine(project, name, shows_data=project.spec.ui.show_data),
    ),
    "table": ("Table", look_at_table),
    "state": ("State and spec", look_at_state),
}
"""What a page asks for by itself, because it may take long: its title, and who looks."""


def look_soon(key: object, look: Callable[[], _T]) -> _T:
    """What ``look`` gives. Raises HTTPException when the disk takes too long for it: threads of Airflow's API server,
    of which there are a few, must not be kept."""
    found = _for_pages.ask(key, look, PATIENCE_SECONDS)
    if found is None:
        told = f"The project's disk takes longer than {PATIENCE_SECONDS:.0f} seconds. Nothing of a run depends on this "
        raise HTTPException(503, f"{told}page: load it again.")
    return found


@router.get("/pipelines")
def show_pipelines(request: Request, user: User) -> HTMLResponse:
    """Every pipeline that the user may see."""
    try:
        project = open_project()
    except TidegateError as error:
        return render(request, "unusable.html", {"error": error.to_dict()}, 503)
    names = access.list_readable(user, pipelines.list_names(project))
    overview = look_soon((project.root, *names), lambda: pipelines.overview(project, names))
    return render(request, "pipelines.html", {"overview": overview, "paused": access.list_paused(names)})


@router.get("/dags/{dag_id}", dependencies=[_may_read_dag])
def show_pipeline(dag_id: str, request: Request, user: User, runs: Annotated[int, Query()] = _HISTORY) -> HTMLResponse:
    """A pipeline; ``runs`` is how many of its newest are shown."""
    project = find_project_of(dag_id)
    names = access.list_readable(user, pipelines.list_names(project))
    limit = min((one for one in HISTORY_CHOICES if one >= runs), default=HISTORY_CHOICES[-1])
    rights = access.list_rights(user, dag_id)
    key = (project.root, dag_id, limit, *names, *rights.values())
    page, offered = look_soon(
        key, lambda: (look_at_pipeline(project, dag_id, names, limit), offer(project, dag_id, rights))
    )
    return render(request, "pipeline.html", {"page": page, "offer": offered, "choices": HISTORY_CHOICES})


@router.get("/dags/{dag_id}/run", dependencies=[_may_read_dag])
def show_run(dag_id: str, run_id: Annotated[str, Query()], request: Request, user: User) -> HTMLResponse:
    """A run."""
    project = find_project_of(dag_id)
    rights = access.list_rights(user, dag_id)
    page, offered = look_soon(
        (project.root, dag_id, run_id, *rights.values()),
        lambda: (look_at_run(project, dag_id, run_id), offer(project, dag_id, rights, run_id)),
    )
    context = {"page": page, "offer": offered, "spark_links": []}
    try:
        return render(request, "run.html", context)
    except Exception:  # noqa: BLE001 - a report may hold anything in the place of anything
        fault = "the report holds what no version of tidegate is known to write; it can be had as JSON"
        bare = {**page, "row": None, "report": None, "flow": None, "rules": [], "sources": [], "error": None}
        return render(request, "run.html", {**context, "page": {**bare, "state": "unreadable", "fault": fault}})


@router.get("/dags/{dag_id}/parts/{part}", dependencies=[_may_read_dag])
def show_part(dag_id: str, part: str, request: Request, fragment: Annotated[bool, Query()] = False) -> HTMLResponse:
    """A part of a page: for the page itself (``fragment``), else as a page of its own."""
    if part not in PARTS:
        raise HTTPException(404, "no such part")
    title, look = PARTS[part]
    project = find_project_of(dag_id)
    found = patience.ask((project.root, dag_id, look), lambda: look(project, dag_id), PATIENCE_SECONDS)
    context = {"part": found, "name": part if found is not None else "slow", "title": title, "dag_id": dag_id}
    context |= {"asked": part, "seconds": round(PATIENCE_SECONDS)}
    return render(request, "parts/fragment.html" if fragment else "part.html", context)
