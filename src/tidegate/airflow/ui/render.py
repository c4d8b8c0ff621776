"""Templates to answers: every value is escaped, and every page has the same headers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import ChainableUndefined, Environment, PackageLoader

from tidegate.airflow.ui import formats
from tidegate.airflow.ui.bundle import read_manifest
from tidegate.airflow.ui.places import Places

HEADERS = {
    # No script and no style but the bundle's own: whatever a page shows, nothing of it is run.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'self'; form-action 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def environment() -> Environment:
    """The templates. Filters and tests are those of :mod:`tidegate.airflow.ui.formats`."""
    # A report of another version may lack any key: what is not there is shown as nothing.
    made = Environment(
        loader=PackageLoader("tidegate.airflow.ui", "templates"),
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(formats.FILTERS)
    made.globals["words"] = formats.WORDS
    return made


def render(request: Request, template: str, context: Mapping[str, object], status_code: int = 200) -> HTMLResponse:
    """A page. Templates get ``places``, ``bundle`` and ``request`` beside the context."""
    text = (
        environment()
        .get_template(template)
        .render(**context, places=Places.of(request), bundle=read_manifest(), request=request)
    )
    return HTMLResponse(text, status_code, headers=HEADERS)
