"""Reads parts of files as records, by the format of the file."""

from __future__ import annotations

import base64
import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, ClassVar, NamedTuple, Protocol, TypeVar
from urllib.parse import quote_from_bytes

import pyarrow as pa

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers.csv_file import Head, read_head, read_records
from tidegate.sources.readers.csv_lines import CsvReader
from tidegate.sources.readers.csv_values import CsvOptions
from tidegate.sources.readers.form import Form, load_reader
from tidegate.sources.readers.json_documents import find_break, read_documents
from tidegate.sources.readers.json_lines import JsonReader
from tidegate.sources.readers.lines import BLOCK_BYTES, BOM, Records, Refused, is_packed, read_blocks
from tidegate.sources.readers.links import Sent, receive
from tidegate.sources.readers.opening import decode_file, encode_original, is_utf8, open_part
from tidegate.sources.readers.records import Batch, Found, Wrong
from tidegate.sources.readers.unreadable import DEFECT, PartUnreadable, report_defect
from tidegate.sources.readers.ways import Ways
from tidegate.spec.encodings import find_encoding

_Result = TypeVar("_Result")


def read_whole(file: BinaryIO) -> Iterator[Records | Refused]:
    """All of ``file``, without its byte order mark, as one record."""
    text = file.read(LONGEST_RECORD_BYTES + len(BOM) + 1).removeprefix(BOM)
    if len(text) <= LONGEST_RECORD_BYTES:
        yield Records(text, [text], [1])
        return
    size = len(text)
    while piece := file.read(BLOCK_BYTES):
        size += len(piece)
    yield Refused.too_large(text, 1, size, "a file")


class TextReader:
    """Reads lines as records of one STRING column."""

    def read(self, lines: Sequence[bytes], block: bytes) -> Batch:
        """The records of ``lines``, all of which are valid UTF-8. Raises pyarrow.ArrowInvalid."""
        return Batch([pa.array(lines, pa.string())], {}, {})

    def read_closely(self, lines: Sequence[bytes]) -> Batch:
        """The same of any lines, one at a time."""
        texts: list[bytes | None] = list(lines)
        wrong = {}
        for at, line in enumerate(lines):
            try:
                line.decode()
            except UnicodeDecodeError:
                texts[at] = None
                wrong[at] = Wrong("not valid UTF-8", base64.b64encode(line))
        return Batch([pa.array(texts, pa.string())], wrong, {})


_CHUNK_BYTES = 1 << 20
_ROWS_AT_MOST = 10_000
_BLANKS = b" \t\r\n"


class Part(NamedTuple):
    """The bytes [begin, end) of the file at ``path``; ``end`` None is the end of the file. It has the records that
    begin there."""

    path: str
    begin: int
    end: int | None

    @classmethod
    def of(cls, folder: str, link: str, begin: int, end: int | None, sent: Sent | None = None) -> Part:
        """The part that a line of a batch file names, of a file below ``folder``, or of what was ``sent`` with it."""
        path = os.path.join(folder, link)
        if sent is not None:
            receive(path, sent)
        return cls(path, begin, end)

    @property
    def uri(self) -> str:
        """The file as positions of records name it."""
        return f"file://{quote_from_bytes(os.fsencode(self.path))}"


class Stretch(NamedTuple):
    """Some records of a part, by the numbers of their lines or rows."""

    part: Part
    numbers: Sequence[int]


Complete = Callable[[Sequence[Stretch], Found], pa.RecordBatch]
"""Makes a record batch of some records, which are those of the stretches, in this order."""


def blame(part: Part) -> AbstractContextManager[None]:
    """Raise PartUnreadable, as a defect, for any error while ``part`` is read, except a missing package."""
    return report_defect(lambda said: PartUnreadable(part.path, said, DEFECT))


def _attempt(act: Callable[[], _Result]) -> _Result | None:
    """What ``act`` returns; None for any error: the caller has another way, whose own error is the one that counts."""
    try:
        return act()
    except Exception:  # noqa: BLE001 - a defect of the fast way, by any library: no record may stop a pipeline
        return None


class TextRecords(Protocol):
    """Makes columns of the texts of records."""

    def read(self, lines: Sequence[bytes], block: bytes) -> Batch:
        """The records of ``lines``, which are within ``block`` with nothing but line ends between them.

        May raise any exception for records that :meth:`read_closely` can read.
        """

    def read_closely(self, lines: Sequence[bytes]) -> Batch:
        """The same by the functions that define values alone: far slower."""


