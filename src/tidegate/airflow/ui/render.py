"""Templates to answers: every value is escaped, and every page has the same headers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import ChainableUndefined, Environment, PackageLoader

from tidegate.airflow.ui import formats
from tidegate.airflow.ui.acts import ACTS
from tidegate.airflow.ui.bundle import read_manifest
from tidegate.airflow.ui.places import Places
from tidegate.core import storage

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
    made.globals["acts"] = ACTS
    return made


def render(request: Request, template: str, context: Mapping[str, object], status_code: int = 200) -> HTMLResponse:
    """A page. Templates get ``places``, ``bundle`` and ``request`` beside the context."""
    text = (
        environment()
        .get_template(template)
        .render(**context, places=Places.of(request), bundle=read_manifest(), request=request)
    )
    # A name of a file that is not Unicode has signs that no page can have.
    return HTMLResponse(text.encode("utf-8", "replace"), status_code, headers=HEADERS)


def render_json(value: object, status_code: int = 200) -> Response:
    """The answer to a program: any value of a report, as its file has it."""
    data = storage.dump_json(value, indent=None)
    return Response(data, status_code, headers=HEADERS, media_type="application/json")
