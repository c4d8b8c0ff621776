"""How a decision on what is held is carried out in Airflow.

- The run waits in Airflow: its Required Action is answered, and its ``audit`` task carries the answer out. If somebody
  has decided in a terminal in the meantime, the answer ends the wait, and the run ends with that decision.
- The run does not wait (it was marked failed, was not a run of Airflow, or is a backfill or refresh): another run of
  the DAG carries the decision out.
- The run is active: neither. It is about to ask, or is carrying out an answer.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import get_args
from weakref import WeakValueDictionary

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from typing_extensions import TypedDict

from tidegate.airflow import errors
from tidegate.airflow.decision import OPTIONS, REASON
from tidegate.airflow.ui.airflow_calls import call, can_be_segment, refuse
from tidegate.airflow.ui.places import segment
from tidegate.airflow.ui.render import Refused
from tidegate.airflow.ui.served import look_soon
from tidegate.core.errors import TidegateError
from tidegate.core.outputs import Ruling as RulingReport
from tidegate.core.storage import name_cause
from tidegate.rework.held import HeldWork, find_held_work, find_ruling
from tidegate.runs.gate.decisions import decided_already, not_held
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Ruling
from tidegate.spec.project import Project

RULINGS: tuple[Ruling, ...] = get_args(Ruling)
_WAITS = ("awaiting_input", "deferred")
_AT_WORK = ("queued", "running")
_turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
"""A lock for each question, within this process of the API server."""


class _TaskInstance(TypedDict):
    task_id: str
    map_index: int
    state: str


class _Responder(TypedDict):
    name: str | None


class RequiredAction(TypedDict):
    """A Required Action as Airflow's API has it, with the answer where one is given."""

    task_instance: _TaskInstance
    options: list[str]
    chosen_options: list[str] | None
    responded_by_user: _Responder | None
    responded_at: str | None


@dataclass(frozen=True)
class Matter:
    """What there is to decide under a run id.

    ``undecided`` is None where nothing waits for a decision, ``ruling`` is the decision that was made then; ``action``
    is the open Required Action in Airflow, None for none; ``state`` is the state of the DAG run.
    """

    undecided: HeldWork | None
    ruling: RulingReport | None
    action: RequiredAction | None
    state: str | None

    @property
    def choices(self) -> list[Ruling]:
        """The decisions that can be made."""
        if self.action is None:
            return [] if self.undecided is None else self.undecided["choices"]
        offered = [OPTIONS[one] for one in self.action["options"] if one in OPTIONS]
        if self.undecided is not None:
            return [one for one in offered if one in self.undecided["choices"]]
        decided = None if self.ruling is None else self.ruling["decision"]
        return [one for one in offered if one == decided] or offered

    @property
    def is_at_work(self) -> bool:
        """Return whether the run is active in Airflow and has no open Required Action."""
        return self.action is None and self.state in _AT_WORK


async def look_at(request: Request, project: Project, dag_id: str, run_id: str) -> Matter:
    """Find what there is to decide under a run id. Raises :class:`Refused`, and as :func:`look_soon`."""
    key = (project.root, "matter", dag_id, run_id)
    found, ruling = await run_in_threadpool(look_soon, key, lambda: _look(project, dag_id, run_id))
    if not can_be_segment(run_id):  # not the id of a run in Airflow
        return Matter(found, ruling, None, None)
    action = await _find_action(request, dag_id, run_id)
    there = await call(request, "GET", f"dags/{segment(dag_id)}/dagRuns/{segment(run_id)}")
    if not there.is_good and there.status != 404:
        raise refuse(there, "show the run")
    return Matter(found, ruling, action, str(there.body.get("state")) if there.is_good else None)


async def decide(
    request: Request, project: Project, dag_id: str, run_id: str, ruling: Ruling, reason: str, seen: str | None
) -> tuple[bool, str | None]:
    """Answer the Required Action, or find that the same was decided before. ``seen`` is the mark that the page showed.

    Returns:
        Whether it is done, else another run has to carry it out; and the mark of what is held now.

    Raises:
        Refused: The request does not fit what is held.
        TidegateError: As of the commands: nothing is held, or somebody decided otherwise.
    """
    turn = _turns.setdefault((dag_id, run_id), asyncio.Lock())
    async with turn:  # Airflow may accept two simultaneous answers
        return await _decide(request, project, dag_id, run_id, ruling, reason, seen)


