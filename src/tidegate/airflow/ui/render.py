"""Rendering of templates and JSON: every value is escaped, and every answer has the same headers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import ChainableUndefined, Environment, PackageLoader

from tidegate.airflow.ui import formats
from tidegate.airflow.ui.bundle import read_manifest
from tidegate.airflow.ui.places import Places
from tidegate.core import storage

ACTS = {"run": "Run now", "backfill": "Backfill", "refresh": "Refresh", "replay": "Replay quarantine", "pause": "Pause"}
"""The button of each action."""
HEADERS = {
    # Only scripts and styles of the bundle: nothing that a page shows can be executed.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'self'; form-action 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def environment() -> Environment:
    """The templates. Filters and tests are those of :mod:`tidegate.airflow.ui.formats`."""
    # A report of another version may lack any key: a missing value is shown as nothing.
    made = Environment(
        loader=PackageLoader("tidegate.airflow.ui", "templates"),
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(formats.FILTERS)
    made.globals["acts"] = ACTS
    return made


def render(request: Request, template: str, context: Mapping[str, object], status_code: int = 200) -> HTMLResponse:
    """Render a page. Templates get ``places``, ``bundle`` and ``request`` in addition to the context."""
    text = (
        environment()
        .get_template(template)
        .render(**context, places=Places.of(request), bundle=read_manifest(), request=request)
    )
    # A file name that is not Unicode has surrogates, which cannot be encoded.
    return HTMLResponse(text.encode("utf-8", "replace"), status_code, headers=HEADERS)


def render_json(value: object, status_code: int = 200) -> Response:
    """Render a value as JSON, in the form that the report files have."""
    data = storage.dump_json(value, indent=None)
    return Response(data, status_code, headers=HEADERS, media_type="application/json")
