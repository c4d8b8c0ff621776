"""The fields of Airflow's forms, for triggering a run and for deciding on one, and their checks.

Airflow checks ``dag_run.conf`` against the form's JSON Schema only for keys that the form has, and only when the
trigger comes through it. So the task checks everything again: known keys only, one line of printable text, limited
length. The values are stored in JSON records (an accepted loss, a decision) or compared with what exists (days, reasons
of quarantine, run ids, which become escaped file names). They go nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal, TypeVar, get_args

from tidegate.airflow import errors
from tidegate.core.errors import UsageError
from tidegate.core.words import count_of, is_wordless
from tidegate.runs.reports.report import RUN_ID_AT_MOST
from tidegate.runs.reports.verdicts import Ruling
from tidegate.spec.faults import name_nearest

ACCEPT_LOSS_MAX_LENGTH = 500
ACCEPT_LOSS_PATTERN = r"^[^\x00-\x1f\x7f]+$"
"""One line; the task's own check is stricter (``str.isprintable``, not blank)."""

ACCEPT_LOSS = "accept_loss"
BACKFILL_FROM, BACKFILL_TO = "backfill_from", "backfill_to"
REFRESH = "refresh"
REPLAY, REPLAY_REASON, REPLAY_RUN = "replay", "replay_reason", "replay_run_id"
DECIDE, DECIDE_RUN, DECIDE_REASON = "decide", "decide_run_id", "decide_reason"
DECIDE_OF = "decide_of"
_JOBS = {
    ACCEPT_LOSS: {ACCEPT_LOSS: "<reason>"},
    BACKFILL_FROM: {BACKFILL_FROM: "<first day>", BACKFILL_TO: "<last day>"},
    REFRESH: {REFRESH: "<all, or keep-older>"},
    REPLAY: {
        REPLAY: "<all, or selected with one of the others>",
        REPLAY_REASON: "<malformed, or a rule>",
        REPLAY_RUN: "<run id>",
    },
    DECIDE: {
        DECIDE: "<release, discard or reread>",
        DECIDE_RUN: "<run id>",
        DECIDE_REASON: "<reason>",
        DECIDE_OF: "",
    },
}
"""{key that requests a job: {each key of the job: how a message shows its value}}; an empty one is not for people."""
REFUSED = "refused"
"""The key of the XCom with the error of an ingest task that could not begin what its form asks for."""
KNOWN_KEYS = tuple(key for keys in _JOBS.values() for key in keys)
SIDE_JOB_KEYS = tuple(key for key in KNOWN_KEYS if key != ACCEPT_LOSS)
"""The keys that request a side job or a decision: such a run reads nothing new."""
RefreshOf = Literal["all", "keep-older"]
ReplayOf = Literal["all", "selected"]
Limits = dict[str, object]
"""What a JSON Schema says of a value, and the section of the form."""
_SHOWN = 40
"""How many characters of an unknown key are shown."""
_Word = TypeVar("_Word", bound=str)


@dataclass(frozen=True)
class AskedReplay:
    """Which quarantined records are replayed: all, or only those with this reason or of this run."""

    reason: str | None = None
    run_id: str | None = None


@dataclass(frozen=True)
class AskedDecision:
    """A decision on what is held under ``run_id``. ``of`` is the mark of what the person saw held, if given."""

    decision: Ruling
    run_id: str
    reason: str
    of: str | None = None


@dataclass(frozen=True)
class TriggerForm:
    """The checked values of a trigger form; at most one is given. ``backfill`` has the first and the last day."""

    accept_loss: str | None = None
    backfill: tuple[str, str] | None = None
    refresh: RefreshOf | None = None
    replay: AskedReplay | None = None
    decision: AskedDecision | None = None

    @property
    def asks_for_side_job(self) -> bool:
        """Return whether the run is to do something else than to read what is new."""
        return self != TriggerForm(accept_loss=self.accept_loss)


