"""The hook with a real spark-submit: what reaches the driver, its exit code, and that no kill leaves a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidegate.core.process.tree import ProcessMark, list_tree
from tidegate.spark.driver.submit import SubmitPlan  # noqa: F401  (the stand-in builds one: fail here, not in there)

STAND_INS = Path(__file__).parent / "stand_ins"
CANARIES = ("canary-in-conf", "canary-in-env")


def start_task(report: Path, seconds: float, exit_code: int = 0, stubborn: bool = False) -> subprocess.Popen[str]:
    """A stand-in for the task process, its log in a file (a full pipe would stop it)."""
    env = {**os.environ, "AIRFLOW_CONN_GATE_LOCAL": json.dumps({"conn_type": "spark", "host": "local[2]"})}
    args = [str(report), str(seconds), str(exit_code), "yes" if stubborn else "no"]
    log = report.with_suffix(".log").open("w")
    with log:
        return subprocess.Popen(
            [sys.executable, str(STAND_INS / "task_process.py"), *args],
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def wait_for_workers(task_pid: int, report: Path) -> list[ProcessMark]:
    """The whole tree, once JVM, driver and Python workers all run."""
    until = time.monotonic() + 90
    while time.monotonic() < until:
        tree = list_tree(task_pid)
        commands = [read_command(mark.pid) for mark in tree]
        if report.exists() and sum("pyspark.daemon" in command for command in commands) >= 2:
            assert any("org.apache.spark.deploy.SparkSubmit" in command for command in commands)
            return tree
        if not tree:
            break
        time.sleep(0.1)
    raise AssertionError(f"the driver did not come up: {report.with_suffix('.log').read_text()[-3000:]}")


def read_command(pid: int) -> str:
    """The command line of a process, or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(mark: ProcessMark) -> bool:
    """Whether that very process (not a later one with its id) still runs."""
    try:
        raw = Path(f"/proc/{mark.pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    fields = raw[raw.rfind(b")") + 2 :].split()
    return fields[0] not in (b"Z", b"X") and int(fields[19]) == mark.started_ticks


def wait_until_gone(tree: list[ProcessMark], seconds: float) -> float:
    """Seconds until nothing of ``tree`` lives."""
    began = time.monotonic()
    while left := [mark for mark in tree if is_alive(mark)]:
        if time.monotonic() - began > seconds:
            commands = [read_command(mark.pid)[:200] for mark in left]
            for mark in left:
                os.kill(mark.pid, signal.SIGKILL)
            raise AssertionError(f"{len(left)} processes left after {seconds} s: {commands}")
        time.sleep(0.02)
    return time.monotonic() - began


def read_ending(report: Path) -> dict[str, object]:
    """How the stand-in says it ended."""
    return json.loads(report.with_suffix(".log").read_text().splitlines()[-1])  # type: ignore[no-any-return]


def test_settings_reach_the_driver_and_no_argument_or_log_shows_them(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    task = start_task(report, seconds=3, exit_code=66)
    tree = wait_for_workers(task.pid, report)
    seen = [read_command(mark.pid) for mark in tree]
    task.wait(timeout=60)
    assert read_ending(report) == {"exit_code": 66}
    told = json.loads(report.read_text())
    assert told["conf"]["spark.gate.password"] == "canary-in-conf"
    assert told["conf"]["spark.gate.text"] == "a\\b=c:d é\t# ! end"
    assert told["password"] == "canary-in-env"
    assert told["python"] == sys.executable
    assert len(seen) >= 4
    log = report.with_suffix(".log").read_text(errors="replace")
    for canary in CANARIES:
        assert not [command for command in seen if canary in command]
        assert canary not in log
    assert "progress: batch 3 | 12,000 rows" in log
    assert "a line with \\u001b[31ma colour" in log
    assert "a line that is not UTF-8: \N{REPLACEMENT CHARACTER}" in log
    wait_until_gone(tree, 5)


@pytest.mark.parametrize("stubborn", [False, True], ids=["obedient", "stubborn"])
def test_a_kill_ends_the_whole_tree_within_four_seconds(tmp_path: Path, stubborn: bool) -> None:
    report = tmp_path / "report.json"
    task = start_task(report, seconds=600, stubborn=stubborn)
    tree = wait_for_workers(task.pid, report)
    began = time.monotonic()
    os.kill(task.pid, signal.SIGTERM)
    wait_until_gone([mark for mark in tree if mark.pid != task.pid], 4)
    assert time.monotonic() - began < 4
    task.wait(timeout=20)
    ending = read_ending(report)
    assert ending["error"] == "KILLED"
    assert float(str(ending["kill_seconds"])) < 4


def test_a_killed_task_process_takes_everything_along(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    task = start_task(report, seconds=600, stubborn=True)
    tree = wait_for_workers(task.pid, report)
    os.kill(task.pid, signal.SIGKILL)
    task.wait(timeout=10)
    # The JVM goes at once (kernel); driver and workers find their JVM gone.
    wait_until_gone([mark for mark in tree if "SparkSubmit" in read_command(mark.pid)], 1)
    wait_until_gone(tree, 4)


def test_a_killed_supervisor_takes_everything_along(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    read_end, write_end = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        task = start_task(report, seconds=600)
        os.write(write_end, str(task.pid).encode())
        task.wait()
        os._exit(0)
    os.close(write_end)
    task_pid = int(os.read(read_end, 20))
    os.close(read_end)
    tree = wait_for_workers(task_pid, report)
    os.kill(supervisor, signal.SIGKILL)
    os.waitpid(supervisor, 0)
    wait_until_gone(tree, 4)
