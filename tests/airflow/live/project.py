"""The project that the live tests run under a real Airflow: one pipeline per thing that may happen to a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support.examples import REPOSITORY
from tools.processes import choose_free_port

HOLD_VARIABLE = "GATE_HOLD_FILE"
SECRET_VARIABLE = "GATE_SECRET"
CROWD = [f"crowd_{number}" for number in range(4)]
"""Pipelines that are all due at once."""
HISTORY = f"http://127.0.0.1:{choose_free_port()}"
"""Where Spark's history server would be."""
SLOTS = 2
"""Of the pool: fewer than the tasks that the local Airflow runs at once."""

_SETTINGS = f"""version: 1
spark:
  conf:
    spark.hadoop.fs.s3a.secret.key: ${{{SECRET_VARIABLE}}}
kafka:
  bootstrap_servers: ${{KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}}
airflow: {{slots: {SLOTS}}}
ui: {{spark_history: "{HISTORY}"}}
"""

_SPEC = """version: 1
name: {name}
description: {name} of the live tests.
owner: desk
tags: [live]
schedule: {schedule}
sources:
  trades:
    type: files
    path: data/inbox/{name}
    format: json
    schema: id BIGINT, price DOUBLE
"""

# Rows wait in the Python worker as long as the file is there: a run that lasts until the test lets it go.
_WAITING_TRANSFORM = f'''"""Let rows through when the test says so."""

import os
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def transform(trades: DataFrame) -> DataFrame:
    """Hold every row while the file named by {HOLD_VARIABLE} exists."""
    path = os.environ["{HOLD_VARIABLE}"]

    @F.udf("double")
    def wait(price):
        while os.path.exists(path):
            time.sleep(0.05)
        return price

    return trades.withColumn("price", wait("price"))
'''

_SINK = '''"""A sink that is away as long as a file lies beside it."""

from pathlib import Path

HERE = Path(__file__).parent


def write(df, batch_id):
    """Write down the version and its ids."""
    if (HERE / "away").exists():
        raise RuntimeError("the sink is away")
    ids = sorted(row.id for row in df.collect())
    with (HERE / "fed").open("a") as out:
        out.write(f"{batch_id} {ids}\\n")
'''

_SUITE = """name: {name}
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {{column: id}}
    severity: critical
    meta: {{rule: id_present}}
  - type: expect_column_values_to_be_between
    kwargs: {{column: price, min_value: 0}}
    severity: critical
    meta: {{rule: price_not_negative}}
"""

_DAG = """from datetime import timedelta

from tidegate.airflow import build_dag

dag = build_dag("{name}", default_args={{"retry_delay": timedelta(seconds=2)}})
"""

_FOLLOWER = '''"""Another team's DAG: it names the asset by the pipeline's name and knows nothing of tidegate."""

from airflow.sdk import DAG, Asset, task

with DAG("follower", schedule=[Asset("trickle")], catchup=False) as dag:

    @task
    def read_report(triggering_asset_events=None):
        """What the publish task said about the table."""
        return [event.extra for events in triggering_asset_events.values() for event in events]

    read_report()
'''


_DAILY_SOURCE = """    schema: id BIGINT, price DOUBLE, day DATE
transform: transform.py
table: {partition_by: [day]}
"""

_DAILY_TRANSFORM = """def transform(trades):
    return trades.withColumn("price", trades.price * FACTOR)
"""


def set_daily_factor(root: Path, factor: int) -> None:
    """What the prices of pipeline ``daily`` are multiplied by from now on."""
    (root / "jobs" / "daily" / "transform.py").write_text(_DAILY_TRANSFORM.replace("FACTOR", str(factor)))


def set_lowest_price(root: Path, lowest: int) -> None:
    """Below which a record of ``daily`` goes to quarantine from now on."""
    suite = _SUITE.format(name="daily").replace("min_value: 0", f"min_value: {lowest}")
    rule = "meta: {rule: price_not_negative"
    (root / "expectations" / "daily.yaml").write_text(suite.replace(rule, f"{rule}, on_failure: quarantine"))


