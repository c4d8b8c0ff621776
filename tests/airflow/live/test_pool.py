"""The pool: never more drivers than slots."""

from __future__ import annotations

import time
from collections import Counter

from tests.airflow.live.project import (
    CROWD,
    SLOTS,
    drop_rows,
)
from tests.airflow.live.scene import (
    Live,
)
from tests.airflow.processes import DriverWatch, list_drivers


def test_the_pool_is_made_before_the_first_run_and_only_drivers_use_it(live: Live) -> None:
    pool = live.client.call("GET", "pools/tidegate")
    assert (pool["slots"], "Spark driver" in pool["description"]) == (SLOTS, True)
    run_id = live.client.trigger("fed")
    live.client.wait_for_dag_run("fed", run_id)
    pools = {task["task_id"]: task["pool"] for task in live.client.list_task_instances("fed", run_id)}
    ours, others = dict.fromkeys(("ingest", "deliver"), "tidegate"), dict.fromkeys(("audit", "publish"), "default_pool")
    assert pools == ours | others


def test_never_more_drivers_than_slots_and_none_for_idle_ticks(live: Live) -> None:
    """Twice as many are due as there are slots, and Airflow itself would run them all at once."""
    assert len(CROWD) == 2 * SLOTS == 4, "the local Airflow runs four tasks at once"
    live.hold.touch()
    for number, name in enumerate(CROWD):
        drop_rows(live.root, name, "due", [(number, 1.0)])
    with DriverWatch(live.pid) as watch:
        run_ids = {name: live.client.trigger(name) for name in CROWD}
        until = time.monotonic() + 180
        while len(list_drivers(live.pid)) < SLOTS:
            assert time.monotonic() < until, "the drivers did not come up"
            time.sleep(0.2)
        time.sleep(5)  # the scheduler goes round several times, and could start the others
        waiting = [live.client.fetch_task(name, run_id, "ingest")["state"] for name, run_id in run_ids.items()]
        assert Counter(waiting) == {"running": SLOTS, "scheduled": len(CROWD) - SLOTS}
        live.hold.unlink()
        ended = {name: live.client.wait_for_dag_run(name, run_id)["state"] for name, run_id in run_ids.items()}
    assert set(ended.values()) == {"success"}
    assert (watch.most, len(watch.seen)) == (SLOTS, len(CROWD)), f"in {watch.looks} looks"
    assert [live.read_ids(name) for name in CROWD] == [[number] for number in range(len(CROWD))]

    with DriverWatch(live.pid) as watch:
        idle = [live.client.trigger(name) for name in CROWD]
        ended = {name: live.client.wait_for_dag_run(name, one)["state"] for name, one in zip(CROWD, idle, strict=True)}
    assert set(ended.values()) == {"success"}
    assert watch.looks > 10 and watch.seen == set()


def test_a_pool_that_was_deleted_comes_back_and_one_that_was_changed_stays(live: Live) -> None:
    live.client.call("DELETE", "pools/tidegate", ok=(204,))
    assert live.run("quiet")["state"] == "success"
    assert live.client.call("GET", "pools/tidegate")["slots"] == SLOTS

    changed = {"name": "tidegate", "slots": 3, "description": "mine", "include_deferred": False}
    live.client.call("PATCH", "pools/tidegate", json=changed)
    assert live.run("quiet")["state"] == "success"
    pool = live.client.call("GET", "pools/tidegate")
    assert (pool["slots"], pool["description"]) == (3, "mine")
    live.client.call("PATCH", "pools/tidegate", json=changed | {"slots": SLOTS})
