"""Dry runs as the pages of actions show them: the plan, or the error that stands in its way. No JVM is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from typing_extensions import TypedDict

from tidegate.airflow.form import REPLAY_REASON, REPLAY_RUN
from tidegate.airflow.ui.refusals import Refused
from tidegate.errors import TidegateError
from tidegate.outputs import BackfillPlan, Error, ReplayPlan
from tidegate.project import Project
from tidegate.storage import name_cause

_Plan = TypeVar("_Plan", BackfillPlan, ReplayPlan)


class Shown(TypedDict):
    """A dry run: its plan (None where there is none), and what stands in the way."""

    plan: BackfillPlan | ReplayPlan | None
    error: Error | None


def of_backfill(project: Project, name: str, first: str, last: str) -> Shown:
    """Of days."""
    from tidegate.airflow.form import check_days
    from tidegate.backfill.command import look_at_backfill
    from tidegate.backfill.span import Wanted

    def look() -> BackfillPlan:
        days = check_days(first, last)
        assert days is not None
        return look_at_backfill(project, name, Wanted(*days))

    return _look(project, look)


def of_refresh(project: Project, name: str, *, keeps_older: bool) -> Shown:
    """Of the whole table."""
    from tidegate.backfill.command import look_at_backfill

    return _look(project, lambda: look_at_backfill(project, name, None, keeps_older=keeps_older))


def of_replay(project: Project, name: str, reason: str, of_run: str) -> Shown:
    """Of quarantined records."""
    from tidegate.quarantine.filters import QuarantineFilter
    from tidegate.replay.choose import Selection
    from tidegate.replay.command import look_at_replay

    wanted = QuarantineFilter(run_id=of_run or None, reason=reason or None)
    return _look(project, lambda: look_at_replay(project, name, Selection(wanted)))


def check_replay(project: Project, name: str, conf: Mapping[str, str]) -> None:
    """Raise :class:`Refused` for a reason or a run that this pipeline's quarantine does not know."""
    from tidegate.quarantine.filters import QuarantineFilter
    from tidegate.replay.choose import check_names, check_run

    wanted = QuarantineFilter(run_id=conf.get(REPLAY_RUN), reason=conf.get(REPLAY_REASON))
    paths = project.paths(name)
    try:
        check_names(project, paths, name, wanted)
        check_run(paths, name, wanted)
    except (TidegateError, OSError) as error:
        raise Refused.of(_named(project, error)) from None


def list_reasons(project: Project, name: str) -> list[str]:
    """The reasons that records may be in quarantine for, and can be replayed: the rules of the suite among them. Where
    that cannot be read the dry run tells why."""
    from tidegate.audit.suite import load_suite

    try:
        suite = load_suite(project, name)
    except (TidegateError, OSError):
        return ["malformed"]
    return ["malformed", *(() if suite is None else sorted(rule.rule for rule in suite.rules))]


def _look(project: Project, look: Callable[[], _Plan]) -> Shown:
    try:
        plan = look()
    except (TidegateError, OSError) as error:
        return {"plan": None, "error": _named(project, error).to_dict()}
    return {"plan": plan, "error": plan["hindrance"]}


def _named(project: Project, error: TidegateError | OSError) -> TidegateError:
    """The error itself, or the one for a call of the operating system that failed. Raises what has no name."""
    named = error if isinstance(error, TidegateError) else name_cause(error, project.root)
    if named is None:
        raise error
    return named
