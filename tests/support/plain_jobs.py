"""A plain Spark Structured Streaming job, without Spark: it writes what the real one does, in its formats.

Its source is a folder of JSON files, its sink Spark's file sink with ``_spark_metadata``. The formats are those that
tests/streams/test_adopt.py gets from Spark itself.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.staged import make_schema

_ARROW = {"long": pa.int64(), "string": pa.string(), "date": pa.date32(), "double": pa.float64(), "integer": pa.int32()}
_METADATA = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {"spark.sql.shuffle.partitions": "200"}}
Rows = Sequence[Mapping[str, Any]]


@dataclass
class PlainJob:
    """The job: ``columns`` are those of its rows; those of ``partition_by`` stand in folders."""

    inbox: Path
    table: Path
    checkpoint: Path
    columns: dict[str, str] = field(default_factory=lambda: {"id": "long", "day": "string"})
    partition_by: list[str] = field(default_factory=list)
    query_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    has_sink_log: bool = True
    batch: int = 0

    def offer(self, name: str, rows: Rows) -> Path:
        """A new file in the source."""
        self.inbox.mkdir(parents=True, exist_ok=True)
        path = self.inbox / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def run(self, *paths: Path, stop: str = "") -> int:
        """One batch of these files; its number. ``stop`` is where the job is killed: "planned", "written" (files are in
        the table and not in its list), "sunk" (in the list, and the batch is not committed)."""
        number = self.batch
        self._write(self.checkpoint / "metadata", json.dumps({"id": self.query_id}))
        entries = [
            {"path": "file://" + quote(str(path)), "timestamp": path.stat().st_mtime_ns // 1_000_000, "batchId": number}
            for path in paths
        ]
        self._write(self.checkpoint / "sources/0" / str(number), "\n".join(["v1", *map(_line, entries)]))
        ends = [{"logOffset": number}]
        self._write(self.checkpoint / "offsets" / str(number), "\n".join(["v1", _line(_METADATA), *map(_line, ends)]))
        if stop == "planned":
            return number
        rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        files = self.write_files(rows)
        if stop == "written":
            return number
        if self.has_sink_log:
            self.list_files(number, files)
        if stop == "sunk":
            return number
        self._write(self.checkpoint / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')
        self.batch += 1
        return number

    def list_files(self, number: int, files: Sequence[Path], *, compact: bool = False) -> None:
        """Put files into the sink's list."""
        adds = [
            {"path": "file://" + quote(str(file)), "size": file.stat().st_size, "isDir": False, "action": "add"}
            for file in files
        ]
        name = f"{number}.compact" if compact else str(number)
        self._write(self.table / "_spark_metadata" / name, "\n".join(["v1", *map(_line, adds)]))

    def write_files(self, rows: Rows) -> list[Path]:
        """Parquet files of rows, as Spark names and marks them; with the checksums that Hadoop puts beside them."""
        parts: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            folder = "/".join(f"{name}={row[name]}" for name in self.partition_by)
            parts.setdefault(folder, []).append(row)
        written = []
        for folder, some in parts.items():
            path = self.table / folder / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
            write_parquet(path, some, {n: k for n, k in self.columns.items() if n not in self.partition_by})
            path.with_name(f".{path.name}.crc").write_bytes(b"crc")
            written.append(path)
        return written

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_parquet(path: Path, rows: Rows, columns: Mapping[str, str], *, by_spark: bool = True) -> None:
    """A parquet file of these columns ({name: type in Spark's words})."""
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])
    if by_spark:
        schema = schema.with_metadata({"org.apache.spark.sql.parquet.row.metadata": make_schema(**columns)})
    table = pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in rows], schema)
    pq.write_table(table, path, store_schema=False)


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
