"""The app below ``/tidegate`` of Airflow's API server: pages for people, JSON for programs, the bundle.

Every route requires a user, and each route of a DAG the permission to read it. The pages are in
:mod:`tidegate.airflow.ui.pages`, the actions in :mod:`tidegate.airflow.ui.actions`.
"""

# No `from __future__ import annotations`: FastAPI resolves the annotations of endpoints at run time.
import contextlib

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from tidegate.airflow.ui import access, actions, pages
from tidegate.airflow.ui.render import (
    HEADERS,
    Refused,
    answer_error,
    answer_refusal,
    environment,
    list_static,
    render,
    render_json,
    wants_page,
)
from tidegate.airflow.ui.served import ServedProject, look_soon, open_project
from tidegate.core.errors import TidegateError
from tidegate.runs.reports.report import RunReport, list_reports, load_report
from tidegate.views.pages import pipelines

SHOWN_RUNS = 50
_UNCHANGING = "private, max-age=31536000, immutable"

app = FastAPI(
    title="tidegate",
    dependencies=[Depends(get_user)],
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
    redirect_slashes=False,  # a redirect would be sent without authentication
)
_may_read_dag = Depends(access.may_read_dag)


@app.get("/static/{name}")
def get_static(name: str, request: Request) -> Response:
    """A file of the bundle. Its name changes with its content, so that browsers may cache it for good."""
    file = list_static().get(name)
    if file is None:
        raise HTTPException(404, "no such file")
    headers = {"ETag": file.etag, "Cache-Control": _UNCHANGING, "X-Content-Type-Options": "nosniff"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.data, media_type=file.media_type, headers=headers)


@app.get("/dags/{dag_id}/runs", dependencies=[_may_read_dag])
def get_reports(dag_id: str, project: ServedProject) -> Response:
    """The newest run reports of a pipeline."""
    key = (project.root, "reports", dag_id)
    reports = look_soon(key, lambda: list_reports(project.paths(dag_id), SHOWN_RUNS))
    return render_json({"runs": [report.view() for report in reports]})


@app.get("/dags/{dag_id}/runs/{run_id:path}", dependencies=[_may_read_dag])
def get_report(dag_id: str, run_id: str, project: ServedProject) -> Response:
    """One run report."""

    def look() -> RunReport:
        report = load_report(project.paths(dag_id), run_id)
        if report is None:
            raise HTTPException(404, "no report of that run")
        return report

    return render_json(look_soon((project.root, "report", dag_id, run_id), look).view())


@app.exception_handler(StarletteHTTPException)
async def answer_http_error(request: Request, error: Exception) -> Response:
    """The answer to an HTTP error: a page for a browser, else JSON."""
    assert isinstance(error, StarletteHTTPException)
    if wants_page(request):
        context = {"status": error.status_code, "detail": str(error.detail)}
        return render(request, "error.html", context, error.status_code)
    answer = await http_exception_handler(request, error)
    answer.headers.update(HEADERS)
    return answer


async def answer_invalid(request: Request, error: Exception) -> Response:
    """The answer to an invalid address, with the fault of each part."""
    assert isinstance(error, RequestValidationError)
    faults = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
    return await answer_http_error(request, StarletteHTTPException(422, f"The address cannot be used. {faults}"))


app.add_exception_handler(RequestValidationError, answer_invalid)
app.add_exception_handler(Refused, answer_refusal)
app.add_exception_handler(TidegateError, answer_error)
app.include_router(pages.router)
app.include_router(actions.router)


def warm_up() -> None:
    """Read reports, specs and templates once, so that the first page does not have to wait for them."""
    with contextlib.suppress(Exception):  # the page itself shows any error
        project = open_project()
        environment().get_template("pipelines.html")
        pipelines.overview(project, pipelines.list_names(project))
