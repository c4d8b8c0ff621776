"""The Airflow plugin: run reports in the API server, a link to them on each DAG's page, the pool of the drivers."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from airflow.plugins_manager import AirflowPlugin

from tidegate.airflow import pool

URL_PREFIX = "/tidegate"


class TidegatePlugin(AirflowPlugin):
    """Registered by ``plugins/tidegate_plugin.py`` of a project."""

    name = "tidegate"

    # One item that Airflow finds invalid drops the whole plugin: keep to what its documentation lists.
    external_views: ClassVar[list[dict[str, object]]] = [
        {
            "name": "Run reports",
            "href": f"{URL_PREFIX}/dags/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "tidegate-run-reports",
        }
    ]

    listeners: ClassVar[list[object]] = [pool]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, object]]:
        """The app; made only where it is asked for, which is the API server and no worker."""
        from tidegate.airflow.reports_app import app

        return [{"app": app, "url_prefix": URL_PREFIX, "name": "tidegate run reports"}]
