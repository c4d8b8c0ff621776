"""The locks that a fresh clone is built from."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.jars import DEFAULT_GROUPS, GROUPS, read_lock

ROOT = Path(__file__).resolve().parents[3]


def read_pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9_.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))


def test_spark_and_its_client_share_a_version() -> None:
    # They install into one folder: at two versions one silently overwrites the other's files.
    pins = read_pins("requirements.lock")
    assert pins["pyspark"] == pins["pyspark-client"]
    assert version("pyspark") == version("pyspark-client") == pins["pyspark"]


def test_bootstrap_installs_what_the_lock_says() -> None:
    pins, bootstrap = read_pins("requirements.lock"), read_pins("tools/bootstrap.lock")
    assert set(bootstrap) == {"uv", "setuptools"}
    assert {name: pins[name] for name in bootstrap} == bootstrap


@pytest.mark.parametrize("name", ["requirements.lock", "tools/bootstrap.lock"])
def test_every_package_is_hashed_and_no_address_is_written_down(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block.splitlines()[0]


@pytest.mark.parametrize("folder", ["tools/azurite", "ui"])
def test_every_npm_package_is_hashed_and_no_address_is_written_down(folder: str) -> None:
    packages = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]
    assert [name for name, one in packages.items() if name and not one.get("integrity")] == []
    assert [name for name, one in packages.items() if "resolved" in one] == []


def test_every_go_module_of_the_s3_server_is_hashed() -> None:
    required = re.findall(r"^(?:require)?\s+(\S+) (v\S+)", (ROOT / "tools/versitygw/go.mod").read_text(), re.MULTILINE)
    hashed = re.findall(r"^(\S+) (v\S+) h1:", (ROOT / "tools/versitygw/go.sum").read_text(), re.MULTILINE)
    assert "github.com/versity/versitygw" in dict(required)
    assert set(required) - set(hashed) == set()


def test_installed_packages_are_the_locked_ones() -> None:
    wrong = {name: (pin, version(name)) for name, pin in read_pins("requirements.lock").items() if version(name) != pin}
    assert not wrong


def test_every_group_of_jars_is_locked_from_its_roots() -> None:
    locked = read_lock()
    assert set(locked) == set(GROUPS) >= set(DEFAULT_GROUPS)
    for name, group in GROUPS.items():
        coordinates = {jar.coordinate for jar in locked[name]}
        assert set(group.roots) <= coordinates
        assert group.transitive or set(group.roots) == coordinates
        assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and jar.size_bytes > 0 for jar in locked[name])
        assert len({jar.file_name for jar in locked[name]}) == len(locked[name])


def test_what_is_locked_fits_the_ranges_of_the_package_and_has_the_pinned_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(one for extra in extras.values() for one in extra)]
    pins = read_pins("requirements.lock")
    ranges = [Requirement(one) for one in asked if not one.startswith("tidegate[")]
    assert {str(one) for one in ranges if pins[canonicalize_name(one.name)] not in one.specifier} == set()
    pinned = {Requirement(one).name for one in extras["pinned"]}
    assert pinned >= {"pyspark", "pyspark-client", "apache-airflow", "great-expectations", "deltalake"}


def test_the_oldest_versions_that_are_tried_are_the_lower_ends_of_the_ranges() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    oldest = dict(re.findall(r"^([a-z0-9-]+)==([0-9.]+)", (ROOT / "tools" / "oldest.txt").read_text(), re.MULTILINE))
    for text in [*project["dependencies"], *extras["spark"], *extras["kafka"], *extras["airflow"]]:
        requirement = Requirement(text)
        lowest = next(one.version for one in requirement.specifier if one.operator == ">=")
        assert oldest[requirement.name] in requirement.specifier
        assert (oldest[requirement.name] + ".").startswith(lowest + "."), f"{requirement.name}: {lowest} is not tried"
