"""What a worker of Spark runs: parts in, records out. It imports neither Spark nor anything else of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers.batches import Batch, Wrong
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.json_lines import JsonReader
from tidegate.sources.readers.json_text import MANY_LEVELS
from tidegate.sources.readers.lines import Block, read_blocks
from tidegate.sources.readers.opening import open_part
from tidegate.sources.readers.text_lines import TextReader
from tidegate.sources.readers.ways import Ways
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.ddl_tree import read_columns

_ROWS_AT_MOST = 10_000
_BLANKS = b" \t\r\n"

RESCUED_DDL = "_rescued STRING"
"""What a record has behind its own columns with the policy ``rescue``: a JSON object of its unknown fields."""
FRAMEWORK_DDL = "_raw STRING, _position STRING, _malformed BOOLEAN, _detail STRING, _unknown ARRAY<STRING>"
"""What every record has behind its own columns."""
_FRAMEWORK = (
    ("_raw", pa.string()),
    ("_position", pa.string()),
    ("_malformed", pa.bool_()),
    ("_detail", pa.string()),
    ("_unknown", pa.list_(pa.string())),
)


@dataclass(frozen=True)
class Form:
    """How the text of a record becomes columns: ``ddl`` are those of the schema, ``policy`` is ``unknown_fields``,
    ``options`` are those of the parser."""

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
        required = frozenset(column.name for column in columns if not column.nullable)
        reader = TextReader() if form.format == "text" else JsonReader(root, required, Ways.of(form.options))
        self._reader: TextReader | JsonReader = reader
        own = [(name, arrow_type(inner)) for name, inner in root.fields]
        self._own = len(own)
        rescued = [("_rescued", pa.string())] if form.policy == "rescue" else []
        self.schema = pa.schema([*own, *rescued, *_FRAMEWORK])

    def read(self, texts: Sequence[bytes], block: bytes, positions: pa.Array) -> pa.RecordBatch:
        """The records of ``texts``, which are within ``block`` with nothing but line ends between them."""
        try:
            batch = self._reader.read(texts, block)
        except Exception:  # noqa: BLE001 - a defect of the fast way: no record may stop a pipeline
            batch = self._reader.read_closely(texts)
        return self._to_arrow(texts, batch, positions)

    def refuse(self, text: bytes, detail: str, position: str) -> pa.RecordBatch:
        """A record that is not looked at, as a malformed one."""
        columns = [pa.nulls(1, field.type) for field in self.schema][: self._own]
        raw = text.decode("utf-8", "replace").encode()
        return self._to_arrow([raw], Batch(columns, {0: Wrong(detail, raw)}, {}), pa.array([position]))

    def _to_arrow(self, texts: Sequence[bytes], batch: Batch, positions: pa.Array) -> pa.RecordBatch:
        count, wrong = len(texts), dict(batch.wrong)
        if self._policy == "quarantine":
            wrong |= batch.refuse_unknown(texts)
        rescued = [self._rescue(texts, batch, wrong)] if self._policy == "rescue" else []
        raws = texts
        malformed, details = pa.repeat(pa.scalar(False), count), pa.nulls(count, pa.string())
        if wrong:
            raws = [wrong[at].raw if at in wrong else text for at, text in enumerate(texts)]
            malformed = pa.array([at in wrong for at in range(count)], pa.bool_())
            details = pa.array([wrong[at].detail if at in wrong else None for at in range(count)], pa.string())
        unknown = pa.nulls(count, pa.list_(pa.string()))
        if batch.unknown:
            unknown = pa.array([batch.unknown.get(at) for at in range(count)], pa.list_(pa.string()))
        columns = [*batch.columns, *rescued, pa.array(raws, pa.string()), positions, malformed, details, unknown]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _rescue(self, texts: Sequence[bytes], batch: Batch, wrong: dict[int, Wrong]) -> pa.Array:
        """The unknown fields of each record as JSON, null where there are none. What cannot be written is ``wrong``."""
        found: list[str | None] = [None] * len(texts)
        if isinstance(self._reader, JsonReader):
            for at in batch.unknown.keys() - wrong.keys():
                try:
                    found[at] = self._reader.rescue(texts[at])
                except RecursionError:
                    wrong[at] = Wrong(MANY_LEVELS, texts[at])
        return pa.array(found, pa.string())


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
        with open_part(path) as file:
            for block in read_blocks(file, part["begin"], part["end"], self.ending):
                yield from _read_block(reader, block, place)


def _read_block(reader: RecordsReader, block: Block, place: str) -> Iterator[pa.RecordBatch]:
    if block.size:
        detail = f"a line of {block.size:,} bytes; the limit is {LONGEST_RECORD_BYTES:,}, and its beginning is kept"
        yield reader.refuse(block.text, detail, f"{place}{block.before + 1}")
        return
    lines, numbers = block.lines, list(range(block.before + 1, block.before + 1 + len(block.lines)))
    if reader.skips_blanks and not all(line.strip(_BLANKS) for line in lines):
        numbers = [number for number, line in zip(numbers, lines, strict=True) if line.strip(_BLANKS)]
        lines = [line for line in lines if line.strip(_BLANKS)]
    for start in range(0, len(lines), _ROWS_AT_MOST):
        some = lines[start : start + _ROWS_AT_MOST]
        text = block.text if len(some) == len(block.lines) else b"\n".join(some)
        texts = pa.array(numbers[start : start + _ROWS_AT_MOST], pa.int64()).cast(pa.string())
        yield reader.read(some, text, pc.binary_join_element_wise(place, texts, ""))


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
