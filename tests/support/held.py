"""A pipeline whose first increment is held, without Spark: the real commands; driver, judge and lease are replaced."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.delta import open_table
from tests.support.readers import read_agreed
from tests.support.staged import QUERY, Stager, note_birth
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tests.support.texts import write_project
from tidegate.core import storage
from tidegate.core.errors import HeldError, TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.quality.engine import RuleResult
from tidegate.runs import decide, steps
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import load_report
from tidegate.runs.reports.verdicts import Answer, Ruling
from tidegate.spec.project import Project, load_project
from tidegate.state.manifest import BatchManifest, SourceRange, StagedFile, write_manifest
from tidegate.table.log.state import read_table_state
from tidegate.table.quarantine.read import write_quarantine_rows

NAME = "orders"
_SPEC = f"""version: 1
name: {NAME}
schedule: null
sources:
  orders: {{type: kafka, topics: [orders], format: json, schema: "id BIGINT, n BIGINT"}}
"""
_SUITE = f"""name: {NAME}
expectations:
  - {{type: expect_column_values_to_not_be_null, kwargs: {{column: id}}, severity: critical, meta: {{rule: good}}}}
"""
COLUMNS = {"id": "long", "n": "long"}
BAD = [{"id": None, "n": n} for n in (1, 2, 3)]
GOOD = [{"id": n, "n": n} for n in (4, 5, 6, 7)]


@dataclass
class Leases:
    """Leases without files: the one given last is current. Asking for one ends the one before, as a dead holder's."""

    newest: int = 0

    def acquire(self, paths: PipelinePaths, **how: Any) -> OneLease:
        self.newest += 1
        return OneLease(self, self.newest)


@dataclass
class OneLease:
    leases: Leases
    token: int
    left_by: None = None

    @property
    def number(self) -> int:
        return self.token

    def is_current(self) -> bool:
        return self.leases.newest == self.token

    def check(self) -> None:
        if not self.is_current():
            raise TryAgainError("LEASE_LOST", "lost")

    def park(self, seconds: float) -> None:
        """As a lease's."""

    def release(self) -> None:
        """As a lease's."""


