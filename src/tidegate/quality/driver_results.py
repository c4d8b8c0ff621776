"""The results of the ingest driver's Spark for a large increment: stored before its JVM ends, for the audit step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.quality.engine import RuleResult
from tidegate.state.manifest import BatchKey, keys_from_json


@dataclass(frozen=True)
class Question:
    """The batches that were judged, and the suite: results are valid for these alone."""

    batches: Sequence[BatchKey]
    folds: Sequence[str] | None
    """Tokens of what remains of the batches; [] in append mode. None in a file that does not say."""
    suite: str
    """Digest of the suite."""


def write_driver_results(paths: PipelinePaths, run_id: str, asked: Question, results: Sequence[RuleResult]) -> None:
    """Note the results of Spark."""
    value = {**asdict(asked), "results": [result.to_dict() for result in results]}
    storage.replace(paths.driver_results(run_id), storage.dump_json(value))


def read_driver_results(paths: PipelinePaths, run_id: str, asked: Question) -> list[RuleResult] | None:
    """The results of Spark on exactly this question; None when there are none. Raises UnreadableStateError."""
    path = paths.driver_results(run_id)
    value = storage.read_json(path)
    if value is None:
        return None
    with storage.unreadable_is_named(path):
        answered = Question(keys_from_json(value["batches"]), value.get("folds"), value.get("suite"))
        return [RuleResult.from_dict(one) for one in value["results"]] if answered == asked else None
