"""Quarantined records one after another, each with its id, a digest of its content.

The id does not change while the record is in quarantine, even if its file is rewritten because other records left.
Equal records of the same time differ only by a number; it does not matter which of them leaves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.table.log.state import has_log, list_data_files
from tidegate.table.quarantine.filters import QuarantineFilter
from tidegate.table.quarantine.schema import TIME_COLUMN

TIME = pa.timestamp("us", tz="UTC")
_OF_ID = ("run_id", "source", "position", "raw", "reason", TIME_COLUMN)
_RECORDS_AT_ONCE = 256
_BUFFER_BYTES = 1 << 20
_ID_BYTES = 10


@dataclass(frozen=True)
class Found:
    """A record: ``file`` as in the table's log, and its ``number`` in it, from 0."""

    file: str
    number: int
    id: str
    row: dict[str, Any]


class Ids:
    """Gives records their ids in the order of the table; it must get all of several equal records."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._more: dict[bytes, int] = {}

    def of(self, row: Mapping[str, Any]) -> str:
        """The id of the next record."""
        values = [value.isoformat() if isinstance(value, datetime) else value for value in map(row.get, _OF_ID)]
        digest = hashlib.sha256(json.dumps(values).encode()).digest()[:_ID_BYTES]
        if digest not in self._seen:
            self._seen.add(digest)
            return digest.hex()
        self._more[digest] = self._more.get(digest, 0) + 1
        return f"{digest.hex()}-{self._more[digest]}"


def walk_quarantine(
    table_path: Path, wanted: QuarantineFilter | None = None, times: Collection[datetime] | None = None
) -> Iterator[Found]:
    """The wanted records, file by file; only those of ``times``, if given. Some hundreds of records are in memory at a
    time, and ten bytes of each earlier one."""
    if not has_log(table_path):
        return
    tests, ids = (wanted or QuarantineFilter()).tests(), Ids()
    if times is not None:
        tests = [pc.field(TIME_COLUMN).isin(pa.array(times, TIME)), *tests]
    for file in sorted(list_data_files(table_path), key=lambda one: one.path):
        start = 0
        for piece in read_pieces(storage.address(table_path / file.path), None, _RECORDS_AT_ONCE):
            numbers = pa.array(range(start, start + len(piece)), pa.int64())
            start += len(piece)
            found = as_table(piece).append_column("_number", numbers)
            for test in tests:
                found = found.filter(test)
            for row in found.to_pylist():
                number = row.pop("_number")
                yield Found(file.path, number, ids.of(row), row)


def as_table(piece: pa.RecordBatch) -> pa.Table:
    """The records of a piece, with times converted to one unit: Spark writes another unit than we do."""
    table = pa.Table.from_batches([piece])
    place = table.schema.get_field_index(TIME_COLUMN)
    return table if place < 0 else table.set_column(place, TIME_COLUMN, table[TIME_COLUMN].cast(TIME))


def read_pieces(file: str, columns: list[str] | None, at_once: int = _RECORDS_AT_ONCE) -> Iterator[pa.RecordBatch]:
    """Read the rows of a parquet file, ``at_once`` at a time."""
    with pq.ParquetFile(file, buffer_size=_BUFFER_BYTES) as parquet:
        yield from parquet.iter_batches(at_once, columns=columns, use_threads=False)


def known_reasons(table_path: Path) -> tuple[set[str], set[str]]:
    """(the reasons, the rules) that the records of the table have."""
    reasons, rules = set[str](), set[str]()
    if has_log(table_path):
        for file in list_data_files(table_path):
            for piece in read_pieces(storage.address(table_path / file.path), ["reason", "detail"], 1 << 14):
                for row in piece.to_pylist():
                    reasons.add(str(row["reason"]))
                    rules |= set(rules_of(row))
    return reasons, rules


def rules_of(row: Mapping[str, Any]) -> list[str]:
    """The rules that a rejected row breaks; [] for a record that is malformed or late."""
    detail = str(row["detail"] or "")
    if row["reason"] in ("malformed", "late") or not detail.startswith("breaks "):
        return []
    return detail.removeprefix("breaks ").split(", ")
