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
from tidegate.airflow.ui.render import Refused, refusing
from tidegate.airflow.ui.served import look_soon
from tidegate.core.errors import TidegateError
from tidegate.core.outputs import Ruling as RulingReport
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
class Question:
    """A question to a person, about what is held under a run id, and the request that shows or answers it."""

    request: Request
    project: Project
    dag_id: str
    run_id: str

    @property
    def run(self) -> str:
        """The run in Airflow's API."""
        return f"dags/{segment(self.dag_id)}/dagRuns/{segment(self.run_id)}"

    @property
    def where(self) -> str:
        """The place of an error."""
        return f"run {self.run_id} of pipeline {self.dag_id}"


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


async def look_at(one: Question) -> Matter:
    """Find what there is to decide under a run id. Raises :class:`Refused`, and as :func:`look_soon`."""
    key = (one.project.root, "matter", one.dag_id, one.run_id)
    found, ruling = await run_in_threadpool(look_soon, key, lambda: _look(one.project, one.dag_id, one.run_id))
    if not can_be_segment(one.run_id):  # not the id of a run in Airflow
        return Matter(found, ruling, None, None)
    action = await _find_action(one)
    there = await call(one.request, "GET", one.run)
    if not there.is_good and there.status != 404:
        raise refuse(there, "show the run")
    return Matter(found, ruling, action, str(there.body.get("state")) if there.is_good else None)


async def decide(one: Question, ruling: Ruling, reason: str, seen: str | None) -> tuple[bool, str | None]:
    """Answer the Required Action, or find that the same was decided before. ``seen`` is the mark that the page showed.

    Returns:
        Whether it is done, else another run has to carry it out; and the mark of what is held now.

    Raises:
        Refused: The request does not fit what is held.
        TidegateError: As of the commands: nothing is held, or somebody decided otherwise.
    """
    turn = _turns.setdefault((one.dag_id, one.run_id), asyncio.Lock())
    async with turn:  # Airflow may accept two simultaneous answers
        return await _decide(one, ruling, reason, seen)


async def _decide(one: Question, ruling: Ruling, reason: str, seen: str | None) -> tuple[bool, str | None]:
    matter = await look_at(one)
    if matter.action is None and matter.undecided is None:
        key = (one.project.root, "decided", one.dag_id, one.run_id, ruling)
        check = partial(_check_decided, one, ruling, matter.ruling)
        return await run_in_threadpool(look_soon, key, check), None
    mark = None if matter.undecided is None else matter.undecided["mark"]
    if seen is not None and mark not in (None, seen):
        fault = "other records are held under this run id now: look at them, and decide again"
        raise Refused(errors.ACTION_REFUSED(where=one.where, fault=fault), 409)
    given = await _find_answer(one) if matter.is_at_work else None
    if given is not None:
        if OPTIONS.get(str((given.get("chosen_options") or [""])[0])) != ruling:
            raise _answered(one, given)
        return True, mark
    if matter.is_at_work:
        state = f"the run is {matter.state}"
        raise errors.ACTION_TOO_SOON(where=one.where, run_id=one.run_id, state=state)
    if ruling not in matter.choices:
        fault = f"the decision must be one of: {', '.join(matter.choices)}"
        raise Refused(errors.ACTION_REFUSED(where=one.where, fault=fault), 400)
    if matter.action is None:
        return False, mark
    await _answer(one, matter.action, ruling, reason)
    return True, mark


def _look(project: Project, dag_id: str, run_id: str) -> tuple[HeldWork | None, RulingReport | None]:
    paths = project.paths(dag_id)
    with refusing(project):
        return find_held_work(paths, run_id), find_ruling(paths, run_id)


def _check_decided(one: Question, ruling: Ruling, before: RulingReport | None) -> bool:
    """When nothing waits: True where the same was decided before. Raises the errors of ``tidegate release``."""
    if before is None:
        raise not_held(one.dag_id, one.run_id, load_report(one.project.paths(one.dag_id), one.run_id))
    if before["decision"] != ruling:
        raise decided_already(one.dag_id, one.run_id, _mode_of(one), before)
    return True


def _mode_of(one: Question) -> str:
    report = load_report(one.project.paths(one.dag_id), one.run_id)
    return "incremental" if report is None else report.mode


async def _find_action(one: Question) -> RequiredAction | None:
    """The open Required Action of a run; None where there is none, or no such run in Airflow."""
    answer = await call(one.request, "GET", f"{one.run}/hitlDetails", params={"response_received": "false"})
    if answer.status == 404:
        return None
    if not answer.is_good:
        raise refuse(answer, "show the Required Actions of the run")
    details: list[RequiredAction] = answer.body["hitl_details"]
    found = [action for action in details if action["task_instance"]["state"] in _WAITS]
    return found[0] if found else None


async def _find_answer(one: Question) -> RequiredAction | None:
    """The answer to a Required Action of the run that has been given and is being carried out."""
    answer = await call(one.request, "GET", f"{one.run}/hitlDetails", params={"response_received": "true"})
    found: list[RequiredAction] = answer.body["hitl_details"] if answer.is_good else []
    return found[0] if found else None


def _answered(one: Question, given: RequiredAction) -> TidegateError:
    """The error for an answer when another one came first."""
    responder = given.get("responded_by_user")
    who = responder.get("name") if responder else None
    ruling: RulingReport = {
        "who": str(who or "somebody else"),
        "decision": str(OPTIONS.get(str((given.get("chosen_options") or [""])[0]), "?")),
        "at": str(given.get("responded_at") or "this moment"),
        "reason": "",
    }
    return decided_already(one.dag_id, one.run_id, _mode_of(one), ruling)


async def _answer(one: Question, action: RequiredAction, ruling: Ruling, reason: str) -> None:
    task = action["task_instance"]
    path = f"{one.run}/taskInstances/{segment(str(task['task_id']))}/{int(task['map_index'])}/hitlDetails"
    option = next(option for option, decision in OPTIONS.items() if decision == ruling)
    answer = await call(one.request, "PATCH", path, body={"chosen_options": [option], "params_input": {REASON: reason}})
    if not answer.is_good:
        raise refuse(answer, "take the answer")
    # Airflow may accept two simultaneous answers and keep the later one.
    kept = await call(one.request, "GET", path)
    if not kept.is_good:
        return
    given, why = kept.body.get("chosen_options"), (kept.body.get("params_input") or {}).get(REASON)
    if given != [option] or why not in (reason, None):
        raise _answered(one, kept.body)
