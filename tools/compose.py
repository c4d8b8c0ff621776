"""The services of docker-compose.yaml: what `make up`, `make down` and `make logs` call.

    python -m tools.compose up [--profiles core,kafka,cluster]
    python -m tools.compose down|logs

``up`` builds the image, starts what the profiles name (default: COMPOSE_PROFILES of .env) and waits until every service
is healthy. ``down`` stops all of it, whatever the profile; the volumes stay.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess

from tools.compose_env import ENV_PATH, list_empty, read_env
from tools.console import REPO_ROOT, ToolError, run_main, say

PROFILES = ("core", "kafka", "cluster")
WAIT_SECONDS = 600


def check_engine() -> None:
    """Raises ToolError when docker, its Compose plugin or its engine is missing."""
    if shutil.which("docker") is None:
        raise ToolError("no `docker` on PATH", "install Docker Engine with its Compose plugin (package docker-ce)")
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        raise ToolError(
            "this docker has no `docker compose`",
            "install the Compose plugin, version 2.24 or later (docker-compose-plugin)",
        )
    told = subprocess.run(["docker", "info", "--format", "{{.ServerVersion}}"], capture_output=True, text=True)
    if told.returncode:
        reason = (told.stderr.strip() or "no reason given").splitlines()[-1]
        raise ToolError(
            f"no Docker engine answers: {reason}",
            "start it (systemctl start docker), or name another in DOCKER_HOST",
        )


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
    """Build, start, wait; the exit code of docker compose."""
    settings = read_settings()
    profiles = choose_profiles(asked, settings)
    check_engine()
    if "cluster" in profiles and not settings.get("SPARK_MASTER", "").startswith("spark://"):
        say("the pipelines do not use the cluster: SPARK_MASTER in .env is not spark://spark-master:7077")
    command = ["up", "--detach", "--build", "--remove-orphans", "--wait", "--wait-timeout", str(WAIT_SECONDS)]
    code = _run_compose(command, profiles)
    if code == 0 and "core" in profiles:
        print(f"Airflow   {settings.get('AIRFLOW_URL', 'http://localhost:8080')}   user admin")
        print("password  AIRFLOW_ADMIN_PASSWORD in .env")
    return code


def stop_services() -> int:
    """Stop and remove the containers of all profiles; volumes stay."""
    read_settings()
    check_engine()
    return _run_compose(["down", "--remove-orphans"], ",".join(PROFILES))


def follow_logs() -> int:
    """The logs of all services, until interrupted."""
    read_settings()
    check_engine()
    return _run_compose(["logs", "--follow", "--tail", "200"], ",".join(PROFILES))


def _run_compose(arguments: list[str], profiles: str) -> int:
    environment = {**os.environ, "COMPOSE_PROFILES": profiles}
    return subprocess.run(["docker", "compose", *arguments], cwd=REPO_ROOT, env=environment).returncode


def main(arguments: list[str]) -> int:
    """The command line; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tools.compose", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("up", "down", "logs"))
    parser.add_argument("--profiles", metavar="LIST", help="what to start; default: COMPOSE_PROFILES of .env")
    options = parser.parse_args(arguments)
    if options.action == "up":
        return start_services(options.profiles)
    return stop_services() if options.action == "down" else follow_logs()


if __name__ == "__main__":
    run_main(main)
