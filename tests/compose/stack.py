"""The services of docker-compose.yaml on a real container engine, handled as a person would: by make, docker and the
UI's API.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.examples import REPOSITORY
from tools.airflow_client import FINISHED_STATES, AirflowClient
from tools.compose import WAIT_SECONDS
from tools.compose_env import read_env
from tools.processes import choose_free_port

PROJECT = "tidegate-test"
IMAGE = "tidegate-test:local"
"""Names of its own: services and image of a checkout that are up beside it are not touched."""
ALL = "core,kafka,cluster"
UP_SECONDS = 420
RUN_SECONDS = 600
DATA = "/opt/tidegate/data"


def copy_checkout(folder: Path) -> None:
    """What a clone of this checkout would hold, uncommitted changes included."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (REPOSITORY / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)


@dataclass
class Stack:
    """A checkout in ``folder``, its services, and what was seen."""

    folder: Path
    record_path: Path | None = None
    project: str = PROJECT
    _events: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """For make and docker compose."""
        return {**os.environ, "COMPOSE_PROJECT_NAME": self.project}

    @property
    def settings(self) -> dict[str, str]:
        """What .env says."""
        return read_env(self.folder / ".env")

    @property
    def client(self) -> AirflowClient:
        """A person at the UI."""
        settings = self.settings
        url = f"http://127.0.0.1:{settings['AIRFLOW_PORT']}"
        return AirflowClient(url, "admin", settings["AIRFLOW_ADMIN_PASSWORD"])

    def note(self, text: str) -> None:
        """A line of the record."""
        print(text, flush=True)
        if self.record_path is not None:
            with self.record_path.open("a") as record:
                record.write(f"{time.strftime('%H:%M:%S')} {text}\n")

    def set(self, **settings: str) -> None:
        """Change lines of .env."""
        path = self.folder / ".env"
        lines = path.read_text().splitlines()
        names = {line.split("=", 1)[0] for line in lines}
        lines = [
            f"{name}={settings[name]}" if (name := line.split("=", 1)[0]) in settings else line for line in lines
        ] + [f"{name}={value}" for name, value in settings.items() if name not in names]
        path.write_text("\n".join(lines) + "\n")

    def make(self, *arguments: str) -> str:
        """``make`` in the checkout; what it printed. Fails when it does."""
        command = ["make", "--no-print-directory", *arguments, f"PYTHON={sys.executable}"]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=WAIT_SECONDS + 600,  # it builds, and then waits for so long
        )
        assert done.returncode == 0, f"make {' '.join(arguments)}:\n{done.stdout[-6000:]}\n{self.describe_state()}"
        return done.stdout

    def up(self, profiles: str = ALL) -> str:
        """``make up``, timed; what it printed."""
        started = time.monotonic()
        said = self.make("up", f"PROFILES={profiles}")
        self.note(f"make up PROFILES={profiles}: {time.monotonic() - started:.0f} s")
        return said

    def down(self) -> None:
        """``make down``, timed."""
        started = time.monotonic()
        self.make("down")
        self.note(f"make down: {time.monotonic() - started:.0f} s")

    def compose(self, *arguments: str, check: bool = True, timeout_seconds: float = 300) -> str:
        """``docker compose``; what it printed."""
        done = subprocess.run(
            ["docker", "compose", *arguments],
            cwd=self.folder,
            env={**self.environment, "COMPOSE_PROFILES": ALL},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
        )
        assert not check or done.returncode == 0, f"docker compose {' '.join(arguments)}:\n{done.stdout[-3000:]}"
        return done.stdout

    def run(self, *command: str, service: str = "airflow-scheduler", check: bool = True) -> str:
        """A command in a running container of ``service``."""
        return self.compose("exec", "-T", service, *command, check=check)

    def containers(self) -> dict[str, list[dict[str, Any]]]:
        """What docker knows of the running containers, by service."""
        found: dict[str, list[dict[str, Any]]] = {}
        ids = self.compose("ps", "--quiet").split()
        if ids:
            said = subprocess.run(["docker", "inspect", *ids], capture_output=True, text=True, check=True).stdout
            for container in json.loads(said):
                found.setdefault(container["Config"]["Labels"]["com.docker.compose.service"], []).append(container)
        return found

    def ids(self) -> dict[str, set[str]]:
        """The ids of the running containers, by service."""
        return {service: {each["Id"][:12] for each in found} for service, found in self.containers().items()}

    def kill(self, service: str, container: dict[str, Any] | None = None) -> None:
        """SIGKILL for a container of ``service`` (its first one) and all in it, from outside: Docker restarts it, as
        after a crash (not so after ``docker kill``, which counts as a person's wish)."""
        container = container or self.containers()[service][0]
        pid = int(container["State"]["Pid"])
        groups = Path(f"/proc/{pid}/cgroup")
        assert groups.exists() and container["Id"] in groups.read_text(), "the engine runs on another machine"
        os.kill(pid, signal.SIGKILL)
        self.note(f"killed {service}")

    def count(self) -> Counter[str]:
        """How many containers of each service are running."""
        return Counter({service: len(found) for service, found in self.containers().items()})

    def wait_healthy(self, expected: Counter[str], timeout_seconds: float = UP_SECONDS) -> None:
        """Until so many containers of each service are running, and all are healthy."""
        started = time.monotonic()
        while True:
            states = [
                (service, container["State"]["Health"]["Status"])
                for service, found in self.containers().items()
                for container in found
            ]
            if {state for _, state in states} == {"healthy"} and Counter(service for service, _ in states) == expected:
                return
            assert time.monotonic() - started < timeout_seconds, f"{states}\n{self.describe_state()}"
            time.sleep(1)

    def describe_state(self, lines: str = "40") -> str:
        """The state of the services and the end of their logs, for a failure."""
        ps = self.compose("ps", "--all", check=False)
        return ps + self.compose("logs", "--no-color", "--tail", lines, check=False)[-12000:]

    # Runs

    def trigger(self, *names: str) -> list[tuple[str, str]]:
        """Start a run of each of these DAGs; (DAG, run id)."""
        client = self.client
        client.wait_for_dags(list(names))
        runs = []
        for name in names:
            client.unpause(name)
            runs.append((name, client.trigger(name)))
        return runs

    def wait_for_runs(self, runs: Sequence[tuple[str, str]], timeout_seconds: float = RUN_SECONDS) -> None:
        """Until all of these runs have ended well."""
        deadline = time.monotonic() + timeout_seconds
        for name, run_id in runs:
            state = None
            while state not in FINISHED_STATES:
                with contextlib.suppress(Exception):  # the API server may be the one that is away
                    state = self.client.fetch_dag_run(name, run_id)["state"]
                assert time.monotonic() < deadline, (
                    f"{name} is {state}:\n{self.explain(name, run_id)}\n{self.describe_state()}"
                )
                time.sleep(0 if state in FINISHED_STATES else 1)
            assert state == "success", self.explain(name, run_id)

    def find_driver(self, name: str) -> dict[str, Any] | None:
        """The scheduler's container in which the Spark driver of a pipeline is at work."""
        for container in self.containers()["airflow-scheduler"]:
            top = subprocess.run(["docker", "top", container["Id"], "-eo", "pid,args"], capture_output=True, text=True)
            if any(f"tidegate-{name} " in line and "SparkSubmit" in line for line in top.stdout.splitlines()):
                return container
        return None

    def wait_for_driver(self, name: str, run_id: str, timeout_seconds: float = RUN_SECONDS) -> dict[str, Any]:
        """The container with the Spark driver of a run's ingest, once that is at work; fails when the task ends before
        one was seen."""
        client = self.client
        client.wait_for_task(name, run_id, "ingest", {"running"}, timeout_seconds)
        deadline = time.monotonic() + timeout_seconds
        while (container := self.find_driver(name)) is None:
            state = client.fetch_task(name, run_id, "ingest")["state"]
            assert state == "running" and time.monotonic() < deadline, f"{state}: {self.explain(name, run_id)}"
            time.sleep(0.2)
        return container

    def explain(self, name: str, run_id: str) -> str:
        """The tasks of a run with the ends of their logs."""
        parts = []
        with contextlib.suppress(Exception):
            client = self.client
            for task in client.list_task_instances(name, run_id):
                parts.append(f"== {name}.{task['task_id']} {task['state']} try {task['try_number']}")
                if task["try_number"]:
                    parts.append(client.fetch_log(name, run_id, task["task_id"], task["try_number"])[-4000:])
        return "\n".join(parts)

    # Data

    def fetch_data(self, folder: Path) -> Path:
        """A copy of the tables and quarantine tables of the volume."""
        target = folder / "data"
        target.mkdir(parents=True)
        command = ["docker", "compose", "exec", "-T", "airflow-scheduler", "tar", "-c", "-C", DATA]
        with subprocess.Popen(
            [*command, "warehouse", "quarantine"],
            cwd=self.folder,
            env={**self.environment, "COMPOSE_PROFILES": ALL},
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                archive.extractall(target, filter="data")
        assert process.returncode == 0
        return target

    # What happened to containers

    def watch(self, path: Path) -> None:
        """Write down from now on which containers start and end: Docker itself keeps 256 events, and health checks
        fill those."""
        command = ["docker", "events", "--filter", f"label=com.docker.compose.project={self.project}"]
        for event in ("start", "die", "oom", "kill"):
            command += ["--filter", f"event={event}"]
        with path.open("wb") as file:
            self._events = subprocess.Popen([*command, "--format", "{{json .}}"], stdout=file)
        self.events_path = path

    def list_events(self) -> list[tuple[float, str, str]]:
        """(seconds, service, start | die | oom | kill) since :meth:`watch`."""
        found = []
        for line in self.events_path.read_text().splitlines():
            event = json.loads(line)
            service = event["Actor"]["Attributes"]["com.docker.compose.service"]
            found.append((event["timeNano"] / 1e9, service, event["Action"]))
        return found

    def close(self) -> None:
        """Remove containers, networks and volumes."""
        if self._events is not None:
            self._events.terminate()
            self._events.wait()
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5", check=False)


@contextlib.contextmanager
def running_stack(folder: Path, project: str = PROJECT, **settings: str) -> Iterator[Stack]:
    """A copy of the checkout with its .env, nothing started yet; all is removed at the end."""
    record = os.environ.get("TIDEGATE_COMPOSE_RECORD")
    checkout = folder / "checkout"
    copy_checkout(checkout)
    stack = Stack(checkout, Path(record) if record else None, project)
    stack.make("compose-env")
    stack.set(AIRFLOW_PORT=str(choose_free_port()), TIDEGATE_IMAGE=IMAGE, **settings)
    stack.watch(folder / "events")
    try:
        yield stack
    finally:
        stack.close()
