"""What the Compose specification's schema cannot say of docker-compose.yaml: order, secrets, ports, limits."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import compose
from tools.compose_env import SETTINGS

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "docker-compose.yaml"
TEXT = "\n".join(line for line in COMPOSE.read_text().splitlines() if not line.lstrip().startswith("#"))
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
ONE_SHOT = {"airflow-init"}


class _Tolerant(yaml.SafeLoader):
    """Reads Compose's own tags as nothing."""


_Tolerant.add_constructor("!reset", lambda *_: None)
_Tolerant.add_constructor("!override", lambda loader, node: loader.construct_sequence(node))
REQUIRED = set(re.findall(r"\$\{([A-Z_]+):\?", TEXT))
DEFAULTED = dict(re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", TEXT))


def test_the_schema_of_the_compose_specification_accepts_it() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(COMPOSE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_refuses_a_misspelt_key(tmp_path: Path) -> None:
    wrong = tmp_path / "docker-compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("    profiles: [kafka]", "    profile: [kafka]"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(wrong)], capture_output=True, text=True)
    assert done.returncode == 1 and "'profile' was unexpected" in done.stdout


def test_every_variable_is_written_by_compose_env_with_the_default_of_the_file_and_none_is_written_for_nothing() -> (
    None
):
    assert set(re.findall(r"\$\{?([A-Z_]+)", TEXT)) == REQUIRED | set(DEFAULTED), (
        "each ${NAME:-default} or ${NAME:?why}"
    )
    assert {setting.name for setting in SETTINGS if callable(setting.value)} == REQUIRED
    written = {setting.name: setting.value for setting in SETTINGS if isinstance(setting.value, str)}
    assert written.pop("COMPOSE_PROFILES") == "core,kafka"  # Compose's own
    # tools/compose.py gives this one.
    assert written | {"TIDEGATE_YAML_DIGEST": ""} == DEFAULTED


def test_what_a_missing_secret_says_is_how_to_make_it() -> None:
    assert set(re.findall(r"\$\{[A-Z_]+:\?([^}]*)\}", TEXT)) == {"run make compose-env"}


def test_no_secret_stands_in_the_file() -> None:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD$|SECRET|KEY$", key):
                assert re.fullmatch(r"\$\{[A-Z_]+:\?run make compose-env\}", value), f"{name}: {key}"
            literal = re.sub(r"\$\{[A-Z_]+:\?[^}]*\}", "", str(value))
            assert not re.search(r"://[^/@]*:[^@]+@", literal), f"{name}: {key} has a password in its URL"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_complete(name: str) -> None:
    service = SERVICES[name]
    assert service.get("image") and len(service["profiles"]) == 1
    assert set(service["profiles"]) <= set(compose.PROFILES)
    limits = service["deploy"]["resources"]["limits"]
    assert limits["cpus"] and limits["memory"]
    assert service["logging"]["options"] == {"max-size": "10m", "max-file": "3"}
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["stop_grace_period"]
    if name in ONE_SHOT:
        assert service["restart"] == "no" and "healthcheck" not in service
    else:
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] == "CMD"
        assert {"interval", "timeout", "retries", "start_period", "start_interval"} <= set(service["healthcheck"])
    if name in ("postgres", "s3"):
        assert re.fullmatch(r"[a-z/]+:\w[\w.-]+", service["image"]), "a version"
    else:
        assert service["image"] == "${TIDEGATE_IMAGE:-tidegate:local}" and service["pull_policy"] == "never"
        assert service["init"] is True and service["cap_drop"] == ["ALL"]


def test_one_service_builds_the_image_of_all() -> None:
    assert {name: service["build"] for name, service in SERVICES.items() if "build" in service} == {
        compose.BUILT_BY: {"context": ".", "dockerfile": "docker/Dockerfile"}
    }
    assert DEFAULTED["TIDEGATE_IMAGE"] == compose.BUILT_HERE


def test_an_engine_before_25_gets_checks_without_the_start_interval() -> None:
    text = (ROOT / "docker" / "engine-before-25.yaml").read_text()
    found = yaml.load(text, _Tolerant)["services"]
    assert set(found) == {name for name, service in SERVICES.items() if "healthcheck" in service}
    assert all(set(service["healthcheck"]) == {"start_interval", "interval"} for service in found.values())


def test_the_settings_for_the_s3_server_reach_each_process_that_opens_tables() -> None:
    path = ROOT / "docker" / "s3.yaml"
    found = yaml.safe_load(path.read_text())["services"]
    assert set(found) == {name for name, service in SERVICES.items() if name.startswith("airflow-")} | {"spark-worker"}
    server = SERVICES["s3"]["environment"]
    for service in found.values():
        told = service["environment"]
        assert told["AWS_ACCESS_KEY_ID"] == server["ROOT_ACCESS_KEY_ID"]
        assert told["AWS_SECRET_ACCESS_KEY"] == server["ROOT_SECRET_ACCESS_KEY"]
        bucket = told["TIDEGATE__WAREHOUSE"].split("/")[2]
        assert f"mkdir -p /data/{bucket} " in SERVICES["s3"]["entrypoint"][2]
        assert told["TIDEGATE__S3__ENDPOINT"] == "http://s3:7070" and "--port :7070 " in SERVICES["s3"]["entrypoint"][2]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_the_state_in_the_bucket_reaches_the_same_processes_and_workers_lose_their_volume() -> None:
    found = yaml.load((ROOT / "docker" / "state-in-s3.yaml").read_text(), _Tolerant)["services"]
    tables = yaml.safe_load((ROOT / "docker" / "s3.yaml").read_text())["services"]
    assert set(found) == set(tables)
    worker = found.pop("spark-worker")
    assert worker == {"volumes": []} and [one["source"] for one in SERVICES["spark-worker"]["volumes"]] == ["data"]
    bucket = tables["airflow-scheduler"]["environment"]["TIDEGATE__WAREHOUSE"].split("/")[2]
    assert all(one == {"environment": {"TIDEGATE__STATE": f"s3://{bucket}/state"}} for one in found.values())


def test_only_the_port_of_the_ui_is_published_and_only_to_this_machine_by_default() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"airflow-api-server": ["${AIRFLOW_BIND:-127.0.0.1}:${AIRFLOW_PORT:-8080}:8080"]}
    assert not any("network_mode" in service or "privileged" in service for service in SERVICES.values())


