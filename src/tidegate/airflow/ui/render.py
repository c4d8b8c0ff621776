"""Rendering of templates and JSON: every value is escaped, and every answer has the same headers."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import cast

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup
from typing_extensions import TypedDict

from tidegate.airflow.next_steps import ACTS
from tidegate.airflow.ui import formats
from tidegate.airflow.ui.places import Places
from tidegate.core import storage
from tidegate.core.errors import DefectError, TidegateError, TryAgainError, UsageError
from tidegate.core.storage import name_cause
from tidegate.core.words import escape_controls
from tidegate.spec.project import Project

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
        finalize=_escape,
    )
    made.filters.update(formats.FILTERS)
    made.globals["acts"] = ACTS
    return made


def _escape(value: object) -> object:
    """A value of a template, with control characters that a reader of the page can see."""
    if isinstance(value, Markup):
        return Markup(escape_controls(value))  # of a macro, or JSON: escaped already
    return escape_controls(value) if isinstance(value, str) else value


def render(request: Request, template: str, context: Mapping[str, object], status_code: int = 200) -> HTMLResponse:
    """Render a page. Templates get ``places``, ``bundle`` and ``request`` in addition to the context."""
    text = (
        environment()
        .get_template(template)
        .render(**context, places=Places.of(request), bundle=read_manifest(), request=request)
    )
    return HTMLResponse(text, status_code, headers=HEADERS)


def render_json(value: object, status_code: int = 200) -> Response:
    """Render a value as JSON, in the form that the report files have."""
    data = storage.dump_json(value, indent=None)
    return Response(data, status_code, headers=HEADERS, media_type="application/json")


_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}


class Manifest(TypedDict):
    """The names of the files, which change with their content; ``sources`` is a digest of what they are built from."""

    theme: str
    script: str
    style: str
    sources: str


@dataclass(frozen=True)
class StaticFile:
    """A file to serve."""

    data: bytes
    media_type: str
    etag: str


@cache
def read_manifest() -> Manifest:
    """The manifest of the bundle."""
    return cast(Manifest, json.loads(files("tidegate.airflow.ui").joinpath("static/manifest.json").read_bytes()))


@cache
def list_static() -> dict[str, StaticFile]:
    """All static files by name, so that nothing of a request becomes part of a path."""
    found = {}
    for entry in files("tidegate.airflow.ui").joinpath("static").iterdir():
        suffix = f".{entry.name.rpartition('.')[2]}"
        if suffix in _TYPES:
            data = entry.read_bytes()
            found[entry.name] = StaticFile(data, _TYPES[suffix], f'"{hashlib.sha256(data).hexdigest()[:32]}"')
    return found


_STATUSES = ((UsageError, 400), (TryAgainError, 503), (DefectError, 500))
"""The status for a kind of error; 409 for any other."""


class Refused(Exception):
    """A request is refused: the error, and the status of the answer."""

    def __init__(self, error: TidegateError, status: int) -> None:
        super().__init__(str(error))
        self.error, self.status = error, status

    @staticmethod
    def of(error: TidegateError) -> Refused:
        """The refusal with the status for the kind of error."""
        return Refused(error, next((status for kind, status in _STATUSES if isinstance(error, kind)), 409))


@contextlib.contextmanager
def refusing(project: Project | None = None) -> Iterator[None]:
    """Raise :class:`Refused` for an error of tidegate within, and for one of the storage of ``project``."""
    try:
        yield
    except TidegateError as error:
        raise Refused.of(error) from None
    except OSError as error:
        named = None if project is None else name_cause(error, project.root)
        if named is None:
            raise
        raise Refused.of(named) from None


def wants_page(request: Request) -> bool:
    """Return whether the request came from a browser."""
    return "text/html" in request.headers.get("accept", "")


async def answer_refusal(request: Request, error: Exception) -> Response:
    """The answer to a request that is refused."""
    assert isinstance(error, Refused)
    value = error.error.to_dict()
    if wants_page(request):
        context = {"error": value, "dag_id": request.path_params.get("dag_id")}
        return render(request, "actions/refused.html", context, error.status)
    return render_json({"error": value}, error.status)


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer when the project or a pipeline cannot be read."""
    assert isinstance(error, TidegateError)
    return await answer_refusal(request, Refused.of(error))