def describe_form() -> dict[str, dict[str, object]]:
    """Field name -> keyword arguments of ``airflow.sdk.Param``."""
    day: Limits = {"format": "date"}
    in_section: Limits = {"section": "Side jobs and decisions"}
    line: Limits = {"minLength": 1, "maxLength": ACCEPT_LOSS_MAX_LENGTH, "pattern": ACCEPT_LOSS_PATTERN}
    run_id: Limits = {**line, "maxLength": RUN_ID_AT_MOST, **in_section}
    return {
        ACCEPT_LOSS: _describe_field(
            "Accept a loss",
            "Only after a run stopped because the source lost records (exit code 66): the reason why the pipeline "
            "may continue without them. It is recorded with what was lost. Leave empty otherwise.",
            line,
        ),
        BACKFILL_FROM: _describe_field(
            "Backfill from",
            "Of a single run: the first day to rebuild from the source; it then reads nothing new. Leave it empty in "
            "Airflow's own Backfill, which has a date range and makes a run for each day: better for many days.",
            day,
        ),
        BACKFILL_TO: _describe_field("Backfill to", "The last day to rebuild; it is included.", day),
        REFRESH: _describe_field(
            "Refresh",
            "all: rebuild the whole table from all records that runs have taken. keep-older: rebuild all but its older "
            "part, of which the sources have lost records.",
            {"enum": [None, *get_args(RefreshOf)], **in_section},
        ),
        REPLAY: _describe_field(
            "Replay quarantine",
            "Replay quarantined records: all, or those that the next two fields select.",
            {"enum": [None, *get_args(ReplayOf)], **in_section},
        ),
        REPLAY_REASON: _describe_field(
            "Replay: reason", "malformed, or the rule that rejected them.", {**line, **in_section}
        ),
        REPLAY_RUN: _describe_field("Replay: run", "The run that quarantined them.", run_id),
        DECIDE: _describe_field(
            "Decide",
            "On a held run that no longer has a Required Action, or on a held backfill or refresh. If the run still "
            "waits, answer its Required Action instead.",
            {"enum": [None, *get_args(Ruling)], **in_section},
        ),
        DECIDE_RUN: _describe_field("Decide: run", "The held run, as status names it.", run_id),
        DECIDE_REASON: _describe_field("Decide: reason", "Why; it is recorded with your name.", {**line, **in_section}),
        DECIDE_OF: _describe_field(
            "Decide: of",
            "Leave it empty: tidegate's pages fill it in, so that the decision is on what was shown and nothing else.",
            {**line, **in_section},
        ),
    }


def _describe_field(title: str, description: str, limits: Limits) -> dict[str, object]:
    return {"default": None, "type": ["null", "string"], "title": title, "description": description, **limits}


def read_form(
    params: Mapping[str, object], conf: Mapping[str, object] | None, *, of_backfill: bool = False
) -> TriggerForm:
    """Check the form's values, from the merged ``params`` of the task and the raw ``conf`` of the DAG run.

    ``of_backfill``: the run belongs to an Airflow backfill, so its days are those of its interval. Raises
    :class:`UsageError` for unknown keys and for values outside the limits; it names the key (shortened), never a value.
    """
    unknown = sorted(str(key) for key in (conf or {}) if key not in KNOWN_KEYS)
    if unknown:
        raise _refuse_keys(unknown)
    form = TriggerForm(
        _check_line(ACCEPT_LOSS, params.get(ACCEPT_LOSS)),
        check_days(params.get(BACKFILL_FROM), params.get(BACKFILL_TO)),
        _check_word(REFRESH, params.get(REFRESH), get_args(RefreshOf)),
        _check_replay(params),
        _check_decision(params),
    )
    requested = {
        ACCEPT_LOSS: form.accept_loss,
        BACKFILL_FROM: form.backfill,
        REFRESH: form.refresh,
        REPLAY: form.replay,
        DECIDE: form.decision,
    }
    given = [key for key, value in requested.items() if value is not None]
    if len(given) > 1 and ACCEPT_LOSS in given:
        raise refuse(f"{ACCEPT_LOSS} is for a run that reads what is new, and {given[1]} for one that does not", *given)
    if len(given) > 1:
        raise refuse(f"{given[0]} and {given[1]} are for a run each", *given)
    if of_backfill and given:
        raise refuse(
            f"{given[0]} is for a single run; a run of Airflow's own Backfill rebuilds the days of its own date", *given
        )
    return form


def _check_word(key: str, value: object, words: tuple[_Word, ...]) -> _Word | None:
    if value is None:
        return None
    found = next((one for one in words if one == value), None)
    if found is None:
        raise refuse(f"{key} must be one of: {', '.join(words)}", key)
    return found


def _check_replay(params: Mapping[str, object]) -> AskedReplay | None:
    which: ReplayOf | None = _check_word(REPLAY, params.get(REPLAY), get_args(ReplayOf))
    reason = _check_line(REPLAY_REASON, params.get(REPLAY_REASON))
    run_id = _check_line(REPLAY_RUN, params.get(REPLAY_RUN), RUN_ID_AT_MOST)
    selects = reason is not None or run_id is not None
    if selects and which != "selected":
        raise refuse(f"{REPLAY_REASON} and {REPLAY_RUN} are for {REPLAY}: selected", REPLAY)
    if which == "selected" and not selects:
        raise refuse(f"{REPLAY}: selected needs {REPLAY_REASON} or {REPLAY_RUN}; every record is {REPLAY}: all", REPLAY)
    return None if which is None else AskedReplay(reason, run_id)