async def _decide(
    request: Request, project: Project, dag_id: str, run_id: str, ruling: Ruling, reason: str, seen: str | None
) -> tuple[bool, str | None]:
    matter = await look_at(request, project, dag_id, run_id)
    if matter.action is None and matter.undecided is None:
        key = (project.root, "decided", dag_id, run_id, ruling)
        check = partial(_check_decided, project, dag_id, run_id, ruling, matter.ruling)
        return await run_in_threadpool(look_soon, key, check), None
    mark = None if matter.undecided is None else matter.undecided["mark"]
    if seen is not None and mark not in (None, seen):
        fault = "other records are held under this run id now: look at them, and decide again"
        raise Refused(errors.ACTION_REFUSED(where=f"run {run_id} of pipeline {dag_id}", fault=fault), 409)
    given = await _find_answer(request, dag_id, run_id) if matter.is_at_work else None
    if given is not None:
        if OPTIONS.get(str((given.get("chosen_options") or [""])[0])) != ruling:
            raise _answered(dag_id, run_id, given)
        return True, mark
    if matter.is_at_work:
        state = f"the run is {matter.state}"
        raise errors.ACTION_TOO_SOON(where=f"run {run_id} of pipeline {dag_id}", run_id=run_id, state=state)
    if ruling not in matter.choices:
        fault = f"the decision must be one of: {', '.join(matter.choices)}"
        raise Refused(errors.ACTION_REFUSED(where=f"run {run_id} of pipeline {dag_id}", fault=fault), 400)
    if matter.action is None:
        return False, mark
    await _answer(request, dag_id, run_id, matter.action, ruling, reason)
    return True, mark


def _look(project: Project, dag_id: str, run_id: str) -> tuple[HeldWork | None, RulingReport | None]:
    paths = project.paths(dag_id)
    try:
        return find_held_work(paths, run_id), find_ruling(paths, run_id)
    except TidegateError as error:
        raise Refused.of(error) from None
    except OSError as error:
        named = name_cause(error, project.root)
        if named is None:
            raise
        raise Refused.of(named) from None


def _check_decided(project: Project, name: str, run_id: str, ruling: Ruling, before: RulingReport | None) -> bool:
    """When nothing waits: True where the same was decided before. Raises the errors of ``tidegate release``."""
    if before is None:
        raise not_held(name, run_id, load_report(project.paths(name), run_id))
    if before["decision"] != ruling:
        raise decided_already(name, run_id, before)
    return True


async def _find_action(request: Request, dag_id: str, run_id: str) -> RequiredAction | None:
    """The open Required Action of a run; None where there is none, or no such run in Airflow."""
    path = f"dags/{segment(dag_id)}/dagRuns/{segment(run_id)}/hitlDetails"
    answer = await call(request, "GET", path, params={"response_received": "false"})
    if answer.status == 404:
        return None
    if not answer.is_good:
        raise refuse(answer, "show the Required Actions of the run")
    details: list[RequiredAction] = answer.body["hitl_details"]
    found = [one for one in details if one["task_instance"]["state"] in _WAITS]
    return found[0] if found else None


async def _find_answer(request: Request, dag_id: str, run_id: str) -> RequiredAction | None:
    """The answer to a Required Action of the run that has been given and is being carried out."""
    path = f"dags/{segment(dag_id)}/dagRuns/{segment(run_id)}/hitlDetails"
    answer = await call(request, "GET", path, params={"response_received": "true"})
    found: list[RequiredAction] = answer.body["hitl_details"] if answer.is_good else []
    return found[0] if found else None


def _answered(dag_id: str, run_id: str, given: RequiredAction) -> TidegateError:
    """The error for an answer when another one came first."""
    responder = given.get("responded_by_user")
    who = responder.get("name") if responder else None
    ruling: RulingReport = {
        "who": str(who or "somebody else"),
        "decision": str(OPTIONS.get(str((given.get("chosen_options") or [""])[0]), "?")),
        "at": str(given.get("responded_at") or "this moment"),
        "reason": "",
    }
    return decided_already(dag_id, run_id, ruling)


async def _answer(
    request: Request, dag_id: str, run_id: str, action: RequiredAction, ruling: Ruling, reason: str
) -> None:
    task = action["task_instance"]
    path = (
        f"dags/{segment(dag_id)}/dagRuns/{segment(run_id)}/taskInstances/{segment(str(task['task_id']))}"
        f"/{int(task['map_index'])}/hitlDetails"
    )
    option = next(one for one, decision in OPTIONS.items() if decision == ruling)
    answer = await call(request, "PATCH", path, body={"chosen_options": [option], "params_input": {REASON: reason}})
    if not answer.is_good:
        raise refuse(answer, "take the answer")
    # Airflow may accept two simultaneous answers and keep the later one.
    kept = await call(request, "GET", path)
    if not kept.is_good:
        return
    given, why = kept.body.get("chosen_options"), (kept.body.get("params_input") or {}).get(REASON)
    if given != [option] or why not in (reason, None):
        raise _answered(dag_id, run_id, kept.body)
