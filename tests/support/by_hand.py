"""A pipeline of files without Spark: a project as people have it, with the driver's work done by hand, all else real.

Each file that is offered is one row, so the table's ids tell which files were read, and how often.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import pytest

from tests.support.readers import read_agreed
from tests.support.staged import Stager
from tidegate.core.errors import TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.runs.gate_steps import audit_step, publish_step
from tidegate.runs.opening import recover_run
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.recovery.recover import sweep_attempts, sync_unpublished
from tidegate.runs.reports.report import load_report, new_report
from tidegate.runs.restart.new_query import pin_paths
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.sources.files.ledger import LedgerRow, NewFile, open_ledger
from tidegate.spark.driver.jvm import PINNED
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.birth import name_query, new_birth, read_birth, replace_birth, write_birth
from tidegate.state.checkpoint import list_entry, read_checkpoint
from tidegate.state.lease import Lease
from tidegate.state.manifest import SourceRange, refuse_tombstone, write_manifest
from tidegate.state.topics import FilePart

NAME = "orders"


@dataclass
class Leases:
    """Who holds the lease: whoever took it last."""

    newest: int = 0

    def take(self, *_: Any, **__: Any) -> TakenLease:
        """The lease, taken from whoever had it."""
        self.newest += 1
        return TakenLease(self, str(self.newest))


@dataclass
class TakenLease:
    """A lease until somebody else takes it."""

    leases: Leases
    token: str

    @property
    def number(self) -> int:
        return int(self.token)

    def is_current(self) -> bool:
        return str(self.leases.newest) == self.token

    def check(self) -> None:
        if not self.is_current():
            raise TryAgainError("LEASE_LOST", f"token {self.token}, and {self.leases.newest} is the newest")

    def release(self) -> None:
        """Nobody waits for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


