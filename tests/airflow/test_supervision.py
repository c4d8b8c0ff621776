"""Stopping a step that runs in the task process itself (audit, publish, and ingest before its driver is there)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from airflow.sdk import BaseOperator

from tidegate.airflow.operators import AuditOperator, DeliverOperator, IngestOperator, PublishOperator

STEP = """
import signal, sys, time
from tidegate.airflow.supervision import stop_python_step
from tidegate.core.errors import TidegateError

signal.signal(signal.SIGTERM, lambda *_: stop_python_step())
until = time.monotonic() + 60
told = False
while time.monotonic() < until:
    try:
        if not told:
            told = True
            print("ready", flush=True)
        time.sleep(0.1)
    except TidegateError as error:
        if sys.argv[1] == "heeds":
            print(error.code, error.retry, flush=True)
            sys.exit(0)
"""


def run_step(how: str) -> tuple[int, str, float]:
    """A process that is told to stop: its exit code, its last words, and the seconds it took."""
    step = subprocess.Popen([sys.executable, "-c", STEP, how], stdout=subprocess.PIPE, text=True)
    assert step.stdout is not None
    assert step.stdout.readline() == "ready\n"
    began = time.monotonic()
    step.send_signal(signal.SIGTERM)
    said, _ = step.communicate(timeout=30)
    return step.returncode, said.strip(), time.monotonic() - began


def test_a_step_is_stopped_by_an_error_that_may_be_retried() -> None:
    code, said, seconds = run_step("heeds")
    assert (code, said) == (0, "KILLED True")
    assert seconds < 1


def test_a_step_that_swallows_the_error_is_ended_within_four_seconds() -> None:
    code, _, seconds = run_step("swallows")
    assert code == -signal.SIGKILL
    assert 3 < seconds < 4


@pytest.mark.parametrize("operator", [IngestOperator, AuditOperator, PublishOperator, DeliverOperator])
def test_every_task_heeds_a_kill(operator: type[BaseOperator]) -> None:
    assert operator.on_kill.__module__.startswith("tidegate.airflow."), "Airflow's own does nothing, or not enough"
