"""The actions of the pages: each starts a run of the DAG, pauses it, or answers a Required Action, through Airflow's
API in the name of the user.

An action has a page (GET), which shows what it would do, and is done by a POST to the same address. A browser is then
redirected to the page it came from; a program gets JSON.
"""

# No `from __future__ import annotations`: FastAPI resolves the annotations of endpoints at run time.
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from tidegate.airflow import errors, form
from tidegate.airflow.ui import access, deciding, plans, writes
from tidegate.airflow.ui.airflow_calls import call, refuse
from tidegate.airflow.ui.places import Places, segment
from tidegate.airflow.ui.render import HEADERS, Refused, refusing, render, wants_page
from tidegate.airflow.ui.served import ServedProject, find_project_with

router = APIRouter(
    prefix="/dags/{dag_id}/actions",
    dependencies=[Depends(access.may_read_dag), Depends(find_project_with)],  # 404 for a DAG that is not a pipeline
)
_may_trigger, _may_edit = [Depends(access.may_trigger)], [Depends(access.may_edit)]
_may_decide = [Depends(access.may_decide)]
Fields = Annotated[dict[str, str], Depends(writes.read_fields)]
Asked = Annotated[str, Query(max_length=500)]


@dataclass(frozen=True)
class Visit:
    """A request for the page of an action, which FastAPI makes of the request."""

    dag_id: str
    request: Request
    user: Annotated[BaseUser, access.current_user]

    def show(self, act: str, **context: object) -> HTMLResponse:
        """The page."""
        rights = access.list_rights(self.user, self.dag_id)
        more = {"dag_id": self.dag_id, "act": act, "token": writes.new_token(), "rights": rights}
        context |= {**more, "is_paused": access.is_paused(self.dag_id)}
        return render(self.request, f"actions/{act}.html", context)


Visiting = Annotated[Visit, Depends()]


@router.get("/run", dependencies=_may_trigger)
def show_run_now(visit: Visiting) -> HTMLResponse:
    """The page of *Run now*."""
    return visit.show("run")


@router.post("/run", dependencies=_may_trigger)
async def run_now(dag_id: str, request: Request, fields: Fields) -> Response:
    """Start a run that reads what is new."""
    writes.check_known(request, fields, (writes.TOKEN, "unpause"))
    return await _start(request, dag_id, fields, {}, "Run now")


@router.get("/backfill", dependencies=_may_trigger)
def show_backfill(
    project: ServedProject, visit: Visiting, first: Asked = "", last: Asked = "", look: Asked = ""
) -> HTMLResponse:
    """The page of *Backfill*: with days, what it would do."""
    days: plans.Days = {"first": first, "last": last, "error": None}
    if first or last or look:
        plan = plans.of_backfill(project, visit.dag_id, first, last)
    else:
        days, plan = plans.find_days(project, visit.dag_id), None
    return visit.show("backfill", asked=days, plan=plan)


@router.post("/backfill", dependencies=_may_trigger)
async def backfill(dag_id: str, project: ServedProject, request: Request, fields: Fields) -> Response:
    """Start a run that rebuilds days."""
    writes.check_known(request, fields, (writes.TOKEN, "unpause", "first", "last"))
    first, last = writes.need(request, fields, "first"), writes.need(request, fields, "last")
    plans.refuse_hindered(await run_in_threadpool(plans.of_backfill, project, dag_id, first, last))
    conf = {form.BACKFILL_FROM: first, form.BACKFILL_TO: last}
    return await _start(request, dag_id, fields, conf, f"Backfill from {first} to {last}")


@router.get("/refresh", dependencies=_may_trigger)
def show_refresh(project: ServedProject, visit: Visiting, keep_older: Asked = "", look: Asked = "") -> HTMLResponse:
    """The page of *Refresh*, and what it would do."""
    asked = {"keep_older": keep_older == "yes"}
    plan = plans.of_refresh(project, visit.dag_id, keeps_older=asked["keep_older"]) if look else None
    return visit.show("refresh", asked=asked, plan=plan)


@router.post("/refresh", dependencies=_may_trigger)
async def refresh(dag_id: str, project: ServedProject, request: Request, fields: Fields) -> Response:
    """Start a run that rebuilds the whole table."""
    writes.check_known(request, fields, (writes.TOKEN, "unpause", "keep_older"))
    keeps_older = fields.get("keep_older", "no")
    writes.choose(request, {"keep_older": keeps_older}, "keep_older", ("yes", "no"))
    plan = await run_in_threadpool(partial(plans.of_refresh, project, dag_id, keeps_older=keeps_older == "yes"))
    plans.refuse_hindered(plan)
    conf = {form.REFRESH: "keep-older" if keeps_older == "yes" else "all"}
    return await _start(request, dag_id, fields, conf, "Refresh of the table")


@router.get("/replay", dependencies=_may_trigger)
def show_replay(
    project: ServedProject, visit: Visiting, reason: Asked = "", of_run: Asked = "", look: Asked = ""
) -> HTMLResponse:
    """The page of *Replay quarantine*, and what it would replay."""
    asked = {"reason": reason.strip(), "of_run": of_run.strip()}
    plan = plans.of_replay(project, visit.dag_id, **asked) if look else None
    return visit.show("replay", asked=asked, plan=plan, reasons=plans.list_reasons(project, visit.dag_id))


