"""The services of docker-compose.yaml: what `make up`, `make down`, `make logs` and `make image` call.

    python -m tools.compose up [--profiles core,kafka,cluster]
    python -m tools.compose down|logs
    python -m tools.compose image --tag NAME

``up`` builds the image once (or pulls the one of a registry that TIDEGATE_IMAGE names), starts what the profiles name
(default: COMPOSE_PROFILES of .env) and waits until every service is healthy. A service that did not change is left
alone; before one that running tasks need is recreated, the scheduler is stopped and its tasks have time to finish.
``down`` stops all of it, whatever the profile; the volumes stay.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tools.compose_env import ENV_PATH, SETTINGS, list_empty, read_env
from tools.console import REPO_ROOT, ToolError, run_main, say

PROFILES = ("core", "kafka", "cluster")
WAIT_SECONDS = 600
OLDEST_ENGINE = (20, 10)
ENGINE_WITH_START_INTERVAL = (25, 0)
OLDEST_COMPOSE = (2, 24, 4)
"""The first that knows ``!reset`` and ``!override``."""
SCHEDULER = "airflow-scheduler"
NEEDED_BY_TASKS = ("postgres", "airflow-api-server", "kafka", "spark-master", "spark-worker")
"""Running tasks need these; the scheduler itself runs them."""
BUILT_BY = "airflow-init"
BUILT_HERE = next(str(setting.value) for setting in SETTINGS if setting.name == "TIDEGATE_IMAGE")

Version = tuple[int, ...]


def check_engine() -> Version:
    """The version of the Docker engine. Raises ToolError when docker, its Compose plugin or its engine is missing or
    too old."""
    if shutil.which("docker") is None:
        raise ToolError("no `docker` on PATH", "install Docker Engine with its Compose plugin (package docker-ce)")
    plugin = subprocess.run(["docker", "compose", "version", "--short"], capture_output=True, text=True)
    if plugin.returncode:
        raise ToolError(
            "this docker has no `docker compose`",
            f"install the Compose plugin, version {_text(OLDEST_COMPOSE)} or later (docker-compose-plugin)",
        )
    _refuse_older("Docker Compose", plugin.stdout, OLDEST_COMPOSE, "docker-compose-plugin")
    info = subprocess.run(["docker", "info", "--format", "{{.ServerVersion}}"], capture_output=True, text=True)
    if info.returncode or not info.stdout.strip():
        reason = (info.stderr.strip() or "no reason given").splitlines()[-1]
        raise ToolError(
            f"no Docker engine answers: {reason}",
            "start it (systemctl start docker), or name another in DOCKER_HOST",
        )
    return _refuse_older("Docker Engine", info.stdout, OLDEST_ENGINE, "docker-ce, or Debian's docker.io")


def _refuse_older(what: str, said: str, oldest: Version, package: str) -> Version:
    """The version in ``said``. A build without a version number counts as new enough."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", said.strip())
    version = tuple(int(part or 0) for part in found.groups()) if found else (1_000,)
    if version < oldest:
        raise ToolError(
            f"{what} {said.strip()} is too old: {_text(oldest)} or later is needed", f"upgrade it (package {package})"
        )
    return version


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def read_settings() -> dict[str, str]:
    """The settings of .env. Raises ToolError when it is missing, or lacks a secret."""
    if not ENV_PATH.exists():
        raise ToolError("there is no .env with the secrets of docker-compose.yaml", "make compose-env")
    values = read_env(ENV_PATH)
    empty = list_empty(values)
    if empty:
        raise ToolError(
            f".env has no {', '.join(empty)}", "remove the empty lines, if there are any, then make compose-env"
        )
    return values


def choose_profiles(asked: str | None, settings: dict[str, str]) -> str:
    """The profiles to start, comma-separated. Raises ToolError for one that does not exist."""
    names = [name.strip() for name in (asked or settings.get("COMPOSE_PROFILES", "")).split(",") if name.strip()]
    unknown = [name for name in names if name not in PROFILES]
    if unknown or not names:
        raise ToolError(
            f"no profile {unknown[0]!r} in docker-compose.yaml" if unknown else "no profile is asked for",
            f"make up PROFILES=... with some of {','.join(PROFILES)}, or COMPOSE_PROFILES in .env",
        )
    return ",".join(names)


