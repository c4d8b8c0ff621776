"""On a machine without what the containers of the tests need, the reason for skipping says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compose import engine


def test_a_tool_that_is_missing_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine._ENVIRONMENT, "PATH", str(tmp_path))
    said = engine.find_obstacle()
    assert said is not None and "ip on PATH (Debian: apt install util-linux" in said


def test_namespaces_that_are_not_permitted_are_said_with_what_allows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in engine._TOOLS:
        script = "#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n"
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setitem(engine._ENVIRONMENT, "PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    said = engine.find_obstacle()
    assert said is not None
    assert "Operation not permitted" in said and "sysctl user.max_user_namespaces" in said
