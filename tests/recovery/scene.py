"""A pipeline with known input, and the oracle: what was offered is in the table or in quarantine, once, intact.

The pipeline reads csv, is partitioned, and has a quarantine rule, so every kind of file tidegate writes comes up. Three
kinds of records are offered, each with its own id: good ones, malformed ones, and ones a rule rejects.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.readers import read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.streaming import in_session
from tidegate.project import load_project
from tidegate.reports.run_ids import new_run_id
from tidegate.run.steps import run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "orders"
FAULTS = Path(__file__).parent / "faults"
REPOSITORY = Path(__file__).resolve().parents[2]

_PIPELINE = """\
version: 1
name: orders
schedule: null
sources:
  orders:
    type: files
    path: data/inbox
    format: csv
    schema: id STRING, amount INT, day DATE
    options: {maxFilesPerTrigger: 2}
table: {partition_by: [day]}
"""

SUITE = """\
name: orders
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: amount, min_value: 0, max_value: 1000}
    severity: critical
    meta: {rule: amount_in_range, on_failure: quarantine}
  - type: expect_column_values_to_not_be_null
    kwargs: {column: id}
    severity: critical
    meta: {rule: id_present}
"""


@dataclass
class Scene:
    """One project on disk, and what was offered to it."""

    root: Path
    good: dict[str, int] = field(default_factory=dict)
    malformed: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    files: int = 0

    @property
    def table(self) -> Path:
        """The table's folder."""
        return self.root / "data/warehouse" / NAME

    @property
    def quarantine(self) -> Path:
        """The quarantine table's folder."""
        return self.root / "data/quarantine" / NAME

    @property
    def state(self) -> Path:
        """The pipeline's state folder."""
        return self.root / "data/state" / NAME

    def offer(self, rows: int = 6, *, tag: str = "") -> Path:
        """Add one file of ``rows`` good records, a malformed and a rejected one."""
        self.files += 1
        stem = f"{tag}{self.files:04d}"
        lines = []
        for number in range(rows):
            key = f"g{stem}-{number}"
            self.good[key] = number * 7 % 1000
            lines.append(f"{key},{self.good[key]},2026-01-0{1 + number % 3}")
        self.malformed.add(f"m{stem}")
        self.rejected.add(f"r{stem}")
        lines += [f"m{stem},notanumber,2026-01-01", f"r{stem},-5,2026-01-02"]
        return self.put("inbox", stem, lines)

    def put(self, folder: str, stem: str, lines: list[str]) -> Path:
        """Add a csv file: written, then renamed in."""
        inbox = self.root / "data" / folder
        hidden = inbox / f".{stem}.csv.tmp"
        hidden.write_text("\n".join(lines) + "\n")
        return hidden.rename(inbox / f"{stem}.csv")

    def save(self, target: Path) -> Snapshot:
        """Keep the scene as it is now. Hard links become files of their own, as in a backup."""
        shutil.copytree(self.root, target, symlinks=True)
        return Snapshot(target, copy.deepcopy(self))

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

    @property
    def counter(self) -> Path:
        """Where a faulty run counts its steps; beside the project, so that it is no step itself."""
        return self.root.with_name(self.root.name + ".steps")

    def run(self, *command: str, fault: str | None = None, expect: int | None = 0) -> str:
        """Run a command to its end; its stdout. Fails the test unless it exits with ``expect`` (None: any code)."""
        process = self.start(*command, fault=fault)
        out, err = process.communicate(timeout=180)
        if expect is not None:
            assert process.returncode == expect, (
                f"{command} exited {process.returncode}\n{out.decode()}\n{err.decode()}"
            )
        return out.decode()

    def report(self, *command: str, expect: int | None = 0) -> dict[str, Any]:
        """Run a command with ``--json``; the report it prints."""
        value: dict[str, Any] = json.loads(self.run(*command, "--json", expect=expect))
        return value

    def processes(self) -> list[int]:
        """Every living process that works on this scene: the command, the JVM, the driver, its workers."""
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
        """Wait until no process of this scene lives: children die with the command, but not in the same instant."""
        until = time.monotonic() + seconds
        while left := self.processes():
            assert time.monotonic() < until, f"processes {left} outlived their command by {seconds} s"
            time.sleep(0.02)

    def steps(self) -> list[str]:
        """The steps that the last faulty run took."""
        return self.counter.read_text().splitlines() if self.counter.exists() else []

    def wanted(self) -> dict[str, Any]:
        """What the table holds when everything that was offered has gone through: a value by key."""
        return dict(self.good)

    def known_as(self, row: dict[str, Any]) -> tuple[str, Any]:
        """Key and value of a row of the table, as :meth:`wanted` has them."""
        return row["id"], row["amount"]

    def may_show(self, key: str, value: Any) -> bool:
        """Whether a reader may see this row at some moment."""
        return key in self.good

    def check_readers_now(self) -> None:
        """At any moment: no reader sees a row twice, a torn file, or a row that was not offered as good."""
        for read in (read_with_duckdb, read_with_deltalake):
            rows = [self.known_as(row) for row in read(self.table)]
            twice = [key for key, count in Counter(key for key, _ in rows).items() if count > 1]
            assert not twice, f"{read.__name__} sees twice: {twice[:5]}"
            foreign = sorted(str(row) for row in rows if not self.may_show(*row))
            assert not foreign, f"{read.__name__} sees rows that never passed: {foreign[:5]}"

    def check_complete(self, spark: SparkSession | None = None) -> None:
        """Everything offered is accounted for, once and intact, through every reader."""
        rows = [self.known_as(row) for row in read_agreed(self.table, spark)]
        assert Counter(key for key, _ in rows) == Counter(dict.fromkeys(self.wanted(), 1))
        assert dict(rows) == self.wanted()
        aside = read_agreed(self.quarantine, spark)
        malformed = Counter(_id_of(row["raw"]) for row in aside if row["reason"] == "malformed")
        rejected = Counter(self.rejected_as(row["raw"]) for row in aside if row["reason"] == "amount_in_range")
        assert malformed == Counter(dict.fromkeys(self.malformed, 1))
        assert rejected == Counter(dict.fromkeys(self.wanted_rejected(), 1))
        assert len(aside) == malformed.total() + rejected.total()

    def wanted_rejected(self) -> set[str]:
        """The rows that a rule has rejected by then."""
        return self.rejected

    def rejected_as(self, raw: str) -> str:
        """The key of a rejected row, as :attr:`rejected` has it."""
        return _id_of(raw)

    def catch_up(self, spark: SparkSession | None = None, run_id: str | None = None) -> None:
        """At most two clean runs, then everything must be there; a third finds nothing.

        With ``run_id`` the first is a retry of that run: between two of its steps the lease waits for it alone.
        """
        first = self.run_beside(spark, run_id)
        if first["outcome"] != "nothing_new":
            assert first["rows"]["published"] == first["rows"]["staged"] - first["rows"]["superseded"]
        self.run_beside(spark)
        self.check_complete(spark)
        assert self.run_beside(spark)["outcome"] == "nothing_new"

    def run_beside(self, spark: SparkSession | None, run_id: str | None = None) -> dict[str, Any]:
        """A run that nobody stops: its report. With a session it is spared the start of another JVM."""
        if spark is None:
            return self.report("run", NAME, *(["--run-id", run_id] if run_id else []))
        return run_pipeline(load_project(self.root), NAME, run_id or new_run_id(), submit=in_session(spark))


