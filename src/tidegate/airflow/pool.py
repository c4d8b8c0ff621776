"""The Airflow pool of the tasks that may start a Spark driver, created before the first of them needs it.

Airflow never runs a task whose pool does not exist, and no task log says so. So this listener creates the pool that
``tidegate.yaml`` names when a component of Airflow with the metadata database starts, which is before the scheduler's
first loop, and again when a run of a pipeline starts without it. An existing pool is not changed. Tasks and DAG parsing
are not affected: they may not use the database.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from airflow.listeners import hookimpl

from tidegate.airflow.locate import find_served_project
from tidegate.core.errors import TidegateError
from tidegate.spec.project import load_project

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from sqlalchemy.engine import Connection

    from tidegate.spec.models import AirflowSpec

DESCRIPTION = "Tasks of tidegate that may start a Spark driver; change the slots here"

_log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: object) -> None:
    """Create the pool when a component with the database starts: it is a ``Job``; a task is not."""
    jobs = sys.modules.get("airflow.jobs.job")
    if jobs is None or not isinstance(component, jobs.Job):
        return
    wanted = _read_settings()
    if wanted is None:
        return
    from airflow.utils.session import create_session
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with create_session(scoped=False) as session:
            slots = _ensure_pool(session.connection(), wanted)
    except SQLAlchemyError as error:  # must not prevent the scheduler from starting: the next run tries again
        _log.warning("the pool %r could not be read: %s", wanted.pool, error)
        return
    if slots != wanted.slots:
        _log.info(
            "pool %r has %d slots; those of tidegate.yaml (%d) are for a new one", wanted.pool, slots, wanted.slots
        )


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Create the pool when the scheduler starts a run: it may have been deleted or renamed since the scheduler started.

    This is the scheduler's own transaction, which must not be committed here.
    """
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None or dag_run.dag is None or "tidegate" not in dag_run.dag.tags:
        return
    wanted = _read_settings()
    if wanted is not None:
        _ensure_pool(session.connection(), wanted)


def _read_settings() -> AirflowSpec | None:
    """The settings of the served project's pool; None when it names none, or cannot be read."""
    try:
        settings = load_project(find_served_project()).spec.airflow
    except (TidegateError, OSError) as error:
        _log.warning("no pool is created, because the project cannot be read: %s", error)
        return None
    return settings if settings.pool is not None else None


def _ensure_pool(connection: Connection, wanted: AirflowSpec) -> int:
    """Create the pool unless it exists; of several concurrent processes one succeeds. Returns its slots."""
    from airflow.models.pool import Pool
    from sqlalchemy import Table, insert, select
    from sqlalchemy.exc import IntegrityError

    table = Pool.__table__
    assert isinstance(table, Table)
    slots = connection.scalar(select(table.c.slots).where(table.c.pool == wanted.pool))
    if slots is not None:
        return int(slots)
    values = {"pool": wanted.pool, "slots": wanted.slots, "description": DESCRIPTION, "include_deferred": False}
    try:
        # A savepoint of the connection, not of the session: the scheduler's session refuses even that commit.
        with connection.begin_nested():
            connection.execute(insert(table).values(**values))
    except IntegrityError:
        return wanted.slots
    _log.info("created the pool %r with %d slots for Spark drivers", wanted.pool, wanted.slots)
    return wanted.slots
