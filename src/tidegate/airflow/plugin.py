"""The Airflow plugin: the pages in the API server, the views that embed them, and the pool of the drivers."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import ClassVar
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from tidegate.airflow import pool
from tidegate.airflow.ui.places import PIPELINE_VIEW, PIPELINES_VIEW, RUN_VIEW, URL_PREFIX

# Airflow uses the address of a view as it is: where Airflow is served below a path, it must include that path.
_HERE = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/") + URL_PREFIX


class TidegatePlugin(AirflowPlugin):
    """Registered by ``plugins/tidegate_plugin.py`` of a project."""

    name = "tidegate"

    # Airflow drops the whole plugin if one item is invalid: use only keys of its documentation.
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
        """The app, made on first access: only the API server asks for it."""
        from tidegate.airflow.ui.app import app, warm_up

        threading.Thread(target=warm_up, name="tidegate-warm-up", daemon=True).start()

        return [{"app": app, "url_prefix": URL_PREFIX, "name": "tidegate"}]
