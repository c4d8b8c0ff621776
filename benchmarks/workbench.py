"""A fresh project for one case, and the two sides that are measured on the same input: tidegate, and a plain job."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.meter import Cost, measure

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


class BenchmarkError(Exception):
    """A run that was to be measured did not do its work; its log is in the message."""


@dataclass
class Workbench:
    """A temporary folder with a project (``project/``), copied from the repository's examples, and a plain job's
    things."""

    folder: Path

    def __post_init__(self) -> None:
        self.project = self.folder / "project"
        self.inbox = self.project / "data" / "inbox" / "orders"
        self.inbox.mkdir(parents=True)
        for name in ("jobs", "expectations"):
            shutil.copytree(ROOT / name, self.project / name, ignore=shutil.ignore_patterns("__pycache__"))
        (self.project / "tidegate.yaml").write_text((ROOT / "tidegate.yaml").read_text())
        self.plain_input = self.inbox
        self.env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": ""}
        self.runs = 0

    def run(self, pipeline: str = "orders", *, stop_when: Callable[[], bool] | None = None) -> Cost:
        """``tidegate run``; a run that fails, unless it was stopped on purpose, raises BenchmarkError."""
        cost = self._measure(
            [str(BIN / "tidegate"), "--project", str(self.project), "run", pipeline, "--json"], stop_when=stop_when
        )
        if stop_when is None and cost.exit_code != 0:
            raise BenchmarkError(f"tidegate run {pipeline} ended with {cost.exit_code}:\n{self._log_tail()}")
        return cost

    def run_plain(
        self, job: str, *arguments: str, submit: tuple[str, ...] = (), stop_when: Callable[[], bool] | None = None
    ) -> Cost:
        """``spark-submit`` of one of the plain jobs beside this file, with Spark's default settings."""
        command = [str(BIN / "spark-submit"), *submit, str(ROOT / "benchmarks" / job), *arguments]
        cost = self._measure(command, stop_when)
        if stop_when is None and cost.exit_code != 0:
            raise BenchmarkError(f"{job} ended with {cost.exit_code}:\n{self._log_tail()}")
        return cost

    def run_plain_files(self, *, stop_when: Callable[[], bool] | None = None) -> Cost:
        """The plain job over the same inbox; like tidegate it takes what came since its last run."""
        folders = self._plain_folders("plain")
        return self.run_plain("plain_files_job.py", str(self.inbox), *folders, stop_when=stop_when)

    def run_plain_gx(self) -> Cost:
        """The plain job with Great Expectations in its driver, over the same inbox."""
        suite = str(ROOT / "expectations" / "orders.yaml")
        return self.run_plain("plain_gx_job.py", str(self.inbox), *self._plain_folders("plain_gx"), suite)

    def receive(self, folder: Path) -> None:
        """Have the files of ``folder`` in the inbox."""
        for path in folder.iterdir():
            os.link(path, self.inbox / path.name)

    def expect_rows(self, rows: int, pipeline: str = "orders") -> None:
        """Refuse a figure of a run that did not do the work."""
        report = self.last_report(pipeline)
        if report["rows"]["read"] != rows or report["outcome"] != "published":
            found = f"{report['rows']}, {report['outcome']}"
            raise BenchmarkError(f"expected {rows} rows published, the report says {found}")

    def last_report(self, pipeline: str = "orders") -> dict[str, Any]:
        """The newest run report of ``pipeline``."""
        reports = sorted((self.state(pipeline) / "runs").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        report: dict[str, Any] = json.loads(reports[-1].read_text())
        return report

    def state(self, pipeline: str = "orders") -> Path:
        """The state folder of ``pipeline``."""
        return self.project / "data" / "state" / pipeline

    def table(self, pipeline: str = "orders") -> Path:
        """The table folder of ``pipeline``."""
        return self.project / "data" / "warehouse" / pipeline

    def plain_table(self, name: str = "plain") -> Path:
        """What a plain job wrote."""
        return self.folder / name / "table"

    def _plain_folders(self, name: str) -> tuple[str, str]:
        return str(self.plain_table(name)), str(self.folder / name / "checkpoint")

    def _measure(self, command: list[str], stop_when: Callable[[], bool] | None = None) -> Cost:
        self.runs += 1
        self._log = self.folder / f"run-{self.runs}.log"
        return measure(command, cwd=self.folder, env=self.env, log=self._log, stop_when=stop_when)

    def _log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])


def count_files(folder: Path, pattern: str = "*") -> int:
    """Files below ``folder``."""
    return sum(1 for path in folder.rglob(pattern) if path.is_file())


def take_median(costs: list[Cost]) -> Cost:
    """The median of each figure on its own."""
    return replace(
        costs[0],
        cpu_seconds=statistics.median(cost.cpu_seconds for cost in costs),
        wall_seconds=statistics.median(cost.wall_seconds for cost in costs),
        peak_rss_bytes=int(statistics.median(cost.peak_rss_bytes for cost in costs)),
        worker_rss_bytes=max(cost.worker_rss_bytes for cost in costs),
        processes=int(statistics.median(cost.processes for cost in costs)),
        java_processes=max(cost.java_processes for cost in costs),
    )


def alternate(repeats: int, *sides: Callable[[int], Cost]) -> list[Cost]:
    """Measure A B A B ..., so that a slow minute of the machine falls on all; the median of each side."""
    turns = [[side(number) for side in sides] for number in range(repeats)]
    return [take_median(list(costs)) for costs in zip(*turns, strict=True)]
