"""The services of docker-compose.yaml: what `make up`, `make down`, `make logs` and `make image` call.

    python -m tools.compose up [--profiles core,kafka,cluster,s3]
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
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tools.compose_env import ENV_PATH, SETTINGS, list_empty, read_env
from tools.console import REPO_ROOT, ToolError, run_main, say

PROFILES = ("core", "kafka", "cluster", "s3")
WAIT_SECONDS = 600
OLDEST_ENGINE = (20, 10)
ENGINE_WITH_START_INTERVAL = (25, 0)
OLDEST_COMPOSE = (2, 24, 4)
"""The first that knows ``!reset`` and ``!override``."""
SCHEDULER = "airflow-scheduler"
NEEDED_BY_TASKS = ("postgres", "airflow-api-server", "kafka", "s3", "spark-master", "spark-worker")
"""Running tasks need these; the scheduler itself runs them."""
BUILT_BY = "airflow-init"
OWN_MASTER = "spark://spark-master:7077"
_IMAGE_FIX = "make image TAG=registry.example.org/team/tidegate:1"
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
        if "permission denied" in reason.lower():
            raise ToolError(
                f"this user may not use Docker: {reason}", "sudo usermod -aG docker $(id -un), then log in again"
            )
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
    """The settings of .env. Raises ToolError when it is missing, lacks a secret, or has a value that cannot work."""
    if not ENV_PATH.exists():
        raise ToolError(
            "there is no .env with the secrets of docker-compose.yaml",
            "make compose-env; where these services have run before, put their .env back instead: the database keeps "
            "its old password, and its connections need the old AIRFLOW_FERNET_KEY",
        )
    values = read_env(ENV_PATH)
    empty = list_empty(values)
    if empty:
        raise ToolError(
            f".env has no {', '.join(empty)}",
            "write the old value there; where nothing has run yet, remove the empty lines, if there are any, then "
            "make compose-env",
        )
    for name in ("AIRFLOW_SCHEDULERS", "SPARK_WORKERS", "AIRFLOW_PARALLELISM", "AIRFLOW_PORT"):
        value = values.get(name, "1")
        if not re.fullmatch(r"[1-9]\d{0,4}", value):
            raise ToolError(f"{name} in .env is {value!r}; it has to be a whole number from 1", f"correct {name}")
    if re.search(r"[@:/?#%$\s\[\]\\]", values["POSTGRES_PASSWORD"]):
        raise ToolError(
            "POSTGRES_PASSWORD in .env has one of @ : / ? # % $ [ ] \\ or a space: it stands in an address",
            "choose one of letters and digits (docs/how-to/from-laptop-to-team.md says how the database gets it)",
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
    with _alone():
        compose.refuse_another_checkout()
        running = compose.list_running()
        # What runs already is kept up to date, whoever started it, and the scheduler is started again if it is stopped.
        compose.profiles = {*profiles.split(","), *compose.list_profiles(running)}
        _check_master(settings.get("SPARK_MASTER", ""), compose.profiles)
        image = settings.get("TIDEGATE_IMAGE") or BUILT_HERE
        code = _docker(["pull", image]) if "/" in image else compose.build()
        if code:
            say("nothing was changed")
            _say_if_no_scheduler(compose, running)
            if "/" in image:
                say(f"fix: docker login {image.partition('/')[0]}, or correct TIDEGATE_IMAGE in .env")
            return code
        code = 1
        try:
            code = _bring_up(compose, running)
        finally:
            if code:
                _explain_failure(compose)
    if code == 0 and "core" in compose.profiles:
        address = f"http://localhost:{settings.get('AIRFLOW_PORT', '8080')}"
        print(f"Airflow   {settings.get('AIRFLOW_URL') or address}   user admin")
        print("password  AIRFLOW_ADMIN_PASSWORD in .env")
    return code


def _bring_up(compose: Compose, running: Mapping[str, Sequence[Container]]) -> int:
    """Stop what has to be stopped in order, then have Compose start everything; its exit code."""
    changed = compose.list_changed(running)
    if SCHEDULER in running and changed & {*NEEDED_BY_TASKS, SCHEDULER}:
        say(f"{', '.join(sorted(changed))} will be recreated: stopping the scheduler first")
        say("running tasks have 70 seconds to finish")
        # The others next, so that none of an older image is there while the database is migrated.
        for services in ([SCHEDULER], sorted(changed - {SCHEDULER})):
            code = compose.run(["stop", *services]) if services else 0
            if code:
                return code
    wait = ["--wait", "--wait-timeout", str(WAIT_SECONDS)]
    return compose.run(["up", "--detach", "--no-build", "--remove-orphans", *wait])


def _explain_failure(compose: Compose) -> None:
    """What an `up` that failed or was interrupted has left."""
    running: Mapping[str, object] = {}
    with contextlib.suppress(ToolError):
        running = compose.list_running()
    _say_if_no_scheduler(compose, running)
    say("fix: docker compose ps --all, and docker compose logs --tail 50 SERVICE, say why; then make up")


def _say_if_no_scheduler(compose: Compose, running: Mapping[str, object]) -> None:
    """Also where an earlier `up` stopped it, and failed."""
    if "core" in compose.profiles and SCHEDULER not in running:
        say("no scheduler runs, so no task runs until `make up` succeeds")


def _check_master(master: str, profiles: set[str]) -> None:
    """Raise ToolError for a master that no service is; say so where a cluster stands idle."""
    if master == OWN_MASTER and "core" in profiles and "cluster" not in profiles:
        raise ToolError(
            f"SPARK_MASTER in .env is {master}, and the profile cluster is not started",
            "make up PROFILES=core,kafka,cluster, or SPARK_MASTER=local[2] in .env",
        )
    if master != OWN_MASTER and "cluster" in profiles:
        say(f"the pipelines do not use the cluster: SPARK_MASTER in .env is {master}, not {OWN_MASTER}")


def stop_services() -> int:
    """Stop and remove the containers of all profiles, the scheduler before what its tasks need; volumes stay."""
    settings = read_settings()
    compose = Compose(check_engine(), settings)
    with _alone():
        compose.refuse_another_checkout()
        say("running tasks have 70 seconds to finish")
        return compose.run(["down", "--remove-orphans"])


def follow_logs() -> int:
    """The logs of all services, until interrupted."""
    settings = read_settings()
    with contextlib.suppress(KeyboardInterrupt):  # how one stops reading
        return Compose(check_engine(), settings).run(["logs", "--follow", "--tail", "200"])
    return 0


def build_image(tag: str | None) -> int:
    """Build the image under the name ``tag``, for a registry; the exit code of docker."""
    if not tag:
        raise ToolError("the image needs a name", _IMAGE_FIX)
    if "/" not in tag:
        raise ToolError(f"{tag!r} names no registry to push it to", _IMAGE_FIX)
    # By Compose, which brings a builder; docker itself may have none (buildx) that knows the Dockerfile's caches.
    # Nothing is started, so no secret is needed.
    unused = {setting.name: "unused" for setting in SETTINGS if callable(setting.value)}
    code = Compose(check_engine(), {}, {"TIDEGATE_IMAGE": tag, **unused}).build()
    if code == 0:
        print(f"next: docker push {tag}; on the machine that runs it TIDEGATE_IMAGE={tag} in .env, then make up")
    return code


class Compose:
    """``docker compose`` on this checkout, with the services of ``profiles``; ``settings`` are those of .env, and
    ``instead`` goes over them."""

    def __init__(self, engine: Version, settings: Mapping[str, str], instead: Mapping[str, str] | None = None) -> None:
        self.profiles = set(PROFILES)
        self._settings = settings
        written = {setting.name for setting in SETTINGS}
        self._environment = {
            # What .env says counts, not what a shell happens to export.
            **{name: value for name, value in os.environ.items() if name not in written},
            # An attestation has the time of the build in it: with one, an unchanged image would be another one.
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
            "TIDEGATE_YAML_DIGEST": _sum_settings(),
            **(instead or {}),
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

    def build(self) -> int:
        """Build the image; the exit code. By the one service that does, whatever profiles are asked for."""
        profiles, self.profiles = self.profiles, {*self.profiles, "core"}
        try:
            return self.run(["build", BUILT_BY])
        finally:
            self.profiles = profiles

    def run(self, arguments: Sequence[str]) -> int:
        """One command; its exit code."""
        return subprocess.run(["docker", "compose", *arguments], **self._call).returncode

    def ask(self, *arguments: str) -> str:
        """What one command prints. Raises ToolError with what it says when it fails."""
        command = ["docker", "compose", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, **self._call)
        if done.returncode:
            raise ToolError(
                f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}",
                "correct docker-compose.yaml, its override, or what COMPOSE_FILE names (docker compose config)",
            )
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
                        "work there; if that folder is gone, put its .env here and stop them: docker compose "
                        "--profile '*' down (volumes stay). For a second installation with volumes of its own: "
                        "COMPOSE_PROJECT_NAME=tidegate-2 and another AIRFLOW_PORT in .env",
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


def _sum_settings() -> str:
    path = REPO_ROOT / "tidegate.yaml"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}", "git checkout tidegate.yaml") from None


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
    # A lost connection or a kill is an interruption like Ctrl-C: what was stopped is told.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if options.action == "up":
        return start_services(options.profiles)
    if options.action == "image":
        return build_image(options.tag)
    return stop_services() if options.action == "down" else follow_logs()


if __name__ == "__main__":
    run_main(main)
