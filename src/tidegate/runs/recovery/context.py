"""One run at work, as the steps hand it on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.facts import Facts, Situation
from tidegate.runs.reports.report import RunReport, save_report
from tidegate.sinks.feed import SinkFault
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.lease import Lease

if TYPE_CHECKING:
    from tidegate.sources.generators.sockets import Listeners
    from tidegate.spark.driver.submit import SubmitPlan

Submit: TypeAlias = "Callable[[SubmitPlan], int]"
"""Starts a Spark driver; its exit code."""


@dataclass
class RunContext:
    """One run at work: its settings, its lease and its report so far."""

    project: Project
    spec: PipelineSpec
    paths: PipelinePaths
    lease: Lease
    report: RunReport
    facts: Facts | None = None
    sink_faults: dict[str, SinkFault] = field(default_factory=dict)
    """Sinks that failed in this process, by name: they are not tried again until the next one."""
    requests_before: int = field(default_factory=storage.count_requests)
    """How many requests to object stores this process had sent when the last step ended."""
    drivers: list[str] = field(default_factory=list)
    """The logs of the Spark drivers that were started, those of side jobs included."""
    listeners: Listeners | None = None
    """Connections that outlive the run."""

    @property
    def name(self) -> str:
        """The pipeline."""
        return self.spec.name

    @property
    def situation(self) -> Situation:
        """The pipeline as the run found it."""
        assert self.facts is not None
        return Situation(self.project, self.spec, self.paths, self.facts)

    def note_step(self, step: str, began: float) -> None:
        """Put into the report how long a step took that began at ``began`` of the monotonic clock, and how many
        requests to object stores were sent since the step before."""
        self.report.duration_seconds[step] = round(time.monotonic() - began, 3)
        before, self.requests_before = self.requests_before, storage.count_requests()
        self.report.requests.pop(step, None)  # of an earlier try of the step
        if self.requests_before > before:
            self.report.requests[step] = self.requests_before - before

    def save(self) -> None:
        """Store the report, unless the lease is lost: the successor may have finished it."""
        self.lease.check()
        try:
            save_report(self.paths, self.report)
        except FileNotFoundError:
            self.lease.check()  # a successor removes what an overtaken process has written next to the report
            raise
