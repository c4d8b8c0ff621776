"""Verdicts on increments, and the decisions of persons on held ones.

A verdict file is the increment's identity: it names the run that audited it and the batches it covers. It lives until
those batches are settled, so the verdicts folder holds what is open and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegate import storage
from tidegate.errors import HeldError, TryAgainError
from tidegate.project import PipelinePaths
from tidegate.staging.manifest import BatchManifest, batch_keys


@dataclass(frozen=True)
class StoredVerdict:
    """The gate's verdict on the increment of ``run_id``; ``batches`` are [query id, batch id] pairs."""

    run_id: str
    batches: list[list[Any]]
    quality: dict[str, Any]
    failed_critical: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    at: str = ""
    folds: list[str] = field(default_factory=list)
    """Which findings of what remains of the batches it is on (update and complete mode)."""

    @property
    def passed(self) -> bool:
        """Whether nothing critical failed."""
        return not self.failed_critical

    def covers(self, manifests: Sequence[BatchManifest]) -> bool:
        """Whether it speaks of exactly these batches."""
        return batch_keys(manifests) == sorted(self.batches)


def save_verdict(paths: PipelinePaths, verdict: StoredVerdict) -> None:
    """Store a verdict."""
    storage.replace(paths.verdict(verdict.run_id), storage.dump_json(asdict(verdict)))


def load_verdict(paths: PipelinePaths, run_id: str) -> StoredVerdict | None:
    """The verdict on a run's increment, or None."""
    value = storage.read_json(paths.verdict(run_id))
    return StoredVerdict(**value) if value is not None else None


def list_verdicts(paths: PipelinePaths) -> list[StoredVerdict]:
    """All open verdicts."""
    if not paths.verdicts.is_dir():
        return []
    files = [path for path in sorted(paths.verdicts.glob("*.json")) if not path.name.endswith(".decision.json")]
    found = [storage.read_json(path) for path in files]
    return [StoredVerdict(**value) for value in found if value is not None]


def load_decision(paths: PipelinePaths, run_id: str) -> dict[str, Any] | None:
    """{"decision": "release"|"discard", "who", "reason", "at"} on a held increment, or None."""
    value = storage.read_json(paths.decision(run_id))
    return dict(value) if value is not None else None


def find_hold(paths: PipelinePaths, owed: Sequence[BatchManifest]) -> StoredVerdict | None:
    """The failed verdict on some owed batch that nobody has decided on yet."""
    keys = [list(key) for key in batch_keys(owed)]
    for verdict in list_verdicts(paths):
        undecided = not verdict.passed and load_decision(paths, verdict.run_id) is None
        if undecided and any(list(key) in keys for key in verdict.batches):
            return verdict
    return None


def held_error(name: str, verdict: StoredVerdict, *, earlier: bool) -> HeldError:
    """The error of a held increment: which rule, how many rows, and the two commands."""
    what = "; ".join(verdict.reasons) or ", ".join(verdict.failed_critical)
    quoted = verdict.run_id if _is_plain(verdict.run_id) else "'" + verdict.run_id.replace("'", "'\\''") + "'"
    return HeldError(
        "EARLIER_INCREMENT_HELD" if earlier else "INCREMENT_HELD",
        f"{'an earlier increment waits for a decision: ' if earlier else 'the gate holds this increment: '}{what}",
        where=f"run {verdict.run_id} of pipeline {name}; the table is untouched",
        next_run="waits for the decision",
        fix=f'tidegate release {name} {quoted} --reason "..."   or   tidegate discard {name} {quoted} --reason "..."',
    )


def not_audited(name: str, run_id: str) -> TryAgainError:
    """The error of a publish whose increment nobody has judged as it is now."""
    return TryAgainError(
        "NOT_AUDITED",
        f"the increment of run {run_id} has no verdict, or was staged anew since",
        where=f"pipeline {name}",
        next_run="audits it first",
        fix=f"tidegate audit {name} --run-id {run_id}, or tidegate run {name}",
    )


def _is_plain(text: str) -> bool:
    return all(char.isalnum() or char in "_-.:+@=" for char in text)
