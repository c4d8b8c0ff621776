"""What `make setup` says when something is missing, and when it has nothing to do."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tools import setup
from tools.console import ToolError


def put_java(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "java").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", r"Java 17 is needed, .*/java is 11\.0\.2"),
        ("echo 'java version \"1.8.0_202\"' >&2", r"is 1\.8\.0_202"),
        ("echo 'Unable to locate a Java Runtime.' >&2; exit 1", "does not work: Unable to locate a Java Runtime"),
    ],
)
def test_a_java_that_will_not_do_is_named(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_java(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ToolError, match=said) as caught:
        setup._check_java()
    assert "install Java 17" in str(caught.value)


def test_java_17_and_later_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("17.0.15", "21"):
        put_java(tmp_path, f"echo 'openjdk version \"{version}\"' >&2")
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        setup._check_java()


def test_no_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="there is no `java` on PATH"):
        setup._check_java()


def test_another_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    with pytest.raises(ToolError, match=r"Python 3\.11 is needed"):
        setup._check_python()


def test_a_full_disk_is_said_with_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(setup, "VENV", tmp_path / "none")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12 - 5 * 10**8, 5 * 10**8))
    with pytest.raises(ToolError, match=r"4\.0 GB are needed .*, 0\.5 GB are free"):
        setup._check_disk()


def test_setup_is_done_until_an_input_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in setup.PACKAGE_INPUTS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    settings = '[project]\nversion = "1"\n[build-system]\n[tool.ruff]\nline-length = 120\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    monkeypatch.setattr(setup, "REPO_ROOT", tmp_path)
    monkeypatch.setattr(setup, "VENV_PYTHON", Path(sys.executable))
    monkeypatch.setattr(setup, "STAMP", tmp_path / "stamp.json")
    assert not setup._is_done()
    before = setup._sum_inputs()
    (tmp_path / "stamp.json").write_text(json.dumps(before))
    assert setup._is_done()
    (tmp_path / "pyproject.toml").write_text(settings.replace("120", "100"))
    assert setup._is_done()  # how the code is formatted is no matter of installing
    (tmp_path / "pyproject.toml").write_text(settings.replace('"1"', '"2"'))
    assert not setup._is_done()
    assert setup._sum_inputs()["packages"] == before["packages"]
    (tmp_path / "requirements.lock").write_text("another")
    assert setup._sum_inputs()["packages"] != before["packages"]
