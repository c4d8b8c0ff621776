"""DAG files as Airflow's own DagBag reads them, each time in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]

READ_DAGS = """
import json, os, signal, sys
import airflow.sdk
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 3.1
    from airflow.models.dagbag import DagBag
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
try:
    from airflow.serialization.serialized_objects import DagSerialization
except ImportError:  # Airflow 3.1
    from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

def read(folder):
    opened, root = [], folder.rpartition("/")[0]
    sys.addaudithook(
        lambda event, given: event == "open" and str(given[0]).startswith(root) and opened.append(str(given[0]))
    )
    bag = DagBag(folder)
    dags = {
        dag.dag_id: {
            "owner": dag.owner, "tags": sorted(dag.tags), "description": dag.description, "fileloc": dag.fileloc,
            "schedule": getattr(dag.timetable, "expression", getattr(dag.timetable, "_expression", None)),
            "catchup": dag.catchup,
            "max_active_runs": dag.max_active_runs, "params": {k: dag.params.get_param(k).schema for k in dag.params},
            "tasks": {
                t.task_id: {
                    "type": type(t).__name__, "retries": t.retries, "downstream": sorted(t.downstream_task_ids),
                    "max_active_tis_per_dag": t.max_active_tis_per_dag, "conn_id": getattr(t, "_conn_id", None),
                    "outlets": [[a.name, a.uri] for a in t.outlets], "template_fields": list(t.template_fields),
                    "project_root": t.project_root, "pool": t.pool,
                } for t in dag.tasks
            },
        } for dag in bag.dags.values()
    }
    for dag in bag.dags.values():
        DagSerialization.to_dict(dag)
    loaded = {m.split(".")[0] for m in sys.modules}
    heavy = sorted(loaded & {"pyspark", "great_expectations", "pandas", "pyarrow", "deltalake"})
    return {"opened": len(opened), "dags": dags, "errors": bag.import_errors, "heavy": heavy}

