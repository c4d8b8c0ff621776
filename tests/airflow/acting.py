"""tidegate's pages of a running Airflow, asked as a browser asks."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests

from tools.airflow_client import AirflowClient

ROLES = {"admin": "admin", "uma": "user", "vera": "viewer"}
"""Who may log in beside each other, and their role."""
USERS = ",".join(f"{name}:{role}" for name, role in ROLES.items())


class Visitor:
    """Somebody with a browser, who has logged in; without a client nobody has."""

    def __init__(self, url: str, client: AirflowClient | None) -> None:
        self._url = f"{url}/tidegate"
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers["Accept"] = "text/html"
        if client is not None:
            self._session.cookies.set("_token", client.fetch_token())

    def get(self, path: str, **params: str) -> requests.Response:
        """A page."""
        return self._session.get(f"{self._url}/{path}", params=params, timeout=60)

    def post(self, path: str, fields: dict[str, str], *, site: str | None = "same-origin") -> requests.Response:
        """A form; ``site`` is what the browser says of where it stands."""
        headers = {} if site is None else {"Sec-Fetch-Site": site, "Referer": self._url}
        return self._session.post(
            f"{self._url}/{path}", data=fields, headers=headers, timeout=60, allow_redirects=False
        )

    def act(self, dag_id: str, act: str, asked: dict[str, str] | None = None, **fields: str) -> str:
        """An action as its page leads to it: the form is opened, and sent; the run that was started, or answered."""
        path = f"dags/{dag_id}/actions/{act}"
        page = self.get(path, **(asked or {}))
        assert page.status_code == 200, page.text
        token = re.search(r'name="token" value="([^"]+)"', page.text)
        assert token is not None, page.text
        answer = self.post(path, {"token": token[1], **fields})
        assert answer.status_code == 303, answer.text
        back = urlsplit(answer.headers["location"])
        return str(dict(parse_qsl(back.query))["of"])


def list_audit(client: AirflowClient, dag_id: str, event: str) -> list[tuple[str, Any]]:
    """(who, run) of the entries of Airflow's audit log."""
    found = client.call("GET", "eventLogs", params={"dag_id": dag_id, "event": event, "limit": 100})
    return [(one["owner"], one["run_id"]) for one in found["event_logs"]]