def open_texts(form: Form) -> TextRecords:
    """What makes columns of texts of the format of ``form``."""
    if form.format == "text":
        return TextReader()
    if form.format == "csv":
        options = CsvOptions.of(form.options)
        options = dataclasses.replace(options, may_end_with_separator=options.has_header)
        return CsvReader(form.root, form.required, options, Ways.of(form.options))
    if form.format == "xml":
        texts: TextRecords = load_reader("xml_file.XmlReader")(form)
        return texts
    return JsonReader(form.root, form.required, Ways.of(form.options), rescues=form.policy == "rescue")


def read_texts(records: TextRecords, texts: Sequence[bytes], block: bytes) -> Batch:
    """The records of ``texts``, which are within ``block``."""
    batch = _attempt(lambda: records.read(texts, block))
    return records.read_closely(texts) if batch is None else batch


class PartReader(ABC):
    """Reads the parts of files of one format."""

    has_lines: ClassVar[bool] = True
    """Whether records have the number of their line in the part, or of their row in the file."""

    def __init__(self, form: Form) -> None:
        self.form = form

    @abstractmethod
    def read(self, part: Part) -> Iterator[Found]:
        """The records of a part. Raises PartUnreadable."""

    def read_all(self, parts: Iterable[Part], complete: Complete) -> Iterator[pa.RecordBatch]:
        """The records of ``parts``, in batches. Raises PartUnreadable, ImportError."""
        for part in parts:
            with blame(part):
                for found in self.read(part):
                    yield complete([Stretch(part, found.numbers)], found)

    def check(self, path: str) -> None:
        """Check the metadata of a file, and that a compressed one is complete. Raises PartUnreadable."""
        with open_part(path) as file:
            while file.read(_CHUNK_BYTES) and is_packed(path):
                pass


class _Texts(PartReader):
    """The records are texts; a subclass finds them in the file."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self._root = form.root
        self._encoding = find_encoding(form.options.get("encoding", "UTF-8")) or form.options["encoding"]
        self._codec = self._encoding

    def _decode(self, file: BinaryIO) -> BinaryIO:
        """An open file as one in UTF-8."""
        decoded, self._codec = decode_file(file, self._encoding)
        return decoded

    def _divide(self, reader: TextRecords, records: Records | Refused) -> Iterator[Found]:
        """Records of a stretch of text, in batches."""
        if isinstance(records, Refused):
            yield Found.refused(self._root, records)
            return
        block, texts, numbers = records
        for start in range(0, len(texts), _ROWS_AT_MOST):
            some = texts[start : start + _ROWS_AT_MOST]
            text = block if len(some) == len(texts) else b"\n".join(some)
            batch = read_texts(reader, some, text)
            if self._encoding != "UTF-8" and not is_utf8(text):
                batch = dataclasses.replace(batch, wrong={**batch.wrong, **self._find_undecoded(some)})
            yield Found(batch, some, numbers[start : start + _ROWS_AT_MOST])

    def _find_undecoded(self, texts: Sequence[bytes]) -> dict[int, Wrong]:
        """The texts with bytes that the encoding of their file does not have."""
        return {
            at: Wrong(f"not valid {self._encoding}", encode_original(text, self._codec))
            for at, text in enumerate(texts)
            if not is_utf8(text)
        }


class _Lines(_Texts):
    """A record is a line, or the file, or a document: json and text."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self._records = open_texts(form)
        self._skips_blanks = form.format != "text"

    def read(self, part: Part) -> Iterator[Found]:
        for records in self._find_records(part):
            yield from self._divide(self._records, records)

    def read_all(self, parts: Iterable[Part], complete: Complete) -> Iterator[pa.RecordBatch]:
        """As of each part; but the records of small parts share a batch, which costs far less."""
        if self._encoding != "UTF-8":  # the codec is that of one file
            yield from super().read_all(parts, complete)
            return
        gathered, size, count = list[tuple[Part, Records]](), 0, 0
        for part in parts:
            with blame(part):
                for records in self._find_records(part):
                    if isinstance(records, Records):
                        size, count = size + len(records.block), count + len(records.texts)
                        if size <= BLOCK_BYTES and count <= _ROWS_AT_MOST:
                            gathered.append((part, records))
                            continue
                    yield from self._complete_gathered(gathered, complete)
                    gathered, size, count = [], 0, 0
                    yield from self._complete_part(part, records, complete)
        yield from self._complete_gathered(gathered, complete)

    def _complete_gathered(
        self, gathered: Sequence[tuple[Part, Records]], complete: Complete
    ) -> Iterator[pa.RecordBatch]:
        if len(gathered) > 1:
            texts = [text for _, records in gathered for text in records.texts]
            stretches = [Stretch(part, records.numbers) for part, records in gathered]
            numbers = [number for _, some in stretches for number in some]
            found = Found(read_texts(self._records, texts, b"\n".join(texts)), texts, numbers)
            # Where it fails, each part alone shows which one it is.
            if (batch := _attempt(lambda: complete(stretches, found))) is not None:
                yield batch
                return
        for part, records in gathered:
            yield from self._complete_part(part, records, complete)

    def _complete_part(self, part: Part, records: Records | Refused, complete: Complete) -> Iterator[pa.RecordBatch]:
        with blame(part):
            for found in self._divide(self._records, records):
                yield complete([Stretch(part, found.numbers)], found)

    def _find_records(self, part: Part) -> Iterator[Records | Refused]:
        if (fault := self._find_break(part.path)) is not None:
            with open_part(part.path) as file:
                for whole in read_whole(self._decode(file)):
                    text, number, detail = whole if isinstance(whole, Refused) else (whole.block, 1, "")
                    yield Refused(text, number, "; ".join(filter(None, [fault, detail])))
            return
        with open_part(part.path) as file:
            yield from self._find(self._decode(file), part)

    def _find_break(self, path: str) -> str | None:
        if self.form.options.get("multiLine") != "true":
            return None
        with open_part(path) as file:
            return find_break(self._decode(file))

    def _find(self, file: BinaryIO, part: Part) -> Iterator[Records | Refused]:
        if self.form.options.get("multiLine") == "true":
            return read_documents(file)
        if self.form.options.get("wholetext") == "true":
            return read_whole(file)
        return self._find_lines(file, part)

    def _find_lines(self, file: BinaryIO, part: Part) -> Iterator[Records | Refused]:
        for records in read_blocks(file, part.begin, part.end, self.form.ending):
            if isinstance(records, Records) and self._skips_blanks:
                _, lines, numbers = records
                if not all(line.strip(_BLANKS) for line in lines):
                    numbers = [at for at, line in zip(numbers, lines, strict=True) if line.strip(_BLANKS)]
                    lines = [line for line in lines if line.strip(_BLANKS)]
                    records = Records(b"\n".join(lines), lines, numbers)
            yield records


