"""What the demo and the tests ask of a running Airflow, through its public REST API (v2)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import requests

from tools.console import ToolError

FINISHED_STATES = frozenset({"success", "failed"})
_ATTEMPTS = 8
_TIMEOUT_SECONDS = 150
"""Writers of SQLite may have waited for each other for 60 s before one gives up."""


class AirflowClient:
    """Calls the API at ``url`` as ``user``; the token is fetched when first needed and renewed when refused."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self.user = user
        self.password = password
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy has no business between two local programs
        self._token: str | None = None

    def fetch_token(self) -> str:
        """A token for the API from the login."""
        answer = self._session.post(
            f"{self.url}/auth/token", json={"username": self.user, "password": self.password}, timeout=30
        )
        if answer.status_code != 201:
            raise ToolError(f"Airflow refuses the login of {self.user}: HTTP {answer.status_code} {answer.text[:200]}")
        return str(answer.json()["access_token"])

    def call(self, method: str, path: str, *, ok: tuple[int, ...] = (200, 201), **request: Any) -> Any:
        """One call of ``/api/v2/<path>``; the decoded body. Raises :class:`ToolError` on a status outside ``ok``.

        A database that is locked is tried again: SQLite, which a local Airflow uses, gives up when two of its processes
        write. Airflow has rolled back what it refuses so.
        """
        renewed = False
        for attempt in range(1, _ATTEMPTS + 1):
            self._token = self._token or self.fetch_token()
            headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
            address, limit = f"{self.url}/api/v2/{path}", _TIMEOUT_SECONDS
            answer = self._session.request(method, address, headers=headers, timeout=limit, **request)
            if answer.status_code == 401 and not renewed:
                renewed, self._token = True, None
            elif _is_locked(answer) and attempt < _ATTEMPTS:
                time.sleep(attempt)
            else:
                break
        if answer.status_code not in ok:
            raise ToolError(f"Airflow answers {method} {path} with HTTP {answer.status_code}: {answer.text[:500]}")
        return answer.json() if answer.content else None

    def fetch_health(self) -> dict[str, Any]:
        """The state of each component; needs no login."""
        answer = self._session.get(f"{self.url}/api/v2/monitor/health", timeout=5)
        answer.raise_for_status()
        return dict(answer.json())

    def list_dags(self) -> list[dict[str, Any]]:
        """Every DAG the dag processor has read."""
        found: list[dict[str, Any]] = []
        while True:  # the API gives at most a hundred at a time, whatever is asked for
            part = self.call("GET", "dags", params={"limit": 100, "offset": len(found), "order_by": "dag_id"})
            found += part["dags"]
            if not part["dags"] or len(found) >= part["total_entries"]:
                return found

    def list_import_errors(self) -> list[dict[str, Any]]:
        """Files of the DAG folder that could not be read."""
        return list(self.call("GET", "importErrors")["import_errors"])

    def wait_for_dags(self, dag_ids: list[str], timeout_seconds: float = 120) -> None:
        """Until all of ``dag_ids`` are known; raises with Airflow's import errors when they do not come.

        A file that cannot be read has half a minute to become readable: it may still be being written.
        """
        started = time.monotonic()
        while missing := set(dag_ids) - {dag["dag_id"] for dag in self.list_dags()}:
            errors = self.list_import_errors()
            waited = time.monotonic() - started
            if waited > (min(30, timeout_seconds) if errors else timeout_seconds):
                traces = "\n".join(f"{error['filename']}: {error['stack_trace']}" for error in errors)
                raise ToolError(f"Airflow did not find {sorted(missing)} in {waited:.0f} s\n{traces}".rstrip())
            time.sleep(0.5)

    def pause(self, dag_id: str, paused: bool = True) -> None:
        """Pauses a DAG, or, with ``paused=False``, lets its schedule run."""
        self.call("PATCH", f"dags/{dag_id}", json={"is_paused": paused})

    def unpause(self, dag_id: str) -> None:
        """Lets the DAG run."""
        self.pause(dag_id, False)

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None, run_id: str | None = None) -> str:
        """A manual run; its run id. One that is there already (a call that failed after it was carried out) is it."""
        run_id = run_id or f"manual__{datetime.now(UTC).isoformat()}"
        body: dict[str, Any] = {"logical_date": None, "conf": conf or {}, "dag_run_id": run_id}
        self.call("POST", f"dags/{dag_id}/dagRuns", json=body, ok=(200, 201, 409))
        return run_id

    def list_dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The runs of a DAG, oldest first."""
        answer = self.call("GET", f"dags/{dag_id}/dagRuns", params={"limit": 1000, "order_by": "run_after"})
        return list(answer["dag_runs"])

    def fetch_dag_run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """One run, with its ``state``."""
        return dict(self.call("GET", f"dags/{dag_id}/dagRuns/{_segment(run_id)}"))

    def wait_for_dag_run(self, dag_id: str, run_id: str, timeout_seconds: float = 300) -> dict[str, Any]:
        """The run once it has ended, however it ended."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            run = self.fetch_dag_run(dag_id, run_id)
            if run["state"] in FINISHED_STATES:
                return run
            if time.monotonic() > deadline:
                tasks = {task["task_id"]: task["state"] for task in self.list_task_instances(dag_id, run_id)}
                raise ToolError(f"{dag_id} {run_id} is {run['state']} after {timeout_seconds:.0f} s: {tasks}")
            time.sleep(1.0)

    def list_task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The task instances of a run, with ``task_id``, ``state``, ``try_number``, ``pid``."""
        return list(self.call("GET", f"dags/{dag_id}/dagRuns/{_segment(run_id)}/taskInstances")["task_instances"])

    def fetch_task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """One task instance."""
        return dict(self.call("GET", f"dags/{dag_id}/dagRuns/{_segment(run_id)}/taskInstances/{task_id}"))

    def wait_for_task(
        self, dag_id: str, run_id: str, task_id: str, states: set[str], timeout_seconds: float = 120
    ) -> dict[str, Any]:
        """The task instance once its state is one of ``states``."""
        deadline = time.monotonic() + timeout_seconds
        while (task := self.fetch_task(dag_id, run_id, task_id))["state"] not in states:
            if time.monotonic() > deadline:
                raise ToolError(f"{dag_id}.{task_id} is {task['state']} after {timeout_seconds:.0f} s, not {states}")
            time.sleep(0.2)
        return task

    def mark_task(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """What the UI's "mark failed" and "mark success" do."""
        path = f"dags/{dag_id}/dagRuns/{_segment(run_id)}/taskInstances/{task_id}"
        self.call("PATCH", path, json={"new_state": state})

    def fetch_xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """The value a task pushed, None when it pushed none."""
        path = f"dags/{dag_id}/dagRuns/{_segment(run_id)}/taskInstances/{task_id}/xcomEntries/{key}"
        answer = self.call("GET", path, ok=(200, 404), params={"deserialize": "false", "stringify": "false"})
        return answer.get("value") if answer else None

    def list_required_actions(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """What a run asks of people and nobody has answered yet."""
        path = f"dags/{dag_id}/dagRuns/{_segment(run_id)}/hitlDetails"
        return list(self.call("GET", path, params={"response_received": "false"})["hitl_details"])

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str, fields: dict[str, Any]) -> None:
        """Answer a required action, as its page does."""
        path = f"dags/{dag_id}/dagRuns/{_segment(run_id)}/taskInstances/{task_id}/-1/hitlDetails"
        self.call("PATCH", path, json={"chosen_options": [option], "params_input": fields})

    def list_asset_events(self, dag_id: str | None = None) -> list[dict[str, Any]]:
        """Asset events, oldest first, with ``uri``, ``extra`` and the run they came from."""
        params: dict[str, Any] = {"limit": 1000, "order_by": "timestamp"}
        if dag_id is not None:
            params["source_dag_id"] = dag_id
        return list(self.call("GET", "assets/events", params=params)["asset_events"])

    def fetch_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """A task's log as text, one event a line."""
        path = f"dags/{dag_id}/dagRuns/{_segment(run_id)}/taskInstances/{task_id}/logs/{try_number}"
        content = self.call("GET", path, params={"full_content": "true"})["content"]
        return "\n".join(str(line["event"]) if isinstance(line, dict) else str(line) for line in content)


def _is_locked(answer: requests.Response) -> bool:
    """Whether the database was locked: most calls answer 500 then, those of a backfill 503."""
    said = {500: "Database error", 503: "Database is locked"}.get(answer.status_code)
    return said is not None and said in answer.text


def _segment(run_id: str) -> str:
    return quote(run_id, safe="")
