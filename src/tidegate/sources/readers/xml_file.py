"""Reads XML files as record batches. A file is read twice: its records count only when it is well-formed."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from tidegate.sources.bounds import LONGEST_RECORD_BYTES, TOO_LARGE
from tidegate.sources.readers.columns import arrow_type
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.lines import KEPT_BYTES, Refused
from tidegate.sources.readers.opening import open_part
from tidegate.sources.readers.part_readers import Part, PartReader
from tidegate.sources.readers.records import Batch, Found, Wrong
from tidegate.sources.readers.values import Findings, Number, Pairs, make_record_converter, write_unknown
from tidegate.sources.readers.ways import Ways
from tidegate.sources.readers.xml_text import TAG, NotDecoded, NotRead, Window, check_text, read_text
from tidegate.spec.ddl import Node

_DEPTH = 64
_ELEMENTS = 100_000
"""What a record may have: a tree of so many takes 60 MiB of a Python worker."""
_NAMED_AT_MOST = 64


@dataclass(slots=True)
class Element:
    """An element, with the places in its file where its first tag and its last one begin."""

    name: str
    attributes: dict[str, str]
    begin: int
    end: int = 0
    texts: list[str] = field(default_factory=list)
    children: list[Element] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Record:
    """A record as it is in its file, with the number of the line that it begins with. Of one with a ``fault`` the
    element is not known."""

    text: bytes
    number: int
    element: Element
    fault: str | None

    def between_tags(self, element: Element) -> bytes:
        """What is inside an element of the record that has other elements."""
        begin = element.begin - self.element.begin
        tag = TAG.match(self.text, begin)
        assert tag is not None
        return self.text[tag.end() : element.end - self.element.begin]


class Cutter:
    """Cuts a well-formed text into the elements called ``row_tag`` that are in no other of that name, in any namespace
    where none counts."""

    def __init__(self, row_tag: str, *, without_namespace: bool = False) -> None:
        self.outside: list[str] = []
        """Paths of the values outside of records."""
        self._row_tag = row_tag
        self._without_namespace = without_namespace
        self._found: list[Record] = []
        self._open: list[Element] = []  # from the record down
        self._path: list[str] = []  # above the record
        self._number = 0
        self._count = 0  # elements of the record
        self._passed = 0  # open elements of the record that are not looked at
        self._fault: str | None = None
        self._kept = b""  # of a record that is too long
        self._window = Window()
        self._expat = parser = self._window.expat
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text

    def cut(self, pieces: Iterable[bytes]) -> Iterator[Record]:
        """The records of a text."""
        for piece in pieces:
            self._window.feed(piece, self._open[0].begin if self._open and not self._kept else None)
            yield from self._found
            self._found.clear()
            if self._open and self._window.size - self._open[0].begin > LONGEST_RECORD_BYTES and not self._kept:
                begin = self._open[0].begin - self._window.begin
                self._kept = self._window.text[begin : begin + KEPT_BYTES]
                self._pass_over("")

    def _pass_over(self, fault: str) -> None:
        """Look at nothing more of the record."""
        self._fault = fault
        self._passed += len(self._open) - 1
        self._open = [Element(self._row_tag, {}, self._open[0].begin)]

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and (name.rpartition(":")[2] if self._without_namespace else name) != self._row_tag:
            self._path.append(name)
            for key in attributes:
                if not is_namespace(key):
                    self._note_outside(f"@{key}")
            return
        if not self._open:
            self._number = self._expat.CurrentLineNumber
        elif self._fault is None:
            self._count += 1
            if self._count >= _ELEMENTS:
                self._pass_over(f"more than {_ELEMENTS:,} elements")
            elif len(self._open) >= _DEPTH:
                self._pass_over(f"more than {_DEPTH} levels of elements")
        if self._fault is not None:
            self._passed += 1
            return
        element = Element(name, attributes, self._expat.CurrentByteIndex)
        if self._open:
            self._open[-1].children.append(element)
        self._open.append(element)

    def _end(self, name: str) -> None:
        if self._passed:
            self._passed -= 1
        elif not self._open:
            self._path.pop()
        else:
            element = self._open.pop()
            element.end = self._expat.CurrentByteIndex
            if not self._open:
                self._take(element)
                self._count, self._fault, self._kept = 0, None, b""

    def _take(self, element: Element) -> None:
        window = self._window
        end = element.end  # of an element that is one tag, where that ends
        if self._kept or not window.tag_at(element.begin)[0].endswith(b"/>"):
            end = window.begin + window.text.index(b">", end - window.begin) + 1
        size, fault = end - element.begin, self._fault
        text = self._kept or window.text[element.begin - window.begin : end - window.begin]
        if size > LONGEST_RECORD_BYTES:
            fault = f"a record of {size:,} bytes; {TOO_LARGE}"
            text = text[:KEPT_BYTES].decode(errors="ignore").encode()
        self._found.append(Record(text, self._number, element, fault))

    def _text(self, text: str) -> None:
        if self._open:
            if self._fault is None:
                self._open[-1].texts.append(text)
        elif text.strip(BLANKS):
            self._note_outside(None)

    def _note_outside(self, name: str | None) -> None:
        path = "/" + "/".join(self._path if name is None else [*self._path, name])
        if path not in self.outside and len(self.outside) < _NAMED_AT_MOST:
            self.outside.append(path)


BLANKS = " \t\r\n"


def is_namespace(name: str) -> bool:
    """Return whether an attribute declares a namespace."""
    return name == "xmlns" or name.startswith("xmlns:")


_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
# Possessive, so that many zeros before something else take no time.
_NUMBER = re.compile(r"([+-]?)0*+(\d++)?(?:\.(\d*+))?([eE][+-]?\d++)?", re.ASCII)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class XmlOptions(NamedTuple):
    """How elements and attributes become columns: Spark's options of that name."""

    row_tag: str
    attribute_prefix: str = "_"
    value_tag: str = "_VALUE"
    without_attributes: bool = False
    without_namespace: bool = False
    strips: bool = True
    null_value: str | None = None
    encoding: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> XmlOptions:
        """Those of a source."""
        return cls(
            row_tag=options["rowTag"],
            attribute_prefix=options.get("attributePrefix", "_"),
            value_tag=options.get("valueTag", "_VALUE"),
            without_attributes=options.get("excludeAttribute") == "true",
            without_namespace=options.get("ignoreNamespace") == "true",
            strips=options.get("ignoreSurroundingSpaces", "true") == "true",
            null_value=options.get("nullValue"),
            encoding=options.get("encoding"),
        )


