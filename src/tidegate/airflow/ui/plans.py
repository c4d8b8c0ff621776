"""Dry runs for the pages of actions: the plan, or the error that prevents the work. They start no JVM and have a time
limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from typing_extensions import TypedDict

from tidegate.airflow.form import REPLAY_REASON, REPLAY_RUN
from tidegate.airflow.ui.render import Refused, refusing
from tidegate.airflow.ui.served import Patience, look_soon
from tidegate.core.errors import Caught, TidegateError
from tidegate.core.outputs import BackfillPlan, Error, ReplayPlan
from tidegate.spec.project import Project
from tidegate.views.faults import to_error

DRY_RUN_SECONDS = 20.0
"""How long a page waits for a dry run; unreachable brokers take nearly ten seconds of it."""
_AT_ONCE = 4
dry_runs = Patience(_AT_ONCE)

_Plan = TypeVar("_Plan", BackfillPlan, ReplayPlan)


class Shown(TypedDict):
    """A dry run: its plan, if there is one, and the error that prevents the work. ``takes_longer_than``: it is still
    running after so many seconds, and the next request may get its result; None when it has ended."""

    plan: BackfillPlan | ReplayPlan | None
    error: Error | None
    takes_longer_than: int | None


class Days(TypedDict):
    """The first and the last day of a table, '' where unknown; ``error`` says why none can be rebuilt."""

    first: str
    last: str
    error: Error | None


def find_days(project: Project, name: str) -> Days:
    """The initial days of the page *Backfill*."""
    from tidegate.rework.backfill.command import find_backfill_days

    key = (project.root, name, "days")
    with Caught() as caught:
        first, last = dry_runs.ask(key, lambda: find_backfill_days(project, name), DRY_RUN_SECONDS) or ("", "")
        return {"first": first, "last": last, "error": None}
    # The dry run itself shows any other error.
    error = caught.error.to_dict() if isinstance(caught.error, TidegateError) else None
    return {"first": "", "last": "", "error": error}


def of_backfill(project: Project, name: str, first: str, last: str) -> Shown:
    """The dry run of a backfill of days."""
    from tidegate.airflow.form import check_days
    from tidegate.rework.backfill.command import preview_backfill
    from tidegate.rework.backfill.span import Wanted

    def look() -> BackfillPlan:
        days = check_days(first, last)
        assert days is not None
        return preview_backfill(project, name, Wanted(*days))

    return _look((project.root, name, "backfill", first, last), project, look)


def of_refresh(project: Project, name: str, *, keeps_older: bool) -> Shown:
    """The dry run of a refresh of the whole table."""
    from tidegate.rework.backfill.command import preview_backfill

    key = (project.root, name, "refresh", keeps_older)
    return _look(key, project, lambda: preview_backfill(project, name, None, keeps_older=keeps_older))


def of_replay(project: Project, name: str, reason: str, of_run: str) -> Shown:
    """The dry run of a replay of quarantined records."""
    from tidegate.rework.replay.choose import Selection
    from tidegate.rework.replay.command import preview_replay
    from tidegate.table.quarantine.filters import QuarantineFilter

    wanted = QuarantineFilter(run_id=of_run or None, reason=reason or None)
    key = (project.root, name, "replay", reason, of_run)
    return _look(key, project, lambda: preview_replay(project, name, Selection(wanted)))


def refuse_hindered(shown: Shown) -> None:
    """Raise :class:`Refused` with the error of a dry run: such a run is not started."""
    if shown["error"] is not None:
        raise Refused.of(TidegateError.from_dict(shown["error"]))


def check_replay(project: Project, name: str, conf: Mapping[str, str]) -> None:
    """Raise :class:`Refused` for a reason or a run that this pipeline's quarantine does not have."""
    from tidegate.rework.replay.choose import check_names, check_run
    from tidegate.table.quarantine.filters import QuarantineFilter

    wanted = QuarantineFilter(run_id=conf.get(REPLAY_RUN), reason=conf.get(REPLAY_REASON))

    def check() -> bool:
        paths = project.paths(name)
        check_names(project, paths, name, wanted)
        check_run(paths, name, wanted)
        return True

    with refusing(project):
        look_soon((project.root, "check", name, *sorted(conf.items())), check)


def list_reasons(project: Project, name: str) -> list[str]:
    """The reasons of records that can be replayed: ``malformed`` and the rules of the suite. If the suite cannot be
    read, the dry run shows why."""
    from tidegate.quality.suite import load_suite

    def look() -> list[str]:
        suite = load_suite(project, name)
        return ["malformed", *(() if suite is None else sorted(rule.rule for rule in suite.rules))]

    try:
        return look_soon((project.root, "reasons", name), look)
    except (TidegateError, OSError):
        return ["malformed"]


def _look(key: tuple[object, str, *tuple[object, ...]], project: Project, look: Callable[[], _Plan]) -> Shown:
    with Caught() as caught:
        plan = dry_runs.ask(key, look, DRY_RUN_SECONDS)
        if plan is None:
            return {"plan": None, "error": None, "takes_longer_than": round(DRY_RUN_SECONDS)}
        return {"plan": plan, "error": plan["hindrance"], "takes_longer_than": None}
    assert caught.error is not None
    return {"plan": None, "error": to_error(project, key[1], caught.error), "takes_longer_than": None}