def start_services(asked: str | None) -> int:
    """Build or pull, start, wait; the exit code of docker compose."""
    settings = read_settings()
    profiles = choose_profiles(asked, settings)
    compose = Compose(check_engine(), settings)
    if "cluster" in profiles and not settings.get("SPARK_MASTER", "").startswith("spark://"):
        say("the pipelines do not use the cluster: SPARK_MASTER in .env is not spark://spark-master:7077")
    with _alone():
        compose.refuse_another_checkout()
        image = os.environ.get("TIDEGATE_IMAGE") or settings.get("TIDEGATE_IMAGE") or BUILT_HERE
        code = _docker(["pull", image]) if "/" in image else compose.run(["build", BUILT_BY])
        if code:
            return code
        running = compose.list_running()
        # What runs already is kept up to date, whoever started it, and the scheduler is started again if it is stopped.
        compose.profiles = {*profiles.split(","), *compose.list_profiles(running)}
        changed = compose.list_changed(running)
        stops = SCHEDULER in running and bool(changed & {*NEEDED_BY_TASKS, SCHEDULER})
        if stops:
            say(f"{', '.join(sorted(changed))} will be recreated: stopping the scheduler first")
            say("running tasks have 70 seconds to finish")
        try:
            if stops:
                # The others next, so that none of an older image is there while the database is migrated.
                for services in ([SCHEDULER], sorted(changed - {SCHEDULER})):
                    code = code or (compose.run(["stop", *services]) if services else 0)
            wait = ["--wait", "--wait-timeout", str(WAIT_SECONDS)]
            code = code or compose.run(["up", "--detach", "--no-build", "--remove-orphans", *wait])
        except BaseException:
            code = 1
            raise
        finally:
            if code and stops:
                say("the scheduler was stopped for this: no task runs until `make up` succeeds")
    if code == 0 and "core" in compose.profiles:
        print(f"Airflow   {settings.get('AIRFLOW_URL', 'http://localhost:8080')}   user admin")
        print("password  AIRFLOW_ADMIN_PASSWORD in .env")
    return code


def stop_services() -> int:
    """Stop and remove the containers of all profiles, the scheduler before what its tasks need; volumes stay."""
    settings = read_settings()
    compose = Compose(check_engine(), settings)
    with _alone():
        compose.refuse_another_checkout()
        return compose.run(["down", "--remove-orphans"])


def follow_logs() -> int:
    """The logs of all services, until interrupted."""
    settings = read_settings()
    return Compose(check_engine(), settings).run(["logs", "--follow", "--tail", "200"])


def build_image(tag: str | None) -> int:
    """Build the image under the name ``tag``, for a registry; the exit code of docker."""
    if not tag:
        raise ToolError("the image needs a name", "make image TAG=registry.example.org/team/tidegate:1")
    check_engine()
    code = _docker(["build", "--file", "docker/Dockerfile", "--tag", tag, "."])
    if code == 0:
        print(f"next: docker push {tag}; on the machine that runs it TIDEGATE_IMAGE={tag} in .env, then make up")
    return code


