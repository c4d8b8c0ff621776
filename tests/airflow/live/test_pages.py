"""tidegate's pages of a real API server: who sees what, and what is done from them."""

from __future__ import annotations

import time

import requests

from tests.airflow.acting import list_audit
from tests.airflow.live.scene import (
    Live,
    hold,
)


def test_run_reports_are_for_those_who_may_read_the_dag(live: Live) -> None:
    run = live.run("quiet")
    assert live.client.call("GET", "plugins/importErrors")["import_errors"] == []
    [plugin] = [one for one in live.client.call("GET", "plugins")["plugins"] if one["name"] == "tidegate"]
    assert [(view["destination"], view["href"]) for view in plugin["external_views"]] == [
        ("nav", "/tidegate/pipelines"),
        ("dag", "/tidegate/dags/{DAG_ID}"),
        ("dag_run", "/tidegate/dags/{DAG_ID}/run?run_id={RUN_ID}"),
    ]
    address = f"{live.client.url}/tidegate/dags/quiet"
    for url in (address, f"{address}/runs", f"{address}/runs/{run['dag_run_id']}"):
        assert requests.get(url, timeout=30).status_code == 401
    headers = {"Authorization": f"Bearer {live.client.fetch_token()}"}
    page = requests.get(address, headers=headers, timeout=30)
    assert page.status_code == 200 and run["dag_run_id"].replace("+", "") in page.text.replace("+", "")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    report = requests.get(f"{address}/runs/{run['dag_run_id']}", headers=headers, timeout=30).json()
    assert report["run_id"] == run["dag_run_id"]
    assert requests.get(f"{address}/runs/no-such-run", headers=headers, timeout=30).status_code == 404
    hostile = f"{live.client.url}/tidegate/dags/..%2F..%2Fetc/runs/passwd"
    assert requests.get(hostile, headers=headers, timeout=30).status_code in (403, 404)


def test_actions_are_for_those_whom_airflow_lets_act(live: Live) -> None:
    before = len(live.client.list_dag_runs("quiet"))
    fields = {"run_id": "R", "decision": "release", "reason": "why"}
    for act in ("run", "backfill", "refresh", "replay", "pause", "decide"):
        place = f"dags/quiet/actions/{act}"
        for name, status in ((None, 401), ("vera", 403)):
            assert live.visit(name).post(place, fields).status_code == status
        for site in ("cross-site", None):
            assert live.visit("uma").post(place, fields, site=site).status_code == 403
    assert len(live.client.list_dag_runs("quiet")) == before
    assert "/actions/" not in live.visit("vera").get("dags/quiet").text
    assert "/actions/run" in live.visit("uma").get("dags/quiet").text


def test_a_held_run_is_decided_on_from_the_page_of_its_own_dag_alone(live: Live) -> None:
    uma = live.visit("uma")
    run_id, _ = hold(live, "strict", "from_page", [(20, -1.0)])
    time.sleep(3)  # as in answer
    fields = {"run_id": run_id, "decision": "discard", "reason": "a test feed"}
    refused = uma.post("dags/patient/actions/decide", fields)
    assert refused.status_code == 400 and "Traceback" not in refused.text
    assert "/actions/decide" in uma.get("dags/strict/run", run_id=run_id).text
    assert uma.act("strict", "decide", {"run_id": run_id}, **fields) == run_id
    assert live.client.wait_for_dag_run("strict", run_id)["state"] == "success"
    ruling = live.client.fetch_xcom("strict", run_id, "publish")["decision"]
    assert (ruling["decision"], ruling["who"]) == ("discard", "uma (Airflow)")
    assert ("uma", run_id) in list_audit(live.client, "strict", "update_hitl_detail")
    assert 20 not in live.read_ids("strict")
