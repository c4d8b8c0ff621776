"""The Spark connection of the project, checked before the provider's hook may replace it by ``yarn``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tidegate.core.errors import catalogue
from tidegate.spec.master import MASTER_FORMS, parse_master

if TYPE_CHECKING:
    from airflow.sdk import Connection


def load_connection(conn_id: str) -> Connection:
    """The connection, or a :class:`UsageError` that says how to add it. A backend that is away raises its own error."""
    from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if f"AIRFLOW_CONN_{conn_id.upper()}" in os.environ:
            # Airflow takes a variable that it cannot parse for no connection at all. The text may hold a password.
            raise catalogue.SPARK_CONNECTION_UNREADABLE(
                where="spark.connection in tidegate.yaml", conn_id=conn_id, variable=conn_id.upper()
            ) from None
        raise catalogue.SPARK_CONNECTION_MISSING(where="spark.connection in tidegate.yaml", conn_id=conn_id) from None
    except (ValueError, TypeError) as exc:
        raise catalogue.SPARK_CONNECTION_MALFORMED(
            where="spark.connection in tidegate.yaml", conn_id=conn_id, error=type(exc).__name__
        ) from None


def resolve_master(connection: Connection) -> str:
    """The master URL that the provider's hook makes of ``connection``.

    Raises :class:`UsageError` when the connection is not a Spark master, and for deploy mode ``cluster``: there the
    driver runs elsewhere, so the end of the task could not end it. (A standalone master refuses Python there anyway.)
    """
    conn_id = connection.conn_id
    host = connection.host or ""
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        master = host
    else:
        master = f"{connection.conn_type}://{host}"
    if connection.port:
        master = f"{master}:{connection.port}"
    try:
        parse_master(master)
    except ValueError:
        raise catalogue.SPARK_CONNECTION_MASTER(
            where="spark.connection in tidegate.yaml",
            conn_id=conn_id,
            conn_type=connection.conn_type,
            master=_shorten(master),
            master_forms=MASTER_FORMS,
        ) from None
    try:
        extra = json.loads(connection.extra) if connection.extra else {}
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise catalogue.SPARK_CONNECTION_EXTRA(where="spark.connection in tidegate.yaml", conn_id=conn_id)
    if extra.get("deploy-mode") not in (None, "", "client"):
        raise catalogue.SPARK_DEPLOY_MODE(
            where="spark.connection in tidegate.yaml", conn_id=conn_id, deploymode=_shorten(str(extra["deploy-mode"]))
        )
    return master


def _shorten(text: str) -> str:
    # What stands before an @ may be a login; it is not repeated.
    text = text.rpartition("@")[2]
    return text if len(text) <= 60 else text[:57] + "..."
