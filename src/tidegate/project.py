"""``tidegate.yaml`` and every path of a project. No other module joins a state path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from tidegate.spec.models import ProjectSpec


@dataclass(frozen=True)
class Project:
    """A project: its root (the folder of ``tidegate.yaml``) and its settings, environment already filled in."""

    root: Path
    spec: ProjectSpec

    @property
    def warehouse(self) -> Path:
        """Folder of the tables."""
        return self.root / self.spec.warehouse

    @property
    def state(self) -> Path:
        """Folder of checkpoints, staging, run reports and leases."""
        return self.root / self.spec.state

    @property
    def quarantine(self) -> Path:
        """Folder of the quarantine tables."""
        return self.root / self.spec.quarantine

    @property
    def jobs(self) -> Path:
        """Folder of the pipelines' specs and transforms."""
        return self.root / "jobs"

    def suite_path(self, name: str) -> Path:
        """The Great Expectations suite of pipeline ``name``; it need not exist."""
        return self.root / "expectations" / f"{name}.yaml"

    def paths(self, name: str) -> PipelinePaths:
        """Every path of pipeline ``name``."""
        return PipelinePaths(
            name=name,
            job=self.jobs / name,
            table=self.warehouse / name,
            quarantine=self.quarantine / name,
            state=self.state / name,
        )


@dataclass(frozen=True)
class PipelinePaths:
    """Where one pipeline keeps its things."""

    name: str
    job: Path
    table: Path
    quarantine: Path
    state: Path

    @property
    def spec(self) -> Path:
        """``pipeline.yaml``."""
        return self.job / "pipeline.yaml"

    @property
    def checkpoint(self) -> Path:
        """The Structured Streaming checkpoint."""
        return self.state / "checkpoint"

    @property
    def birth(self) -> Path:
        """What the checkpoint was born with: pinned settings, starting offsets, spec fingerprint."""
        return self.state / "birth.json"

    @property
    def ledger(self) -> Path:
        """What has been taken from file sources (SQLite)."""
        return self.state / "ledger.sqlite"

    def intake(self, source: str) -> Path:
        """Links to the files that are owed to Spark, for one file source."""
        return self.state / "intake" / source

    @property
    def staging(self) -> Path:
        """Attempt folders of staged batches."""
        return self.state / "staging"

    @property
    def manifests(self) -> Path:
        """Batch manifests, until their batch is settled."""
        return self.state / "manifests"

    def manifest(self, query_id: str, batch_id: int) -> Path:
        """The manifest of one batch."""
        return self.manifests / query_id / f"{batch_id:012d}.json"

    @property
    def verdicts(self) -> Path:
        """Verdicts on increments and the decisions taken on held ones."""
        return self.state / "verdicts"

    def verdict(self, run_id: str) -> Path:
        """The gate's verdict on the increment of a run."""
        return self.verdicts / f"{encode_run_id(run_id)}.json"

    def decision(self, run_id: str) -> Path:
        """The person's decision on a held increment."""
        return self.verdicts / f"{encode_run_id(run_id)}.decision.json"

    @property
    def intents(self) -> Path:
        """Publishes that were begun and must be finished first."""
        return self.state / "intents"

    @property
    def lease(self) -> Path:
        """Folder of the lease's tokens."""
        return self.state / "lease"

    @property
    def runs(self) -> Path:
        """Folder of the run reports."""
        return self.state / "runs"

    def report(self, run_id: str) -> Path:
        """The report of one run."""
        return self.runs / f"{encode_run_id(run_id)}.json"

    @property
    def losses(self) -> Path:
        """Losses that a person accepted, one JSON object a line."""
        return self.state / "accepted_losses.jsonl"


def encode_run_id(run_id: str) -> str:
    """A run id as a file name: nothing in it can leave its folder, and it can be read back."""
    name = quote(run_id, safe="+:@=,~ ")
    return "%2E" + name[1:] if name.startswith(".") else name


def decode_run_id(name: str) -> str:
    """The run id behind a file name that :func:`encode_run_id` made."""
    return unquote(name)
