"""Parts of files as records, by the format of the file."""

from __future__ import annotations

import contextlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol
from urllib.parse import unquote, urlparse

from tidegate.sources.bounds import TOO_LARGE
from tidegate.sources.readers.batches import Batch
from tidegate.sources.readers.csv_file import Head, HeaderDiffers, read_head, read_records
from tidegate.sources.readers.csv_lines import CsvReader
from tidegate.sources.readers.csv_options import CsvOptions
from tidegate.sources.readers.csv_spans import Records
from tidegate.sources.readers.decoding import decode_file
from tidegate.sources.readers.json_lines import JsonReader
from tidegate.sources.readers.lines import is_packed, read_blocks
from tidegate.sources.readers.opening import open_part
from tidegate.sources.readers.records import Form, Found
from tidegate.sources.readers.text_lines import TextReader
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.sources.readers.ways import Ways

if TYPE_CHECKING:
    from tidegate.sources.readers.columnar import ColumnarReader
    from tidegate.sources.readers.rows import Rows

_CHUNK_BYTES = 1 << 20
_ROWS_AT_MOST = 10_000
_BLANKS = b" \t\r\n"


class Part(NamedTuple):
    """The bytes [begin, end) of the file at ``uri``; ``end`` None is the end of the file. It has the records that
    begin there."""

    uri: str
    begin: int
    end: int | None

    @classmethod
    def of(cls, row: dict[str, Any]) -> Part:
        """The part that a row of Spark's tells."""
        return cls(row["path"], row["begin"], row["end"])

    @property
    def path(self) -> str:
        """Where the file is."""
        return unquote(urlparse(self.uri).path)


class TextRecords(Protocol):
    """Makes columns of the texts of records."""

    def read(self, lines: Sequence[bytes], block: bytes) -> Batch:
        """The records of ``lines``, which are within ``block`` with nothing but line ends between them."""

    def read_closely(self, lines: Sequence[bytes]) -> Batch:
        """The same by the functions that define values alone: far slower."""


def open_texts(form: Form) -> TextRecords:
    """What makes columns of texts of the format of ``form``."""
    if form.format == "text":
        return TextReader()
    if form.format == "csv":
        return CsvReader(form.root, form.required, CsvOptions.of(form.options), Ways.of(form.options))
    return JsonReader(form.root, form.required, Ways.of(form.options), rescues=form.policy == "rescue")


def read_texts(records: TextRecords, texts: Sequence[bytes], block: bytes) -> Batch:
    """The records of ``texts``, which are within ``block``."""
    try:
        return records.read(texts, block)
    except Exception:  # noqa: BLE001 - a defect of the fast way: no record may stop a pipeline
        return records.read_closely(texts)


class PartReader(ABC):
    """Reads the parts of files of one format."""

    has_lines: ClassVar[bool] = True
    """Whether records have the number of their line in the part, or of their row in the file."""

    def __init__(self, form: Form) -> None:
        self.form = form

    @abstractmethod
    def read(self, part: Part) -> Iterator[Found]:
        """The records of a part. Raises PartUnreadable."""

    def check(self, path: str) -> None:
        """Look at what a file says of itself, and at whether a packed one is whole. Raises PartUnreadable."""
        with open_part(path) as file:
            while file.read(_CHUNK_BYTES) and is_packed(path):
                pass


