"""Calls of Airflow's public API within this process, in the name of the user who sent the request: Airflow checks the
permissions again and writes the call into its audit log."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from airflow.api_fastapi.app import cached_app
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from fastapi import FastAPI, Request

from tidegate.airflow import errors
from tidegate.airflow.ui.render import Refused

_DETAIL_AT_MOST = 500


@dataclass(frozen=True)
class Answer:
    """Airflow's answer: the status and the decoded body."""

    status: int
    body: Any

    @property
    def is_good(self) -> bool:
        """Return whether the call succeeded."""
        return 200 <= self.status < 300

    @property
    def detail(self) -> str:
        """The message of an error."""
        text = str(self.body.get("detail") if isinstance(self.body, Mapping) else self.body)
        return (text if text.isprintable() else ascii(text))[:_DETAIL_AT_MOST]


def can_be_segment(text: str) -> bool:
    """Return whether a text stays one segment of a path: an encoded slash is decoded on the way, and dots are
    removed."""
    return "/" not in text and text.strip(".") != ""


async def call(
    request: Request, method: str, path: str, *, body: object = None, params: Mapping[str, str] | None = None
) -> Answer:
    """One call of ``/api/v2/<path>``, with the token that the request came with."""
    app = _serving_app()
    headers = {"accept": "application/json"}
    if given := request.headers.get("authorization"):
        headers["authorization"] = given
    elif token := request.cookies.get(COOKIE_NAME_JWT_TOKEN):
        headers["cookie"] = f"{COOKIE_NAME_JWT_TOKEN}={token}"
    if referer := request.headers.get("referer"):  # by this Airflow recognizes a run from the UI
        headers["referer"] = referer
    client = ("127.0.0.1", 0) if request.client is None else (request.client.host, request.client.port)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False, client=client)
    base = f"{request.url.scheme}://{request.url.netloc}{app.root_path}/api/v2/"
    async with httpx.AsyncClient(transport=transport, base_url=base, timeout=None, trust_env=False) as http:
        answer = await http.request(method, path, json=body, params=params, headers=headers)
    try:
        return Answer(answer.status_code, answer.json() if answer.content else None)
    except ValueError:
        return Answer(answer.status_code, answer.text)


def refuse(answer: Answer, what: str) -> Refused:
    """The error for a call that Airflow refused, with its message; ``what`` says what it was to do."""
    said = answer.detail if answer.status < 500 else "an internal error; see Airflow's log"
    status = answer.status if 400 <= answer.status < 500 else 502
    return Refused(errors.AIRFLOW_REFUSED(where="Airflow's API", what=what, status=answer.status, said=said), status)


def _serving_app() -> FastAPI:
    """The app that serves this request, as Airflow's API server makes it (``airflow/api_fastapi/main.py``)."""
    return cached_app(apps=os.environ.get("AIRFLOW_API_APPS", "all"))
