"""A run of a DAG, started once however often its form is sent."""

# No `from __future__ import annotations`: as in its neighbours, which FastAPI reads.
import hashlib
import json
from collections.abc import Mapping

from fastapi import Request

from tidegate.airflow.ui.airflow_calls import call, refuse
from tidegate.airflow.ui.places import segment


def name_run(token: str, conf: Mapping[str, str]) -> str:
    """The id of the run that a form starts: the same for the same form, another one for other answers."""
    digest = hashlib.sha256(json.dumps(sorted(conf.items())).encode()).hexdigest()
    return f"manual__{token}-{digest[:8]}"


async def start_run(request: Request, dag_id: str, token: str, conf: Mapping[str, str], note: str) -> tuple[str, bool]:
    """The run's id, and whether it was started by this very request. Raises :class:`Refused` with what Airflow says."""
    run_id = name_run(token, conf)
    body = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf), "note": f"{note} (from tidegate's page)"}
    answer = await call(request, "POST", f"dags/{segment(dag_id)}/dagRuns", body=body)
    if answer.status == 409:
        there = await call(request, "GET", f"dags/{segment(dag_id)}/dagRuns/{segment(run_id)}")
        if there.is_good and there.body.get("conf") == dict(conf):
            return run_id, False
    if not answer.is_good:
        raise refuse(answer, "start the run")
    return run_id, True
