"""Clients of object stores: one per bucket and process; what they answer, with one limit for retries.

The credentials come from where the libraries find them: environment variables (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``),
web identity, or the metadata service of the machine.
"""

from __future__ import annotations

import functools
import random
import re
import shlex
import threading
import time
from collections.abc import Callable
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
from tidegate.core.errors import Caught
from tidegate.core.storage.faults import StoreError
from tidegate.core.storage.object_path import ObjectPath

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

R = TypeVar("R")

PATIENCE_SECONDS = 60.0
"""How long a request is repeated while the store does not answer, or asks for fewer requests (503)."""

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_ANSWER_SECONDS = 60
"""How long one request may take, with its body."""

_SETTINGS: Any = {"connect_timeout": "5 seconds", "timeout": f"{_ANSWER_SECONDS} seconds"}
"""Given as settings of the store: ``client_options`` would replace those of the environment, such as a proxy or
``AWS_ALLOW_HTTP``."""

_NO_RETRY: RetryConfig = {"max_retries": 0}
"""Requests are repeated here, by :func:`call`: a conditional write that the library repeats by itself could not be
told from that of another process."""

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


@functools.cache
def open_store(scheme: str, bucket: str) -> ObjectStore:
    """The client of a bucket."""
    if scheme == "s3":
        # No S3 server is known that has a condition on a plain copy.
        settings: Any = {**_SETTINGS, "copy_if_not_exists": "multipart"}
        return S3Store(bucket, config=settings, retry_config=_NO_RETRY)
    if scheme == "gs":
        return GCSStore(bucket, config=_SETTINGS, retry_config=_NO_RETRY)
    return AzureStore(bucket, config=_SETTINGS, retry_config=_NO_RETRY)


def call(path: ObjectPath, act: Callable[[ObjectStore], R]) -> R:
    """What ``act`` returns with the client of the path's bucket; it is repeated while the store gives no answer.

    ``act`` must be one that can be repeated: a read, or a conditional write whose caller looks at what is there when
    the condition does not hold. A signal handler runs during the call.

    Raises:
        FileNotFoundError: There is no such object.
        AlreadyExistsError: The condition of a write did not hold, as for PreconditionError.
        StoreError: The store refused, or did not answer within :data:`PATIENCE_SECONDS`.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return _interruptible(lambda: act(open_store(path.scheme, path.bucket)))
        except (AlreadyExistsError, PreconditionError) as error:
            if _has_other_code(error, _CONDITION):
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
    list_objects(root, lambda store: next(iter(store.list(chunk_size=1)), None))


def list_objects(path: ObjectPath, act: Callable[[ObjectStore], R]) -> R:
    """The same for a list: nothing but a missing bucket is not found then.

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
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | NotSupportedError):
        return True
    status = re.search(r"\bstatus(?: code)?:? (\d{3})\b", str(error))
    return status is not None and status[1].startswith(("3", "4")) and int(status[1]) not in _TEMPORARY


def refuse(path: ObjectPath, error: Exception) -> StoreError:
    """The error for a request that the store will refuse again: no right to it, no bucket, expired credentials."""
    place = f"{path.scheme}://{path.bucket}"
    named = errors.STORE_REFUSED(where=str(path), store=place, path=path, reason=_reason_of(error))
    return StoreError(named, str(path))


def give_up(path: ObjectPath, error: Exception) -> StoreError:
    """The error for a store that did not answer in time: nothing is lost, and a later attempt may succeed."""
    seconds = f"{PATIENCE_SECONDS:g}"
    named = errors.STORE_FAILED(where=str(path), path=path, seconds=seconds, reason=_reason_of(error))
    return StoreError(named, str(path))


def refuse_unsafe(path: ObjectPath, what: str) -> StoreError:
    """The error for a store that overwrote an object although the request forbade that."""
    place = f"{path.scheme}://{path.bucket}"
    return StoreError(errors.STORE_UNSAFE(where=place, store=place, what=what, quoted=shlex.quote(place)), str(path))


def _reason_of(error: Exception) -> str:
    """The store's own words, without addresses, which can hold a signature, and without the client's debug output."""
    text, _, cause = str(error).partition("\n\nDebug source:")
    code, words = _CODE.search(text), re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
    if code:
        return f"{words[1].strip().rstrip('.')} ({code[1]})" if words and words[1].strip() else code[1]
    system = re.search(r'message: "([^"]*)"', cause)  # what the operating system said of a connection
    text = re.sub(r"\(?https?://[^\s)]*\)?", "the store", text.rpartition(" - ")[2])
    return " ".join(text.split())[:300].rstrip(".") + (f" ({system[1]})" if system else "")