def _check_decision(params: Mapping[str, object]) -> AskedDecision | None:
    decision: Ruling | None = _check_word(DECIDE, params.get(DECIDE), get_args(Ruling))
    run_id = _check_line(DECIDE_RUN, params.get(DECIDE_RUN), RUN_ID_AT_MOST)
    reason = _check_line(DECIDE_REASON, params.get(DECIDE_REASON))
    of = _check_line(DECIDE_OF, params.get(DECIDE_OF))
    if decision is None and run_id is None and reason is None and of is None:
        return None
    if decision is None or run_id is None or reason is None or is_wordless(reason):
        raise refuse(
            f"of a decision {DECIDE}, {DECIDE_RUN} and {DECIDE_REASON} are needed, the reason in words", DECIDE
        )
    return AskedDecision(decision, run_id, reason, of)


def _check_line(key: str, value: object, longest: int = ACCEPT_LOSS_MAX_LENGTH) -> str | None:
    fault = None if value is None else _find_fault(value, longest)
    if fault is not None:
        raise refuse(f"{key} {fault}", key)
    return None if value is None else str(value).strip()


def check_days(first: object, last: object) -> tuple[str, str] | None:
    """Check two days; None when neither is given. Raises :class:`UsageError` when they are not two days in order."""
    if first is None and last is None:
        return None
    for key, value in ((BACKFILL_FROM, first), (BACKFILL_TO, last)):
        if not _is_day(value):
            raise refuse(f"{key} is not a day like 2026-01-31; of a backfill both are needed", key)
    if str(last) < str(first):
        raise refuse(f"{BACKFILL_TO} {last} is before {BACKFILL_FROM} {first}", BACKFILL_FROM)
    return str(first), str(last)


def _is_day(value: object) -> bool:
    """Return whether it is an existing day, written as 2026-01-31; ``date`` knows other ways to write one."""
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def check_reason(value: object) -> str:
    """The trimmed reason of a decision. Raises :class:`UsageError` when it is not one line of printable text."""
    fault = "is missing" if value is None else _find_fault(value)
    if fault is None and is_wordless(str(value)):
        fault = "has no letter and no digit"
    if fault is not None:
        raise errors.DECISION_FORM_REFUSED(where="answer to the Required Action", fault=f"the reason {fault}")
    return str(value).strip()


def _find_fault(value: object, longest: int = ACCEPT_LOSS_MAX_LENGTH) -> str | None:
    """Why a value is not one line of printable text, in words that do not quote it; None when it is."""
    if not isinstance(value, str):
        return f"is a {type(value).__name__}, not text"
    if len(value) > longest:
        return f"has {len(value)} characters, {longest} are allowed"
    if not value.isprintable():
        return "holds line breaks, control or invisible characters"
    return None if value.strip() else "is empty"


def _refuse_keys(unknown: list[str]) -> UsageError:
    """The error for keys that the form does not have. It names the keys that were probably meant."""
    nearest = [near for key in unknown[:5] if (near := name_nearest(key[:_SHOWN], KNOWN_KEYS)) is not None]
    fault = f"it has {count_of(len(unknown), 'unknown key')}: {', '.join(map(_quote, unknown[:5]))}"
    if nearest:
        return refuse(f"{fault}; probably meant: {', '.join(nearest)}", *nearest)
    allowed = ", ".join(key for keys in _JOBS.values() for key, value in keys.items() if value)
    fix = f"remove what is unknown, and trigger again; allowed keys: {allowed}"
    return errors.TRIGGER_FORM_REFUSED(where="conf of the DAG run", fault=fault, fix=fix)


def _quote(key: str) -> str:
    return ascii(key if len(key) <= _SHOWN else key[: _SHOWN - 3] + "...")


def refuse(fault: str, *keys: str) -> UsageError:
    """The error for a form that cannot be used; its fix shows the conf and the fields of the jobs that ``keys`` are
    of."""
    jobs = [_show_job(job) for job, of_job in _JOBS.items() if not of_job.keys().isdisjoint(keys)]
    runs = "trigger a run of its own for each: " if len(jobs) > 1 else "trigger again with "
    return errors.TRIGGER_FORM_REFUSED(where="conf of the DAG run", fault=fault, fix=runs + "; or ".join(jobs))


def _show_job(job: str) -> str:
    form = describe_form()
    values = {key: value for key, value in _JOBS[job].items() if value}
    fields = (str(form[key]["title"]) for key in values)
    return f"{json.dumps(values)} as conf (fields of the form: {', '.join(fields)})"