def _write_daily(root: Path) -> None:
    """Three days, each in its own file, and a fourth whose one record is set aside."""
    _write_pipeline(root, "daily", '"0 0 * * *"')
    set_lowest_price(root, 0)
    (root / "data" / "inbox" / "daily" / "5.json").write_text('{"id": 50, "price": -1.0, "day": "2026-01-05"}\n')
    spec = root / "jobs" / "daily" / "pipeline.yaml"
    events = root / "spark_events"
    events.mkdir()
    logged = f"spark: {{conf: {{spark.eventLog.enabled: true, spark.eventLog.dir: '{events.as_uri()}'}}}}\n"
    spec.write_text(spec.read_text().replace("    schema: id BIGINT, price DOUBLE\n", _DAILY_SOURCE) + logged)
    set_daily_factor(root, 1)
    for day in (1, 2, 4):
        rows = [{"id": day * 10 + number, "price": 1.0, "day": f"2026-01-0{day}"} for number in range(3)]
        file = root / "data" / "inbox" / "daily" / f"{day}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_live_project(root: Path) -> None:
    """The main project at ``root``, and one with a connection that Airflow does not have beside it."""
    _write_project(root, _SETTINGS)
    for name, schedule in (("trickle", '"* * * * *"'), ("slow", "null"), ("strict", "null"), ("quiet", "null")):
        _write_pipeline(root, name, schedule)
    with (root / "jobs" / "quiet" / "pipeline.yaml").open("a") as file:
        file.write('maintenance: {schedule: "0 0 1 1 *"}\n')  # another one than the project's: a DAG of its own
    (root / "dags" / "tidegate_maintenance.py").write_text(
        "from tidegate.airflow import build_maintenance_dag\n\ndag = build_maintenance_dag()\n"
    )
    _write_daily(root)
    _write_pipeline(root, "fed", "null")
    with (root / "jobs" / "fed" / "pipeline.yaml").open("a") as file:
        file.write('sinks: [{type: foreach_batch, function: "sinks.py:write"}]\n')
    (root / "jobs" / "fed" / "sinks.py").write_text(_SINK)
    _write_pipeline(root, "patient", "null")
    with (root / "jobs" / "patient" / "pipeline.yaml").open("a") as file:
        file.write("quality: {on_critical: continue}\n")
    for name in CROWD:
        _write_pipeline(root, name, "null")
    for name in ("slow", *CROWD):
        job = root / "jobs" / name
        (job / "transform.py").write_text(_WAITING_TRANSFORM)
        with (job / "pipeline.yaml").open("a") as file:
            file.write("transform: transform.py\n")
    _write_pipeline(root, "broken", "null")
    spec = root / "jobs" / "broken" / "pipeline.yaml"
    spec.write_text(spec.read_text().replace("format: json", "format: jason").replace("owner:", "ownr:"))
    (root / "dags" / "follower.py").write_text(_FOLLOWER)

    other = root / "other_project"
    _write_project(other, "version: 1\nspark: {connection: spark_nowhere}\n")
    _write_pipeline(other, "nowhere", "null")
    (other / "dags" / "nowhere.py").unlink()
    (root / "dags" / "nowhere.py").write_text(
        f'from tidegate.airflow import build_dag\n\ndag = build_dag("nowhere", project_dir={str(other)!r})\n'
    )
    drop_rows(other, "nowhere", "a", [(1, 1.0)])


def _write_project(root: Path, settings: str) -> None:
    for folder in ("jobs", "dags", "plugins", "expectations"):
        (root / folder).mkdir(parents=True)
    (root / "tidegate.yaml").write_text(settings)
    shutil.copy(REPOSITORY / "jobs" / "tidegate_job.py", root / "jobs")
    shutil.copy(REPOSITORY / "plugins" / "tidegate_plugin.py", root / "plugins")


def _write_pipeline(root: Path, name: str, schedule: str) -> None:
    (root / "jobs" / name).mkdir()
    (root / "jobs" / name / "pipeline.yaml").write_text(_SPEC.format(name=name, schedule=schedule))
    (root / "expectations" / f"{name}.yaml").write_text(_SUITE.format(name=name))
    (root / "dags" / f"{name}.py").write_text(_DAG.format(name=name))
    (root / "data" / "inbox" / name).mkdir(parents=True)


def drop_rows(root: Path, name: str, file_name: str, rows: list[tuple[int | None, float]]) -> None:
    """A file for the pipeline's source: written beside, then renamed."""
    folder = root / "data" / "inbox" / name
    hidden = folder / f".{file_name}.json"
    hidden.write_text("".join(json.dumps({"id": number, "price": price}) + "\n" for number, price in rows))
    hidden.rename(folder / f"{file_name}.json")
