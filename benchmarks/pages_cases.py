"""The pages in Airflow of 200 pipelines that have run 500 times each: how long each takes to answer."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from benchmarks.figures import Row
from benchmarks.meter import Cost
from benchmarks.workbench import BenchmarkError, Workbench, take_median

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

    from benchmarks.cases import Size

PIPELINES, RUNS = 200, 500
_LIMIT_SECONDS = 0.3


def run_pages(bench: Workbench, size: Size) -> list[Row]:
    """Pages of 200 pipelines with 500 runs each, from local files, as they answer within the API server."""
    from fastapi.testclient import TestClient

    from tests.support.many_runs import make_many
    from tests.support.ui_server import make_app
    from tidegate.views.pages import pipelines

    made = make_many(bench.folder / "pages", max(20, int(PIPELINES * size.scale)), RUNS, kafka_share=0)
    names = pipelines.list_names(made.project)
    name = made.scenes["well"]
    rows = []
    with TestClient(make_app(made.project.root), headers={"accept": "text/html"}) as client:
        client.get("/tidegate/static/none")  # what the first request of any kind costs is not of these pages
        run_id = pipelines.look_at(made.project, name, limit=1).runs[0].run_id
        for work, place in (
            (f"page of {len(names)} pipelines", "pipelines"),
            ("page of a pipeline, 100 runs", f"dags/{name}"),
            (f"page of a pipeline, {RUNS} runs", f"dags/{name}?runs={RUNS}"),
            ("page of a run", f"dags/{name}/run?run_id={quote(run_id, safe='')}"),
            ("its table, as a part", f"dags/{name}/parts/table?fragment=1"),
            ("its quarantine, as a part", f"dags/{name}/parts/quarantine?fragment=1"),
        ):
            first = _ask(client, place)
            cost = take_median([_ask(client, place) for _ in range(max(size.repeats, 7))])
            rows.append(Row(work, "wall seconds", cost.wall_seconds, _LIMIT_SECONDS, cost))
            rows.append(Row(work, "wall seconds, the first time", first.wall_seconds, None, first))
    return rows


def _ask(client: TestClient, place: str) -> Cost:
    began, used = time.perf_counter(), time.process_time()
    answer = client.get(f"/tidegate/{place}")
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    if answer.status_code != 200:
        raise BenchmarkError(f"{place} answered {answer.status_code}")
    return Cost(0, cpu, wall, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, 0, 0)
