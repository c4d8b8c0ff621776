"""The local Airflow's own behaviour, as far as it needs no server; live/ has the rest."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tools.airflow_local import Airflow, find_airflow, make_environment, start_airflow
from tools.console import ToolError
from tools.processes import read_start_ticks


def test_a_port_in_use_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ToolError, match=f"port {port}, which Airflow needs, is in use") as caught:
            start_airflow(tmp_path / "home", tmp_path, port)
    assert "AIRFLOW_PORT=" in str(caught.value)
    assert not (tmp_path / "home").exists()


def test_settings_of_another_airflow_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__UNIT_TEST_MODE", "True")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://elsewhere")
    monkeypatch.setenv("AIRFLOW_HOME", "/elsewhere")
    environment = make_environment(tmp_path / "home", tmp_path, 8181, tmp_path / "dags", tmp_path / "plugins")
    assert "AIRFLOW__CORE__UNIT_TEST_MODE" not in environment
    assert environment["AIRFLOW_HOME"] == str(tmp_path / "home")
    assert environment["AIRFLOW__API__BASE_URL"] == "http://localhost:8181"
    assert environment["TIDEGATE_PROJECT"] == str(tmp_path)
    # JSON, because a URI that Airflow cannot parse silently becomes master `yarn`.
    assert json.loads(environment["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] == "local[2]"


def test_a_note_of_a_server_that_is_gone_finds_nothing_also_when_its_pid_lives_again(tmp_path: Path) -> None:
    assert find_airflow(tmp_path) is None
    note = {"pid": os.getpid(), "start_ticks": (read_start_ticks(os.getpid()) or 0) - 1, "port": 8080}
    (tmp_path / "standalone.json").write_text(json.dumps(note))
    assert find_airflow(tmp_path) is None
    (tmp_path / "standalone.json").write_text('{"pid":')
    assert find_airflow(tmp_path) is None


def test_stopping_what_has_ended_signals_nobody(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "100"])
    try:
        Airflow(tmp_path, 8080, process.pid, start_ticks=1).stop()
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
