"""docker-compose.yaml as values: variables filled in, the part of the Compose specification that the file uses.

A key that the file gains and that is not read here is an error: what the tests start must be what Compose would start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support.examples import REPOSITORY

COMPOSE_PATH = REPOSITORY / "docker-compose.yaml"
DOCKERFILE_PATH = REPOSITORY / "docker" / "Dockerfile"
VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Z_]+)(?:(:-|:\?)([^}]*))?\})")
_READ = {"command", "depends_on", "deploy", "environment", "healthcheck", "image", "ports", "profiles", "volumes"}
_LEFT_TO_DOCKER = {
    "build",
    "cap_drop",
    "init",
    "logging",
    "pull_policy",
    "restart",
    "security_opt",
    "stop_grace_period",
}


@dataclass(frozen=True)
class Mount:
    """A folder or file of the checkout, or a named volume, in a container."""

    kind: str
    source: str
    target: str
    read_only: bool


@dataclass(frozen=True)
class Service:
    """One service, as Compose would start it."""

    name: str
    image: str
    profiles: frozenset[str]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    depends_on: Mapping[str, str]
    health_command: tuple[str, ...] | None
    start_interval_seconds: float
    replicas: int
    published: tuple[tuple[str, int, int], ...]


def load_services(variables: Mapping[str, str]) -> dict[str, Service]:
    """The services by name, with ``variables`` filled in. Raises KeyError for one that is required and missing."""
    found = yaml.safe_load(COMPOSE_PATH.read_text())
    return {name: _read_service(name, _fill_in(raw, variables)) for name, raw in found["services"].items()}


def read_image_settings() -> tuple[dict[str, str], int]:
    """The environment and the user of the project's own image, from its Dockerfile."""
    text = re.sub(r"\\\n", " ", DOCKERFILE_PATH.read_text())
    environment = {
        key: value
        for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE)
        for key, value in (word.split("=", 1) for word in line.split())
    }
    [user] = re.findall(r"^USER (\d+):\1$", text, re.MULTILINE)
    return environment, int(user)


def fill_in_text(text: str, variables: Mapping[str, str]) -> str:
    """``text`` with its ``${NAME}``, ``${NAME:-default}``, ``${NAME:?message}`` and ``$$`` replaced as Compose does."""

    def replace(match: re.Match[str]) -> str:
        escaped, name, how, rest = match.groups()
        if escaped:
            return "$"
        value = variables.get(name, "")
        if value or how is None:
            return value
        if how == ":?":
            raise KeyError(f"{name}: {rest}")
        return str(rest)

    return VARIABLE.sub(replace, text)


def _fill_in(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return fill_in_text(value, variables)
    if isinstance(value, list):
        return [_fill_in(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: _fill_in(item, variables) for key, item in value.items()}
    return value


def _read_service(name: str, raw: dict[str, Any]) -> Service:
    unknown = set(raw) - _READ - _LEFT_TO_DOCKER
    if unknown:
        raise ValueError(f"{name}: the tests do not know what {sorted(unknown)} would do")
    health = raw.get("healthcheck")
    if health is not None and health["test"][0] != "CMD":
        raise ValueError(f"{name}: a health check that is no CMD: {health['test']}")
    return Service(
        name=name,
        image=raw["image"],
        profiles=frozenset(raw["profiles"]),
        command=tuple(str(word) for word in raw.get("command", ())),
        environment={key: str(value) for key, value in raw.get("environment", {}).items()},
        mounts=tuple(_read_mount(name, mount) for mount in raw.get("volumes", ())),
        depends_on={other: how["condition"] for other, how in raw.get("depends_on", {}).items()},
        health_command=tuple(health["test"][1:]) if health is not None else None,
        start_interval_seconds=float(health["start_interval"].removesuffix("s")) if health is not None else 0.0,
        replicas=int(raw.get("deploy", {}).get("replicas", 1)),
        published=tuple(_read_port(port) for port in raw.get("ports", ())),
    )


def _read_mount(name: str, raw: dict[str, Any]) -> Mount:
    if set(raw) - {"type", "source", "target", "read_only", "bind"} or raw["type"] not in ("bind", "volume"):
        raise ValueError(f"{name}: the tests cannot mount {raw}")
    return Mount(raw["type"], raw["source"], raw["target"], bool(raw.get("read_only", False)))


def _read_port(text: str) -> tuple[str, int, int]:
    address, outside, inside = text.rsplit(":", 2)
    return address, int(outside), int(inside)
