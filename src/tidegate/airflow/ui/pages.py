"""The pages: the values of :mod:`tidegate.views.pages` as HTML."""

# No `from __future__ import annotations`: FastAPI resolves the annotations of endpoints at run time.
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import HTMLResponse
from typing_extensions import TypedDict

from tidegate.airflow.ui import access, served
from tidegate.airflow.ui.access import Rights
from tidegate.airflow.ui.render import render
from tidegate.airflow.ui.served import PATIENCE_SECONDS, Patience, ServedProject, look_soon, open_project
from tidegate.core.errors import Caught, TidegateError
from tidegate.rework.held import HeldWork, list_held_work
from tidegate.spec.project import Project
from tidegate.views.faults import STATE_FAULTS
from tidegate.views.pages import pipelines
from tidegate.views.pages.ahead import look_at_ahead
from tidegate.views.pages.pipeline import (
    HISTORY_CHOICES,
    look_at_pipeline,
    look_at_quarantine,
    look_at_size,
    look_at_state,
    look_at_table,
)
from tidegate.views.pages.run import hide_report, look_at_run, settle
from tidegate.views.pages.runs import RunRow, Scheduled
from tidegate.views.pages.specs import Map, read_specs

_HISTORY = 100

router = APIRouter()
_for_parts = Patience()
_may_read_dag = Depends(access.may_read_dag)
User = Annotated[BaseUser, access.current_user]

_Look = Callable[[Project, str], object]

PARTS: Mapping[str, tuple[str, _Look]] = {
    "backlog": ("Backlog", look_at_ahead),
    "waiting": ("Pending", look_at_ahead),
    "quarantine": (
        "Quarantine by cause",
        lambda project, name: look_at_quarantine(project, name, shows_data=project.spec.ui.show_data),
    ),
    "table": ("Table", look_at_table),
    "size": ("Size of the table", look_at_size),
    "state": ("State and spec", look_at_state),
}
"""The parts that a page loads separately because they may take long: the title, and the function that looks."""


def list_names(project: Project) -> list[str]:
    """The project's pipelines. Raises HTTPException when the disk takes too long."""
    return look_soon((project.root, "names"), lambda: pipelines.list_names(project))


@router.get("/pipelines")
def show_pipelines(request: Request, user: User) -> HTMLResponse:
    """Every pipeline that the user may see."""
    try:
        project = open_project()
    except TidegateError as error:
        return render(request, "unusable.html", {"error": error.to_dict()}, 503)
    names = access.list_readable(user, list_names(project))
    around = look_soon((project.root, "map", *names), lambda: Map.of(project, read_specs(project, names)))
    ask = _ask_within(served.PATIENCE_SECONDS, project, names)
    overview = pipelines.overview(project, names, around, ask, access.list_scheduled(names))
    return render(
        request,
        "pipelines.html",
        {
            "overview": overview,
            "paused": access.list_paused(names),
            "import_errors": access.list_import_errors(names),
            "strip": pipelines.STRIP_RUNS,
        },
    )


def _ask_within(seconds: float, project: Project, names: list[str]) -> pipelines.Ask:
    """A function that looks at one pipeline after the other within a total time, of which one that hangs may use a
    quarter."""
    end = time.monotonic() + seconds

    def ask(name: str, look: Callable[[], pipelines.PipelineRow]) -> pipelines.PipelineRow | None:
        left = max(min(seconds / 4, end - time.monotonic()), 0.05)
        return served.for_pages.ask((project.root, "row", name, *names), look, left)

    return ask


@router.get("/dags/{dag_id}", dependencies=[_may_read_dag])
def show_pipeline(
    dag_id: str, project: ServedProject, request: Request, user: User, runs: Annotated[int, Query()] = _HISTORY
) -> HTMLResponse:
    """A pipeline; ``runs`` is how many of its newest are shown."""
    names = access.list_readable(user, list_names(project))
    limit = min((one for one in HISTORY_CHOICES if one >= runs), default=HISTORY_CHOICES[-1])
    rights = access.list_rights(user, dag_id)
    scheduled = access.list_scheduled([dag_id]).get(dag_id, [])
    key = (project.root, "pipeline", dag_id, limit, *names, *rights.values())
    page, offered = look_soon(
        key,
        lambda: (look_at_pipeline(project, dag_id, names, limit, scheduled), offer(project, dag_id, rights, scheduled)),
    )
    done = _find_done(request, dag_id, page["row"].runs, is_paused=offered["is_paused"])
    titles = {part: title for part, (title, _) in PARTS.items()}
    import_error = access.list_import_errors([dag_id]).get(dag_id)
    context = {"page": page, "offer": offered, "choices": HISTORY_CHOICES, "titles": titles}
    return render(request, "pipeline.html", {**context, "import_error": import_error, **done})


