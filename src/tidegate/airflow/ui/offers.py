"""The actions that a page offers: only those that the user may do."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypedDict

from tidegate.airflow.ui import access
from tidegate.airflow.ui.access import Rights
from tidegate.spec.project import Project
from tidegate.views.faults import STATE_FAULTS
from tidegate.views.pages.held import Undecided, list_undecided
from tidegate.views.pages.runs import Scheduled

_STARTS_A_RUN = ("run", "backfill", "refresh", "replay")
_UNFINISHED = ("queued", "running")


class Offer(TypedDict):
    """The actions of a page.

    ``is_paused`` is None where Airflow has no such DAG. ``undecided`` is what the user may decide on, ``queued`` are
    the waiting runs, ``deciding`` the runs that are to carry out a decision, by the run that it is on.
    """

    acts: list[str]
    is_paused: bool | None
    undecided: list[Undecided]
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
    undecided = _list_undecided(project, dag_id) if rights["decide"] else []
    if run_id is not None:
        acts, undecided = [], [one for one in undecided if one["run_id"] == run_id]
    deciding = {one["decides_on"]: one for one in scheduled if one["decides_on"] and one["state"] in _UNFINISHED}
    waiting = [one for one in reversed(scheduled) if one["state"] == "queued"]
    queued = [one["run_id"] for one in waiting if not one["decides_on"]]
    return {"acts": acts, "is_paused": is_paused, "undecided": undecided, "queued": queued, "deciding": deciding}


def _list_undecided(project: Project, dag_id: str) -> list[Undecided]:
    try:
        return list_undecided(project.paths(dag_id))
    except STATE_FAULTS:
        return []  # the page shows that the state cannot be read
