"""The code of Spark workers for a Kafka source: ranges of offsets in, records out."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidegate import __version__
from tidegate.sources.bounds import CUT_CHARACTERS, LONGEST_RECORD_BYTES
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.kafka_records import Header, Records, Setting, read_range
from tidegate.sources.readers.meter import Meter, ReportAddress
from tidegate.sources.readers.part_readers import open_texts, read_texts
from tidegate.sources.readers.records import Batch, Completion, Found, Wrong, show_positions
from tidegate.sources.readers.unreadable import SEAL, RangeFault, RangeProblem, TopicRange, report_defect
from tidegate.sources.readers.worker import TOMBSTONE, check_version

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_LIMIT = f"the limit is {LONGEST_RECORD_BYTES:,} bytes, and only the topic has all of it"
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, in milliseconds since 1970."""


@dataclass(frozen=True)
class RangesReader:
    """Reads the records of ranges of offsets; to be called by Spark's ``mapInArrow``.

    ``settings`` are those of librdkafka. The format ``raw`` is one BINARY column, the value as it is.
    """

    form: Form
    settings: Mapping[str, Setting] = field(repr=False)
    with_metadata: bool = False
    patience_seconds: float | None = None
    """For so long a broker may give nothing; None for the reader's own limit."""
    seal: str = field(default_factory=lambda: SEAL)
    """The driver's."""
    version: str = __version__
    """The driver's."""
    report_to: ReportAddress | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of each range, in batches: the schema's columns, those of ``metadata: true`` where asked, the
        framework's. ``batches`` have one column, the lines of batch files
        (:mod:`tidegate.state.batch_files`). Raises RangeFault with the driver's seal."""
        check_version(self.version)
        shaper, meter = _Shaper(self.form, self.with_metadata), Meter(self.report_to)
        for batch in batches:
            for line in batch.column(0).to_pylist():
                part = json.loads(line)
                if "topic" in part:  # not the header
                    where = TopicRange(part["topic"], part["partition"], part["begin"], part["end"])
                    meter.begin(f"{where.topic} {where.partition} {where.begin}", where.end - where.begin)
                    yield from self._read(shaper, meter, where, part.get("topic_id"))
        meter.end()

    def _read(self, shaper: _Shaper, meter: Meter, where: TopicRange, topic_id: str | None) -> Iterator[pa.RecordBatch]:
        try:
            with report_defect(lambda said: RangeFault(RangeProblem.DEFECT, where, said)):
                for records in read_range(self.settings, where, topic_id, self.patience_seconds):
                    batch = shaper.shape(records, where.topic, where.partition)
                    if meter.is_due(batch.num_rows):
                        meter.report(records.offsets[-1] + 1 - where.begin)
                    yield batch
        except RangeFault as fault:
            raise fault.sealed(self.seal) from fault


