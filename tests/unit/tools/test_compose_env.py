"""What `make compose-env` writes, keeps and refuses, and what `make up` says when something is missing."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tools import compose, compose_env
from tools.compose_env import SETTINGS, read_env, write_env
from tools.console import REPO_ROOT, ToolError

SECRETS = {setting.name for setting in SETTINGS if callable(setting.value)}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compose_env, "ENV_PATH", tmp_path / ".env")
    monkeypatch.setattr(compose, "ENV_PATH", tmp_path / ".env")
    return tmp_path / ".env"


def test_every_setting_is_written_once_and_only_its_owner_can_read_it(path: Path) -> None:
    old = os.umask(0)
    try:
        write_env(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(read_env(path)) == [setting.name for setting in SETTINGS]
    assert path.read_text().count("AIRFLOW_PORT=8080\n") == 1
    assert [entry.name for entry in path.parent.iterdir()] == [".env"]


def test_secrets_are_long_all_different_and_need_no_quotes(path: Path, tmp_path: Path) -> None:
    write_env(path)
    write_env(tmp_path / "other")
    values = [read_env(file)[name] for file in (path, tmp_path / "other") for name in SECRETS]
    assert len(set(values)) == 2 * len(SECRETS)
    assert all(len(value) >= 43 and value.rstrip("=").replace("-", "").replace("_", "").isalnum() for value in values)


def test_airflow_takes_the_fernet_key(path: Path) -> None:
    from cryptography.fernet import Fernet

    write_env(path)
    key = Fernet(read_env(path)["AIRFLOW_FERNET_KEY"])
    assert key.decrypt(key.encrypt(b"password")) == b"password"


def test_a_file_that_is_there_is_not_changed(path: Path) -> None:
    write_env(path)
    path.write_text(path.read_text().replace("AIRFLOW_PORT=8080", "AIRFLOW_PORT=9090") + "OWN=1\n")
    before = path.read_bytes()
    assert write_env(path) == []
    assert path.read_bytes() == before


def test_what_is_missing_is_added_and_the_rest_stays(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_text("# mine\nPOSTGRES_PASSWORD=kept\nOWN = 'x'")
    written = write_env(path)
    assert set(written) == {setting.name for setting in SETTINGS} - {"POSTGRES_PASSWORD"}
    values = read_env(path)
    assert values["POSTGRES_PASSWORD"] == "kept" and values["OWN"] == "x"
    assert path.read_text().startswith("# mine\nPOSTGRES_PASSWORD=kept\nOWN = 'x'\n")


def test_a_file_that_others_can_read_is_refused(path: Path) -> None:
    write_env(path)
    path.chmod(0o644)
    before = path.read_bytes()
    for use in (lambda: write_env(path), compose.read_settings):
        with pytest.raises(ToolError, match=r"others may read it \(mode 0644\)\n  fix: chmod 600 \.env"):
            use()
    assert path.read_bytes() == before


def test_a_broken_line_is_named_without_what_stands_in_it(path: Path) -> None:
    write_env(path)
    path.write_text(path.read_text() + "export half a secret\n")
    with pytest.raises(ToolError, match=r"\.env:\d+ is not NAME=value") as caught:
        read_env(path)
    assert "half" not in str(caught.value)


def test_up_without_settings_names_the_command_that_makes_them(path: Path) -> None:
    with pytest.raises(ToolError, match=r"there is no \.env .*\n  fix: make compose-env"):
        compose.main(["up"])


def test_an_empty_secret_is_refused_by_name(path: Path) -> None:
    write_env(path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join("POSTGRES_PASSWORD=" if line.startswith("POSTGRES_PASSWORD") else line for line in lines))
    with pytest.raises(ToolError, match=r"\.env has no POSTGRES_PASSWORD"):
        compose.main(["down"])


def test_an_unknown_profile_is_refused_with_those_that_exist(path: Path) -> None:
    write_env(path)
    with pytest.raises(ToolError, match=r"no profile 'spark' .*\n  fix: .*core,kafka,cluster"):
        compose.main(["up", "--profiles", "core,spark"])
    assert compose.choose_profiles(None, read_env(path)) == "core,kafka"
    assert compose.choose_profiles("core, cluster", {}) == "core,cluster"
    with pytest.raises(ToolError, match="no profile is asked for"):
        compose.choose_profiles(None, {})


@pytest.mark.parametrize("module", ["compose_env", "compose"])
def test_the_commands_need_no_package(module: str) -> None:
    """A machine that runs the services has Python and Docker, and no environment with the project's packages."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '.'); import tools.{module}"]
    done = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def put_docker(folder: Path, script: str) -> None:
    folder.mkdir()
    (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "no `docker` on PATH"),
        ('[ "$1" = info ] && exit 0; exit 1', "this docker has no `docker compose`"),
        (
            '[ "$1" = compose ] && exit 0; echo "Cannot connect to the Docker daemon" >&2; exit 1',
            "Cannot connect to the",
        ),
        (
            '[ "$1" = compose ] && exit 0; echo "permission denied while trying to connect" >&2; exit 1',
            "this user may not use Docker: permission denied",
        ),
    ],
)
def test_what_is_missing_of_docker_is_said(
    script: str | None, said: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_env(path)
    if script is not None:
        put_docker(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for action in ("up", "down", "logs"):
        with pytest.raises(ToolError, match=said):
            compose.main([action])


@pytest.mark.parametrize(
    ("engine", "plugin", "said"),
    [
        ("19.03.15", "2.39.4", "Docker Engine 19.03.15 is too old: 20.10 or later is needed"),
        ("28.0.0", "2.20.3", "Docker Compose 2.20.3 is too old: 2.24.4 or later is needed"),
        ("28.0.0", "v1.29.2", "Docker Compose v1.29.2 is too old: 2.24.4 or later is needed"),
    ],
)
def test_what_is_too_old_is_refused_before_anything_is_built(
    engine: str, plugin: str, said: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_env(path)
    put_engine(tmp_path, monkeypatch, engine, plugin)
    with pytest.raises(ToolError, match=rf"{said}\n  fix: upgrade it"):
        compose.main(["up"])
    assert not (tmp_path / "calls").exists()


def put_engine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str = "28.0.0", plugin: str = "2.39.4", more: str = ""
) -> None:
    """A docker that gives versions and writes down what else it is called with, with profiles and files."""
    script = f"""case "$*" in
        info*) echo {engine};;
        "compose version"*) echo {plugin};;
        {more}
        *"config --hash"*|*"ps --quiet"*|inspect*) ;;
        *"config --format json"*) echo '{{"services": {{}}}}';;
        *) echo "$COMPOSE_PROFILES $COMPOSE_FILE: $*" >> {folder}/calls;;
    esac"""
    put_docker(folder / "bin", script)
    monkeypatch.setenv("PATH", str(folder / "bin"))
    for name in ("COMPOSE_FILE", "TIDEGATE_IMAGE"):
        monkeypatch.delenv(name, raising=False)


def test_up_builds_once_waits_and_starts_the_profiles_asked_for(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_env(path)
    put_engine(tmp_path, monkeypatch)
    assert compose.main(["up", "--profiles", "core,cluster"]) == 0
    assert (tmp_path / "calls").read_text().splitlines() == [
        "core,cluster : compose build airflow-init",
        "core,cluster : compose up --detach --no-build --remove-orphans --wait --wait-timeout 600",
    ]
    told = capfd.readouterr()
    assert "AIRFLOW_ADMIN_PASSWORD in .env" in told.out
    assert read_env(path)["AIRFLOW_ADMIN_PASSWORD"] not in told.out + told.err
    assert "SPARK_MASTER in .env is local[2], not spark://spark-master:7077" in told.err
    assert compose.main(["down"]) == 0
    assert (tmp_path / "calls").read_text().endswith("core,kafka,cluster,s3 : compose down --remove-orphans\n")


def test_an_image_of_a_registry_is_pulled(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_env(path)
    put_engine(tmp_path, monkeypatch)
    path.write_text(path.read_text().replace("=tidegate:local", "=registry:5000/tidegate:1"))
    assert compose.main(["up"]) == 0
    docker = tmp_path / "bin" / "docker"
    note = f'echo "$TIDEGATE_IMAGE $POSTGRES_PASSWORD" > {tmp_path}/image; case "$*" in'
    docker.write_text(docker.read_text().replace('case "$*" in', note))
    assert (tmp_path / "calls").read_text().startswith(" : pull registry:5000/tidegate:1\ncore,kafka : compose up ")
    assert compose.main(["image", "--tag", "registry:5000/tidegate:2"]) == 0
    assert (tmp_path / "calls").read_text().endswith("core,kafka,cluster,s3 : compose build airflow-init\n")
    assert (tmp_path / "image").read_text() == "registry:5000/tidegate:2 unused\n"
    with pytest.raises(ToolError, match="the image needs a name\n  fix: make image TAG="):
        compose.main(["image"])
    with pytest.raises(ToolError, match="'tidegate' names no registry"):
        compose.main(["image", "--tag", "tidegate"])


@pytest.mark.parametrize(
    ("given", "files"),
    [
        ("", ""),
        ("docker-compose.override.yaml", ":docker-compose.override.yaml"),
        ("compose.override.yaml docker-compose.override.yml", ":compose.override.yaml"),  # Compose takes one of them
        ("COMPOSE_FILE=docker-compose.yaml:mine.yaml", ":mine.yaml"),
    ],
)
def test_an_older_engine_gets_the_file_for_it(
    given: str, files: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_env(path)
    put_engine(tmp_path, monkeypatch, engine="20.10.24+dfsg1")
    monkeypatch.setattr(compose, "REPO_ROOT", tmp_path)
    (tmp_path / "tidegate.yaml").touch()
    if "=" in given:
        path.write_text(f"{path.read_text()}{given}\n")
    for name in given.split() if "=" not in given else ():
        (tmp_path / name).touch()
    assert compose.main(["up"]) == 0
    for call in (tmp_path / "calls").read_text().splitlines():
        assert f" docker-compose.yaml:docker/engine-before-25.yaml{files}: compose " in call


CONTAINER = """{"Config": {"Labels": {"com.docker.compose.service": "SERVICE",
    "com.docker.compose.config-hash": "HASH", "com.docker.compose.project.working_dir": "FOLDER"},
    "Image": "tidegate:local"}, "Image": "IMAGE", "Id": "sha:new"}"""
SERVICES = ("airflow-scheduler", "airflow-api-server", "airflow-triggerer", "kafka")


def put_services(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changed: str, digest: str, image: str, checkout: Path = REPO_ROOT
) -> None:
    """A docker in which these services run; one of them may have another configuration or image than it should."""
    containers = [
        CONTAINER.replace("SERVICE", service)
        .replace("HASH", digest if service == changed else "same")
        .replace("IMAGE", image if service == changed else "sha:new")
        .replace("FOLDER", str(checkout))
        for service in SERVICES
    ]
    (folder / "containers.json").write_text(f"[{', '.join(containers)}]")
    config = {"services": {name: {"profiles": ["kafka" if name == "kafka" else "core"]} for name in SERVICES}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "hashes").write_text("".join(f"{name} same\n" for name in SERVICES))
    more = f"""*"config --hash"*) cat {folder}/hashes;;
        *"config --format json"*) cat {folder}/config.json;;
        *"ps --quiet"*) echo 0123;;
        "inspect tidegate:local") echo '[{{"Id": "sha:new"}}]';;
        inspect*) cat {folder}/containers.json;;"""
    put_engine(folder, monkeypatch, more=more)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")


def list_calls(folder: Path) -> list[str]:
    """What was asked of Compose, each with the profiles of that call."""
    calls = [line.split() for line in (folder / "calls").read_text().splitlines()]
    return [" ".join(words[words.index("compose") + 1 :][:3]) + f" [{words[0]}]" for words in calls]


@pytest.mark.parametrize(
    ("service", "digest", "image", "stops"),
    [
        ("airflow-api-server", "same", "sha:new", []),
        ("airflow-api-server", "other", "sha:new", ["airflow-scheduler", "airflow-api-server"]),
        ("airflow-triggerer", "other", "sha:new", []),  # running tasks do not need it
        ("kafka", "same", "sha:old", ["airflow-scheduler", "kafka"]),
        ("airflow-scheduler", "other", "sha:new", ["airflow-scheduler"]),
    ],
)
def test_the_scheduler_is_stopped_first_where_something_changes_that_tasks_need(
    service: str,
    digest: str,
    image: str,
    stops: list[str],
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_env(path)
    put_services(tmp_path, monkeypatch, service, digest, image)
    assert compose.main(["up", "--profiles", "kafka"]) == 0
    # core is not named, but runs: it is kept up to date, and the scheduler is started again.
    assert list_calls(tmp_path) == [
        "build airflow-init [core,kafka]",
        *(f"stop {name} [core,kafka]" for name in stops),
        "up --detach --no-build [core,kafka]",
    ]


def test_fewer_schedulers_are_a_change(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_env(path)
    put_services(tmp_path, monkeypatch, "none", "same", "sha:new")
    found = json.loads((tmp_path / "containers.json").read_text())
    (tmp_path / "containers.json").write_text(json.dumps([found[0], *found]))
    assert compose.main(["up", "--profiles", "core"]) == 0
    assert "stop airflow-scheduler [core,kafka]" in list_calls(tmp_path)


def test_a_failure_says_that_no_scheduler_runs_also_the_second_time(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_env(path)
    put_services(tmp_path, monkeypatch, "kafka", "other", "sha:new")
    docker = tmp_path / "bin" / "docker"
    stopped = tmp_path / "stopped"
    docker.write_text(
        docker.read_text()
        .replace('case "$*" in', f'case "$*" in *" up "*) exit 7;; *"stop airflow-scheduler") touch {stopped};;')
        .replace('*"ps --quiet"*) echo 0123;;', f'*"ps --quiet"*) [ -f {stopped} ] || echo 0123;;')
    )
    for _ in range(2):
        assert compose.main(["up"]) == 7
        said = capfd.readouterr().err
        assert (
            "no scheduler runs, so no task runs until `make up` succeeds" in said and "fix: docker compose ps" in said
        )
    docker.write_text(docker.read_text().replace('case "$*" in', 'case "$*" in *" build "*) exit 9;;'))
    assert compose.main(["up"]) == 9
    said = capfd.readouterr().err
    assert "nothing was changed" in said and "no scheduler runs, so no task runs until `make up` succeeds" in said


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("AIRFLOW_SCHEDULERS=0", "AIRFLOW_SCHEDULERS in .env is '0'; it has to be a whole number from 1"),
        ("AIRFLOW_PORT=abc", "AIRFLOW_PORT in .env is 'abc'; it has to be a whole number from 1"),
        ("POSTGRES_PASSWORD=p@ss/w", "POSTGRES_PASSWORD in .env has one of @"),
        ("SPARK_MASTER=spark://spark-master:7077", "and the profile cluster is not started"),
        ("TIDEGATE_IMAGE=registry:5000/nothing", None),
    ],
)
def test_settings_that_cannot_work(
    setting: str,
    said: str | None,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_env(path)
    put_engine(tmp_path, monkeypatch, more='"pull "*) exit 5;;')
    name = setting.partition("=")[0]
    lines = [setting if line.startswith(f"{name}=") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    if said is None:
        assert compose.main(["up"]) == 5
        assert "fix: docker login registry:5000, or correct TIDEGATE_IMAGE in .env" in capfd.readouterr().err
        return
    with pytest.raises(ToolError, match=re.escape(said)):
        compose.main(["up"])
    assert not (tmp_path / "calls").exists()


def test_what_env_says_counts_and_a_comment_behind_it_does_not(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_env(path)
    put_engine(tmp_path, monkeypatch, more=f'*" up "*) echo "[$POSTGRES_PASSWORD]" > {tmp_path}/password;;')
    monkeypatch.setenv("POSTGRES_PASSWORD", "of-a-shell")
    text = path.read_text().replace("AIRFLOW_SCHEDULERS=1", "AIRFLOW_SCHEDULERS=1   # one is enough")
    path.write_text(text.replace("COMPOSE_PROFILES=core,kafka", 'COMPOSE_PROFILES="core"  # no kafka'))
    assert read_env(path)["AIRFLOW_SCHEDULERS"] == "1" and read_env(path)["COMPOSE_PROFILES"] == "core"
    assert compose.main(["up"]) == 0
    assert (tmp_path / "password").read_text() == "[]\n", "Compose reads it from .env"


def test_a_checkout_without_its_settings_file(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_env(path)
    put_engine(tmp_path, monkeypatch)
    monkeypatch.setattr(compose, "REPO_ROOT", tmp_path)
    with pytest.raises(ToolError, match=r"tidegate\.yaml cannot be read: No such file.*\n  fix: git checkout"):
        compose.main(["up"])


@pytest.mark.parametrize("action", ["up", "down"])
def test_services_of_another_checkout_are_left_alone(
    action: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_env(path)
    put_services(tmp_path, monkeypatch, "kafka", "other", "sha:new", checkout=Path("/srv/team/tidegate"))
    with pytest.raises(ToolError, match=r"started from another checkout: /srv/team/tidegate\n  fix: work there; if"):
        compose.main([action])
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("action", ["up", "down"])
def test_only_one_at_a_time(action: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_env(path)
    put_engine(tmp_path, monkeypatch)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ToolError, match="another `make up` or `make down` of this checkout is running"):
            compose.main([action])
    assert not (tmp_path / "calls").exists()


def test_another_tidegate_yaml_is_a_change(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_env(path)
    put_engine(tmp_path, monkeypatch, more=f'*" up "*) echo "$TIDEGATE_YAML_DIGEST" >> {tmp_path}/sums;;')
    monkeypatch.setattr(compose, "REPO_ROOT", tmp_path)
    for text in ("version: 1\n", "version: 1\nstate: elsewhere\n"):
        (tmp_path / "tidegate.yaml").write_text(text)
        assert compose.main(["up"]) == 0
    first, second = (tmp_path / "sums").read_text().split()
    assert len(first) == 64 and first != second
