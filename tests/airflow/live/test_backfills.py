"""Airflow's own backfill of a real scheduler."""

from __future__ import annotations

from tests.airflow.live.project import (
    set_daily_factor,
)
from tests.airflow.live.scene import (
    Live,
    list_backfills,
    publish_daily,
    wait_for,
)


def test_airflows_own_backfill_rebuilds_days(live: Live) -> None:
    """A run of a backfill rebuilds the day of its date, or is skipped where the table has nothing of it. Days of a
    form: test_browser.py::test_every_action."""
    publish_daily(live)
    assert live.read_prices("daily") == {"2026-01-01": 1.0, "2026-01-02": 1.0, "2026-01-04": 1.0}
    set_daily_factor(live.root, 7)
    days = {"from_date": "2026-01-02T00:00:00Z", "to_date": "2026-01-03T00:00:00Z"}
    live.client.call("POST", "backfills", json={"dag_id": "daily", "max_active_runs": 1, **days})
    wait_for(lambda: len(list_backfills(live)) == 2, 300)
    runs = list_backfills(live)
    for run in runs:
        assert live.client.wait_for_dag_run("daily", run["dag_run_id"], 240)["state"] == "success"
    states = {run["logical_date"][:10]: live.states("daily", run["dag_run_id"]) for run in runs}
    assert set(states["2026-01-02"].values()) == {"success"} and set(states["2026-01-03"].values()) == {"skipped"}
    assert live.read_prices("daily") == {"2026-01-01": 1.0, "2026-01-02": 7.0, "2026-01-04": 1.0}
    by_date = {run["logical_date"][:10]: run["dag_run_id"] for run in runs}
    report = live.client.fetch_xcom("daily", by_date["2026-01-02"], "publish")
    assert (report["mode"], report["rebuilt"], report["rows"]["published"]) == ("backfill", ["day=2026-01-02"], 3)
    assert len(live.read_ids("daily")) == 9
