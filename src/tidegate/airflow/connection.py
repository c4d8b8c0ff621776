"""The Spark connection of the project, checked before the provider's hook may replace it by ``yarn``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tidegate.errors import UsageError
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
            raise _refuse(
                "SPARK_CONNECTION_MALFORMED",
                f"the environment's AIRFLOW_CONN_{conn_id.upper()} is neither a JSON connection nor a URI",
                conn_id,
            ) from None
        raise _refuse(
            "SPARK_CONNECTION_MISSING",
            f"Airflow has no connection {conn_id!r}; the provider would take `yarn` in its place, tidegate does not",
            conn_id,
        ) from None
    except (ValueError, TypeError) as exc:
        raise _refuse(
            "SPARK_CONNECTION_MALFORMED", f"connection {conn_id!r} cannot be parsed ({type(exc).__name__})", conn_id
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
        raise _refuse(
            "SPARK_CONNECTION_MALFORMED",
            f"connection {conn_id!r} (type {connection.conn_type!r}) gives the master {_shorten(master)!r}, "
            f"which is none of {MASTER_FORMS}",
            conn_id,
        ) from None
    try:
        extra = json.loads(connection.extra) if connection.extra else {}
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise _refuse(
            "SPARK_CONNECTION_MALFORMED", f"the extra of connection {conn_id!r} is not a JSON object", conn_id
        )
    if extra.get("deploy-mode") not in (None, "", "client"):
        raise _refuse(
            "SPARK_DEPLOY_MODE",
            f"connection {conn_id!r} asks for deploy-mode {_shorten(str(extra['deploy-mode']))!r}; only client is "
            "possible, because a driver elsewhere would outlive a killed task (and a standalone cluster runs no Python "
            "driver at all)",
            conn_id,
        )
    return master


def _refuse(code: str, message: str, conn_id: str) -> UsageError:
    return UsageError(
        code,
        message,
        where="spark.connection in tidegate.yaml",
        next_run="is refused as well, until the connection is right",
        fix=f"airflow connections delete {conn_id}; "
        f"airflow connections add {conn_id} --conn-type spark --conn-host 'local[*]'",
    )


def _shorten(text: str) -> str:
    # What stands before an @ may be a login; it is not repeated.
    text = text.rpartition("@")[2]
    return text if len(text) <= 60 else text[:57] + "..."
