"""The code of Spark workers that write rows as parquet objects: those of executors that do not see the state folder.

A task writes a file for each table partition of its rows to a disk of its own, then uploads it under a new name. The
driver fetches those that the tasks of the pass report (:mod:`tidegate.spark.ingest.write`); one of an attempt that
failed is never fetched, and is removed with other objects that no event of the journal refers to.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import __version__
from tidegate.core.hive_names import NULL_NAME, escape_name
from tidegate.core.storage import ObjectPath, StoreError
from tidegate.core.storage.objects import upload
from tidegate.sources.readers.unreadable import SEAL, StoreFault
from tidegate.sources.readers.worker import check_version
from tidegate.table.upsert.rewrite import HELD_BYTES, open_writer

PLACE = "_tidegate_folder"
"""The column with a row's values of the partition columns as texts, in a list of JSON."""
WRITTEN = "folder STRING, object STRING"


@dataclass(frozen=True)
class RowUploader:
    """Writes rows to objects below ``target``; to be called by ``mapInArrow``.

    The last column of the rows is :data:`PLACE`, and rows of one partition are next to each other in a task. ``footer``
    has what Spark's reader looks for in a file, and ``rows_at_most`` is the limit of a file, 0 for none.
    """

    target: str
    partition_by: Sequence[str]
    footer: Mapping[str, str]
    compression: str
    rows_at_most: int = 0
    seal: str = field(default_factory=lambda: SEAL)
    """The driver's."""
    version: str = __version__
    """The driver's."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The folder and the name of each object (:data:`WRITTEN`). Raises StoreFault with the driver's seal, and
        ImportError where this is not the driver's tidegate."""
        check_version(self.version)
        runs = itertools.chain.from_iterable(map(self._divide, batches))
        for place, some in itertools.groupby(runs, lambda run: run[0]):
            names = self._write(rows for _, rows in some)
            folder = self._name_folder(place)
            yield from (pa.RecordBatch.from_pydict({"folder": [folder], "object": [name]}) for name in names)

    def _divide(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each partition in ``batch``."""
        if batch.num_rows == 0:
            return
        places, rows = batch.column(PLACE), batch.drop_columns([*self.partition_by, PLACE])
        encoded, begin = pc.run_end_encode(places), 0
        for place, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
            yield place, rows.slice(begin, end - begin)
            begin = end

    def _name_folder(self, place: str) -> str:
        pairs = zip(self.partition_by, json.loads(place), strict=True)
        return "/".join(f"{escape_name(name)}={escape_name(text) if text else NULL_NAME}" for name, text in pairs)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
        """Write rows of one partition; the name of each object."""
        rows: pa.RecordBatch | None = next(batches, None)
        while rows is not None:
            # Spark removes its own folders, also those of an executor that was killed.
            local = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
            with tempfile.TemporaryDirectory(prefix="tidegate-rows-", dir=local or None) as folder:
                file, left = Path(folder) / "rows.parquet", self.rows_at_most or None
                with _Writer(file, rows.schema.with_metadata(dict(self.footer)), self.compression) as writer:
                    while rows is not None and left != 0:
                        some = rows if left is None else rows.slice(0, left)
                        writer.add(some)
                        left = None if left is None else left - some.num_rows
                        rows = rows.slice(some.num_rows)
                        if rows.num_rows == 0:
                            rows = next(batches, None)
                yield self._upload(file)

    def _upload(self, file: Path) -> str:
        name = secrets.token_hex(12)
        try:
            upload(file, ObjectPath(self.target) / name)
        except StoreError as error:
            raise StoreFault(error.named.to_dict(), self.seal) from error
        return name


class _Writer(AbstractContextManager["_Writer"]):
    """A parquet file with the format of those that Spark writes; rows are held until they fill a row group."""

    def __init__(self, file: Path, schema: pa.Schema, compression: str) -> None:
        self._file = open_writer(file, schema, compression)
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._file.write_table(pa.Table.from_batches(self._held).cast(self._schema))
            self._held, self._bytes = [], 0

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._flush()
        self._file.close()