class Compose:
    """``docker compose`` on this checkout, with the services of ``profiles``; ``settings`` are those of .env."""

    def __init__(self, engine: Version, settings: Mapping[str, str]) -> None:
        self.profiles = set(PROFILES)
        self._settings = settings
        self._environment = {
            **os.environ,
            # An attestation has the time of the build in it: with one, an unchanged image would be another one.
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
            "TIDEGATE_YAML_DIGEST": hashlib.sha256((REPO_ROOT / "tidegate.yaml").read_bytes()).hexdigest(),
        }
        if engine < ENGINE_WITH_START_INTERVAL:
            known = {**settings, **os.environ}
            separator = known.get("COMPOSE_PATH_SEPARATOR") or os.pathsep
            given = known.get("COMPOSE_FILE") or separator.join(_list_default_files())
            first, *others = given.split(separator)
            self._environment["COMPOSE_FILE"] = separator.join([first, "docker/engine-before-25.yaml", *others])

    @property
    def _call(self) -> dict[str, Any]:
        profiles = ",".join(name for name in PROFILES if name in self.profiles)
        return {"cwd": REPO_ROOT, "env": {**self._environment, "COMPOSE_PROFILES": profiles}}

    def run(self, arguments: Sequence[str]) -> int:
        """One command; its exit code."""
        return subprocess.run(["docker", "compose", *arguments], **self._call).returncode

    def ask(self, *arguments: str) -> str:
        """What one command prints. Raises ToolError with what it says when it fails."""
        command = ["docker", "compose", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, **self._call)
        if done.returncode:
            raise ToolError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
        return str(done.stdout)

    def list_running(self) -> dict[str, list[Container]]:
        """The running containers of each service, whatever their profile."""
        running: dict[str, list[Container]] = {}
        for container in _inspect(self.ask("ps", "--quiet").split()):
            running.setdefault(container["Config"]["Labels"]["com.docker.compose.service"], []).append(container)
        return running

    def list_profiles(self, services: Iterable[str]) -> set[str]:
        """The profiles of these services."""
        known = json.loads(self.ask("config", "--format", "json"))["services"]
        return {profile for service in services for profile in known.get(service, {}).get("profiles", ())}

    def list_changed(self, running: Mapping[str, Sequence[Container]]) -> set[str]:
        """The services of which ``up`` recreates, or removes, a running container."""
        hashes = dict(line.split() for line in self.ask("config", "--hash", "*").splitlines())
        changed = set()
        for service, containers in running.items():
            for container in containers:
                digest = container["Config"]["Labels"]["com.docker.compose.config-hash"]
                images = {image["Id"] for image in _inspect([container["Config"]["Image"]])}
                if service in hashes and not (digest == hashes[service] and container["Image"] in images):
                    changed.add(service)
        # One that stops beside others sends no heartbeat: they would count it as dead and start its tasks again.
        if len(running.get(SCHEDULER, ())) > int(self._settings.get("AIRFLOW_SCHEDULERS") or 1):
            changed.add(SCHEDULER)
        return changed

    def refuse_another_checkout(self) -> None:
        """Raise ToolError when the services that run were started from another folder: it has other secrets."""
        for containers in self.list_running().values():
            for container in containers:
                folder = container["Config"]["Labels"].get("com.docker.compose.project.working_dir", str(REPO_ROOT))
                if os.path.realpath(folder) != os.path.realpath(REPO_ROOT):
                    raise ToolError(
                        f"the services were started from another checkout: {folder}",
                        f"work there, or give these a name of their own: COMPOSE_PROJECT_NAME={REPO_ROOT.name}-2",
                    )


Container = dict[str, Any]
"""What ``docker inspect`` says of one."""


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Raise ToolError while another `make up` or `make down` of this checkout is at work."""
    with ENV_PATH.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ToolError("another `make up` or `make down` of this checkout is running", "wait for it") from None
        yield


def _list_default_files() -> list[str]:
    """What Compose reads when nobody names its files."""
    stems = ("compose.override", "docker-compose.override")
    overrides = [f"{stem}.{ending}" for stem in stems for ending in ("yml", "yaml")]
    return ["docker-compose.yaml", *[name for name in overrides if (REPO_ROOT / name).exists()][:1]]


def _inspect(names: Sequence[str]) -> list[Container]:
    """What docker knows of containers or images; nothing of those that it does not know."""
    if not names:
        return []
    done = subprocess.run(["docker", "inspect", *names], capture_output=True, text=True)
    return list(json.loads(done.stdout or "[]"))


def _docker(arguments: Sequence[str]) -> int:
    return subprocess.run(["docker", *arguments], cwd=REPO_ROOT).returncode


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tools.compose", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("up", "down", "logs", "image"))
    parser.add_argument("--profiles", metavar="LIST", help="what to start; default: COMPOSE_PROFILES of .env")
    parser.add_argument("--tag", metavar="NAME", help="the name of the image to build")
    options = parser.parse_args(arguments)
    if options.action == "up":
        return start_services(options.profiles)
    if options.action == "image":
        return build_image(options.tag)
    return stop_services() if options.action == "down" else follow_logs()


if __name__ == "__main__":
    run_main(main)
