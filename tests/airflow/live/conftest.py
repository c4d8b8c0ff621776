"""The Airflow of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.airflow.acting import USERS
from tests.airflow.live.project import (
    CROWD,
    HOLD_VARIABLE,
    SECRET_VARIABLE,
    write_live_project,
)
from tests.airflow.live.scene import (
    CANARY,
    HEARTBEAT_SECONDS,
    Live,
    start_postgres,
)
from tools.airflow_local import start_airflow


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One Airflow for all tests of this folder; half a minute until it is up."""
    root = tmp_path_factory.mktemp("live_project")
    home = tmp_path_factory.mktemp("airflow_home")
    hold = root / "hold"
    write_live_project(root)
    database = start_postgres()
    airflow = start_airflow(
        home,
        root,
        extra_env={
            HOLD_VARIABLE: str(hold),
            SECRET_VARIABLE: CANARY,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": USERS,
            # As it is run where people work. On SQLite a backfill may end in "Database is locked", and the scheduler
            # with it.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database.get_uri(driver="psycopg2"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": database.get_uri(driver="asyncpg"),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",  # no DAG file changes here
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": str(HEARTBEAT_SECONDS),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
        },
    )
    try:
        client = airflow.client
        dag_ids = ["quiet", "fed", "slow", "strict", "patient", "nowhere", "follower", *CROWD]
        client.wait_for_dags([*dag_ids, "daily", "trickle"])
        for dag_id in dag_ids:
            client.unpause(dag_id)
        yield Live(root, home, client, hold, airflow.pid)
    finally:
        airflow.stop()
        database.stop()
