"""The code of Spark workers: parts in, records out. It imports neither Spark nor anything else of a run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from tidegate import __version__
from tidegate.core.hive_names import read_folder
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.csv_values import CsvOptions, Read, make_field_reader
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.links import find_source, forget_received, size_link
from tidegate.sources.readers.meter import Meter, ReportAddress, find_position
from tidegate.sources.readers.part_readers import Part, Stretch, open_reader, open_texts, read_texts
from tidegate.sources.readers.records import Completion, Found, Wrong, show_positions
from tidegate.sources.readers.unreadable import SEAL, PartFault, PartUnreadable
from tidegate.spec.ddl import Column, read_type


class FolderValues:
    """The ``columns`` of files by the folders right above them."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [(column, read_type(column.type)) for column in columns]
        self._readers: list[Read] = [make_field_reader(node, CsvOptions()) for _, node in self._columns]

    def find(self, path: str) -> list[tuple[str, pa.Scalar]]:
        """The value of each column for the file at ``path``. Raises PartUnreadable."""
        if not self._columns:
            return []
        names = [folder.name for folder in Path(path).parents]
        values = dict(filter(None, map(read_folder, itertools.takewhile(lambda name: "=" in name, names))))
        found: list[tuple[str, pa.Scalar]] = []
        for (column, node), read in zip(self._columns, self._readers, strict=True):
            text = values.get(column.name)
            value: object = None
            if text is not None:
                value, fault = read(text)
                if fault is not None:
                    raise PartUnreadable(path, f"its folder says {column.name}={text}: {fault}")
            elif not column.nullable:
                raise PartUnreadable(path, f"its folder has no {column.name}, which is NOT NULL")
            found.append((column.name, pa.scalar(value, arrow_type(node))))
        return found


_TEXTS_AT_ONCE = 10_000
TOMBSTONE = "null value (tombstone)"
"""Why a record of Kafka without a value is malformed."""


@dataclass(frozen=True)
class PartsReader:
    """Reads the records of parts of files below ``folder``; to be called by Spark's ``mapInArrow``."""

    form: Form
    folder: str = ""
    seal: str = field(default_factory=lambda: SEAL)
    """The driver's."""
    version: str = __version__
    """The driver's."""
    report_to: ReportAddress | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of each part, in batches: the columns that records hold, those in folders, and the framework's.
        ``batches`` have one column, the lines of batch files (:mod:`tidegate.state.batch_files`). Raises
        PartUnreadable or StoreFault with the driver's seal, and ImportError where this is not the driver's tidegate."""
        check_version(self.version)
        forget_received()
        reader = open_reader(self.form)
        complete = _PartBatches(self.form, FolderValues(self.form.list_in_folders()), has_lines=reader.has_lines)
        lines = (json.loads(line) for batch in batches for line in batch.column(0).to_pylist())
        parts = _MeteredParts(Meter(self.report_to), is_sequential=reader.has_lines)
        listed = (Part.of(self.folder, **line) for line in lines if "link" in line)  # the other one is the header
        try:
            yield from parts.count(reader.read_all(parts.follow(listed), complete))
        except PartFault as fault:
            raise fault.sealed(self.seal) from fault


class _MeteredParts:
    """Reports how far the parts of a task were read. Of a file that is not read from its begin to its end, only whole
    parts count."""

    def __init__(self, meter: Meter, *, is_sequential: bool) -> None:
        self._meter, self._is_sequential = meter, is_sequential
        self._part: Part | None = None

    def follow(self, parts: Iterable[Part]) -> Iterator[Part]:
        """The ``parts``, each noted as it is taken."""
        for self._part in parts:
            self._meter.begin(f"{self._part.path} {self._part.begin}", _size_of(self._part))
            yield self._part

    def count(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The ``batches``, whose rows are counted."""
        for batch in batches:
            if self._meter.is_due(batch.num_rows):
                part = self._part if self._is_sequential else None
                self._meter.report(0 if part is None else find_position(part.path) - part.begin)
            yield batch
        self._meter.end()