class _Lines(PartReader):
    """A record is a line: json and text."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self._records = open_texts(form)
        self._skips_blanks = form.format != "text"

    def read(self, part: Part) -> Iterator[Found]:
        with open_part(part.path) as file:
            for block in read_blocks(file, part.begin, part.end, self.form.ending):
                first = block.before + 1
                if block.size:
                    yield self._refuse(block.text, block.size, first)
                    continue
                lines, numbers = block.lines, list(range(first, first + len(block.lines)))
                if self._skips_blanks and not all(line.strip(_BLANKS) for line in lines):
                    numbers = [at for at, line in zip(numbers, lines, strict=True) if line.strip(_BLANKS)]
                    lines = [line for line in lines if line.strip(_BLANKS)]
                text = block.text if len(lines) == len(block.lines) else b"\n".join(lines)
                yield from _divide(self._records, Records(text, lines, numbers))

    def _refuse(self, text: bytes, size: int, number: int) -> Found:
        return _refuse(self.form, text, size, number)


class _Csv(PartReader):
    """csv: a record is a line, or goes on over line ends within quotes."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self._options, self._ways = CsvOptions.of(form.options), Ways.of(form.options)
        self._names = [name for name, _ in form.root.fields]
        self._readers: dict[CsvOptions, CsvReader] = {}

    def check(self, path: str) -> None:
        """Look at the header too."""
        self._read_head(path)
        super().check(path)

    def _read_head(self, path: str) -> Head:
        with open_part(path) as file:
            try:
                return read_head(decode_file(file, self._options.encoding), self._names, self._options)
            except HeaderDiffers as differs:
                raise PartUnreadable(path, str(differs)) from None

    def read(self, part: Part) -> Iterator[Found]:
        options, head = self._options, self._read_head(part.path)
        reader = self._readers.get(head.options)
        if reader is None:
            reader = CsvReader(self.form.root, self.form.required, head.options, self._ways)
            self._readers = {head.options: reader}
        with open_part(part.path) as file:
            for records in read_records(decode_file(file, options.encoding), part.begin, part.end, head):
                if records.size:
                    yield _refuse(self.form, records.texts[0], records.size, records.numbers[0])
                else:
                    yield from _divide(reader, records)


class RowsReader(PartReader):
    """Files that describe themselves: parquet, orc and avro. A part has the row groups, stripes or blocks that begin in
    it; of the columns a record has all, so no text of it is kept unless it is malformed."""

    has_lines = False
    OPENERS: ClassVar = {
        "parquet": "parquet_file.ParquetRows",
        "orc": "orc_file.OrcRows",
        "avro": "avro_records.AvroRows",
    }

    def check(self, path: str) -> None:
        """Look at the footer, and at whether its columns can be those of the schema."""
        with self._open(path) as (reader, rows):
            reader.look(rows)

    def find_unknown(self, path: str) -> Sequence[str]:
        """Paths of the fields of a file that the schema lacks. Raises PartUnreadable."""
        with self._open(path) as (reader, rows):
            return reader.look(rows).unknown

    def read(self, part: Part) -> Iterator[Found]:
        with self._open(part.path) as (reader, rows):
            for before, batch in reader.read(rows, part.begin, part.end):
                count = len(batch.columns[0])
                yield Found(batch, None, range(before + 1, before + count + 1))

    @contextlib.contextmanager
    def _open(self, path: str) -> Iterator[tuple[ColumnarReader, Rows]]:
        # Imported by the workers that need them: what they import takes its time.
        from tidegate.sources.readers.columnar import ColumnarReader
        from tidegate.sources.readers.rows import DamagedFile

        try:
            with open_rows(path, self.form) as rows:
                yield ColumnarReader(self.form.root, self.form.required), rows
        except DamagedFile as error:
            raise PartUnreadable(path, str(error)) from error
        except OSError as error:
            raise PartUnreadable(path, error.strerror or str(error), error.errno) from error


def open_rows(path: str, form: Form) -> Rows:
    """A file that describes itself, in the types that it has. Raises DamagedFile, OSError."""
    module, _, name = RowsReader.OPENERS[form.format].partition(".")
    opener: type[Rows] = getattr(importlib.import_module(f"tidegate.sources.readers.{module}"), name)
    return opener(path, form.options)


def open_reader(form: Form) -> PartReader:
    """What reads parts of files of the format of ``form``."""
    return _KINDS[form.format](form)


_KINDS: dict[str, type[PartReader]] = {
    "json": _Lines,
    "text": _Lines,
    "csv": _Csv,
    **dict.fromkeys(RowsReader.OPENERS, RowsReader),
}


def _refuse(form: Form, text: bytes, size: int, number: int) -> Found:
    return Found.refused(form.root, text, f"a line of {size:,} bytes; {TOO_LARGE}", number)


def _divide(reader: TextRecords, records: Records) -> Iterator[Found]:
    """Records of a stretch of text, in batches."""
    block, texts, numbers = records.block, records.texts, records.numbers
    for start in range(0, len(texts), _ROWS_AT_MOST):
        some = texts[start : start + _ROWS_AT_MOST]
        text = block if len(some) == len(texts) else b"\n".join(some)
        yield Found(read_texts(reader, some, text), some, numbers[start : start + _ROWS_AT_MOST])
