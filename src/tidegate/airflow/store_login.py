"""Credentials of object stores from an Airflow connection of type ``aws``."""

from __future__ import annotations

import functools
import json
import os
import time
from typing import TYPE_CHECKING, Any

from tidegate.airflow import errors
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from airflow.sdk import Connection

DEFAULT_CONNECTION = "aws_default"
"""Used when it is there; Airflow's own hooks do without it too."""

_KEPT_SECONDS = 300
"""The API server lives longer than keys: a connection is looked at again after this time."""

_OF_SESSION = ("role_arn", "profile_name", "assume_role_method")


def find_login(conn_id: str) -> dict[str, str]:
    """What a connection has, as environment variables of clients; nothing where ``aws_default`` does not exist.

    Raises:
        UsageError: Another connection does not exist, or it cannot be used (CONNECTION_INVALID).
    """
    return _find_login(conn_id, int(time.monotonic() // _KEPT_SECONDS))


@functools.lru_cache(maxsize=1)
def _find_login(conn_id: str, _period: int) -> dict[str, str]:
    connection = _load(conn_id)
    if connection is None:
        return {}
    try:
        extra: Any = json.loads(connection.extra) if connection.extra else {}
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise _refuse(conn_id, "has an extra that is not a JSON object")
    own = (extra.get("service_config") or {}).get("s3") or {}
    endpoint = own.get("endpoint_url") or extra.get("endpoint_url")
    found = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": extra.get("region_name")}
    if any(extra.get(name) for name in _OF_SESSION):
        found |= _open_session(conn_id)
    elif connection.login and connection.password:
        found |= _name_keys(connection.login, connection.password, extra.get("aws_session_token"))
    elif connection.login or connection.password:
        raise _refuse(conn_id, "has a login or a password; it needs both, for the id of the key and the secret key")
    return {name: str(value) for name, value in found.items() if value is not None}


def _name_keys(key: str, secret: str, token: str | None) -> dict[str, str]:
    # A token of the environment does not belong to this key; clients send no empty one.
    return {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token or ""}


def _open_session(conn_id: str) -> dict[str, str]:
    """The temporary keys that Airflow's own hook gets for a connection with a role or a profile."""
    from airflow.sdk.log import mask_secret

    try:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook
    except ImportError:
        fault = "has a role or a profile, which needs apache-airflow-providers-amazon: install it"
        raise _refuse(conn_id, fault) from None
    from botocore.exceptions import BotoCoreError, ClientError

    hook: Any = AwsGenericHook(aws_conn_id=conn_id, client_type="s3")
    try:
        keys = hook.get_credentials()
    except (BotoCoreError, ClientError) as error:
        raise _refuse(conn_id, f"gives no keys: {error}") from error
    mask_secret(keys.secret_key)
    mask_secret(keys.token)
    return _name_keys(keys.access_key, keys.secret_key, keys.token)


def _load(conn_id: str) -> Connection | None:
    from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if (variable := f"AIRFLOW_CONN_{conn_id.upper()}") in os.environ:
            # Airflow ignores a variable that it cannot parse. It is not quoted: it holds a secret.
            fault = f"cannot be read: {variable} is neither a JSON connection nor a URI"
            raise _refuse(conn_id, fault) from None
        if conn_id == DEFAULT_CONNECTION:
            return None
        raise _refuse(conn_id, "does not exist in Airflow") from None
    except (ValueError, TypeError) as error:
        raise _refuse(conn_id, f"cannot be parsed ({type(error).__name__})") from None


def _refuse(conn_id: str, fault: str) -> UsageError:
    arguments = "--conn-type aws --conn-login KEY_ID --conn-password SECRET_KEY"
    where = "s3.connection in tidegate.yaml"
    return errors.CONNECTION_INVALID(where=where, conn_id=conn_id, fault=fault, arguments=arguments)