@dataclass(frozen=True)
class Snapshot:
    """A kept scene. It comes back at the place where it was: a checkpoint knows the folder it reads."""

    folder: Path
    scene: Scene

    def restore(self) -> Scene:
        """The scene as it was, whatever has happened there since."""
        shutil.rmtree(self.scene.root, ignore_errors=True)
        shutil.copytree(self.folder, self.scene.root, symlinks=True)
        return copy.deepcopy(self.scene)


def _id_of(raw: str) -> str:
    found = re.search(r"[gmr][a-z]?\d{4}(-\d+)?", raw)
    assert found, f"no id in {raw!r}"
    return found[0]


def make_scene(root: Path) -> Scene:
    """A new project with the pipeline, nothing offered yet."""
    for folder in ("jobs/orders", "expectations", "data/inbox"):
        (root / folder).mkdir(parents=True)
    (root / "tidegate.yaml").write_text(
        'version: 1\nspark: {master: "local[2]"}\nlease: {expires_after: 5 seconds}\n', encoding="utf-8"
    )
    (root / "jobs/orders/pipeline.yaml").write_text(_PIPELINE)
    (root / "expectations/orders.yaml").write_text(SUITE)
    shutil.copy(REPOSITORY / "jobs/tidegate_job.py", root / "jobs")
    return Scene(root)


def kill_when(
    scene: Scene, process: subprocess.Popen[bytes], appeared: Callable[[], bool], seconds: float = 120
) -> bool:
    """SIGKILL the command as soon as ``appeared()``; False when it ended before that."""
    until = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < until:
        if appeared():
            process.send_signal(signal.SIGKILL)
            process.communicate()
            scene.wait_until_gone()
            return True
        time.sleep(0.001)
    process.communicate()
    return False
