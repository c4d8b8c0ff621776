"""Decisions on a held increment in Airflow: the ``audit`` task asks by a Required Action and carries out the answer.

While it waits, no process runs and no worker slot is taken. From Airflow 3.3 the API server resumes the task with the
answer; before, a trigger does, so a triggerer must run. Answers are checked here again: Airflow checks only those that
come through its form.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, TypeVar

from tidegate.airflow import errors
from tidegate.airflow.form import ACCEPT_LOSS_MAX_LENGTH, ACCEPT_LOSS_PATTERN, check_reason
from tidegate.core.errors import HeldError, TidegateError, TryAgainError
from tidegate.core.words import escape_controls
from tidegate.runs.reports.verdicts import Ruling

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from tidegate.core.paths import PipelinePaths

REASON = "reason"
OPTIONS: dict[str, Ruling] = {"Release": "release", "Discard": "discard", "Read again": "reread"}
"""The options of a Required Action, and the decision that each of them is."""
ASKED = ("INCREMENT_HELD", "INCREMENT_WAITS")
"""The codes of errors about the run's own increment, on which a person can decide."""
_WHO_AT_MOST = 200
_TRY_EVERY_SECONDS = 5.0
_PATIENCE_SECONDS = 3600.0

_T = TypeVar("_T")


@dataclass(frozen=True)
class Answer:
    """A person's decision, and its reason."""

    decision: Ruling
    reason: str
    who: str


def ask(
    operator: BaseOperator, context: Context, pipeline: str, held: HeldError, method_name: str, of: str | None
) -> None:
    """Open a Required Action and end this process: the task resumes in ``method_name``, with the answer and with
    ``of``, the mark of what was held when the question was asked.

    Never returns: raises the exception by which Airflow makes a task wait.
    """
    from airflow.sdk import Param
    from airflow.sdk.execution_time.hitl import upsert_hitl_detail

    ti_id = context["ti"].id
    options = [one for one in OPTIONS if OPTIONS[one] != "reread" or held.code != "INCREMENT_WAITS"]
    form = Param(
        "",
        type="string",
        minLength=1,
        maxLength=ACCEPT_LOSS_MAX_LENGTH,
        pattern=ACCEPT_LOSS_PATTERN,
        title="Reason",
        description="Why; it is recorded with your name in the run report and in the commit of the table.",
    )
    params = {REASON: form.serialize()}
    upsert_hitl_detail(
        ti_id=ti_id,
        options=options,
        subject=f"{pipeline}: run {context['run_id']} is held",
        body=describe(held, options),
        multiple=False,
        params=params,
    )
    try:
        from airflow.sdk.exceptions import TaskAwaitingInput
    except ImportError:
        from airflow.providers.standard.triggers.hitl import HITLTrigger

        operator.log.info(
            "a trigger polls for the answer: start a triggerer (airflow triggerer), or the task never resumes"
        )
        trigger = HITLTrigger(ti_id=ti_id, options=options, params=params, timeout_datetime=None)
        operator.defer(trigger=trigger, method_name=method_name, kwargs={"of": of})
    else:
        raise TaskAwaitingInput(method_name=method_name, kwargs={"of": of})


def mark_held(paths: PipelinePaths, run_id: str) -> str | None:
    """A mark of what is held under a run id; None where nothing is held. It changes when other records are held under
    the same id: they may have been read again in a terminal, or the next part of a backfill is held."""
    from tidegate.rework.held import find_held_work

    try:
        found = find_held_work(paths, run_id)
    except (TidegateError, OSError, ValueError, KeyError, TypeError):
        return None  # carrying out the decision raises what is wrong
    return None if found is None else found["mark"]


def describe(held: HeldError, options: list[str]) -> str:
    """The text of the Required Action (Markdown): why the run is held, and what each option does."""
    effects = {
        "Release": "publish its rows as they are",
        "Discard": "leave its rows out of the table for good",
        "Read again": "after a correction of schema, transform or rules: the next run of this DAG reads these records "
        "again, before anything else",
    }
    later = (
        "Later runs continue in the meantime."
        if held.code == "INCREMENT_WAITS"
        else "Later runs of this DAG wait for the decision."
    )
    # A block of code, because data may be in it.
    quoted = "\n".join(f"    {line}" for line in escape_controls(held.message).splitlines())
    choices = "\n".join(f"- **{one}**: {effects[one]}" for one in options)
    return f"{quoted}\n\n{choices}\n\n{later} The same can be decided in a terminal; the first decision counts."


class AnswerEvent(TypedDict, total=False):
    """Airflow's event with an answer, whose values are checked here."""

    chosen_options: Sequence[str]
    params_input: Mapping[str, object]
    responded_by_user: object


def read_answer(event: AnswerEvent) -> Answer:
    """Parse the answer from Airflow's event. Raises UsageError DECISION_FORM_REFUSED when it is not one of the options,
    or its reason is not one printable line."""
    chosen = event.get("chosen_options") or []
    if len(chosen) != 1 or chosen[0] not in OPTIONS:
        raise errors.DECISION_FORM_REFUSED(where="answer to the Required Action", fault="it is not one of the choices")
    given = (event.get("params_input") or {}).get(REASON)
    if isinstance(given, Mapping):  # as a form field is kept
        given = given.get("value")
    return Answer(OPTIONS[chosen[0]], check_reason(given), name_responder(event.get("responded_by_user")))


def name_responder(user: object) -> str:
    """The name of the person who answered, as it is recorded: one printable line."""
    name = user.get("name") or user.get("id") if isinstance(user, Mapping) else getattr(user, "name", None)
    text = str(name or "unknown")[:_WHO_AT_MOST]
    return f"{text if text.isprintable() else ascii(text)} (Airflow)"


def in_turn(work: Callable[[], _T], log: Callable[[str], object]) -> _T:
    """Call ``work`` again and again while another run has the lease: a person's answer must not be lost over it."""
    until = time.monotonic() + _PATIENCE_SECONDS
    is_logged = False
    while True:
        try:
            return work()
        except TryAgainError as error:
            if error.code != "LEASE_HELD" or time.monotonic() > until:
                raise
            if not is_logged:
                log(f"the decision waits for its turn: {error.message}")
            is_logged = True
            time.sleep(_TRY_EVERY_SECONDS)