for line in sys.stdin:
    folder, environment = json.loads(line)
    child = os.fork()
    if not child:
        signal.alarm(120)
        os.environ.clear()
        os.environ.update(environment)
        print("ANSWER " + json.dumps(read(folder)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("END", flush=True)
"""

ReadDags = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def read_dags() -> Iterator[ReadDags]:
    """What a fresh process finds in a folder: Airflow is imported once, and each read is a fork of that."""
    with subprocess.Popen(
        [sys.executable, "-c", READ_DAGS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def read(folder: Path, **env: str) -> dict[str, Any]:
            print(json.dumps([str(folder), {**os.environ, **env}]), file=process.stdin, flush=True)
            lines = list(iter(process.stdout.readline, "END\n"))
            answers = [line for line in lines if line.startswith("ANSWER ")]
            assert answers, "".join(lines)[-3000:]
            return json.loads(answers[0].removeprefix("ANSWER "))  # type: ignore[no-any-return]

        yield read
        process.stdin.close()


def write_pipeline(root: Path, name: str, spec: str | None = None) -> None:
    """A pipeline and its DAG file in the project at ``root``."""
    job = root / "jobs" / name
    job.mkdir(parents=True)
    (job / "pipeline.yaml").write_text(spec if spec is not None else SPEC.format(name=name))
    (root / "dags").mkdir(exist_ok=True)
    (root / "dags" / f"{name}.py").write_text(f'from tidegate.airflow import build_dag\n\ndag = build_dag("{name}")\n')


SPEC = """version: 1
name: {name}
description: Trades of {name}.
owner: desk
tags: [trades, files]
schedule: "*/10 * * * *"
sources:
  trades:
    type: files
    path: data/inbox/{name}
    format: json
    schema: dt DATE, amount INT, price DOUBLE
table:
  partition_by: [dt]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty project."""
    (tmp_path / "tidegate.yaml").write_text("version: 1\nspark: {connection: spark_desk}\n")
    return tmp_path


def test_every_dag_of_the_repository_imports(read_dags: ReadDags) -> None:
    found = read_dags(REPOSITORY / "dags")
    files = {path.stem for path in (REPOSITORY / "dags").glob("*.py")}
    assert found["errors"] == {}
    assert set(found["dags"]) == files
    assert files >= {"orders", "clicks"}
    assert found["heavy"] == []


def test_the_spec_decides_what_the_dag_looks_like(read_dags: ReadDags, project: Path) -> None:
    write_pipeline(project, "trades")
    dag = read_dags(project / "dags")["dags"]["trades"]
    assert dag["owner"] == "desk"
    assert dag["tags"] == ["files", "tidegate", "trades"]
    assert dag["description"] == "Trades of trades."
    assert dag["schedule"] == "*/10 * * * *"
    assert dag["catchup"] is False
    assert dag["max_active_runs"] == 1
    assert dag["fileloc"] == str(project / "dags" / "trades.py")
    assert dag["params"]["accept_loss"]["maxLength"] == 500
    tasks = dag["tasks"]
    assert [tasks[name]["downstream"] for name in ("ingest", "audit", "publish")] == [["audit"], ["publish"], []]
    assert {task["max_active_tis_per_dag"] for task in tasks.values()} == {1}
    assert {task["retries"] for task in tasks.values()} == {2}
    assert {task["project_root"] for task in tasks.values()} == {str(project)}
    assert tasks["ingest"]["conn_id"] == "spark_desk"
    assert tasks["ingest"]["template_fields"] == []
    assert tasks["publish"]["outlets"] == [["trades", "trades"]]


def test_where_later_runs_go_on_those_that_wait_for_a_person_leave_room_for_them(
    read_dags: ReadDags, project: Path
) -> None:
    write_pipeline(project, "trades", SPEC.format(name="trades") + "quality: {on_critical: continue}\n")
    dag = read_dags(project / "dags")["dags"]["trades"]
    assert dag["max_active_runs"] == 16
    limits = {name: task["max_active_tis_per_dag"] for name, task in dag["tasks"].items()}
    assert limits == {"ingest": 1, "audit": 16, "publish": 1}


def test_drivers_have_a_pool_of_their_own_unless_somebody_says_otherwise(read_dags: ReadDags, project: Path) -> None:
    def find_pools() -> dict[str, str]:
        tasks = read_dags(project / "dags")["dags"]["trades"]["tasks"]
        return {name: task["pool"] for name, task in tasks.items()}

    settings = project / "tidegate.yaml"
    plain = settings.read_text()
    default, light = "default_pool", {"audit": "default_pool", "publish": "default_pool"}
    write_pipeline(project, "trades", SPEC.format(name="trades") + "sinks: [{type: kafka, topic: prices}]\n")
    assert find_pools() == {"ingest": "tidegate", "deliver": "tidegate", **light}
    settings.write_text(plain + "airflow: {pool: heavy}\n")
    assert find_pools() == {"ingest": "heavy", "deliver": "heavy", **light}
    settings.write_text(plain + "airflow: {pool: null}\n")
    assert find_pools() == {"ingest": default, "deliver": default, **light}
    settings.write_text(plain + "airflow: {pool: heavy}\n")
    dag = project / "dags" / "trades.py"
    dag.write_text(dag.read_text().replace('"trades")', '"trades", default_args={"pool": "mine"})'))
    assert set(find_pools().values()) == {"mine"}


def test_further_sinks_get_a_task_of_their_own(read_dags: ReadDags, project: Path) -> None:
    write_pipeline(project, "trades", SPEC.format(name="trades") + "sinks: [{type: kafka, topic: prices}]\n")
    found = read_dags(project / "dags")
    tasks = found["dags"]["trades"]["tasks"]
    assert tasks["publish"]["downstream"] == ["deliver"] and tasks["deliver"]["downstream"] == []
    assert tasks["deliver"]["conn_id"] == "spark_desk" and tasks["deliver"]["template_fields"] == []
    assert tasks["deliver"]["outlets"] == [] and tasks["publish"]["outlets"] == [["trades", "trades"]]
    assert found["heavy"] == []


def test_no_schedule_means_manual_runs_only(read_dags: ReadDags, project: Path) -> None:
    write_pipeline(project, "trades", SPEC.format(name="trades").replace('"*/10 * * * *"', "null"))
    assert read_dags(project / "dags")["dags"]["trades"]["schedule"] is None


def test_a_bad_spec_is_an_import_error_of_that_dag_alone(read_dags: ReadDags, project: Path) -> None:
    write_pipeline(project, "good_one")
    bad = SPEC.format(name="bad_one").replace("format: json", "format: jason").replace("tags:", "tagz:")
    write_pipeline(project, "bad_one", bad)
    write_pipeline(project, "good_two")
    found = read_dags(project / "dags")
    assert set(found["dags"]) == {"good_one", "good_two"}
    assert len(found["errors"]) == 1
    [(file, text)] = found["errors"].items()
    assert "bad_one" in file
    for part in (
        "jobs/bad_one/pipeline.yaml:5",
        "tagz",
        "tags",
        "jobs/bad_one/pipeline.yaml:11",
        "jason",
        "json",
        "fix:",
    ):
        assert part in text


@pytest.mark.parametrize("schedule", ["every tuesday", "* * * *", "* * * * * *", "61 * * * *"])
def test_a_schedule_that_airflow_cannot_follow_is_an_import_error(
    read_dags: ReadDags, project: Path, schedule: str
) -> None:
    write_pipeline(project, "trades", SPEC.format(name="trades").replace("*/10 * * * *", schedule))
    found = read_dags(project / "dags")
    assert found["dags"] == {}
    [text] = found["errors"].values()
    assert schedule in text and "pipeline.yaml" in text


def test_without_a_pipeline_the_error_says_which_there_are(read_dags: ReadDags, project: Path) -> None:
    write_pipeline(project, "trades")
    (project / "dags" / "trade.py").write_text('from tidegate.airflow import build_dag\ndag = build_dag("trade")\n')
    found = read_dags(project / "dags")
    assert set(found["dags"]) == {"trades"}
    [text] = found["errors"].values()
    assert "NO_SUCH_PIPELINE" in text and "trades" in text


def test_a_dag_folder_elsewhere_finds_its_project_by_the_environment(
    read_dags: ReadDags, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    write_pipeline(project, "trades")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (project / "dags" / "trades.py").rename(elsewhere / "trades.py")
    found = read_dags(elsewhere, TIDEGATE_PROJECT=str(project))
    assert found["dags"]["trades"]["tasks"]["ingest"]["project_root"] == str(project)
    [text] = read_dags(elsewhere, TIDEGATE_PROJECT="")["errors"].values()
    assert "PROJECT_NOT_FOUND" in text and "TIDEGATE_PROJECT" in text


def test_two_hundred_pipelines_load_nothing_heavy(read_dags: ReadDags, project: Path) -> None:
    names = [f"pipeline_{number:03d}" for number in range(200)]
    for name in names:
        write_pipeline(project, name)
    found = read_dags(project / "dags")
    assert found["errors"] == {}
    assert set(found["dags"]) == set(names)
    assert found["heavy"] == []
    assert found["opened"] <= 10 * len(names)  # 9 of each, measured; what it costs: benchmarks/fleet_cases.py


MAINTENANCE = "from tidegate.airflow import build_maintenance_dag\n\ndag = build_maintenance_dag()\n"


def test_maintenance_is_a_dag_of_its_own_with_a_task_for_each_pipeline(read_dags: ReadDags, tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text('version: 1\nmaintenance: {schedule: "30 3 * * *"}\n')
    for name in ("one", "two", "apart", "by_hand", "broken"):
        write_pipeline(tmp_path, name)
    for name, more in (
        ("two", "maintenance: {keep_versions: 0}\n"),
        ("apart", 'maintenance: {schedule: "0 * * * *"}\n'),
        ("by_hand", "maintenance: {schedule: null}\n"),
        ("broken", "nonsense: 1\n"),
    ):
        with open(tmp_path / "jobs" / name / "pipeline.yaml", "a") as spec:
            spec.write(more)
    (tmp_path / "dags" / "tidegate_maintenance.py").write_text(MAINTENANCE)
    answer = read_dags(tmp_path / "dags")
    assert [Path(path).name for path in answer["errors"]] == ["broken.py"] and not answer["heavy"]
    found = {name: dag for name, dag in answer["dags"].items() if name.startswith("tidegate_maintenance")}
    assert {name: sorted(dag["tasks"]) for name, dag in found.items()} == {
        "tidegate_maintenance": ["one", "two"],
        "tidegate_maintenance.apart": ["apart"],
    }
    dag = found["tidegate_maintenance"]
    assert (dag["schedule"], dag["catchup"], dag["max_active_runs"]) == ("30 3 * * *", False, 1)
    assert found["tidegate_maintenance.apart"]["schedule"] == "0 * * * *"
    assert dag["tags"] == ["maintenance", "tidegate"]
    task = dag["tasks"]["two"]
    assert (task["type"], task["retries"], task["max_active_tis_per_dag"]) == ("MaintainOperator", 12, 1)
    assert (task["pool"], task["template_fields"], task["project_root"]) == ("default_pool", [], str(tmp_path))


def test_without_a_schedule_maintenance_is_started_by_hand(read_dags: ReadDags, tmp_path: Path) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    write_pipeline(tmp_path, "one")
    (tmp_path / "dags" / "tidegate_maintenance.py").write_text(MAINTENANCE)
    dags = read_dags(tmp_path / "dags")["dags"]
    assert dags["tidegate_maintenance"]["schedule"] is None and list(dags["tidegate_maintenance"]["tasks"]) == ["one"]
