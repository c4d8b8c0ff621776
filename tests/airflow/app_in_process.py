"""Airflow's own API server in this process, without a scheduler: its routes, rights, database and audit log, with
tidegate's app mounted as a plugin's is. What is started stays queued."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.routing import Mount
from starlette.testclient import TestClient

from tidegate.airflow.ui.places import URL_PREFIX

HOST = "http://airflow.example"
PREFIX = "/af"
"""Airflow is served below a path, as behind a proxy; what imported Airflow first in this process may have fixed
another one."""
OURS = {"sec-fetch-site": "same-origin"}
HTML = {"accept": "text/html"}


@dataclass
class AirflowApp:
    """The app, with the DAGs of ``project``."""

    project: Path

    def __post_init__(self) -> None:
        from airflow.api_fastapi.app import cached_app
        from airflow.dag_processing.bundles.manager import DagBundlesManager
        from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
        from airflow.utils.db import initdb

        from tidegate.airflow.ui.app import app

        initdb()
        DagBundlesManager().sync_bundles_to_db()
        bag = DagBag(str(self.project / "dags"), bundle_name="dags-folder")
        assert not bag.import_errors
        sync_bag_to_db(bag, "dags-folder", None)
        self.app = cached_app(apps=os.environ.get("AIRFLOW_API_APPS", "all"))
        self.app.router.routes.insert(0, Mount(URL_PREFIX, app=app))

    def client(self, role: str | None, *, by_cookie: bool = False) -> TestClient:
        """Somebody of this role (viewer, user, op, admin), or nobody; a program, or a browser with its cookie."""
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

        client = TestClient(self.app, base_url=HOST + self.app.root_path, follow_redirects=False)
        if role is not None:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=f"a {role}", role=role))
            if by_cookie:
                client.cookies.set(COOKIE_NAME_JWT_TOKEN, token)
            else:
                client.headers["authorization"] = f"Bearer {token}"
        return client

    def list_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The runs of a DAG."""
        found = self.client("admin").get(f"/api/v2/dags/{dag_id}/dagRuns?limit=100&order_by=id").json()
        return list(found["dag_runs"])

    def set_state(self, dag_id: str, run_id: str, state: str) -> None:
        """What no scheduler does here: a run of a DAG begins, or ends."""
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState
        from sqlalchemy import select

        with create_session() as session:
            wanted = select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
            session.scalars(wanted).one().set_state(DagRunState(state))

    def push(self, dag_id: str, run_id: str, key: str, value: object) -> None:
        """An XCom of the run's ``ingest``, as a task stores it."""
        from airflow.models.xcom import XComModel

        XComModel.set(key, value, dag_id=dag_id, task_id="ingest", run_id=run_id, serialize=False)

    def list_audit(self, dag_id: str, event: str) -> list[tuple[str, str | None]]:
        """(who, run) of each entry of Airflow's audit log."""
        found = self.client("admin").get(f"/api/v2/eventLogs?dag_id={dag_id}&event={event}&limit=100").json()
        return [(one["owner"], one["run_id"]) for one in found["event_logs"]]

    def require_action(self, dag_id: str, run_id: str) -> None:
        """A run whose ``audit`` waits for a person, as the task itself asks."""
        from airflow.models.hitl import HITLDetail
        from airflow.models.taskinstance import TaskInstance
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState, TaskInstanceState
        from sqlalchemy import select

        body = {"dag_run_id": run_id, "logical_date": None}
        self.client("admin").post(f"/api/v2/dags/{dag_id}/dagRuns", json=body).raise_for_status()
        with create_session() as session:
            task = session.scalars(
                select(TaskInstance).where(
                    TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.task_id == "audit"
                )
            ).one()
            task.state = TaskInstanceState.AWAITING_INPUT
            task.next_method = "execute_decision"
            task.dag_run.set_state(DagRunState.RUNNING)
            options = ["Release", "Discard", "Read again"]
            session.add(HITLDetail(ti_id=task.id, options=options, subject="held", body="", params={}, multiple=False))

    def read_answer(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """The answer to a run's Required Action, and the state of its task."""
        found = (
            self.client("admin").get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/hitlDetails").json()["hitl_details"][0]
        )
        task = self.client("admin").get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/audit").json()
        return {**found, "state": task["state"]}