class _Csv(_Texts):
    """csv: a record is a line, or spans lines within quotes."""

    def __init__(self, form: Form) -> None:
        super().__init__(form)
        self._options, self._ways = CsvOptions.of(form.options), Ways.of(form.options)
        self._names = [name for name, _ in form.root.fields]
        self._readers: dict[CsvOptions, CsvReader] = {}

    def check(self, path: str) -> None:
        """Look at the header too."""
        self._read_head(path)
        super().check(path)

    def read(self, part: Part) -> Iterator[Found]:
        head = self._read_head(part.path)
        reader = self._readers.get(head.options)
        if reader is None:
            reader = CsvReader(self._root, self.form.required, head.options, self._ways)
            self._readers = {head.options: reader}
        with open_part(part.path) as file:
            for records in read_records(self._decode(file), part.begin, part.end, head):
                for found in self._divide(reader, records):
                    yield self._say_separator(found, head.options.separator)

    def _say_separator(self, found: Found, separator: str) -> Found:
        """``found``; of a malformed record the detail names the separator that its file has."""
        if not found.batch.wrong or separator == self._options.separator:
            return found
        said = f"; read with the separator {separator!r}, which the first line of the file sets"
        wrong = {at: Wrong(one.detail + said, one.raw) for at, one in found.batch.wrong.items()}
        return found._replace(batch=dataclasses.replace(found.batch, wrong=wrong))

    def _read_head(self, path: str) -> Head:
        with open_part(path) as file:
            return read_head(self._decode(file), self._names, self._options)


def open_reader(form: Form) -> PartReader:
    """What reads parts of files of the format of ``form``."""
    kind: type[PartReader] = _KINDS.get(form.format) or load_reader(_LOADED[form.format])
    return kind(form)


_KINDS: dict[str, type[PartReader]] = {"json": _Lines, "text": _Lines, "csv": _Csv}
_LOADED = {"xml": "xml_file.XmlParts", **dict.fromkeys(("parquet", "orc", "avro"), "columnar.RowsParts")}
