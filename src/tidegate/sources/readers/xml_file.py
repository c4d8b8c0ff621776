"""Reads XML files as record batches. A file is read twice: its records count only when it is well-formed."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import pyarrow as pa

from tidegate.sources.bounds import LONGEST_RECORD_BYTES, TOO_LARGE
from tidegate.sources.readers.batches import Batch, Wrong
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.lines import KEPT_BYTES, Refused
from tidegate.sources.readers.records import Found
from tidegate.sources.readers.rescue import write_unknown
from tidegate.sources.readers.values import Findings, make_converter
from tidegate.sources.readers.ways import Ways
from tidegate.sources.readers.xml_elements import Cutter, Element, Record
from tidegate.sources.readers.xml_text import NotDecoded, NotRead, check_text, read_text
from tidegate.sources.readers.xml_values import Shaper, XmlOptions
from tidegate.spec.ddl_tree import Node

_ROWS_AT_MOST, _BYTES_AT_MOST = 10_000, 4 << 20

Opener = Callable[[], AbstractContextManager[BinaryIO]]


class XmlReader:
    """Reads files of XML as records with the columns of ``root``, a struct; ``required`` ones are NOT NULL."""

    def __init__(self, form: Form) -> None:
        self._root = form.root
        self._options = XmlOptions.of(form.options)
        self._shaper = Shaper(self._root, self._options)
        self._convert = make_converter(self._root, Ways.of(form.options))
        self._required = [name for name, _ in self._root.fields if name in form.required]
        self._rescues = form.policy == "rescue"

    def read(self, open_file: Opener) -> Iterator[Found | Refused]:
        """The records of the file that ``open_file`` opens; one that is not read is one that is refused."""
        try:
            with open_file() as file:
                if not check_text(self._read_text(file)):
                    return
        except NotRead as why:
            yield self._refuse(open_file, why)
            return
        cutter, some, is_first = self._open_cutter(), self._begin(), True
        with open_file() as file:
            for record in cutter.cut(self._read_text(file)):
                if some.is_full:
                    yield some.give([])
                    some = self._begin()
                some.add(record)
                is_first = False
        if is_first:
            yield self._refuse(open_file, NotRead(f"there is no element {self._options.row_tag}"))
        else:
            yield some.give(cutter.outside)

    def read_texts(self, texts: Sequence[bytes]) -> Batch:
        """The same for texts each of which is a record."""
        some = self._begin()
        for text in texts:
            some.add(self._cut_one(text))
        return some.give([]).batch

    def _cut_one(self, text: bytes) -> Record:
        fault = f"not one element {self._options.row_tag}"
        try:
            check_text(read_text(io.BytesIO(text), None))
            found = list(self._open_cutter().cut(read_text(io.BytesIO(text), None)))
        except NotRead as why:
            found, fault = [], str(why)
        return found[0] if len(found) == 1 else Record(text, 1, Element("", {}, 0), fault)

    def _open_cutter(self) -> Cutter:
        return Cutter(self._options.row_tag, without_namespace=self._options.without_namespace)

    def _begin(self) -> _Some:
        return _Some(self._root, self._read)

    def _read_text(self, file: BinaryIO) -> Iterator[bytes]:
        return read_text(file, self._options.encoding)

    def _refuse(self, open_file: Opener, why: NotRead) -> Refused:
        """The whole file as one record, or its beginning."""
        kept = b""
        with open_file() as file:
            pieces = iter(lambda: file.read(1 << 18), b"") if isinstance(why, NotDecoded) else self._read_text(file)
            for piece in pieces:
                kept += piece
                if len(kept) > LONGEST_RECORD_BYTES:
                    break
        detail = str(why)
        if len(kept) > LONGEST_RECORD_BYTES:
            detail += f"; it has more bytes than a record may have; {TOO_LARGE}"
            kept = kept[:KEPT_BYTES]
        return Refused(base64.b64encode(kept) if isinstance(why, NotDecoded) else kept, 1, detail)

    def _read(self, record: Record, findings: Findings) -> tuple[dict[str, Any], str | None]:
        """The values of a record, and its unknown fields as JSON where they are wanted."""
        if record.fault is not None:
            findings.refuse("", record.fault)
            return {}, None
        value = self._shaper.shape(record)
        found: dict[str, Any] = self._convert(value, "", findings)
        findings.require(self._required, found)
        is_rescued = self._rescues and findings.unknown and not findings.faults
        return found, write_unknown(value, self._root) if is_rescued else None


class XmlTexts:
    """Reads texts each of which is a record of XML."""

    def __init__(self, form: Form) -> None:
        self._reader = XmlReader(form)

    def read(self, lines: Sequence[bytes], block: bytes) -> Batch:
        """The records of ``lines``."""
        return self._reader.read_texts(lines)

    def read_closely(self, lines: Sequence[bytes]) -> Batch:
        """The same: there is no faster way."""
        return self._reader.read_texts(lines)


class _Some:
    """Records that become a batch. None is held as a tree for longer than it takes to read it."""

    def __init__(self, root: Node, read: Callable[[Record, Findings], tuple[dict[str, Any], str | None]]) -> None:
        self._root, self._read = root, read
        self._rows: list[dict[str, Any]] = []
        self._texts: list[bytes] = []
        self._numbers: list[int] = []
        self._wrong: dict[int, Wrong] = {}
        self._unknown: dict[int, list[str]] = {}
        self._rescued: dict[int, str] = {}
        self._size = 0

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= _ROWS_AT_MOST or self._size > _BYTES_AT_MOST

    def add(self, record: Record) -> None:
        findings, at = Findings(), len(self._rows)
        row, rescued = self._read(record, findings)
        if rescued is not None:
            self._rescued[at] = rescued
        if findings.faults:
            row, self._wrong[at] = {}, Wrong.of(findings.faults, record.text)
        elif findings.unknown:
            self._unknown[at] = list(dict.fromkeys(findings.unknown))
        self._rows.append(row)
        self._texts.append(record.text)
        self._numbers.append(record.number)
        self._size += len(record.text)

    def give(self, outside: list[str]) -> Found:
        columns = [
            pa.array([row.get(name) for row in self._rows], arrow_type(node)) for name, node in self._root.fields
        ]
        batch = Batch(columns, self._wrong, self._unknown, self._rescued)
        return Found(batch, self._texts, self._numbers, outside)
