"""Checks of requests that change something: sent by these pages or by a program, never by another site; a form or JSON;
a few known fields of text."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

from airflow.configuration import conf
from fastapi import Request

from tidegate.airflow import errors
from tidegate.airflow.ui.render import Refused

BODY_AT_MOST = 16_384
TOKEN = "token"
_TOKEN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_FORM, _JSON = "application/x-www-form-urlencoded", "application/json"
_SHOWN_AT_MOST = 40
_Word = TypeVar("_Word", bound=str)


def new_token() -> str:
    """A token for a form: a run's id is made of it, so that sending the form twice starts one run."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


async def read_fields(request: Request) -> dict[str, str]:
    """The non-empty fields of a request that changes something. Raises :class:`Refused` when another site sent it, or
    its body cannot be read."""
    refuse_other_sites(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (_FORM, _JSON):
        raise _refuse(request, f"its content type is neither {_FORM} nor {_JSON}", 415)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_AT_MOST:
            raise _refuse(request, f"it has more than {BODY_AT_MOST} bytes", 413)
    try:
        fields = _parse_json(body) if kind == _JSON else _parse_form(body)
    except (ValueError, RecursionError):
        raise _refuse(request, "its fields cannot be read: each must be given once, as text") from None
    return {key: value for key, value in fields.items() if value != ""}


def refuse_other_sites(request: Request) -> None:
    """Raise :class:`Refused` unless these pages sent the request, as the browser's headers say, or a program: it has a
    bearer token, which no browser adds to requests of other sites."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_ours = site == "same-origin"
    elif origin is not None:
        is_ours = urlsplit(origin).netloc.lower() in _list_hosts(request)
    else:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        is_ours = kind.lower() == "bearer" and token.strip() != ""
    if not is_ours:
        raise Refused(errors.ACTION_OF_OTHER_SITE(where=request.url.path), 403)


def check_known(request: Request, fields: Mapping[str, str], known: Collection[str]) -> None:
    """Raise :class:`Refused` for a field that the action does not have."""
    unknown = sorted(ascii(key[:_SHOWN_AT_MOST]) for key in fields if key not in known)
    if unknown:
        raise _refuse(request, f"it has fields that this action does not know: {', '.join(unknown[:5])}")


def check_token(request: Request, fields: Mapping[str, str]) -> str:
    """The token of the form, which programs may omit. Raises :class:`Refused`."""
    token = fields.get(TOKEN) or new_token()
    if not _TOKEN.fullmatch(token):
        raise _refuse(request, "its token is not valid: open the form again")
    return token


def choose(request: Request, fields: Mapping[str, str], key: str, words: Sequence[_Word]) -> _Word:
    """The value of a field that must be one of ``words``. Raises :class:`Refused`."""
    found = next((one for one in words if one == fields.get(key)), None)
    if found is None:
        raise _refuse(request, f"{key} must be one of: {', '.join(words)}")
    return found


def need(request: Request, fields: Mapping[str, str], key: str) -> str:
    """The value of a required field. Raises :class:`Refused` when it is missing."""
    if key not in fields:
        raise _refuse(request, f"{key} is missing")
    return fields[key]


def _refuse(request: Request, fault: str, status: int = 400) -> Refused:
    return Refused(errors.ACTION_REFUSED(where=request.url.path, fault=fault), status)


def _list_hosts(request: Request) -> set[str]:
    """The hosts that this server serves: of the request, and of ``[api] base_url``, for a server behind a proxy."""
    named = urlsplit(conf.get("api", "base_url", fallback="") or "").netloc
    return {one.lower() for one in (request.headers.get("host", ""), named) if one}


def _parse_form(body: bytes) -> dict[str, str]:
    pairs = parse_qsl(
        body.decode("utf-8"), keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=50
    )
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field is there twice")
    return fields


def _parse_json(body: bytes) -> dict[str, str]:
    fields = json.loads(body)
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise ValueError("no object of texts")
    return fields
