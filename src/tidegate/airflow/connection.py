"""Checks of the project's Spark connection, before the provider's hook may replace it by ``yarn``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tidegate.airflow import errors
from tidegate.spec.master import MASTER_FORMS, parse_master

if TYPE_CHECKING:
    from airflow.sdk import Connection


def load_connection(conn_id: str) -> Connection:
    """Load the connection. Raises :class:`UsageError`, which says how to add it; an unreachable secrets backend raises
    its own error."""
    from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if f"AIRFLOW_CONN_{conn_id.upper()}" in os.environ:
            # Airflow ignores a variable that it cannot parse. The error does not quote it: it may hold a password.
            raise errors.SPARK_CONNECTION_MALFORMED(
                where="spark.connection in tidegate.yaml",
                conn_id=conn_id,
                fault=f"cannot be read: AIRFLOW_CONN_{conn_id.upper()} is neither a JSON connection nor a URI",
            ) from None
        raise errors.SPARK_CONNECTION_MISSING(where="spark.connection in tidegate.yaml", conn_id=conn_id) from None
    except (ValueError, TypeError) as exc:
        raise errors.SPARK_CONNECTION_MALFORMED(
            where="spark.connection in tidegate.yaml", conn_id=conn_id, fault=f"cannot be parsed ({type(exc).__name__})"
        ) from None


def resolve_master(connection: Connection) -> str:
    """The master URL that the provider's hook builds from ``connection``.

    Raises :class:`UsageError` when the connection is not a Spark master, and for deploy mode ``cluster``: its driver
    runs on another machine and could outlive the task. (A standalone master refuses Python in that mode anyway.)
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
        raise errors.SPARK_CONNECTION_MALFORMED(
            where="spark.connection in tidegate.yaml",
            conn_id=conn_id,
            fault=f"(type {connection.conn_type!r}) gives the master {_shorten(master)!r}, which is not one of "
            f"{MASTER_FORMS}",
        ) from None
    try:
        extra = json.loads(connection.extra) if connection.extra else {}
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise errors.SPARK_CONNECTION_MALFORMED(
            where="spark.connection in tidegate.yaml", conn_id=conn_id, fault="has an extra that is not a JSON object"
        )
    if extra.get("deploy-mode") not in (None, "", "client"):
        raise errors.SPARK_DEPLOY_MODE(
            where="spark.connection in tidegate.yaml", conn_id=conn_id, deploymode=_shorten(str(extra["deploy-mode"]))
        )
    return master


def _shorten(text: str) -> str:
    # The part before an @ may be a login: it is not repeated.
    text = text.rpartition("@")[2]
    return text if len(text) <= 60 else text[:57] + "..."