class _Shaper:
    """Makes record batches of records."""

    def __init__(self, form: Form, with_metadata: bool) -> None:
        self._reader = None if form.format == "raw" else open_texts(form)
        self._completion = Completion(form)
        self._with_metadata = with_metadata

    @property
    def _is_raw(self) -> bool:
        return self._reader is None

    def shape(self, records: Records, topic: str, partition: int) -> pa.RecordBatch:
        """The records, each with its position."""
        values = records.values
        refused: dict[int, Wrong] = {}
        others = self._shape_metadata(records, values, refused, topic, partition) if self._with_metadata else []
        self._refuse_values(values, refused)
        positions = show_positions(f'{{"topic":"{topic}","partition":{partition},"offset":', records.offsets)
        positions = pc.binary_join_element_wise(positions, "}", "")
        return self._completion.complete(self._read(values, refused), positions, others)

    def _read(self, values: Sequence[bytes | None], refused: Mapping[int, Wrong]) -> Found:
        """The schema's columns; a refused record is not looked at."""
        if self._reader is None:
            kept = [_cut(value) for value in values]
            batch = Batch([pa.array(kept, pa.binary(), size=len(kept))], refused, {})
            raws: Sequence[bytes | None] = [None if one is None else base64.b64encode(one) for one in kept]
            return Found(batch, raws, ())
        texts = [b"" if value is None or at in refused else value for at, value in enumerate(values)]
        read = read_texts(self._reader, texts, b"\n".join(texts))
        return Found(replace(read, wrong={**read.wrong, **refused}), texts, ())

    def _refuse_values(self, values: Sequence[bytes | None], refused: dict[int, Wrong]) -> None:
        """Refuse values that are too large, and tombstones where a text is needed."""
        kept = f"; raw has its first {CUT_CHARACTERS:,} {'bytes' if self._is_raw else 'characters'}"
        for at, size in _find_large(values):
            refused[at] = Wrong(_too_large("value", size) + kept, self._text_of(values[at]))
        if not self._is_raw and None in values:
            for at, value in enumerate(values):
                if value is None:
                    refused.setdefault(at, Wrong(TOMBSTONE, None))

    def _shape_metadata(
        self,
        records: Records,
        values: Sequence[bytes | None],
        refused: dict[int, Wrong],
        topic: str,
        partition: int,
    ) -> list[tuple[str, pa.Array]]:
        """The columns of ``metadata: true``; records whose key, time stamp or headers do not fit are refused."""

        def refuse(at: int, detail: str) -> None:
            refused.setdefault(at, Wrong(detail, self._text_of(values[at])))

        keys, stamps, headers = records.keys, records.timestamps, records.headers
        for at, size in _find_large(keys):
            refuse(at, _too_large("key", size))
            keys[at] = _cut(keys[at])
        kept = list[list[Header] | None]()
        for at, one in enumerate(headers):
            if isinstance(one, UnicodeError):
                refuse(at, "headers: a name that is not valid UTF-8")
                one = None
            elif one is not None and (size := _size_of(one)) > LONGEST_RECORD_BYTES:
                refuse(at, _too_large("headers", size))
                one = []
            kept.append(one)
        for at, stamp in enumerate(stamps):
            if stamp is not None and not _FIRST_MS <= stamp <= _LAST_MS:
                refuse(at, "_timestamp: TIMESTAMP outside the years 1 to 9999")
                stamps[at] = None
        times = pa.array(stamps, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        return [
            ("_key", pa.array(keys, pa.binary())),
            ("_topic", pa.repeat(pa.scalar(topic), len(values))),
            ("_partition", pa.repeat(pa.scalar(partition, pa.int32()), len(values))),
            ("_offset", pa.array(records.offsets, pa.int64())),
            ("_timestamp", times),
            ("_headers", pa.array(kept, _HEADERS)),
        ]

    def _text_of(self, value: bytes | None) -> bytes | None:
        """What is kept of a value that is not looked at."""
        if value is None:
            return None
        if self._is_raw:
            return base64.b64encode(_cut(value) or b"")
        if len(value) <= LONGEST_RECORD_BYTES:
            begin, characters = value, len(value)
        else:
            begin, characters = value[: 4 * CUT_CHARACTERS], CUT_CHARACTERS
        try:
            # A character that the cut divides is dropped; an incomplete one at the end of a value is an error.
            text = codecs.utf_8_decode(begin, "strict", begin is value)[0]
        except UnicodeDecodeError:
            return base64.b64encode(begin[:characters])
        return text[:characters].encode()


def _find_large(texts: Sequence[bytes | None]) -> list[tuple[int, int]]:
    """The places and the sizes of those that are larger than a record may be."""
    sizes = [len(text) if text else 0 for text in texts]
    if sum(sizes) <= LONGEST_RECORD_BYTES:
        return []
    return [(at, size) for at, size in enumerate(sizes) if size > LONGEST_RECORD_BYTES]


def _cut(value: bytes | None) -> bytes | None:
    """No more of a value than its beginning, where it is too large."""
    return value[:CUT_CHARACTERS] if value is not None and len(value) > LONGEST_RECORD_BYTES else value


def _too_large(what: str, size: int) -> str:
    return f"{what} of {size:,} bytes; {_LIMIT}"


def _size_of(headers: Sequence[Header]) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)
