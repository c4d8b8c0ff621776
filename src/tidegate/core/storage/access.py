"""How this process, and those that it starts, reach object stores: the settings of a project for S3, credentials that
Airflow keeps, and how long a store may be away.

Settings and credentials have the names of environment variables, override these in this process, and are given to the
processes that it starts. The environment of this process stays as it is: it may be Airflow's, which has buckets of its
own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar

CA_VARIABLE = "AWS_CA_BUNDLE"
"""The file with the certificates that are trusted in addition, as AWS's own programs call it."""

PATIENCE_SECONDS = 60.0
"""How long a request is repeated while the store does not answer, or asks for fewer requests (503)."""

_patience: ContextVar[float | None] = ContextVar("patience", default=None)

_settings: dict[str, str] = {}
_connection = ""
_find_login: Callable[[str], Mapping[str, str]] | None = None
_needs_login = False


def use_settings(settings: Mapping[str, str], connection: str) -> None:
    """Reach S3 by ``settings``, with the credentials of the Airflow connection ``connection`` where there is Airflow.

    The project that was loaded last counts.
    """
    global _settings, _connection
    _settings, _connection = dict(settings), connection


def use_login(find: Callable[[str], Mapping[str, str]]) -> None:
    """Ask ``find`` for the credentials of a connection; it is called when a bucket is opened, and again for each
    process that is started."""
    global _find_login
    _find_login = find


def store_settings() -> dict[str, str]:
    """The settings; no secret is among them."""
    return dict(_settings)


def open_environment() -> dict[str, str]:
    """The settings and the credentials, for a client of this process."""
    global _needs_login
    _needs_login = True
    return {**_settings, **(_find_login(_connection) if _find_login else {})}


def child_environment() -> dict[str, str]:
    """The settings and, where this process has opened a bucket, the credentials, for a process that it starts.

    What a driver is to read and write was looked at before it is started.
    """
    return open_environment() if _needs_login else store_settings()


def patience_seconds() -> float:
    """How long a request of this thread is repeated."""
    return PATIENCE_SECONDS if (limit := _patience.get()) is None else limit


@contextlib.contextmanager
def limit_patience(seconds: float) -> Iterator[None]:
    """Repeat requests of this thread for ``seconds`` only."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)