@router.post("/replay", dependencies=_may_trigger)
async def replay(dag_id: str, project: ServedProject, request: Request, fields: Fields) -> Response:
    """Start a run that replays quarantined records."""
    writes.check_known(request, fields, (writes.TOKEN, "unpause", "reason", "of_run"))
    given = {form.REPLAY_REASON: fields.get("reason"), form.REPLAY_RUN: fields.get("of_run")}
    selected = {key: value.strip() for key, value in given.items() if value is not None}
    conf = {form.REPLAY: "selected" if selected else "all", **selected}
    await run_in_threadpool(plans.check_replay, project, dag_id, conf)
    asked = selected.get(form.REPLAY_REASON, ""), selected.get(form.REPLAY_RUN, "")
    plans.refuse_hindered(await run_in_threadpool(plans.of_replay, project, dag_id, *asked))
    return await _start(request, dag_id, fields, conf, "Replay of quarantine")


@router.get("/pause", dependencies=_may_edit)
def show_pause(visit: Visiting) -> HTMLResponse:
    """The page of *Pause* and *Unpause*."""
    return visit.show("pause")


@router.post("/pause", dependencies=_may_edit)
async def pause(dag_id: str, request: Request, fields: Fields) -> Response:
    """Pause or unpause the DAG."""
    writes.check_known(request, fields, (writes.TOKEN, "paused"))
    paused = writes.choose(request, fields, "paused", ("yes", "no")) == "yes"
    await _set_paused(request, dag_id, paused)
    return _answer(request, dag_id, "paused" if paused else "unpaused", dag_id)


@router.get("/decide", dependencies=_may_decide)
async def show_decide(
    project: ServedProject, visit: Visiting, run_id: Annotated[str, Query(max_length=form.RUN_ID_AT_MOST)]
) -> HTMLResponse:
    """The page of a decision on what is held under a run id."""
    matter = await deciding.look_at(deciding.Question(visit.request, project, visit.dag_id, run_id))
    return await run_in_threadpool(partial(visit.show, "decide", run_id=run_id, matter=matter))


@router.post("/decide", dependencies=_may_decide)
async def decide(dag_id: str, project: ServedProject, request: Request, fields: Fields) -> Response:
    """Answer the Required Action of a held run, or start a run that carries out the decision where none is open."""
    writes.check_known(request, fields, (writes.TOKEN, "unpause", "run_id", "decision", "reason", "back", "mark"))
    run_id = writes.need(request, fields, "run_id")
    ruling = writes.choose(request, fields, "decision", deciding.RULINGS)
    back = run_id if fields.get("back") == "run" else None
    with refusing():
        reason = form.check_reason(fields.get("reason"))
        question = deciding.Question(request, project, dag_id, run_id)
        is_done, mark = await deciding.decide(question, ruling, reason, fields.get("mark"))
    if is_done:
        return _answer(request, dag_id, "decided", run_id, back)
    conf = {form.DECIDE: ruling, form.DECIDE_RUN: run_id, form.DECIDE_REASON: reason}
    conf |= {} if mark is None else {form.DECIDE_OF: mark}
    await run_in_threadpool(_refuse_second, dag_id, run_id, _name_run(writes.check_token(request, fields), conf))
    return await _start(request, dag_id, fields, conf, f"Decision on {run_id}: {ruling}", back)


def _refuse_second(dag_id: str, run_id: str, own: str) -> None:
    """Raise :class:`Refused` while a run other than ``own``, which this form may have started, is to decide on it."""
    found = access.find_decider(dag_id, run_id)
    if found is not None and found[0] != own:
        decider, decision = found
        where = f"run {run_id} of pipeline {dag_id}"
        raise Refused(errors.DECISION_UNDER_WAY(where=where, decider=decider, decision=decision), 409)


async def _start(
    request: Request, dag_id: str, fields: Mapping[str, str], conf: dict[str, str], note: str, back: str | None = None
) -> Response:
    """Start a run with ``conf``, once for each token, and unpause the DAG where that is wanted."""
    with refusing():
        form.read_form(conf, conf)  # as the task does: a run that it would refuse is not started
    token = writes.check_token(request, fields)
    run_id, is_new = await _start_once(request, dag_id, token, conf, note)
    if fields.get("unpause") == "yes":
        await _set_paused(request, dag_id, False)
    return _answer(request, dag_id, "started" if is_new else "again", run_id, back)


def _name_run(token: str, conf: Mapping[str, str]) -> str:
    """The id of the run that a form starts: the same for the same form with the same values."""
    digest = hashlib.sha256(json.dumps(sorted(conf.items())).encode()).hexdigest()
    return f"manual__{token}-{digest[:8]}"


async def _start_once(
    request: Request, dag_id: str, token: str, conf: Mapping[str, str], note: str
) -> tuple[str, bool]:
    """The run's id, and whether this request started it. Raises :class:`Refused` with Airflow's message."""
    run_id = _name_run(token, conf)
    body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf), "note": f"{note} (from tidegate's page)"}
    answer = await call(request, "POST", f"dags/{segment(dag_id)}/dagRuns", body=body)
    if answer.status == 409:
        there = await call(request, "GET", f"dags/{segment(dag_id)}/dagRuns/{segment(run_id)}")
        if there.is_good and there.body.get("conf") == dict(conf):
            return run_id, False
    if not answer.is_good:
        raise refuse(answer, "start the run")
    return run_id, True


async def _set_paused(request: Request, dag_id: str, paused: bool) -> None:
    answer = await call(request, "PATCH", f"dags/{segment(dag_id)}", body={"is_paused": paused})
    if not answer.is_good:
        raise refuse(answer, "pause the DAG" if paused else "unpause the DAG")


def _answer(request: Request, dag_id: str, done: str, of: str, back: str | None = None) -> Response:
    """The answer after an action: a redirect to a page, or JSON."""
    if wants_page(request):
        return RedirectResponse(Places.of(request).after(dag_id, done, of, back), 303, headers=HEADERS)
    return JSONResponse({"dag_id": dag_id, "done": done, "of": of}, headers=HEADERS)
