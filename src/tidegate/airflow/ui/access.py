"""Permissions, which Airflow's auth manager decides for each DAG. Reports are the XComs of a DAG's tasks, so reading
them needs the permission to read the DAG's XComs."""

# No `from __future__ import annotations`: FastAPI resolves the annotations of dependencies at run time.
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypedDict, cast

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.errors import ParseImportError
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from fastapi import Depends
from sqlalchemy import and_, func, select

from tidegate.airflow.form import DECIDE, DECIDE_RUN, REFUSED, SIDE_JOB_KEYS, read_form
from tidegate.core.errors import TidegateError, UsageError
from tidegate.core.outputs import Error
from tidegate.views.pages.runs import Scheduled

_RUNS_AT_MOST = 1000
_RUNS_OF_EACH = 50
_UNFINISHED = (DagRunState.QUEUED, DagRunState.RUNNING)
_IS_REFUSAL = XComModel.task_id == "ingest", XComModel.key == REFUSED

current_user = Depends(get_user)
"""The user; every route requires one."""
may_read_dag = requires_access_dag("GET", DagAccessEntity.XCOM)
"""Refuses (403) a user who may not read the DAG that the path or the query names as ``dag_id``."""
may_trigger = requires_access_dag("POST", DagAccessEntity.RUN)
"""The same for starting a run of it."""
may_edit = requires_access_dag("PUT")
"""The same for pausing it."""
may_decide = requires_access_dag("PUT", DagAccessEntity.HITL_DETAIL)
"""The same for answering a Required Action of it."""


class Rights(TypedDict):
    """A user's permissions for a DAG: start runs, pause it, decide on held increments."""

    trigger: bool
    edit: bool
    decide: bool


class RunInAirflow(TypedDict):
    """The state of a DAG run, the run that it carries out a decision on, if any, and why its form is refused, if it
    is."""

    state: str
    decides_on: str | None
    refused: Error | None


def list_readable(user: BaseUser, dag_ids: Sequence[str]) -> list[str]:
    """The DAGs that this user may read."""
    manager, teams = get_auth_manager(), _list_teams(dag_ids)
    return [one for one in dag_ids if _is_allowed(manager, user, "GET", DagAccessEntity.XCOM, one, teams.get(one))]


def list_rights(user: BaseUser, dag_id: str) -> Rights:
    """This user's permissions for the DAG. Airflow checks them again when an action is done."""
    manager, team = get_auth_manager(), _list_teams([dag_id]).get(dag_id)
    return {
        "trigger": _is_allowed(manager, user, "POST", DagAccessEntity.RUN, dag_id, team),
        "edit": _is_allowed(manager, user, "PUT", None, dag_id, team),
        "decide": _is_allowed(manager, user, "PUT", DagAccessEntity.HITL_DETAIL, dag_id, team),
    }


def is_paused(dag_id: str) -> bool | None:
    """Return whether the DAG is paused; None where Airflow has none of that name."""
    dag = DagModel.get_dagmodel(dag_id)
    return None if dag is None else bool(dag.is_paused)


def find_run(dag_id: str, run_id: str) -> RunInAirflow | None:
    """A run of the DAG in Airflow; None where there is none."""
    found = DagRun.find(dag_id=dag_id, run_id=run_id)
    if not found:
        return None
    run = found[0]
    with create_session() as session:
        stored = session.scalar(select(XComModel.value).where(XComModel.dag_run_id == run.id, *_IS_REFUSAL))
    conf = run.conf if isinstance(run.conf, dict) else {}
    decides = conf.get(DECIDE_RUN)
    return {
        "state": str(run.state),
        "decides_on": decides if isinstance(decides, str) else None,
        "refused": _find_refusal(conf, run.run_type, stored),
    }


def _find_refusal(conf: Mapping[str, object], run_type: str, stored: object) -> Error | None:
    """Why the task of a run with this form refuses it; None where it does not.

    Airflow keeps the form of each run, which shows most of it. ``stored`` is the task's XCom: why what the form asks
    for could not begin.
    """
    try:
        read_form(conf, conf, of_backfill=run_type == DagRunType.BACKFILL_JOB)
        return TidegateError.from_dict(cast(Error, stored)).to_dict() if isinstance(stored, dict) else None
    except UsageError as error:
        return error.to_dict()
    except (KeyError, TypeError, ValueError):
        return None  # another program's, or by an XCom backend that stores values elsewhere


