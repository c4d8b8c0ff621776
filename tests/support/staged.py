"""Staged batches made by hand, for tests that publish without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.core.hive_names import NULL_NAME, escape_name
from tidegate.core.paths import PipelinePaths
from tidegate.state.birth import Birth, Fingerprint, write_birth
from tidegate.state.files import TEXT_MARK
from tidegate.state.manifest import BatchManifest, StagedFile
from tidegate.table.publish.intent import write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.table.publish.publish import finish_intent

QUERY = "1f0c7a52-9a1e-4a55-8f5e-000000000001"

_ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "reading": pa.struct([("y", pa.float64())]),
    "decimal(10,2)": pa.decimal128(10, 2),
}

_HEADER = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, kind in {"key": "string", "value": "binary"}.items()
]
_NESTED = {
    "headers": {"type": "array", "elementType": {"type": "struct", "fields": _HEADER}, "containsNull": True},
    "reading": {"type": "struct", "fields": [{"name": "y", "type": "double", "nullable": True, "metadata": {}}]},
}


def make_paths(root: Path, name: str = "orders", lake: Path | None = None) -> PipelinePaths:
    """Paths of a pipeline whose project is ``root``, with its tables below ``lake``, if that is given."""
    return PipelinePaths(
        name=name,
        job=root / "jobs" / name,
        table=(lake or root) / "warehouse" / name,
        quarantine=(lake or root) / "quarantine" / name,
        state=root / "state" / name,
    )


def note_birth(paths: PipelinePaths) -> None:
    """The birth record of a query that reads topics, before Spark has given it an id."""
    of_topics: Fingerprint = {"sources": {"orders": {"type": "kafka"}}}
    write_birth(
        paths, Birth(None, "2026-01-01T00:00:00+00:00", {}, {"orders": {"offsets": {}, "topic_ids": {}}}, of_topics)
    )


def make_schema(**columns: str) -> str:
    """A schema as Spark's ``df.schema.json()`` has it."""
    fields = [
        {"name": name, "type": _NESTED.get(kind, kind), "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


@dataclass
class Stager:
    """Writes batches as ingest leaves them: files in Spark's layout, and the manifest's value."""

    paths: PipelinePaths
    columns: dict[str, str]
    partition_by: list[str]
    query_id: str = QUERY

    def stage(self, batch_id: int, rows: list[dict[str, Any]], *, attempt: str = "a1", files: int = 1) -> BatchManifest:
        """One batch of ``rows``, in ``files`` files per partition."""
        folder = self.paths.staging / self.query_id / f"{batch_id:012d}" / attempt / "rows"
        groups: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
        for row in rows:
            key = tuple(None if row[name] is None else str(row[name]) for name in self.partition_by)
            groups.setdefault(key, []).append(row)
        staged = []
        for key, group in groups.items():
            partition = dict(zip(self.partition_by, key, strict=True))
            for part in range(files):
                staged.append(self._write(folder, partition, part, group[part::files]))
        return BatchManifest(
            pipeline=self.paths.name,
            run_id=f"run-{batch_id}",
            query_id=self.query_id,
            batch_id=batch_id,
            attempt=attempt,
            sources={},
            transformed=len(rows),
            rejected=0,
            staged=len(rows),
            files=list(staged),
            quarantine_files=[],
            quarantined=0,
            schema_json=make_schema(**self.columns),
        )

    def _write(
        self, folder: Path, partition: dict[str, str | None], part: int, rows: list[dict[str, Any]]
    ) -> StagedFile:
        for name, value in partition.items():
            mark = TEXT_MARK if value and value.startswith(NULL_NAME) else ""
            folder /= f"{escape_name(name)}={escape_name(value) + mark if value else NULL_NAME}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{part:05d}-c000.snappy.parquet"
        inside = {name: kind for name, kind in self.columns.items() if name not in self.partition_by}
        schema = pa.schema([(name, _ARROW[kind]) for name, kind in inside.items()])
        pq.write_table(pa.Table.from_pylist([{name: row[name] for name in inside} for row in rows], schema), path)
        name = str(path.relative_to(self.paths.state))
        return StagedFile(name, len(rows), path.stat().st_size, partition, storage.digest(path))


def publish(stager: Stager, rows: list[dict[str, Any]]) -> None:
    """Stage and publish a first batch of these rows."""
    manifest = stager.stage(0, rows)
    intent = plan_publish([manifest], run_id="r", partition_by=stager.partition_by, app_version_before=-1)
    finish_intent(stager.paths, write_intent(stager.paths, intent), is_current=lambda: True)


def publish_columns(root: Path, columns: Sequence[Sequence[str | None]]) -> tuple[Path, list[dict[str, Any]]]:
    """A published table with a partition column for each of these lists of values, and its rows."""
    names = [f"k{number}" for number in range(len(columns))]
    stager = Stager(make_paths(root), {"id": "long", **dict.fromkeys(names, "string")}, names)
    rows = [
        {"id": number, **dict(zip(names, row, strict=True))} for number, row in enumerate(zip(*columns, strict=True))
    ]
    publish(stager, rows)
    return stager.paths.table, rows