@dataclass
class Held:
    """A project under ``root``. ``arriving`` are batches that the next drain brings into staging."""

    root: Path
    mode: str = "append"
    next_batch: int = 0
    on_critical: str = "hold"
    malformed: int = 0
    """How many quarantined records each batch brings."""
    arriving: list[list[dict[str, Any]]] = field(default_factory=list)
    drained: list[list[int]] = field(default_factory=list)
    """What was pending when a run began to read."""

    def __post_init__(self) -> None:
        spec = _SPEC + ("" if self.mode == "append" else f"output_mode: {self.mode}\ntable: {{keys: [n]}}\n")
        spec += "" if self.on_critical == "hold" else f"quality: {{on_critical: {self.on_critical}}}\n"
        write_project(self.root, {f"jobs/{NAME}/pipeline.yaml": spec, f"expectations/{NAME}.yaml": _SUITE})
        note_birth(self.paths)

    @property
    def project(self) -> Project:
        return load_project(self.root)

    @cached_property
    def paths(self) -> PipelinePaths:
        return self.project.paths(NAME)

    def copy(self, root: Path) -> Held:
        """The same project elsewhere."""
        shutil.copytree(self.root, root)
        return Held(root, self.mode, self.next_batch, self.on_critical, self.malformed)

    def stage(self, *batches: list[dict[str, Any]], run_id: str | None = None) -> None:
        """Batches as a driver leaves them."""
        for rows in batches:
            manifest = Stager(self.paths, COLUMNS, []).stage(self.next_batch, rows)
            if self.malformed:
                manifest = self._set_aside(manifest, run_id or manifest.run_id)
            if run_id is not None:
                manifest = type(manifest)(**{**vars(manifest), "run_id": run_id})
            write_manifest(self.paths.manifest(QUERY, self.next_batch), manifest)
            self.next_batch += 1

    def _set_aside(self, manifest: BatchManifest, run_id: str) -> BatchManifest:
        """The manifest with quarantined records: raw texts that name batch and number."""
        folder = self.paths.attempts(QUERY, manifest.batch_id) / manifest.attempt / "quarantine"
        folder.mkdir(parents=True)
        path = folder / "part-00000.parquet"
        raw = [f"{manifest.batch_id}.{n}" for n in range(self.malformed)]
        common = {"pipeline": NAME, "run_id": run_id, "source": "orders", "reason": "malformed", "detail": "not JSON"}
        write_quarantine_rows(path, [{**common, "raw": one, "quarantined_at": datetime.now(UTC)} for one in raw])
        name = str(path.relative_to(self.paths.state))
        file = StagedFile(name, self.malformed, path.stat().st_size, sha256=storage.digest(path))
        source = SourceRange(rows=manifest.staged + self.malformed, malformed=self.malformed)
        return replace(manifest, quarantine_files=[file], quarantined=self.malformed, sources={"orders": source})

    def quarantined(self) -> list[str]:
        """The raw text of every record in the quarantine table, as plain and Delta readers see them."""
        if read_table_state(self.paths.quarantine) is None:
            assert not list(self.paths.quarantine.glob("*.parquet"))
            return []
        return sorted(row["raw"] for row in read_agreed(self.paths.quarantine))

    def drain(self, context: RunContext, submit: object, accept_loss: str | None) -> None:
        """Stands for the driver: what arrives is staged."""
        assert context.facts is not None
        self.drained.append([manifest.batch_id for manifest in context.facts.unpublished])
        self.stage(*self.arriving, run_id=context.report.run_id)
        self.arriving = []
        context.facts = gather_facts(self.paths, context.spec)

    def run(self, run_id: str, *arriving: list[dict[str, Any]]) -> dict[str, Any]:
        self.arriving = list(arriving)
        return steps.run_pipeline(self.project, NAME, run_id, submit=no_spark)

    def hold(self, run_id: str = "R1") -> None:
        """Three bad rows that the gate holds under ``run_id``."""
        with pytest.raises(HeldError):
            self.run(run_id, BAD)

    def decide(self, decision: Ruling, run_id: str = "R1") -> dict[str, Any]:
        return decide.decide(self.project, NAME, run_id, Answer(decision, "looked at it"))

    def rows(self) -> list[int]:
        """Column ``n`` of every row that a plain reader sees, and that a Delta reader sees: they must agree."""
        if read_table_state(self.paths.table) is None:
            assert not list(self.paths.table.glob("*.parquet"))
            return []
        plain = [n for path in self.paths.table.glob("[!.]*.parquet") for n in pq.read_table(path)["n"].to_pylist()]
        delta = open_table(self.paths.table).to_pyarrow_table()["n"].to_pylist()
        assert sorted(plain) == sorted(delta)
        return sorted(plain)

    def report(self, run_id: str) -> tuple[str | None, int]:
        """(outcome, published rows) of a run's stored report."""
        report = load_report(self.paths, run_id)
        assert report is not None
        return report.outcome, report.rows["published"]

    def leftovers(self) -> list[str]:
        """What should be empty when nothing is pending."""
        folders = ("staging", "manifests", "verdicts", "decisions", "intents")
        found = [
            path
            for folder in folders
            for path in (self.paths.state / folder).rglob("*")
            if path.suffix in (".json", ".parquet")
        ]
        return [str(path.relative_to(self.paths.state)) for path in found]


def no_spark(plan: object) -> int:
    raise AssertionError("Spark was started")


def judge_by_hand(suite: Any, files: Sequence[tuple[Path, object]], types: object) -> list[RuleResult]:
    """Great Expectations' answer on the suite above: no row without an id."""
    nulls = sum(pq.read_table(path, partitioning=None)["id"].null_count for path, _ in files)
    return [RuleResult(rule.rule, rule.type, rule.severity, nulls == 0, nulls) for rule in suite.rules]


class Stage:
    """The pipeline at work in a test, and the leases."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.leases = Leases()

    def killed_anywhere(self, root: Path, act: Callable[[Held], object]) -> Iterator[str]:
        """Have ``act`` killed at each of its storage calls, in a copy of the pipeline each; yields where."""
        before = self.held
        for at in range(1, 200):
            self.held = before.copy(root / str(at))
            with pytest.MonkeyPatch.context() as patch:
                calls = StorageCalls(patch, at, kill)
                try:
                    act(self.held)
                    break
                except KilledHere:
                    pass
            yield f"killed at {at} ({calls.names[-1]})"
        assert at > 21


@contextmanager
def commands(held: Callable[[], Held]) -> Iterator[Leases]:
    """The commands with the driver, the judge and the lease replaced; ``held`` gives the pipeline at work."""
    leases = Leases()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.runs.steps.drain_sources", lambda *a: held().drain(*a))
        patch.setattr("tidegate.quality.pandas_engine.judge_files", judge_by_hand)
        patch.setattr("tidegate.runs.opening.acquire", leases.acquire)
        yield leases