def find_decider(dag_id: str, run_id: str) -> tuple[str, str] | None:
    """The queued or running DAG run that carries out a decision on what is held under ``run_id``, and the decision;
    None where there is none."""
    wanted = select(DagRun.run_id, DagRun.conf).where(DagRun.dag_id == dag_id, DagRun.state.in_(_UNFINISHED))
    with create_session() as session:
        for decider, conf in session.execute(wanted.order_by(DagRun.id)):
            if isinstance(conf, dict) and conf.get(DECIDE_RUN) == run_id:
                return str(decider), str(conf.get(DECIDE))
    return None


def list_scheduled(dag_ids: Sequence[str]) -> dict[str, list[Scheduled]]:
    """The queued, running and failed runs of each DAG, newest first. Their number is limited for each DAG, so that one
    that fails every minute does not hide the runs of others."""
    at_most = max(_RUNS_AT_MOST // max(len(dag_ids), 1), _RUNS_OF_EACH)
    found: dict[str, list[Scheduled]] = {}
    with create_session() as session:
        for states in (_UNFINISHED, (DagRunState.FAILED,)):
            began = func.coalesce(DagRun.start_date, DagRun.queued_at, DagRun.run_after)
            of_run = DagRun.dag_id, DagRun.run_id, DagRun.state, began, DagRun.end_date, DagRun.run_type, DagRun.conf
            place = func.row_number().over(partition_by=DagRun.dag_id, order_by=began.desc()).label("place")
            known = DagRun.dag_id.in_(dag_ids), DagRun.state.in_(states)
            refusal = and_(XComModel.dag_run_id == DagRun.id, *_IS_REFUSAL)
            ranked = select(*of_run, XComModel.value, place).outerjoin(XComModel, refusal).where(*known).subquery()
            wanted = select(ranked).where(ranked.c.place <= at_most).order_by(ranked.c.place)
            for dag_id, *run, _ in session.execute(wanted):
                found.setdefault(dag_id, []).append(_describe(*run))
    return found


def _describe(
    run_id: str, state: str, began: datetime, ended: datetime | None, run_type: str, conf: object, stored: object
) -> Scheduled:
    form = conf if isinstance(conf, dict) else {}
    asks = {key: value for key, value in form.items() if value is not None}
    decides_on, decision = asks.get(DECIDE_RUN), asks.get(DECIDE)
    return {
        "run_id": run_id,
        "state": str(state),
        "started_at": _text(began),
        "ended_at": None if ended is None else _text(ended),
        "is_live": run_type != DagRunType.BACKFILL_JOB and not set(asks).intersection(SIDE_JOB_KEYS),
        "decides_on": decides_on if isinstance(decides_on, str) else None,
        "decision": decision if isinstance(decision, str) else None,
        "refused": _find_refusal(form, run_type, stored),
    }


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def list_import_errors(dag_ids: Sequence[str]) -> dict[str, str]:
    """The last line of the import error of each DAG file that Airflow cannot read: no run of such a DAG starts."""
    same_file = and_(
        ParseImportError.filename == DagModel.relative_fileloc, ParseImportError.bundle_name == DagModel.bundle_name
    )
    wanted = select(DagModel.dag_id, ParseImportError.stacktrace).join(ParseImportError, same_file)
    with create_session() as session:
        found = session.execute(wanted.where(DagModel.dag_id.in_(dag_ids))).all()
    return {str(dag_id): str(text).strip().rpartition("\n")[2] for dag_id, text in found}


def list_paused(dag_ids: Sequence[str]) -> set[str]:
    """The DAGs that are paused."""
    return set(DagModel.get_paused_dag_ids(list(dag_ids))) if dag_ids else set()


def _list_teams(dag_ids: Sequence[str]) -> dict[str, str | None]:
    return dict(DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))) if dag_ids else {}


def _is_allowed(
    manager: BaseAuthManager[BaseUser],
    user: BaseUser,
    method: str,
    entity: DagAccessEntity | None,
    dag_id: str,
    team: str | None,
) -> bool:
    details = DagDetails(id=dag_id, team_name=team)
    return bool(manager.is_authorized_dag(method=method, access_entity=entity, details=details, user=user))