def test_services_start_when_what_they_need_has_said_that_it_is_there() -> None:
    waits = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}
    for name, others in waits.items():
        for other, how in others.items():
            finished = other in ONE_SHOT
            wanted = "service_completed_successfully" if finished else "service_healthy"
            is_optional = SERVICES[other]["profiles"] != SERVICES[name]["profiles"]  # it may not be started
            assert how == {"condition": wanted} | ({"required": False} if is_optional else {}), f"{name}, {other}"
    assert "airflow-api-server" in waits["airflow-scheduler"], "a task that starts before the API answers is lost"
    assert "airflow-init" in waits["airflow-api-server"]
    assert "spark-master" in waits["spark-worker"]
    # What is started first is stopped last.
    assert set(compose.NEEDED_BY_TASKS) == set(waits["airflow-scheduler"])
    for name in SERVICES:
        if name.startswith("airflow-"):
            assert "postgres" in waits[name]


def test_the_checkout_is_mounted_read_only_and_the_data_in_one_volume() -> None:
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            if mount["type"] == "bind":
                assert mount["read_only"] is True, f"{name}: {mount['source']}"
                assert (ROOT / mount["source"]).exists()
    for name in ("airflow-scheduler", "airflow-api-server", "spark-worker"):
        [data] = [mount for mount in SERVICES[name]["volumes"] if mount["target"].startswith("/opt/tidegate/data")]
        assert (data["type"], data["source"], data["target"]) == ("volume", "data", "/opt/tidegate/data")


def test_the_volumes_are_those_that_are_mounted() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", [])]
    used = {mount["source"] for mount in mounts if mount["type"] == "volume"}
    assert used == set(yaml.safe_load(TEXT)["volumes"])


def test_the_scheduler_can_be_there_several_times() -> None:
    assert not {"container_name", "hostname", "ports"} & set(SERVICES["airflow-scheduler"])
