"""The Airflow plugin: pages in the API server and the places that embed them, the pool of the drivers."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import ClassVar
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from tidegate.airflow import pool
from tidegate.airflow.ui.places import PIPELINE_VIEW, PIPELINES_VIEW, RUN_VIEW, URL_PREFIX

# Airflow takes the address of a view as it stands: where it is served below a path, that belongs to it.
_HERE = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/") + URL_PREFIX


class TidegatePlugin(AirflowPlugin):
    """Registered by ``plugins/tidegate_plugin.py`` of a project."""

    name = "tidegate"

    # One item that Airflow finds invalid drops the whole plugin: keep to what its documentation lists.
    external_views: ClassVar[list[dict[str, object]]] = [
        {
            "name": "Pipelines",
            "href": f"{_HERE}/pipelines",
            "destination": "nav",
            "url_route": PIPELINES_VIEW,
        },
        {
            "name": "Tidegate",
            "href": f"{_HERE}/dags/{{DAG_ID}}",
            "destination": "dag",
            "url_route": PIPELINE_VIEW,
        },
        {
            "name": "Run report",
            "href": f"{_HERE}/dags/{{DAG_ID}}/run?run_id={{RUN_ID}}",
            "destination": "dag_run",
            "url_route": RUN_VIEW,
        },
    ]

    listeners: ClassVar[list[object]] = [pool]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, object]]:
        """The app; made only where it is asked for, which is the API server and no worker."""
        from tidegate.airflow.ui.app import app, warm_up

        threading.Thread(target=warm_up, name="tidegate-warm-up", daemon=True).start()

        return [{"app": app, "url_prefix": URL_PREFIX, "name": "tidegate"}]
