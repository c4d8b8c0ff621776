"""Verdicts and decisions, made by hand."""

from __future__ import annotations

from tests.unit.manifests import QUERY
from tidegate.runs.reports.verdicts import (
    Decision,
    StoredVerdict,
)
from tidegate.state.manifest import BatchKey


def make_verdict(run_id: str, *batches: int, failed: bool, query: str = QUERY) -> StoredVerdict:
    """A verdict on batches of one query."""
    return StoredVerdict(
        run_id,
        [BatchKey(query, batch) for batch in batches],
        {"suite": "orders", "verdict": "failed" if failed else "passed", "results": []},
        ["id_present"] if failed else [],
        ["id_present: 3 rows break it"] if failed else [],
        "2026-01-01T00:00:00+00:00",
    )


def make_decision(verdict: StoredVerdict) -> Decision:
    """Ann's decision to release it."""
    return Decision(verdict.run_id, "release", "ann@host", "looked", "now", verdict.batches)