class Shaper:
    """Makes a value of each record, as :func:`tidegate.sources.readers.values.make_record_converter` takes it."""

    def __init__(self, root: Node, options: XmlOptions) -> None:
        self._root = root
        self._options = options
        self._fields = {id(node): dict(node.fields) for node in root.walk() if node.kind == "struct"}

    def shape(self, record: Record) -> Pairs:
        """A record without a fault as an object."""
        return self._struct(record, record.element, self._root)

    def _name(self, name: str) -> str:
        return name.rpartition(":")[2] if self._options.without_namespace else name

    def _attributes(self, element: Element) -> Iterator[tuple[str, str]]:
        if not self._options.without_attributes:
            for name, text in element.attributes.items():
                if not is_namespace(name):
                    yield self._options.attribute_prefix + self._name(name), text

    def _own_text(self, element: Element) -> str:
        text = "".join(element.texts)
        return text.strip(BLANKS) if self._options.strips else text

    def _struct(self, record: Record, element: Element, node: Node) -> Pairs:
        types, value_tag = self._fields[id(node)], self._options.value_tag
        pairs = Pairs()
        unknown: dict[str, list[object]] = {}
        for name, text in self._attributes(element):
            if name in types:
                pairs.append((name, self._leaf(text, types[name])))
            else:
                unknown.setdefault(name, []).append(text)
        text = self._own_text(element)
        if text.strip(BLANKS) or (value_tag in types and not element.children):
            if value_tag in types:
                pairs.append((value_tag, self._leaf(text, types[value_tag])))
            else:
                unknown.setdefault(value_tag, []).append(text)
        lists: dict[str, list[object]] = {}
        for child in element.children:
            name = self._name(child.name)
            if (type_ := types.get(name)) is None:
                unknown.setdefault(name, []).append(self._anything(child))
                continue
            item = type_.item if type_.kind == "array" else type_
            if type_.kind == "array":
                lists.setdefault(name, []).append(self._value(record, child, item))
            else:
                pairs.append((name, self._value(record, child, item)))  # twice: as a key that is there twice
            if child.attributes and item.kind not in ("struct", "map"):
                # A value of one type has no place for attributes.
                for attribute, text in self._attributes(child):
                    unknown.setdefault(f"{name}.{attribute}", []).append(text)
        pairs += lists.items()
        pairs += ((name, values[0] if len(values) == 1 else values) for name, values in unknown.items())
        return pairs

    def _value(self, record: Record, element: Element, node: Node) -> object:
        if node.kind == "struct":
            return self._struct(record, element, node)
        if node.kind == "map":
            pairs = Pairs((self._name(child.name), self._value(record, child, node.item)) for child in element.children)
            pairs += ((name, self._leaf(text, node.item)) for name, text in self._attributes(element))
            if text := self._own_text(element).strip(BLANKS):
                pairs.append((self._options.value_tag, self._leaf(text, node.item)))
            return pairs
        if node.kind == "array":
            return [self._value(record, element, node.item)]
        if not element.children:
            return self._leaf("".join(element.texts), node)
        if node.kind != "string":
            return self._anything(element)
        inner = record.between_tags(element).decode()
        return inner.strip(BLANKS) if self._options.strips else inner

    def _leaf(self, text: str, node: Node) -> object:
        stripped = text.strip(BLANKS)
        if node.kind == "string":
            stripped = stripped if self._options.strips else text
            return None if stripped == self._options.null_value else stripped
        if stripped == self._options.null_value or not stripped:
            return None
        if node.kind in _NUMBERS:
            return _read_number(stripped)
        return _BOOLEANS.get(stripped.lower(), stripped) if node.kind == "boolean" else stripped

    def _anything(self, element: Element) -> object:
        """An element that the schema does not have."""
        pairs = Pairs(self._attributes(element))
        if not pairs and not element.children:
            return self._own_text(element)
        children: dict[str, list[object]] = {}
        for child in element.children:
            children.setdefault(self._name(child.name), []).append(self._anything(child))
        pairs += ((name, found[0] if len(found) == 1 else found) for name, found in children.items())
        if text := self._own_text(element).strip(BLANKS):
            pairs.append((self._options.value_tag, text))
        return pairs


