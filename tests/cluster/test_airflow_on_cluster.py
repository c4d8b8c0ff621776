"""Every example pipeline, as it stands in the repository, through a real Airflow whose Spark connection is a cluster;
an executor and a worker are killed in mid-run.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.examples import REPOSITORY, copy_example
from tests.support.readers import read_agreed
from tidegate.examples.make_clicks import iter_clicks, make_clicks
from tidegate.examples.make_orders import iter_orders, make_orders
from tidegate.examples.truth import MALFORMED, REJECTED, Fault
from tools.airflow_client import AirflowClient
from tools.airflow_local import start_airflow
from tools.deliveries import COLUMNS, STATEFUL, TOPICS, make_delivery
from tools.processes import wait_until
from tools.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tools.broker import Broker

STATELESS = ("orders", "clicks")
ROWS = {"orders": 2_000, "clicks": 2_000, **dict.fromkeys(STATEFUL, 60), "students": 12}
TOPIC_OF = {topic: f"{topic}-cluster" for topics in TOPICS.values() for topic in topics} | {"clicks": "clicks-cluster"}


@dataclass(frozen=True)
class Team:
    """A running Airflow with the examples."""

    root: Path
    client: AirflowClient


@pytest.fixture
def team(tmp_path: Path, cluster: SparkCluster, kafka_broker: Broker) -> Iterator[Team]:
    """Airflow with a Spark connection to the cluster; the project says nothing of it."""
    root = tmp_path / "project"
    for folder in ("jobs", "dags", "plugins", "expectations"):
        (root / folder).mkdir(parents=True)
    for path in ("tidegate.yaml", "jobs/tidegate_job.py", "plugins/tidegate_plugin.py"):
        shutil.copy(REPOSITORY / path, root / path)
    for name in (*STATELESS, *STATEFUL):
        topics = {"clicks": ("clicks",), **TOPICS}.get(name, ())
        copy_example(root, name, {topic: TOPIC_OF[topic] for topic in topics}, schedule="null")
    host, _, port = cluster.master_url.rpartition(":")
    airflow = start_airflow(
        tmp_path / "airflow",
        root,
        extra_env={
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": host, "port": int(port)}),
            "KAFKA_BOOTSTRAP_SERVERS": kafka_broker.bootstrap_servers,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    try:
        airflow.client.wait_for_dags([*STATELESS, *STATEFUL])
        for name in (*STATELESS, *STATEFUL):
            airflow.client.unpause(name)
        yield Team(root, airflow.client)
    finally:
        airflow.stop()


def test_the_examples_on_a_cluster_that_loses_an_executor_and_a_worker(
    team: Team, cluster: SparkCluster, kafka_broker: Broker, spark: SparkSession
) -> None:
    servers = kafka_broker.bootstrap_servers
    outcomes = {name: make_delivery(name, team.root, servers, 1, ROWS[name], 0.03, TOPIC_OF) for name in STATEFUL}
    make_orders(team.root / "data/inbox/orders", ROWS["orders"], files=3)
    make_clicks(servers, ROWS["clicks"], topic=TOPIC_OF["clicks"])
    run_ids = {name: team.client.trigger(name) for name in (*STATELESS, *STATEFUL)}

    assert wait_until(lambda: bool(cluster.list_executors()), 180, 0.05), "no run has got an executor"
    time.sleep(2)  # it computes by now
    cluster.kill_executor(cluster.list_executors()[0])
    time.sleep(10)
    assert wait_until(lambda: bool(cluster.list_executors()), 180, 0.05)
    busy = next(worker for worker in cluster.workers if worker.is_running() and worker.list_executors())
    cluster.kill_worker(busy.number)
    cluster.start_worker()

    for name, run_id in run_ids.items():
        run = team.client.wait_for_dag_run(name, run_id, timeout_seconds=600)
        states = {task["task_id"]: task["state"] for task in team.client.list_task_instances(name, run_id)}
        assert run["state"] == "success", (name, states)
        assert team.client.fetch_xcom(name, run_id, "publish")["outcome"] == "published", name
        tries = team.client.fetch_task(name, run_id, "ingest")["try_number"]
        log = team.client.fetch_log(name, run_id, "ingest", tries)
        assert f"master: {cluster.master_url}" in log, "the connection is the only change"
    for name, outcome in outcomes.items():
        rows = read_agreed(team.root / "data/warehouse" / name, spark)
        assert Counter(tuple(row[column] for column in COLUMNS[name]) for row in rows) == Counter(outcome.rows), name
    check_records(team, spark, "orders", "order_id", iter_orders(ROWS["orders"]))
    clicks = ((value, fault) for _, value, fault in iter_clicks(ROWS["clicks"]))
    check_records(team, spark, "clicks", "click_id", clicks)
    assert wait_until(lambda: not cluster.list_executors(), 15), "executors outlive the runs"


def check_records(
    team: Team, spark: SparkSession, name: str, key: str, offered: Iterable[tuple[str, Fault | None]]
) -> None:
    """Every record, as (text, fault), is in the table or, as it came, in quarantine: once."""
    good: Counter[str] = Counter()
    faulty: Counter[str] = Counter()
    for text, fault in offered:
        if fault is None or fault.effect not in (MALFORMED, REJECTED):
            good[json.loads(text)[key]] += 1
        else:
            faulty[text] += 1
    rows = read_agreed(team.root / "data/warehouse" / name, spark)
    assert Counter(row[key] for row in rows) == good, name
    aside = read_agreed(team.root / "data/quarantine" / name, spark)
    assert Counter(row["raw"] for row in aside) == faulty, name
