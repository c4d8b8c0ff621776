"""What a person, or another program, may say in a form of Airflow: when triggering a run, and when deciding on one.

Airflow checks ``dag_run.conf`` against the form's JSON Schema only for keys that the form has, and only when the
trigger comes through it. So the task looks again, and trusts nothing: known keys only, one line of printable text,
bounded length. What passes goes into one JSON record (the accepted loss) and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.errors import UsageError, catalogue
from tidegate.words import count_of, is_wordless

ACCEPT_LOSS_MAX_LENGTH = 500
ACCEPT_LOSS_PATTERN = r"^[^\x00-\x1f\x7f]+$"
"""One line; the task's own check is stricter (``str.isprintable``, not blank)."""

REASON_MAX_LENGTH = ACCEPT_LOSS_MAX_LENGTH
REASON_PATTERN = ACCEPT_LOSS_PATTERN
ACCEPT_LOSS = "accept_loss"
BACKFILL_FROM, BACKFILL_TO = "backfill_from", "backfill_to"
KNOWN_KEYS = (ACCEPT_LOSS, BACKFILL_FROM, BACKFILL_TO)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True)
class TriggerForm:
    """The checked answers of a trigger form; ``backfill`` is the first and the last day to rebuild."""

    accept_loss: str | None = None
    backfill: tuple[str, str] | None = None


def describe_form() -> dict[str, dict[str, object]]:
    """Field name -> keyword arguments of ``airflow.sdk.Param``."""
    return {
        ACCEPT_LOSS: {
            "default": None,
            "type": ["null", "string"],
            "minLength": 1,
            "maxLength": ACCEPT_LOSS_MAX_LENGTH,
            "pattern": ACCEPT_LOSS_PATTERN,
            "title": "Accept a loss",
            "description": (
                "Only after a run stopped because the source lost records (exit code 66): the reason why the pipeline "
                "may go on without them. It is recorded with what was lost. Leave empty otherwise."
            ),
        },
        BACKFILL_FROM: _describe_day(
            "Backfill from",
            "Of a single run: the first day to rebuild from the source; it then reads nothing new. Leave it empty in "
            "Airflow's own Backfill, which has a date range and makes a run for each day: better for many days.",
        ),
        BACKFILL_TO: _describe_day("Backfill to", "The last day to rebuild; it is included."),
    }


def _describe_day(title: str, description: str) -> dict[str, object]:
    return {
        "default": None,
        "type": ["null", "string"],
        "format": "date",
        "title": title,
        "description": description,
    }


def read_form(
    params: Mapping[str, object], conf: Mapping[str, object] | None, *, of_backfill: bool = False
) -> TriggerForm:
    """The form's answers, from the merged ``params`` of the task and the raw ``conf`` of the DAG run; ``of_backfill``:
    Airflow made the run for a backfill, and its days are those of its own interval.

    Raises :class:`UsageError` for keys that the form does not have and for values outside its limits; the error names
    the key (shortened) and never repeats a value.
    """
    unknown = sorted(_quote(key) for key in (conf or {}) if key not in KNOWN_KEYS)
    if unknown:
        raise _refuse(f"it has {count_of(len(unknown), 'unknown key')}: {', '.join(unknown[:5])}")
    backfill = check_days(params.get(BACKFILL_FROM), params.get(BACKFILL_TO))
    accept_loss = check_accept_loss(params.get(ACCEPT_LOSS))
    if backfill is not None and accept_loss is not None:
        raise _refuse(f"{ACCEPT_LOSS} is for a run that reads what is new, and {BACKFILL_FROM} for one that does not")
    if of_backfill and (backfill is not None or accept_loss is not None):
        key = BACKFILL_FROM if backfill is not None else ACCEPT_LOSS
        raise _refuse(f"{key} is for a single run; a run of Airflow's own Backfill rebuilds the days of its own date")
    return TriggerForm(accept_loss, backfill)


def check_days(first: object, last: object) -> tuple[str, str] | None:
    """Two days, or None for none. Raises :class:`UsageError` when one is missing or is not a day."""
    if first is None and last is None:
        return None
    for key, value in ((BACKFILL_FROM, first), (BACKFILL_TO, last)):
        if not isinstance(value, str) or not _DAY.fullmatch(value):
            raise _refuse(f"{key} is not a day like 2026-01-31; of a backfill both are needed")
    return str(first), str(last)


def check_accept_loss(value: object) -> str | None:
    """The reason, trimmed, or None. Raises :class:`UsageError` when it is not one line of printable text."""
    if value is None:
        return None
    fault = _find_fault(value)
    if fault is not None:
        empty = ": a loss is accepted with a reason" if fault == "is empty" else ""
        raise _refuse(f"{ACCEPT_LOSS} {fault}{empty}")
    return str(value).strip()


def check_reason(value: object) -> str:
    """The reason of a decision, trimmed. Raises :class:`UsageError` when it is not one line of printable text."""
    fault = "is missing" if value is None else _find_fault(value)
    if fault is None and is_wordless(str(value)):
        fault = "has no letter and no digit"
    if fault is not None:
        raise catalogue.DECISION_FORM_REFUSED(where="answer to the Required Action", fault=f"the reason {fault}")
    return str(value).strip()


def _find_fault(value: object) -> str | None:
    """What keeps a text from being one line of printable text; never the text itself."""
    if not isinstance(value, str):
        return f"is a {type(value).__name__}, not text"
    if len(value) > ACCEPT_LOSS_MAX_LENGTH:
        return f"has {len(value)} characters, {ACCEPT_LOSS_MAX_LENGTH} are allowed"
    if not value.isprintable():
        return "holds line breaks, control or invisible characters"
    return None if value.strip() else "is empty"


def _quote(key: object) -> str:
    text = str(key)
    return ascii(text if len(text) <= 40 else text[:37] + "...")


def _refuse(fault: str) -> UsageError:
    return catalogue.TRIGGER_FORM_REFUSED(where="conf of the DAG run", fault=fault)