def _read_number(text: str) -> str:
    """A number as JSON writes it, digit for digit: without a plus and zeros before it. Other texts as they are."""
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3] or "0" in text.lower().partition("e")[0]):
        return text
    sign, whole, decimals, exponent = match.groups()
    point = f".{decimals}" if decimals else ""
    return Number(f"{'-' if sign == '-' else ''}{whole or '0'}{point}{exponent or ''}")


_ROWS_AT_MOST, _BYTES_AT_MOST = 10_000, 4 << 20

Opener = Callable[[], AbstractContextManager[BinaryIO]]


class XmlReader:
    """Reads files of XML as records with the columns of ``root``, a struct; ``required`` ones are NOT NULL."""

    def __init__(self, form: Form) -> None:
        self._root = form.root
        self._options = XmlOptions.of(form.options)
        self._shaper = Shaper(self._root, self._options)
        self._convert = make_record_converter(self._root, Ways.of(form.options))
        self._required = [name for name, _ in self._root.fields if name in form.required]
        self._rescues = form.policy == "rescue"

    def read_file(self, open_file: Opener) -> Iterator[Found]:
        """The records of the file that ``open_file`` opens; one that is not read is one malformed record."""
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

    def read(self, lines: Sequence[bytes], block: bytes) -> Batch:
        """The records of texts each of which is one."""
        return self.read_closely(lines)

    def read_closely(self, lines: Sequence[bytes]) -> Batch:
        """The same: there is no faster way."""
        some = self._begin()
        for text in lines:
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

    def _refuse(self, open_file: Opener, why: NotRead) -> Found:
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
        text = base64.b64encode(kept) if isinstance(why, NotDecoded) else kept
        return Found.refused(self._root, Refused(text, 1, detail))

    def _read(self, record: Record, findings: Findings) -> tuple[dict[str, object], str | None]:
        """The values of a record, and its unknown fields as JSON where they are wanted."""
        if record.fault is not None:
            findings.refuse("", record.fault)
            return {}, None
        value = self._shaper.shape(record)
        found = self._convert(value, "", findings) or {}
        findings.require(self._required, found)
        is_rescued = self._rescues and findings.unknown and not findings.faults
        return found, write_unknown(value, self._root) if is_rescued else None


class XmlParts(PartReader):
    """XML: a record is an element."""

    def read(self, part: Part) -> Iterator[Found]:
        return XmlReader(self.form).read_file(lambda: open_part(part.path))


class _Some:
    """Records that become a batch. None is held as a tree for longer than it takes to read it."""

    def __init__(self, root: Node, read: Callable[[Record, Findings], tuple[dict[str, object], str | None]]) -> None:
        self._root, self._read = root, read
        self._rows: list[dict[str, object]] = []
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
