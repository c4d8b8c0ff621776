"""What a worker of Spark runs: parts in, records out. It imports neither Spark nor anything else of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers.batches import Batch, Wrong
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.decoding import decode_file, encode_original, is_utf8
from tidegate.sources.readers.json_documents import Records, Refused, read_documents
from tidegate.sources.readers.json_lines import JsonReader
from tidegate.sources.readers.lines import Block, read_blocks
from tidegate.sources.readers.opening import open_part
from tidegate.sources.readers.text_lines import TextReader
from tidegate.sources.readers.whole_text import read_whole
from tidegate.sources.readers.xml_file import XmlReader, XmlRecords
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.ddl_tree import read_columns
from tidegate.spec.encodings import find_encoding

_ROWS_AT_MOST = 10_000
_BLANKS = b" \t\r\n"

FRAMEWORK_DDL = "_raw STRING, _position STRING, _malformed BOOLEAN, _detail STRING, _unknown ARRAY<STRING>"
"""What every record has behind its own columns."""
_FRAMEWORK = (
    ("_raw", pa.string()),
    ("_position", pa.string()),
    ("_malformed", pa.bool_()),
    ("_detail", pa.string()),
    ("_unknown", pa.list_(pa.string())),
)
_UNKNOWN = pa.field(*_FRAMEWORK[-1])


@dataclass(frozen=True)
class Form:
    """How the text of a record becomes columns: ``ddl`` are those of the schema, ``policy`` is ``unknown_fields``,
    ``options`` those of the parser."""

    format: str
    ddl: str
    policy: str = "report"
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> RecordsReader:
        """The reader; what it needs of the schema is worked out once."""
        return RecordsReader(self)


class RecordsReader:
    """Makes record batches of the texts of records."""

    def __init__(self, form: Form) -> None:
        columns = parse_ddl(form.ddl)
        root = read_columns(columns)
        self.skips_blanks = form.format != "text"
        self._policy = form.policy
        self.encoding = find_encoding(form.options.get("encoding", "UTF-8")) or "UTF-8"
        required = frozenset(column.name for column in columns if not column.nullable)
        self.xml = XmlReader(root, required, form.options) if form.format == "xml" else None
        self._reader = TextReader() if form.format == "text" else JsonReader(root, required)
        self.schema = pa.schema([*((name, arrow_type(inner)) for name, inner in root.fields), *_FRAMEWORK])

    def read(self, texts: Sequence[bytes], block: bytes, positions: pa.Array) -> pa.RecordBatch:
        """The records of ``texts``, which are within ``block`` with nothing but line ends between them."""
        try:
            batch = self._reader.read(texts, block)
        except Exception:  # noqa: BLE001 - a defect of the fast way: no record may stop a pipeline
            batch = self._reader.read_closely(texts)
        if self.encoding != "UTF-8" and not is_utf8(block):
            batch = replace(batch, wrong={**batch.wrong, **self._find_undecoded(texts)})
        return self._to_arrow(texts, batch, positions)

    def _find_undecoded(self, texts: Sequence[bytes]) -> dict[int, Wrong]:
        """The texts with bytes that the encoding of their file does not have."""
        return {
            at: Wrong(f"not valid {self.encoding}", encode_original(text, self.encoding))
            for at, text in enumerate(texts)
            if not is_utf8(text)
        }

    def give(self, records: XmlRecords, positions: pa.Array) -> pa.RecordBatch:
        """Records that are read."""
        read = self._to_arrow(records.texts, records.batch, positions)
        if not records.outside:
            return read
        # They are unknown, and no fault of a record.
        unknown = read.column("_unknown").to_pylist()
        unknown[-1] = [*(unknown[-1] or []), *records.outside]
        return read.set_column(len(read.schema) - 1, _UNKNOWN, pa.array(unknown, _UNKNOWN.type))

    def refuse(self, text: bytes, detail: str, position: str) -> pa.RecordBatch:
        """A record that is not looked at, as a malformed one."""
        columns = [pa.nulls(1, field.type) for field in self.schema][: -len(_FRAMEWORK)]
        raw = text.decode("utf-8", "replace").encode()
        return self._to_arrow([raw], Batch(columns, {0: Wrong(detail, raw)}, {}), pa.array([position]))

    def _to_arrow(self, texts: Sequence[bytes], batch: Batch, positions: pa.Array) -> pa.RecordBatch:
        count, wrong = len(texts), batch.wrong
        if self._policy == "quarantine" and batch.unknown:
            wrong = dict(wrong) | batch.refuse_unknown(texts)
        raws = texts
        malformed, details = pa.repeat(pa.scalar(False), count), pa.nulls(count, pa.string())
        if wrong:
            raws = [wrong[at].raw if at in wrong else text for at, text in enumerate(texts)]
            malformed = pa.array([at in wrong for at in range(count)], pa.bool_())
            details = pa.array([wrong[at].detail if at in wrong else None for at in range(count)], pa.string())
        unknown = pa.nulls(count, pa.list_(pa.string()))
        if batch.unknown:
            unknown = pa.array([batch.unknown.get(at) for at in range(count)], pa.list_(pa.string()))
        columns = [*batch.columns, pa.array(raws, pa.string()), positions, malformed, details, unknown]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class PartsReader:
    """Reads the records of parts of files; to be called by Spark's ``mapInArrow``. ``ending`` ends a line."""

    form: Form
    ending: bytes | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of each part (path STRING, begin BIGINT, end BIGINT), in batches."""
        reader = self.form.open()
        for batch in batches:
            for part in batch.to_pylist():
                yield from self._read_part(reader, part)

    def _read_part(self, reader: RecordsReader, part: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        path = unquote(urlparse(part["path"]).path)
        place = f"{part['path']}#{part['begin']}+"
        if reader.xml is not None:
            yield from _read_xml(reader, reader.xml.read(lambda: open_part(path)), place)
            return
        options = self.form.options
        with open_part(path) as file:
            text = decode_file(file, reader.encoding)
            if "true" in (options.get("multiLine"), options.get("wholetext")):
                is_whole = options.get("wholetext") == "true"
                yield from _read_records(reader, [read_whole(text)] if is_whole else read_documents(text), place)
                return
            for block in read_blocks(text, part["begin"], part["end"], self.ending):
                yield from _read_block(reader, block, place)


def _read_records(reader: RecordsReader, records: Iterable[Records | Refused], place: str) -> Iterator[pa.RecordBatch]:
    for some in records:
        if isinstance(some, Refused):
            yield reader.refuse(some.text, some.detail, f"{place}{some.number}")
        else:
            yield from _read_texts(reader, some.texts, some.numbers, some.block, place)


def _read_xml(reader: RecordsReader, records: Iterable[XmlRecords | Refused], place: str) -> Iterator[pa.RecordBatch]:
    for some in records:
        if isinstance(some, Refused):
            yield reader.refuse(some.text, some.detail, f"{place}{some.number}")
        else:
            yield reader.give(some, _positions(some.numbers, place))


def _read_block(reader: RecordsReader, block: Block, place: str) -> Iterator[pa.RecordBatch]:
    if block.size:
        detail = f"a line of {block.size:,} bytes; the limit is {LONGEST_RECORD_BYTES:,}, and its beginning is kept"
        yield reader.refuse(block.text, detail, f"{place}{block.before + 1}")
        return
    lines, numbers = block.lines, list(range(block.before + 1, block.before + 1 + len(block.lines)))
    if reader.skips_blanks and not all(line.strip(_BLANKS) for line in lines):
        numbers = [number for number, line in zip(numbers, lines, strict=True) if line.strip(_BLANKS)]
        lines = [line for line in lines if line.strip(_BLANKS)]
    text = block.text if len(lines) == len(block.lines) else b"\n".join(lines)
    yield from _read_texts(reader, lines, numbers, text, place)


def _read_texts(
    reader: RecordsReader, texts: Sequence[bytes], numbers: Sequence[int], block: bytes, place: str
) -> Iterator[pa.RecordBatch]:
    """The records of ``texts``, which have the line ``numbers``, in batches."""
    for start in range(0, len(texts), _ROWS_AT_MOST):
        some = texts[start : start + _ROWS_AT_MOST]
        text = block if len(some) == len(texts) else b"\n".join(some)
        yield reader.read(some, text, _positions(numbers[start : start + _ROWS_AT_MOST], place))


def _positions(numbers: Sequence[int], place: str) -> pa.Array:
    return pc.binary_join_element_wise(place, pa.array(numbers, pa.int64()).cast(pa.string()), "")


@dataclass(frozen=True)
class TextsReader:
    """Reads records whose texts are at hand; to be called by ``mapInArrow``. Columns of ``kept`` stay as they are."""

    form: Form
    kept: Sequence[str] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of the texts (_raw STRING, _position STRING, and the columns that are kept)."""
        reader = self.form.open()
        for batch in batches:
            texts = [text or b"" for text in batch.column("_raw").cast(pa.binary()).to_pylist()]
            read = reader.read(texts, b"\n".join(texts), batch.column("_position"))
            columns = [*read.columns, *(batch.column(name) for name in self.kept)]
            yield pa.RecordBatch.from_arrays(columns, names=[*read.schema.names, *self.kept])
