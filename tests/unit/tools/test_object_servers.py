"""Programs of the object stores get their place once and whole."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import object_servers
from tools.console import ToolError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are kept; it is not there yet."""
    monkeypatch.setattr(object_servers, "PROGRAMS", tmp_path / "programs")
    return tmp_path / "programs"


def test_a_program_that_several_ask_for_at_once_is_made_once(programs: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        time.sleep(0.2)
        (folder / "program").write_text("whole")

    with ThreadPoolExecutor(5) as pool:
        found = set(pool.map(lambda _: object_servers._ensure("server", "v1", "building", make), range(5)))
    assert found == {programs / "server" / "v1"}
    assert len(made) == 1 and (programs / "server" / "v1" / "program").read_text() == "whole"


def test_a_program_that_could_not_be_made_is_made_by_the_next_call(programs: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "program").write_text("half")
        object_servers._run(["/bin/sh", "-c", "echo no network; exit 3"], folder, {})

    with pytest.raises(ToolError, match="no network"):
        object_servers._ensure("server", "v1", "building", fail)
    assert [path.name for path in (programs / "server").iterdir()] == [".lock"]
    folder = object_servers._ensure("server", "v1", "building", lambda folder: (folder / "program").touch())
    assert (folder / "program").exists()


def test_a_folder_without_extended_attributes_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", refuse)
    assert not object_servers.has_attributes(tmp_path)
