"""A project on disk with one pipeline, and its runs: the one way in which tests make and run a pipeline.

A run has one of three modes, all of them the product's own code:

- real submit: the command line, which starts spark-submit. What people and schedulers call, and what can be killed.
- shared session: in this process, the driver in the Spark session of all tests (:func:`in_session`). Spares a JVM.
- in process: without Spark, the driver's work done by a function that the test gives as ``submit``.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidegate.cli.main import main
from tidegate.runs.recovery.context import Submit
from tidegate.runs.reports.report import new_run_id
from tidegate.runs.steps import run_pipeline
from tidegate.spark.delivery.job import main as deliver
from tidegate.spark.driver.order import DeliveryOrder
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spark.ingest.job import drain_order
from tidegate.spec.project import Project, load_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).parent / "faults"
_ONE_SESSION = "spark.sql.streaming.stateStore.providerClass"


def in_session(spark: SparkSession) -> Callable[[SubmitPlan], int]:
    """A ``submit`` that runs the driver here, with the SQL settings of the plan; they are put back afterwards."""

    def submit(plan: SubmitPlan) -> int:
        wanted = {key: value for key, value in plan.conf.items() if key.startswith("spark.sql.")}
        wanted = {key: value for key, value in wanted.items() if spark.conf.isModifiable(key)}
        wanted[_ONE_SESSION] = spark.conf.get(_ONE_SESSION)
        before = {key: spark.conf.get(key, None) for key in wanted}
        try:
            for key, value in wanted.items():
                spark.conf.set(key, value)
            path = Path(plan.application_args[0])
            order = json.loads(path.read_bytes())
            return deliver(DeliveryOrder(**order)) if order.get("kind") == "delivery" else drain_order(path)
        finally:
            for key, old in before.items():
                if old is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, old)

    return submit


def _first_error(text: str) -> str:
    """The first line that says what went wrong: a summary of failed tests has room for one."""
    found = re.search(r"^[A-Z][A-Z_]+: .*", text, re.MULTILINE)
    return found[0] if found else "no error was printed"


@dataclass
class PipelineProject:
    """A project under ``root`` with the pipeline ``name``."""

    root: Path
    name: str = field(default="orders", kw_only=True)

    def create(self, settings: str = "", conf: str = "") -> None:
        """The folders of an empty project, tidegate.yaml with further ``settings`` and Spark's ``conf``, the job; the
        spec is the test's."""
        for folder in (self.job, self.root / "expectations", self.inbox):
            folder.mkdir(parents=True, exist_ok=True)
        self.write("tidegate.yaml", f'version: 1\nspark: {{master: "local[2]", conf: {{{conf}}}}}\n{settings}')
        shutil.copy(REPOSITORY / "jobs/tidegate_job.py", self.root / "jobs")

    @property
    def project(self) -> Project:
        """The project as it is now."""
        return load_project(self.root)

    @property
    def job(self) -> Path:
        """The pipeline's folder."""
        return self.root / "jobs" / self.name

    @property
    def inbox(self) -> Path:
        """Where a source of files looks."""
        return self.root / "data/inbox"

    @property
    def table(self) -> Path:
        """The table's folder."""
        return self.root / "data/warehouse" / self.name

    @property
    def quarantine(self) -> Path:
        """The quarantine table's folder."""
        return self.root / "data/quarantine" / self.name

    @property
    def state(self) -> Path:
        """The pipeline's state folder."""
        return self.root / "data/state" / self.name

    def write(self, path: str, text: str) -> Path:
        """A file of the project."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    # -- in this process --

    def run(self, run_id: str | None = None, *, submit: Submit | None = None) -> dict[str, Any]:
        """One run; its report. With ``submit`` in this process, and it raises what the run ends with; without, by the
        command line."""
        if submit is None:
            return self.report("run", self.name, *(["--run-id", run_id] if run_id else []))
        return run_pipeline(self.project, self.name, run_id or new_run_id(), submit=submit)

    # -- the command line --

    def start(self, *command: str, fault: str | None = None) -> subprocess.Popen[bytes]:
        """Start a tidegate command in the project; ``fault`` is ``N|kill`` or ``N|freeze``, with the
        number of a step, a pattern of its text, or ``appears GLOB`` (faults/sitecustomize.py)."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("FAULT_", "AIRFLOW"))}
        environment["TEST_SCENE"] = str(self.root)
        if fault is not None:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FAULTS), os.environ.get("PYTHONPATH")]))
            step, mode = fault.rsplit("|", 1)
            self.counter.unlink(missing_ok=True)
            environment["FAULT_AT"] = f"{self.root}/|{self.counter}|{step}|{mode}"
        return subprocess.Popen(
            [sys.executable, "-m", "tidegate.cli.main", "--project", str(self.root), *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def tidegate(self, *command: str, fault: str | None = None, expect: int | None = 0) -> str:
        """Run a command to its end; its stdout. Fails the test unless it exits with ``expect`` (None: any code)."""
        process = self.start(*command, fault=fault)
        out, err = process.communicate(timeout=180)
        if expect is not None:
            assert process.returncode == expect, (
                f"{command} exited {process.returncode}: {_first_error(err.decode())}\n{out.decode()}\n{err.decode()}"
            )
        return out.decode()

    def report(self, *command: str, expect: int | None = 0) -> dict[str, Any]:
        """Run a command with ``--json``; the report it prints. Of one that fails it comes before the error."""
        value: dict[str, Any]
        value, _ = json.JSONDecoder().raw_decode(self.tidegate(*command, "--json", expect=expect))
        return value

    def call(self, *command: str, expect: int = 0) -> str:
        """As :meth:`tidegate`, in this process: for what a command prints and its exit code."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setattr(sys, "argv", ["tidegate", "--project", str(self.root), *command])
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setattr("signal.signal", lambda *a: None)
            patch.setattr("tidegate.cli.work.command_line.printed", False)
            main()
        assert ended.value.code == expect, (
            f"{command} exited {ended.value.code}: {_first_error(err.getvalue())}\n{out.getvalue()}\n{err.getvalue()}"
        )
        return out.getvalue()

    @property
    def counter(self) -> Path:
        """Where a faulty run counts its steps; beside the project, so that it is not a step itself."""
        return self.root.with_name(self.root.name + ".steps")

    def steps(self) -> list[str]:
        """The steps that the last faulty run took."""
        return self.counter.read_text().splitlines() if self.counter.exists() else []

    def processes(self) -> list[int]:
        """Every living process that works on this project: the command, the JVM, the driver, its workers."""
        needle = f"TEST_SCENE={self.root}".encode()
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                try:
                    with open(f"/proc/{entry}/environ", "rb") as handle:
                        environment = handle.read().split(b"\0")
                    with open(f"/proc/{entry}/stat", "rb") as handle:
                        is_zombie = handle.read().rpartition(b")")[2].split()[0] == b"Z"
                except OSError:
                    continue
                if needle in environment and not is_zombie:
                    found.append(int(entry))
        return found

    def wait_until_gone(self, seconds: float = 10) -> None:
        """Wait until no process of it lives: children die with the command, but not in the same instant."""
        until = time.monotonic() + seconds
        while left := self.processes():
            assert time.monotonic() < until, f"processes {left} outlived their command by {seconds} s"
            time.sleep(0.02)
