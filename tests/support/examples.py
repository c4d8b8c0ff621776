"""The example pipelines as they stand in the repository, copied into a project of a test."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from tidegate.examples.make_ad_clicks import Delivery
from tidegate.examples.outcome import dump

REPOSITORY = Path(__file__).resolve().parents[2]

_TIME = pa.timestamp("us", "UTC")
TABLE_TYPES = {
    "bitcoin_prices": {
        "start": _TIME,
        "end": _TIME,
        "average_price": pa.float64(),
        "trades": pa.int64(),
        "amount": pa.int64(),
    },
    "word_count": {"word": pa.string(), "count": pa.int64()},
    "students": {"name": pa.string(), "age": pa.int32(), "score": pa.float64(), "class": pa.string()},
    "ad_clicks": {
        "impression_id": pa.string(),
        "ad": pa.string(),
        "impression_time": _TIME,
        "click_id": pa.string(),
        "click_time": _TIME,
    },
    "device_sessions": {"device": pa.string(), "session_start": _TIME, "session_end": _TIME, "events": pa.int64()},
}
"""The columns of the tables of the examples with memory."""


def has_types(folder: Path, types: Mapping[str, pa.DataType]) -> bool:
    """Whether DuckDB finds the same columns in the parquet files of a table as in Arrow data of these types."""
    with duckdb.connect() as connection:
        found = connection.read_parquet(str(folder / "**/*.parquet"))
        wanted = connection.from_arrow(pa.schema(dict(types)).empty_table())
        return (found.columns, found.types) == (wanted.columns, wanted.types)


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
        (line,) = (one for one in text.splitlines(keepends=True) if one.startswith("schedule: "))
        changes[line] = f"schedule: {schedule}\n"
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