@dataclass
class ByHand:
    """The pipeline ``orders`` in a project of its own under ``root``."""

    root: Path
    patch: pytest.MonkeyPatch
    mode: str = "append"
    leases: Leases = field(default_factory=Leases)
    offered: list[int] = field(default_factory=list)
    runs: int = 0

    def __post_init__(self) -> None:
        (self.root / "jobs" / NAME).mkdir(parents=True, exist_ok=True)
        (self.root / "data" / "inbox").mkdir(parents=True, exist_ok=True)
        (self.root / "tidegate.yaml").write_text("version: 1\n")
        self.write_spec("data/inbox")
        self.patch.setattr("tidegate.runs.restart.repair.acquire", self.leases.take)

    def write_spec(self, path: str) -> None:
        """The spec with another source path: under an existing checkpoint a disagreement, SPEC_CHANGED."""
        keys = "output_mode: update\ntable: {keys: [id]}\n" if self.mode == "update" else ""
        (self.root / "jobs" / NAME / "pipeline.yaml").write_text(
            f"version: 1\nname: {NAME}\nschedule: null\nsources:\n"
            f"  orders: {{type: files, path: {path}, format: csv, schema: 'id BIGINT, n BIGINT'}}\n{keys}"
        )

    @property
    def project(self) -> Project:
        return load_project(self.root, {})

    @property
    def spec(self) -> PipelineSpec:
        return load_pipeline(self.project, NAME)

    @property
    def paths(self) -> PipelinePaths:
        return self.project.paths(NAME)

    def offer(self, *ids: int) -> None:
        """One more file for each id."""
        self.offered += ids
        for number in ids:
            (self.root / f"data/inbox/{number}.csv").write_text(f"{number},0\n")

    def open(self, lease: TakenLease | None = None) -> RunContext:
        """What a step of a run has at hand."""
        taken = cast(Lease, lease or self.leases.take())
        self.runs += 1
        run_id = f"run {self.runs}"
        paths = pin_paths(self.paths, taken)
        report = load_report(paths, run_id) or new_report(NAME, run_id)
        return RunContext(self.project, self.spec, paths, taken, report)

    def run(self) -> None:
        """A run from its beginning to its end."""
        context = self.open()
        self.ingest(context)
        self.publish(context)

    def ingest(self, context: RunContext) -> None:
        """Everything that is new, one batch; the driver's work as Spark and the stager do it."""
        facts = recover_run(context)
        check_agreement(facts, NAME)
        paths = context.paths
        if read_birth(paths) is None:
            write_birth(paths, new_birth(paths, context.spec, {"orders": {}}, dict(PINNED)))
        born = read_birth(paths)
        assert born is not None
        if born.state is None:
            context.lease.check()
            replace_birth(paths, replace(born, state=[]))
        with open_ledger(paths, lease=context.lease) as ledger:
            new = sorted(self.root.glob("data/inbox/*.csv"))
            files = [NewFile(f"data/inbox/{path.name}", path.stat().st_size, 1, "") for path in new]
            rows = [row for row in ledger.add_links("orders", files) if row.state == "linked"]
        sweep_attempts(paths, facts, context.lease)
        if rows or facts.in_flight is not None:
            context.lease.check()
            self.drive(context, rows)
        context.lease.check()
        facts = context.facts = gather_facts(paths, context.spec)
        if facts.query_id is not None:
            name_query(paths, facts.query_id)
        sync_unpublished(paths, context.spec, facts, context.lease)

    def drive(self, context: RunContext, rows: list[LedgerRow]) -> None:
        """One batch of Spark's: planned, staged, committed."""
        checkpoint, paths = context.paths.checkpoint, context.paths
        files = BatchFiles(checkpoint, "orders")
        before = read_checkpoint(checkpoint)
        query_id = before.query_id or str(uuid.uuid4())
        if before.query_id is None:
            _put(checkpoint / "metadata", json.dumps({"id": query_id}))
        batch = before.in_flight if before.in_flight is not None else (before.last_offset or 0)
        if before.in_flight is None and before.last_offset is not None:
            batch += 1
        if before.in_flight is None:
            files.put(BatchFile(batch, parts=[FilePart(row.link) for row in rows]))
            listed = list_entry(files.path(batch), batch).decode()
            _put(checkpoint / "sources" / "orders" / str(batch), f"v1\n{listed}")
            _put(checkpoint / "offsets" / str(batch), f'v2\n{{"batchWatermarkMs":0}}\norders:{{"logOffset":{batch}}}')
        links = set(files.read(batch).links)
        mine = [row for row in rows if row.link in links]
        manifest_path = paths.manifest(query_id, batch)
        refuse_tombstone(manifest_path)
        if not manifest_path.exists():
            stager = Stager(paths, {"id": "long", "n": "long"}, [], query_id)
            values = [{"id": int(Path(row.path).stem), "n": batch} for row in mine]
            if self.mode == "update" and batch > 0:
                values.append({"id": self.offered[0], "n": batch})
            manifest = stager.stage(batch, values, attempt=uuid.uuid4().hex[:12])
            read = [{"path": r.path, "size": r.size, "mtime_ns": r.mtime_ns, "link": r.link} for r in mine]
            taken = {"orders": SourceRange(rows=len(values), malformed=0, files=read)}
            manifest = replace(
                manifest, sources=taken, run_id=context.report.run_id, staged_at=f"2026-01-01T00:00:{self.runs:02d}"
            )
            context.lease.check()
            write_manifest(manifest_path, manifest)
        _put(checkpoint / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')

    def publish(self, context: RunContext) -> None:
        """Audit and publish what is unpublished."""
        if recover_run(context).unpublished:
            audit_step(context)
            publish_step(context)

    def repair(self, **how: Any) -> dict[str, Any]:
        """``tidegate repair``."""
        return repair_pipeline(self.project, NAME, dry_run=False, **how)

    def ids(self) -> list[int]:
        """The ids of the table, as every reader sees them."""
        return sorted(row["id"] for row in read_agreed(self.paths.table))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
