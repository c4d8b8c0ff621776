"""A pipeline in update or complete mode without Spark: staged by hand, taken through the gate itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tests.support.staged import QUERY, Stager, make_paths, note_birth
from tidegate.core import storage
from tidegate.core.errors import TryAgainError
from tidegate.runs.gate_steps import audit_step, publish_step
from tidegate.runs.opening import recover_run
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import sweep_attempts
from tidegate.runs.reports.report import RunReport, load_report, new_report
from tidegate.runs.restart.recorded import record_rollback
from tidegate.runs.restart.versions import look_back
from tidegate.spec.models import PipelineSpec, ProjectSpec
from tidegate.spec.project import Project
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchManifest, write_manifest
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.intent import pending_intents


@dataclass
class FakeLease:
    """A lease that is held as long as ``holds`` says so."""

    holds: Callable[[], bool] = lambda: True
    token: int = 1
    number: int = 1

    def is_current(self) -> bool:
        return self.holds()

    def check(self) -> None:
        if not self.holds():
            raise TryAgainError("LEASE_LOST", "lost")


@dataclass
class Keyed:
    """A pipeline ``orders`` under ``root``; ``next_batch`` is the batch that is staged next."""

    root: Path
    columns: dict[str, str] = field(default_factory=lambda: {"id": "long", "city": "string", "n": "long"})
    keys: list[str] = field(default_factory=lambda: ["id"])
    partition_by: list[str] = field(default_factory=list)
    order_by: str | list[str] | None = None
    mode: str = "update"
    keep_versions: str = "7 days"
    sinks: list[dict[str, Any]] = field(default_factory=list)
    readers: str = "both"
    next_batch: int = 0
    lake: Path | None = None

    def __post_init__(self) -> None:
        self.paths = make_paths(self.root, lake=self.lake)
        self.stager = Stager(self.paths, self.columns, self.partition_by)
        note_birth(self.paths)

    @property
    def spec(self) -> PipelineSpec:
        """The spec as it is now: a test may change ``keys`` between runs."""
        source = {"type": "kafka", "topics": ["orders"], "format": "json", "schema": "id BIGINT"}
        table = {"partition_by": self.partition_by, "keys": self.keys, "readers": self.readers}
        table["order_by"] = self.order_by
        keep = {"keep_versions": self.keep_versions}
        spec = {"version": 1, "name": "orders", "sources": {"orders": source}, "output_mode": self.mode, "table": table}
        return PipelineSpec.read({**spec, "maintenance": keep, "sinks": self.sinks})

    def stage(self, *batches: list[dict[str, Any]], files: int = 1) -> list[BatchManifest]:
        """Batches as the driver leaves them."""
        manifests = []
        for rows in batches:
            manifest = self.stager.stage(self.next_batch, rows, files=files)
            write_manifest(self.paths.manifest(QUERY, self.next_batch), manifest)
            manifests.append(manifest)
            self.next_batch += 1
        return manifests

    def context(self, run_id: str, holds: Callable[[], bool] = lambda: True) -> RunContext:
        """What a step of a run has at hand."""
        report = load_report(self.paths, run_id) or new_report("orders", run_id)
        lease = cast(Lease, FakeLease(holds))
        return RunContext(Project(self.root, ProjectSpec()), self.spec, self.paths, lease, report)

    def run(self, run_id: str | None = None, holds: Callable[[], bool] = lambda: True) -> RunReport:
        """Finish what was begun, then judge and publish what is unpublished; the report that is stored afterwards."""
        run_id = run_id or f"run up to {self.next_batch - 1}"
        context = self.context(run_id, holds)
        with storage.listed_once(self.paths.table, self.paths.quarantine):
            facts = recover_run(context)
            sweep_attempts(self.paths, facts, context.lease)
            if facts.unpublished:
                audit_step(context)
                publish_step(context)
        return load_report(self.paths, run_id) or context.report

    def last_batch(self) -> int:
        """The batch that the table's log holds last."""
        state = read_table_state(self.paths.table, (QUERY,))
        return -1 if state is None else state.txns.get(QUERY, -1)

    def leftovers(self) -> list[str]:
        """Files that are still staged, and plans that are still begun, in a pipeline that has nothing to do."""
        assert pending_intents(self.paths) == []
        found = [path for folder in (self.paths.staging, self.paths.manifests) for path in folder.rglob("*")]
        return [str(path.relative_to(self.paths.state)) for path in found if path.is_file()]


def roll_back(
    keyed: Keyed, version: int, run_id: str = "back", holds: Callable[[], bool] = lambda: True
) -> RunReport | None:
    """What the command does once it has the lease."""
    context = keyed.context(run_id, holds)
    facts = recover_run(context)
    sweep_attempts(keyed.paths, facts, context.lease)
    if context.report.outcome is None:
        record_rollback(context, look_back(keyed.paths, facts, version), "leave-out")
        recover_run(context)
    return load_report(keyed.paths, run_id)