def _size_of(part: Part) -> int:
    try:
        return (size_link(part.path) if part.end is None else part.end) - part.begin
    except OSError:  # which the reader reports
        return 0


def check_version(of_driver: str) -> None:
    """Raise ImportError where this is not the driver's tidegate."""
    if of_driver != __version__:
        raise ImportError(f"tidegate {__version__} is not the driver's {of_driver}")


class _PartBatches:
    """Makes record batches of what is found in parts."""

    def __init__(self, form: Form, folders: FolderValues, *, has_lines: bool) -> None:
        self._completion, self._folders, self._has_lines = Completion(form), folders, has_lines

    def __call__(self, stretches: Sequence[Stretch], found: Found) -> pa.RecordBatch:
        places = [f"{part.uri}#{part.begin if self._has_lines else 'row'}+" for part, _ in stretches]
        if len(stretches) == 1:
            positions = show_positions(places[0], stretches[0].numbers)
        else:
            numbered = zip(places, stretches, strict=True)
            positions = pa.array([f"{place}{number}" for place, one in numbered for number in one.numbers], pa.string())
        return self._completion.complete(found, positions, self._list_in_folders(stretches))

    def _list_in_folders(self, stretches: Sequence[Stretch]) -> list[tuple[str, pa.Array]]:
        """The columns whose values are in the names of folders."""
        columns: dict[str, list[pa.Array]] = {}
        for part, numbers in stretches:
            for name, value in self._folders.find(part.path):
                columns.setdefault(name, []).append(pa.repeat(value, len(numbers)))
        return [(name, pa.concat_arrays(arrays)) for name, arrays in columns.items()]


@dataclass(frozen=True)
class TextFilesReader:
    """Reads files below ``folder`` whose two ``columns`` are texts and their places; to be called by ``mapInArrow``.
    The values of the columns ``in_folders`` are in the names of folders."""

    folder: str
    columns: tuple[str, str]
    in_folders: Sequence[Column] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The texts of each file, in batches: _raw, _position, and the columns in folders. ``batches`` have one column,
        the lines of batch files."""
        import pyarrow.parquet as pq  # takes 20 ms, and no other reader of this module needs it

        folders = FolderValues(self.in_folders)
        forget_received()
        for batch in batches:
            for line in map(json.loads, batch.column(0).to_pylist()):
                if "link" not in line:
                    continue  # the header
                path = Part.of(self.folder, **line).path
                values = folders.find(path)
                names = ["_raw", "_position", *(name for name, _ in values)]
                with pq.ParquetFile(find_source(path)) as file:
                    for some in file.iter_batches(_TEXTS_AT_ONCE, columns=list(self.columns)):
                        below = [pa.repeat(value, some.num_rows) for _, value in values]
                        yield pa.RecordBatch.from_arrays([*some.columns, *below], names)


@dataclass(frozen=True)
class TextsReader:
    """Reads records from stored texts; to be called by ``mapInArrow``. Columns of ``kept`` do not change."""

    form: Form
    kept: Sequence[str] = ()
    version: str = __version__
    """The driver's."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of the texts (_raw STRING or BINARY, _position STRING, and the columns that are kept): the
        columns of the schema, those that are kept, and the framework's. Raises ImportError where this is not the
        driver's tidegate."""
        check_version(self.version)
        reader, completion = open_texts(self.form), Completion(self.form)
        for batch in batches:
            raws = batch.column("_raw").cast(pa.binary()).to_pylist()
            texts = [raw or b"" for raw in raws]
            read = read_texts(reader, texts, b"\n".join(texts))
            if None in raws:
                nothing = {at: Wrong(TOMBSTONE, None) for at, raw in enumerate(raws) if raw is None}
                read = replace(read, wrong={**read.wrong, **nothing})
            others = [(name, batch.column(name)) for name in self.kept]
            yield completion.complete(Found(read, texts, ()), batch.column("_position"), others)
