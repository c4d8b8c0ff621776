"""Each extra as pip installs it today, in an empty environment: what doctor says of it, and a run.

Unlike test_wheel.py this downloads what the wheel depends on, so it is left to `make sweep`, which needs the package
index then.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.installed import Installed
from tools.matrix import build_wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel") / "dist")


@pytest.mark.parametrize("extras", ["spark", "spark,kafka", "airflow", "all", "all,pinned"])
def test_what_pip_installs_is_right_for_doctor_and_runs(tmp_path: Path, wheel: Path, extras: str) -> None:
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--python", str(folder / "bin/python")]
    subprocess.run([*uv, f"{wheel}[{extras}]"], check=True)
    work = tmp_path / "work"
    work.mkdir()
    made = Installed(folder, work)
    made.tidegate("init", "demo")
    told = made.call("tidegate", "doctor", "--json", cwd=work / "demo")
    findings = {one["check"]: one for one in json.loads(told.stdout)}
    assert told.returncode == 0, [one for one in findings.values() if not one["ok"]]
    report = json.loads(made.tidegate("run", "temperatures", "--json", cwd=work / "demo"))
    assert (report["outcome"], report["rows"]["published"]) == ("published", 22)