def _find_done(request: Request, dag_id: str, runs: Sequence[RunRow], *, is_paused: bool | None) -> dict[str, str]:
    """The action that the address says was done, if that is plausible: anybody can make up an address."""
    done, of = request.query_params.get("done", ""), request.query_params.get("of", "")
    if done in ("paused", "unpaused"):
        is_plausible = is_paused is (done == "paused")
    elif done in ("started", "again", "decided"):
        is_plausible = any(run.run_id == of for run in runs) or access.find_run(dag_id, of) is not None
    else:
        is_plausible = False
    return {"done": done, "of": of} if is_plausible else {}


@router.get("/dags/{dag_id}/run", dependencies=[_may_read_dag])
def show_run(
    dag_id: str, run_id: Annotated[str, Query()], project: ServedProject, request: Request, user: User
) -> HTMLResponse:
    """A run."""
    rights = access.list_rights(user, dag_id)
    page, offered = look_soon(
        (project.root, "run", dag_id, run_id, *rights.values()),
        lambda: (look_at_run(project, dag_id, run_id), offer(project, dag_id, rights, run_id=run_id)),
    )
    run = access.find_run(dag_id, run_id)
    settle(page, *(None, None) if run is None else (run["state"], run["refused"]))
    done = _find_done(request, dag_id, [page.row] if page.row else [], is_paused=offered["is_paused"])
    context = {"page": page, "offer": offered, "in_airflow": run, **done}
    with Caught():  # any value of a report may have a wrong type
        return render(request, "run.html", context)
    hide_report(page, project.paths(dag_id), "the report holds what no version of tidegate is known to write")
    return render(request, "run.html", context)


@router.get("/dags/{dag_id}/parts/{part}", dependencies=[_may_read_dag])
def show_part(
    dag_id: str, part: str, project: ServedProject, request: Request, fragment: Annotated[bool, Query()] = False
) -> HTMLResponse:
    """A part of a page: as a ``fragment`` for the script, else as a separate page."""
    if part not in PARTS:
        raise HTTPException(404, "no such part")
    title, look = PARTS[part]
    found = _for_parts.ask((project.root, dag_id, look), lambda: look(project, dag_id), PATIENCE_SECONDS)
    context = {"part": found, "name": part if found is not None else "slow", "title": title, "dag_id": dag_id}
    context |= {"asked": part, "seconds": round(PATIENCE_SECONDS)}
    return render(request, "parts/fragment.html" if fragment else "part.html", context)


_STARTS_A_RUN = ("run", "backfill", "refresh", "replay")
_UNFINISHED = ("queued", "running")


class Offer(TypedDict):
    """The actions of a page.

    ``is_paused`` is None where Airflow has no such DAG. ``undecided`` is what the user may decide on, ``queued`` are
    the waiting runs, ``deciding`` the runs that are to carry out a decision, by the run that it is on.
    """

    acts: list[str]
    is_paused: bool | None
    undecided: list[HeldWork]
    queued: list[str]
    deciding: dict[str, Scheduled]


def offer(
    project: Project, dag_id: str, rights: Rights, scheduled: Sequence[Scheduled] = (), run_id: str | None = None
) -> Offer:
    """The actions for a pipeline with these scheduled runs, or only those for one of its runs."""
    is_paused = access.is_paused(dag_id)
    if is_paused is None:
        return {"acts": [], "is_paused": None, "undecided": [], "queued": [], "deciding": {}}
    acts = [*(_STARTS_A_RUN if rights["trigger"] else ()), *(("pause",) if rights["edit"] else ())]
    undecided = _list_held_work(project, dag_id) if rights["decide"] else []
    if run_id is not None:
        acts, undecided = [], [one for one in undecided if one["run_id"] == run_id]
    deciding = {one["decides_on"]: one for one in scheduled if one["decides_on"] and one["state"] in _UNFINISHED}
    waiting = [one for one in reversed(scheduled) if one["state"] == "queued"]
    queued = [one["run_id"] for one in waiting if not one["decides_on"]]
    return {"acts": acts, "is_paused": is_paused, "undecided": undecided, "queued": queued, "deciding": deciding}


def _list_held_work(project: Project, dag_id: str) -> list[HeldWork]:
    try:
        return list_held_work(project.paths(dag_id))
    except STATE_FAULTS:
        return []  # the page shows that the state cannot be read
