"""Values of parquet, orc and avro files that are too large for a record, found before Spark reads the file.

A few hundred bytes of such a file can stand for gigabytes: an array of one number, forty million times. Spark holds a
value several times over, so one that is too large would end each driver of a run, and the next run's too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyarrow.types as kinds

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers import avro_file
from tidegate.sources.readers.value_sizes import has_any_length, measure
from tidegate.spec.as_read import is_to_infer
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.models import FilesSource

_BATCH_BYTES, _BATCH_ROWS = 32 << 20, 4096
"""What is held of a parquet file at once, as far as its footer tells; one value is held whole."""
_ORC_BATCH_ROWS = 512
_UNREAD_BYTES = 512 << 20
"""A column whose rows are too large on average, and which is larger than this, is not read to find the largest row."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_NAMED_AT_MOST = 10


def why_too_large(path: Path, spec: FilesSource) -> str | None:
    """The values of the file that are too large, in words; None where there are none, and for a file that cannot be
    read, of which its reader says why. Of parquet only those columns are read whose footer leaves it open; the columns
    that the schema lacks are not looked at, since Spark does not read them. Where it is still to be
    inferred, all are."""
    declared = None if is_to_infer(spec) else {column.name.lower() for column in parse_ddl(spec.schema_ or "")}
    named: list[str] = []
    more = 0
    try:
        for found in _find_large(path, spec.format, declared):
            if len(named) < _NAMED_AT_MOST:
                named.append(found)
            else:
                more += 1
    except (pa.ArrowException, OSError, avro_file.NotAvro):
        return None
    if not named:
        return None
    others = f", and {more:,} more are as large" if more else ""
    return f"{', '.join(named)}{others}; the limit is {LONGEST_RECORD_BYTES:,} bytes"


def _find_large(path: Path, kind: str, declared: set[str] | None) -> Iterator[str]:
    if kind == "avro":
        return avro_file.find_large_blocks(path, LONGEST_RECORD_BYTES)
    return (_in_parquet if kind == "parquet" else _in_orc)(path, declared)


def _in_parquet(path: Path, declared: set[str] | None) -> Iterator[str]:
    with pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if declared is None or name.lower() in declared]
        first = 0
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            sizes = {name: _at_most(file.schema, group, name) for name in names} if group.num_rows else {}
            for name, (surely, at_most) in sizes.items():
                if at_most <= LONGEST_RECORD_BYTES:
                    continue
                if surely > max(_UNREAD_BYTES, group.num_rows * LONGEST_RECORD_BYTES):
                    yield f"rows {first + 1:,} to {first + group.num_rows:,}: column {name} has {surely:,} bytes"
                    continue
                rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * group.num_rows // max(surely, 1)))
                batches = file.iter_batches(rows, [number], [name], use_threads=False)
                yield from _in_batches((batch.column(0) for batch in batches), name, first)
            first += group.num_rows


def _at_most(schema: Any, group: Any, name: str) -> tuple[int, int]:
    """The bytes that a column of a row group has by its footer at least, and the bytes that one value of it can have at
    most."""
    surely = at_most = 0
    for index in range(group.num_columns):
        chunk, leaf = group.column(index), schema.column(index)
        if leaf.path != name and not leaf.path.startswith(f"{name}."):
            continue
        is_text = leaf.physical_type not in _WIDTHS
        unpacked = chunk.num_values * _WIDTHS.get(leaf.physical_type, 4)
        surely += max(unpacked, chunk.total_uncompressed_size) if is_text else unpacked
        if leaf.max_repetition_level:  # a text of the dictionary may come as often as there are values
            at_most += chunk.num_values * chunk.total_uncompressed_size if is_text else unpacked
        else:
            at_most += chunk.total_uncompressed_size if is_text else 0
    return surely, at_most


def _in_orc(path: Path, declared: set[str] | None) -> Iterator[str]:
    data = ds.dataset(str(path), format="orc")
    for field in data.schema:
        is_read = declared is None or field.name.lower() in declared
        if is_read and (kinds.is_nested(field.type) or has_any_length(field.type)):
            batches = data.scanner(
                columns=[field.name], batch_size=_ORC_BATCH_ROWS, batch_readahead=1, use_threads=False
            ).to_batches()
            yield from _in_batches((batch.column(0) for batch in batches), field.name, 0)


def _in_batches(columns: Iterator[Any], name: str, first: int) -> Iterator[str]:
    """The rows whose value is too large, counted from ``first``."""
    for column in columns:
        sizes = measure(column)
        for index in (sizes > LONGEST_RECORD_BYTES).nonzero()[0]:
            yield f"row {first + int(index) + 1:,}: column {name} has {int(sizes[index]):,} bytes"
        first += len(column)
