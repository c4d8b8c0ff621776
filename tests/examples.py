"""The example pipelines as they stand in the repository, copied into a project of a test."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegate.examples.make_ad_clicks import Delivery
from tidegate.examples.outcome import dump

REPOSITORY = Path(__file__).resolve().parents[1]


def copy_example(root: Path, name: str, topics: Mapping[str, str] | None = None, schedule: str | None = None) -> None:
    """Job, suite and DAG of an example into the project at ``root``.

    ``topics`` replaces names of Kafka topics, ``schedule`` (as YAML) the schedule; all else is as in the repository.
    """
    shutil.copytree(REPOSITORY / "jobs" / name, root / "jobs" / name)
    for path in (f"expectations/{name}.yaml", f"dags/{name}.py"):
        (root / path).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / path, root / path)
    spec = root / "jobs" / name / "pipeline.yaml"
    text = spec.read_text()
    changes = {f"topics: [{topic}]\n": f"topics: [{other}]\n" for topic, other in (topics or {}).items()}
    if schedule is not None:
        changes['schedule: "*/10 * * * *"\n'] = f"schedule: {schedule}\n"
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    spec.write_text(text)


def _delivery(impressions: Sequence[str], clicks: Sequence[str]) -> Delivery:
    day = "2026-03-02T"
    return Delivery(
        [(dump({"impression_id": t, "ad": "ad-01", "impression_time": f"{day}{t}Z"}), None) for t in impressions],
        [(dump({"click_id": t, "impression_id": "none", "click_time": f"{day}{t}Z"}), None) for t in clicks],
    )


SILENT_TOPICS = [
    _delivery(["08:00:00.000"], []),
    _delivery(["09:00:00.000", "12:00:00.000"], ["13:00:00.000"]),
    _delivery(["16:00:00.000"], []),
    _delivery([], ["17:00:00.000"]),
    # Impressions have been at 16:00; what this run sees of them is 13:00 only, and that is late.
    _delivery(["13:00:00.000"], ["18:00:00.000"]),
]
"""Deliveries of ``ad_clicks`` in which a topic has no news."""
