"""Addresses of these pages and of Airflow's own: paths of this server, below which Airflow may be served."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from fastapi import Request

URL_PREFIX = "/tidegate"
PIPELINES_VIEW, PIPELINE_VIEW, RUN_VIEW = "tidegate-pipelines", "tidegate", "tidegate-run"
"""The ``url_route`` of each page in Airflow."""


def segment(text: str) -> str:
    """Encode a text as one segment of a path, or one value of a query."""
    return quote(text, safe="", errors="replace")  # a file name need not be Unicode


def _as_airflow(text: str) -> str:
    """Encode a segment as Airflow's own links do: its tabs compare the path to know which of them is open."""
    return quote(text, safe=":+@~", errors="replace")


@dataclass(frozen=True)
class Places:
    """The addresses; ``airflow`` is the path below which Airflow is served ('' for none)."""

    airflow: str

    @staticmethod
    def of(request: Request) -> Places:
        """The addresses for a request."""
        return Places(str(request.scope.get("root_path", "")).removesuffix(URL_PREFIX))

    @property
    def here(self) -> str:
        """The root of the app."""
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
        """A run's page. The id is in the query: it may contain a slash."""
        return f"{self.pipeline(dag_id)}/run?run_id={segment(run_id)}"

    def report(self, dag_id: str, run_id: str) -> str:
        """A run's report as JSON."""
        return f"{self.pipeline(dag_id)}/runs/{segment(run_id)}"

    def part(self, dag_id: str, part: str) -> str:
        """A part of a pipeline's page."""
        return f"{self.pipeline(dag_id)}/parts/{part}"

    def action(self, dag_id: str, act: str, run_id: str | None = None) -> str:
        """The page of an action, to which its form is sent too."""
        asked = "" if run_id is None else f"?run_id={segment(run_id)}"
        return f"{self.pipeline(dag_id)}/actions/{act}{asked}"

    def after(self, dag_id: str, done: str, of: str, run_id: str | None = None) -> str:
        """The page to show after an action, of the pipeline or of a run; its query says what was done."""
        back = f"{self.pipeline(dag_id)}?" if run_id is None else f"{self.run(dag_id, run_id)}&"
        return f"{back}done={segment(done)}&of={segment(of)}"

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
