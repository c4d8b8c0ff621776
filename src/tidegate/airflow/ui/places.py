"""Addresses: of these pages, and of Airflow's own. All are paths of this server; Airflow may be served below one."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Request

URL_PREFIX = "/tidegate"
PIPELINES_VIEW, PIPELINE_VIEW, RUN_VIEW = "tidegate-pipelines", "tidegate", "tidegate-run"
"""The ``url_route`` of each page in Airflow."""


def segment(text: str) -> str:
    """A text as one segment of a path, or one value of a query."""
    return quote(text, safe="", errors="replace")  # a name of a file may hold what is not Unicode


def _as_airflow(text: str) -> str:
    """A segment of a path as Airflow's own links have it: its tabs know by the path which of them is open."""
    return quote(text, safe=":+@~", errors="replace")


@dataclass(frozen=True)
class Places:
    """Addresses as a page writes them; ``airflow`` is the path that Airflow is served below ('' for none)."""

    airflow: str

    @staticmethod
    def of(request: Request) -> Places:
        """Those for a request, from where it came in."""
        return Places(str(request.scope.get("root_path", "")).removesuffix(URL_PREFIX))

    @property
    def here(self) -> str:
        """Where the app is."""
        return f"{self.airflow}{URL_PREFIX}"

    def static(self, name: str) -> str:
        """A file of the bundle."""
        return f"{self.here}/static/{name}"

    @property
    def pipelines(self) -> str:
        """The page of all pipelines."""
        return f"{self.here}/pipelines"

    def pipeline(self, dag_id: str) -> str:
        """A pipeline's page."""
        return f"{self.here}/dags/{segment(dag_id)}"

    def run(self, dag_id: str, run_id: str) -> str:
        """A run's page. The id stands in the query: it may hold a slash."""
        return f"{self.pipeline(dag_id)}/run?run_id={segment(run_id)}"

    def report(self, dag_id: str, run_id: str) -> str:
        """A run's report as JSON."""
        return f"{self.pipeline(dag_id)}/runs/{segment(run_id)}"

    def part(self, dag_id: str, part: str) -> str:
        """A part of a pipeline's page."""
        return f"{self.pipeline(dag_id)}/parts/{part}"

    def action(self, dag_id: str, act: str, run_id: str | None = None) -> str:
        """The page of an action, and where its form is sent."""
        asked = "" if run_id is None else f"?run_id={segment(run_id)}"
        return f"{self.pipeline(dag_id)}/actions/{act}{asked}"

    def told(self, dag_id: str, told: str, of: str, run_id: str | None = None) -> str:
        """The page that somebody goes back to after an action, which tells what was done: of a pipeline, or a run."""
        back = f"{self.pipeline(dag_id)}?" if run_id is None else f"{self.run(dag_id, run_id)}&"
        return f"{back}told={segment(told)}&of={segment(of)}"

    def airflow_dag(self, dag_id: str) -> str:
        """Airflow's page of a DAG."""
        return f"{self.airflow}/dags/{_as_airflow(dag_id)}"

    def airflow_pipelines(self) -> str:
        """Airflow's page that embeds the page of all pipelines."""
        return f"{self.airflow}/plugin/{PIPELINES_VIEW}"

    def airflow_pipeline(self, dag_id: str) -> str:
        """Airflow's page that embeds a pipeline's."""
        return f"{self.airflow_dag(dag_id)}/plugin/{PIPELINE_VIEW}"

    def airflow_run(self, dag_id: str, run_id: str) -> str:
        """Airflow's page of a run."""
        return f"{self.airflow_dag(dag_id)}/runs/{_as_airflow(run_id)}"

    def airflow_run_report(self, dag_id: str, run_id: str) -> str:
        """Airflow's page that embeds a run's."""
        return f"{self.airflow_run(dag_id, run_id)}/plugin/{RUN_VIEW}"

    def airflow_task(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Airflow's page of a task, which begins with its log."""
        return f"{self.airflow_run(dag_id, run_id)}/tasks/{_as_airflow(task_id)}"
