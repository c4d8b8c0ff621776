"""Event notifications of a store: the objects that they name are looked at, in place of a list of the prefix.

They only add candidates. What is read is decided as for a list: an object that is named twice is in the ledger, one
that no message names is found when all keys are listed, and a message that is none is counted and passed by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from tidegate.core.errors import TryAgainError
from tidegate.core.words import count_of, list_first
from tidegate.sources.files.ledger import Ledger, Listed
from tidegate.sources.files.listing import base_of
from tidegate.sources.port import Messages
from tidegate.spec.models import FilesSource

NAMES_AT_MOST = 5_000
"""Where more objects are named, a list of all keys costs less than a look at each."""

_KEY_BYTES_AT_MOST = 1024
_NO_KEY = re.compile(r"[\x00-\x1f\x7f]|(?:^|/)\.{0,2}(?:/|$)")
"""Control characters, and names that a path of a store cannot have: an empty one, ``.`` and ``..``."""

ReadMessages = Callable[[object], Messages]
"""Reads what has come since a position: one that an earlier call returned, or None."""


@dataclass(frozen=True)
class News:
    """What notifications name. ``position`` is behind all that were read, None where they cannot be read; ``named`` are
    URIs below the source, None where some may be missing: then all keys have to be listed."""

    position: object = None
    named: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    def note(self, pending: Collection[str], all_at: float, how: str) -> Listed | None:
        """What the ledger notes of it: the position, and the objects that are still to be taken, which no later
        message names. None where there are too many; the next run then begins where this one has begun."""
        if self.position is None or len(pending) > NAMES_AT_MOST:
            return None
        return Listed(json.dumps({"position": self.position, "pending": sorted(pending)}), all_at, how)


def read_news(source_name: str, spec: FilesSource, read: ReadMessages, noted: Listed | None, ledger: Ledger) -> News:
    """What was named since ``noted``, and what was pending then and is not in the ledger yet."""
    assert spec.notifications is not None, "the source has notifications"
    place = spec.notifications.place
    before: dict[str, Any] = {} if noted is None else json.loads(noted.mark)
    try:
        messages = read(before.get("position"))
        named, faults = _find_names(messages.bodies, spec.path.rstrip("/"))
    except TryAgainError as error:
        return News(notes=(f"source {source_name}: all keys are listed, without notifications: {error.message}",))
    notes = []
    if faults:
        are = "is not an event notification" if len(faults) == 1 else "are not event notifications"
        notes.append(f"source {source_name}: {count_of(len(faults), 'message')} in {place} {are}: {list_first(faults)}")
    if messages.missed:
        notes.append(f"source {source_name}: all keys are listed: {messages.missed}")
    if not before or messages.missed or named is None:
        return News(messages.position, notes=tuple(notes))
    taken = ledger.known_states(source_name, before["pending"])
    return News(messages.position, frozenset(named | (set(before["pending"]) - taken.keys())), tuple(notes))


def _find_names(bodies: Iterable[tuple[str, bytes]], top: str) -> tuple[set[str] | None, list[str]]:
    """The URIs below ``top`` that messages name, None where these are too many; and what is wrong with which one."""
    base = f"{base_of(top)}/"
    named: set[str] = set()
    faults: list[str] = []
    for place, body in bodies:
        try:
            uris = read_names(body)
        except (ValueError, RecursionError) as error:
            faults.append(f"{place} ({error or type(error).__name__})")
        else:
            named.update(uri for uri in uris if uri.startswith(base))
        if len(named) > NAMES_AT_MOST:
            return None, faults
    return named, faults


def read_names(body: bytes) -> list[str]:
    """The URIs of the objects that one message says were written: one of S3 itself, as SQS delivers it, also within
    one of SNS, or one of EventBridge. Raises ValueError where it is none of these."""
    event = _parse(body)
    if event.get("Type") == "Notification" and isinstance(event.get("Message"), str):
        event = _parse(event["Message"])
    if isinstance(detail := event.get("detail"), dict):
        return _names_of(detail) if _is_write(event.get("detail-type")) else []
    records = event.get("Records")
    if records is None and event.get("Event") == "s3:TestEvent":
        return []
    if not isinstance(records, list):
        raise ValueError("it has neither Records nor detail")
    if not all(isinstance(one, dict) and "eventName" in one for one in records):
        raise ValueError("one of its Records has no eventName")
    return [uri for one in records if _is_write(one["eventName"]) for uri in _names_of(one.get("s3"))]


def _parse(text: str | bytes) -> dict[str, Any]:
    try:
        event = json.loads(text)
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(event, dict):
        raise ValueError("it is not a JSON object")
    return event


def _is_write(event_name: object) -> bool:
    """Return whether an object was written, by the name of the event: ``ObjectCreated:Put``, ``Object Created``."""
    return event_name is None or "ObjectCreated" in str(event_name).replace(" ", "")


def _names_of(found: Any) -> list[str]:
    """The URIs that an object may have: S3 writes keys with ``%3D`` and ``+``, EventBridge and some servers do not."""
    try:
        bucket, key = found["bucket"]["name"], found["object"]["key"]
        keys = {key, unquote_plus(key)}
        possible = [one for one in sorted(keys) if len(one.encode()) <= _KEY_BYTES_AT_MOST and not _NO_KEY.search(one)]
    except (KeyError, TypeError, AttributeError, UnicodeError):
        raise ValueError("it names no object") from None
    if key.endswith("/"):
        return []  # the mark of a folder
    if not isinstance(bucket, str) or not possible:
        raise ValueError("it names an object that cannot be")
    return [f"s3://{bucket}/{one}" for one in possible]
