"""The app below ``/tidegate`` of Airflow's API server: pages for people, JSON for programs, the bundle.

Every route asks who it is; each one that speaks of a DAG also asks whether they may read it. Pages are in
:mod:`tidegate.airflow.ui.pages`, what people do from them in :mod:`tidegate.airflow.ui.actions`.
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
from tidegate.airflow.ui.bundle import list_static
from tidegate.airflow.ui.patience import look_soon
from tidegate.airflow.ui.refusals import Refused, tell_error, tell_refusal, wants_page
from tidegate.airflow.ui.render import HEADERS, environment, render, render_json
from tidegate.airflow.ui.served import ServedProject, open_project
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
    redirect_slashes=False,  # it asks nobody who they are
)
_may_read_dag = Depends(access.may_read_dag)


@app.get("/static/{name}")
def get_static(name: str, request: Request) -> Response:
    """A file of the bundle. Its name changes with what it holds, so that it may be kept for good."""
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
async def tell(request: Request, error: Exception) -> Response:
    """What went wrong: as a page for a browser, else as JSON."""
    assert isinstance(error, StarletteHTTPException)
    if wants_page(request):
        context = {"status": error.status_code, "detail": str(error.detail)}
        return render(request, "error.html", context, error.status_code)
    answer = await http_exception_handler(request, error)
    answer.headers.update(HEADERS)
    return answer


async def tell_invalid(request: Request, error: Exception) -> Response:
    """What is wrong with an address, by its parts."""
    assert isinstance(error, RequestValidationError)
    told = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
    return await tell(request, StarletteHTTPException(422, f"The address cannot be used. {told}"))


app.add_exception_handler(RequestValidationError, tell_invalid)
app.add_exception_handler(Refused, tell_refusal)
app.add_exception_handler(TidegateError, tell_error)
app.include_router(pages.router)
app.include_router(actions.router)


def warm_up() -> None:
    """Read once what the first page would read, so that who opens it does not wait: reports, specs, templates."""
    with contextlib.suppress(Exception):  # whatever is wrong, the page says it
        project = open_project()
        environment().get_template("pipelines.html")
        pipelines.overview(project, pipelines.list_names(project))
