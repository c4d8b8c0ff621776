"""Run reports over HTTP: a page for people, JSON for programs. Reads only, and only for those who may read the DAG.

A report is what the tasks return as XCom, so the right to read a DAG's XComs is what counts.
"""

# No `from __future__ import annotations`: FastAPI resolves the annotations of endpoints at run time.
from html import escape
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse, JSONResponse

from tidegate.airflow.locate import find_served_project
from tidegate.errors import TidegateError
from tidegate.outputs import RowKey, RunReport
from tidegate.paths import PipelinePaths
from tidegate.pipeline import check_name
from tidegate.project import load_project
from tidegate.reports.report import list_reports, load_report

SHOWN_RUNS = 50
_HEADERS = {
    # The page has no script and needs none: whatever a report holds, nothing of it is run.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_COLUMNS: tuple[RowKey, ...] = ("read", "malformed", "late", "rejected", "staged", "published")

# Every route asks who it is; each one below also asks whether they may read this DAG.
app = FastAPI(title="tidegate", dependencies=[Depends(get_user)], docs_url=None, redoc_url=None, openapi_url=None)
_may_read_dag = Depends(requires_access_dag("GET", DagAccessEntity.XCOM))


@app.get("/dags/{dag_id}", dependencies=[_may_read_dag])
def show_reports(dag_id: str) -> HTMLResponse:
    """The newest run reports of a pipeline as a page."""
    reports = [report.to_json() for report in list_reports(_find_paths(dag_id), SHOWN_RUNS)]
    return HTMLResponse(render_page(dag_id, reports), headers=_HEADERS)


@app.get("/dags/{dag_id}/runs", dependencies=[_may_read_dag])
def get_reports(dag_id: str) -> JSONResponse:
    """The newest run reports of a pipeline."""
    reports = [report.to_json() for report in list_reports(_find_paths(dag_id), SHOWN_RUNS)]
    return JSONResponse({"runs": reports}, headers=_HEADERS)


@app.get("/dags/{dag_id}/runs/{run_id}", dependencies=[_may_read_dag])
def get_report(dag_id: str, run_id: str) -> JSONResponse:
    """One run report."""
    report = load_report(_find_paths(dag_id), run_id)
    if report is None:
        raise HTTPException(404, "no report of that run")
    return JSONResponse(report.to_json(), headers=_HEADERS)


def _find_paths(dag_id: str) -> PipelinePaths:
    """The pipeline's paths. What is not a pipeline's name never becomes part of a path: it is not found."""
    try:
        return load_project(find_served_project()).paths(check_name(dag_id))
    except TidegateError as error:
        raise HTTPException(404, error.code) from None


def render_page(dag_id: str, reports: list[RunReport]) -> str:
    """The page of a pipeline; every value is escaped."""
    rows = "".join(_render_row(dag_id, report) for report in reports)
    head = "".join(f"<th>{name}</th>" for name in ("run", "started", "outcome", "verdict", *_COLUMNS, "version"))
    table = f"<table><tr>{head}</tr>{rows}</table>" if reports else "<p>No run of this DAG has left a report here.</p>"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Run reports</title><style>"
        "body{font:14px system-ui,sans-serif;margin:1rem;color-scheme:light dark}"
        "table{border-collapse:collapse}th,td{padding:.3rem .7rem;text-align:left;border-bottom:1px solid #8884}"
        "td.n{text-align:right;font-variant-numeric:tabular-nums}pre{white-space:pre-wrap;margin:.2rem 0}"
        f"</style><h2>Run reports of {escape(dag_id)}</h2>{table}</html>"
    )


def _render_row(dag_id: str, report: RunReport) -> str:
    run_id = report["run_id"]
    link = f"{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"
    outcome = escape(report["outcome"] or "running")
    error = report["error"]
    if error is not None:
        text = f"{error['code']}: {error['message']}" + (f"\nfix: {error['fix']}" if error["fix"] else "")
        outcome += f"<pre>{escape(text)}</pre>"
    counts = [report["rows"][name] for name in _COLUMNS]
    cells = [
        f'<td><a href="{escape(link)}">{escape(run_id)}</a></td>',
        f"<td>{escape(report['started_at'])}</td>",
        f"<td>{outcome}</td>",
        f"<td>{escape(report['quality']['verdict'] or '')}</td>",
        *(f"<td class=n>{escape(format(count, ','))}</td>" for count in counts),
        f"<td class=n>{escape(str(report['table'].get('version', '')))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"
