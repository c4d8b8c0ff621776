"""Clients of object stores: one per bucket and process; what they answer, with one limit for retries.

The credentials come from where the libraries find them: environment variables (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``),
web identity, or the metadata service of the machine; for S3 on Airflow from a connection, if there is one.
"""

from __future__ import annotations

import functools
import html
import os
import random
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from obstore.exceptions import (
    AlreadyExistsError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.exceptions import BaseError as AnyStoreError
from obstore.store import AzureStore, GCSStore, S3Store

from tidegate.core import errors
from tidegate.core.errors import Caught, UsageError
from tidegate.core.storage.access import CA_VARIABLE, open_environment, patience_seconds, store_settings
from tidegate.core.storage.faults import StoreError
from tidegate.core.storage.object_path import ObjectPath
from tidegate.core.storage.shared import note_requests

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

R = TypeVar("R")

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_ANSWER_SECONDS = 60
"""How long one request may take, with its body."""

PAGE_KEYS = 1000
"""How many keys a store lists with one request."""

_BUCKET_IN_HOST = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"
_OF_CLIENT = ("AWS_PROXY_URL", "AWS_PROXY_CA_CERTIFICATE", "AWS_PROXY_EXCLUDES")

_SETTINGS: Any = {"connect_timeout": "5 seconds", "timeout": f"{_ANSWER_SECONDS} seconds"}
"""Given as settings of the store: ``client_options`` would replace those of the environment, such as a proxy or
``AWS_ALLOW_HTTP``."""

_NO_RETRY: RetryConfig = {"max_retries": 0}
"""Requests are repeated here, by :func:`call`: a conditional write that the library repeats by itself could not be
distinguished from that of another process."""

_CODE = re.compile(r"<Code>(.*?)</Code>")
_ABSENT = ("NoSuchKey", "BlobNotFound")
"""What a store calls an object that is absent. Others are a missing bucket, and a server's word for an unknown user."""

_CONDITION = (
    *("PreconditionFailed", "ConditionalRequestConflict", "OperationAborted"),
    *("BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet", "conditionNotMet"),
)
"""What a store says where the condition of a write does not hold, or where two writes meet. Other conflicts, as with a
key that is the folder of another, do not end by themselves."""

_TEMPORARY = (408, 409, 425, 429)
"""Answers of status 4xx that may change by themselves; any other one will not."""


_OF_ONE_KEY = re.compile(r"request failed for key .*?: (.*) \(code: (\w+)\)")
"""The answer about one of the keys of a request to delete, which as a whole has succeeded."""

_TEMPORARY_CODES = ("InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown")

_BAD_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")


def open_store(scheme: str, bucket: str) -> ObjectStore:
    """The client of a bucket, with the settings of :mod:`tidegate.core.storage.access`.

    Raises:
        OSError: The file of trusted certificates cannot be read.
        ValueError: It has no certificate, or the endpoint is no address.
    """
    return _open(scheme, bucket, frozenset(open_environment().items()) if scheme == "s3" else frozenset())


@functools.cache
def _open(scheme: str, bucket: str, given: frozenset[tuple[str, str]]) -> ObjectStore:
    if scheme == "s3":
        return _open_s3(bucket, dict(given))
    if scheme == "gs":
        return GCSStore(bucket, config=_SETTINGS, retry_config=_NO_RETRY)
    assert scheme == "az", f"no client for {scheme}://"
    return AzureStore(bucket, config=_SETTINGS, retry_config=_NO_RETRY)


def _open_s3(bucket: str, given: dict[str, str]) -> ObjectStore:
    environment = {**os.environ, **given}
    # No S3 server is known that has a condition on a plain copy.
    settings: Any = {**_SETTINGS, "copy_if_not_exists": "multipart"}
    settings |= {name.lower(): value for name, value in given.items() if name != CA_VARIABLE}
    if endpoint := environment.get("AWS_ENDPOINT_URL"):
        scheme, _, host = endpoint.partition("://")
        if scheme not in ("http", "https"):
            raise ValueError("the endpoint is not the address of a web server")
        if scheme == "http":
            settings["aws_allow_http"] = "true"
        if environment.get(_BUCKET_IN_HOST, "").lower() in ("true", "1") and not host.startswith(f"{bucket}."):
            settings["aws_endpoint_url"] = f"{scheme}://{bucket}.{host}"
    options: ClientConfig = {}
    if ca_file := environment.get(CA_VARIABLE):
        options["root_certificate"] = Path(ca_file).read_bytes()
        # Options of the client replace those of the environment.
        settings |= {name.lower(): environment[name] for name in _OF_CLIENT if name in environment}
    return S3Store(bucket, config=settings, client_options=options or None, retry_config=_NO_RETRY)


def call(path: ObjectPath, act: Callable[[ObjectStore], R]) -> R:
    """What ``act`` returns with the client of the path's bucket; it is repeated while the store gives no answer.

    ``act`` must be one that can be repeated: a read, or a conditional write whose caller looks at what is there when
    the condition does not hold. A signal handler runs during the call.

    Raises:
        FileNotFoundError: There is no such object.
        AlreadyExistsError: The condition of a write did not hold, as for PreconditionError.
        StoreError: The store refused, or did not answer within :func:`patience_seconds`.
    """
    try:
        store = open_store(path.scheme, path.bucket)
    except (OSError, ValueError, AnyStoreError) as error:  # a setting of the client
        raise refuse_settings(path, error) from error
    end = time.monotonic() + patience_seconds()
    pause = _FIRST_PAUSE_SECONDS
    while True:
        note_requests()
        try:
            return _interruptible(lambda: act(store))
        except (AlreadyExistsError, PreconditionError) as error:
            if _has_other_code(error, (*_CONDITION, *_ABSENT)):
                raise refuse(path, error) from error
            raise
        except FileNotFoundError as error:
            if _has_other_code(error, _ABSENT):
                raise refuse(path, error) from error
            _check_bucket(path.scheme, path.bucket)
            raise FileNotFoundError(2, "No such object", str(path)) from error
        except AnyStoreError as error:
            if _is_final(error):
                raise refuse(path, error) from error
            if time.monotonic() + pause > end:
                raise give_up(path, error) from error
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


@functools.cache
def _check_bucket(scheme: str, bucket: str) -> None:
    """Refuse a bucket that is missing; of an absent object a store may say no more than "not found" (404)."""
    root = ObjectPath(f"{scheme}://{bucket}")
    try:
        list_objects(root, lambda store: next(iter(store.list(chunk_size=1)), None))
    except StoreError as error:
        if not is_denied(error.__cause__):  # a policy may allow to list some prefixes only; the bucket is there
            raise


def list_pages(store: ObjectStore, prefix: str | None, after: str | None = None) -> Iterator[Sequence[ObjectMeta]]:
    """The objects whose keys begin with ``prefix``, and sort after ``after``, by pages."""
    for number, page in enumerate(store.list(prefix, offset=after, chunk_size=PAGE_KEYS)):
        if number:
            note_requests()
        yield page


def note_pages(found: int) -> None:
    """Count the requests of a list that found so many keys, but for the first one."""
    note_requests(max(0, found - 1) // PAGE_KEYS)


def list_objects(path: ObjectPath, act: Callable[[ObjectStore], R]) -> R:
    """Call ``act``, which lists. A list is "not found" only where the bucket is missing, which is refused.

    Raises:
        StoreError: As :func:`call`.
    """
    try:
        return call(path, act)
    except FileNotFoundError as error:
        raise refuse(path, error.__cause__ if isinstance(error.__cause__, Exception) else error) from error


def _interruptible(act: Callable[[], R]) -> R:
    """Call ``act`` so that the main thread still handles signals: the library itself returns to Python only with the
    answer."""
    if threading.current_thread() is not threading.main_thread():
        return act()
    results: list[R] = []
    caught = Caught()

    def run() -> None:
        with caught:
            results.append(act())

    thread = threading.Thread(target=run, name="tidegate-store", daemon=True)
    thread.start()
    thread.join()
    if caught.error is not None:
        raise caught.error
    return results[0]


def _has_other_code(error: Exception, known: tuple[str, ...]) -> bool:
    code = _CODE.search(str(error))
    return code is not None and code[1] not in known


def _is_final(error: Exception) -> bool:
    if is_denied(error) or isinstance(error, NotSupportedError) or _BAD_CERTIFICATE.search(str(error)):
        return True
    status = _status_of(error)
    code = _CODE.search(str(error))
    if code is not None and code[1] in _TEMPORARY_CODES:
        return False  # RequestTimeout has the status 400
    return status.startswith(("3", "4")) and int(status) not in _TEMPORARY


def _status_of(error: BaseException | None) -> str:
    """The HTTP status that an error names; empty where there was no answer."""
    status = re.search(r"\bstatus(?: code)?:? (\d{3})\b", str(error))
    return status[1] if status else ""


def is_denied(error: BaseException | None) -> bool:
    """Return whether a store has refused a request to this user, and may grant the next one."""
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _status_of(error) in ("401", "403"):
        return True
    one = _OF_ONE_KEY.search(str(error))
    return one is not None and one[2] not in _TEMPORARY_CODES


def refuse(path: ObjectPath, error: Exception) -> StoreError:
    """The error for a request that the store will refuse again: no right to it, no bucket, expired credentials."""
    if _BAD_CERTIFICATE.search(str(error)):
        return refuse_settings(path, error)
    return StoreError(refuse_for(path, reason_of(error)), str(path))


def refuse_settings(path: ObjectPath, error: Exception) -> StoreError:
    """The error for settings with which no request can be sent."""
    place = f"{path.scheme}://{path.bucket}"
    return StoreError(errors.STORE_SETTINGS(where=place, store=place, reason=reason_of(error)), str(path))


def refuse_for(path: ObjectPath, reason: str) -> UsageError:
    """As :func:`refuse`, with the reason as the store gave it."""
    place = f"{path.scheme}://{path.bucket}"
    return errors.STORE_REFUSED(where=str(path), store=place, path=path, reason=reason)


def give_up(path: ObjectPath, error: Exception) -> StoreError:
    """The error for a store that did not answer in time: nothing is lost, and a later attempt may succeed."""
    seconds = f"{patience_seconds():g}"
    address = {**os.environ, **store_settings()}.get("AWS_ENDPOINT_URL") if path.scheme == "s3" else None
    server = " at " + re.sub("//[^/@]*@", "//", address) if address else ""
    named = errors.STORE_FAILED(where=str(path), path=path, seconds=seconds, reason=reason_of(error), server=server)
    return StoreError(named, str(path))


def refuse_unsafe(path: ObjectPath, what: str) -> StoreError:
    """The error for a store that overwrote an object although the request forbade that."""
    place = f"{path.scheme}://{path.bucket}"
    return StoreError(errors.STORE_UNSAFE(where=place, store=place, what=what, quoted=shlex.quote(place)), str(path))


def reason_of(error: Exception) -> str:
    """The store's own words, or why there is no connection, without addresses, which can hold a signature."""
    text, _, details = str(error).partition("\n\nDebug source:")
    code, words = _CODE.search(text), re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
    if code:
        said = html.unescape(words[1]).strip().rstrip(".") if words else ""
        return f"{said} ({code[1]})" if said else code[1]
    if one := _OF_ONE_KEY.search(text):
        return f"{one[1].rstrip('.')} ({one[2]})"
    if bad := _BAD_CERTIFICATE.search(details):
        return f"its certificate is not trusted ({bad[1]})"
    text = re.sub(r"\(?https?://[^\s)]*\)?", "the store", text.rpartition(" - ")[2])
    text = " ".join(text.split())[:300].rstrip(".")
    # what the operating system said of a connection
    cause = re.search(r'(?:message|error): "([^"]+)"', details)
    return f"{text} ({cause[1]})" if cause else text
