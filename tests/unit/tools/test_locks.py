"""The locks that a fresh clone is built from."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

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
