"""An XML file cut into its records, and each record as JSON, by a parser that knows all of XML (expat).

Spark's own reader of XML looks for the letters of the row tag: it drops what stands outside, a record that breaks off
at the end of a file and a second root in silence, takes the last of two elements of one name, and reads 1,23 as 123.
Here a file is well-formed or is one malformed record, and the values of a record become JSON by the schema's types, so
that what is exact is judged as for JSON (:mod:`tidegate.sources.values.exact_json`). Spark's Python workers get this
module by value: it uses the standard library alone.

A document type definition within a file is refused, and none outside is read: so no entity leads anywhere.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.parsers import expat

Type = tuple[str, tuple[tuple[str, "Type"], ...]]
"""A type's kind, and its fields: of a struct by name, of an array or a map the one inside, without a name."""

_DEPTH = 64
_ELEMENTS = 100_000
"""What a record may have: a tree of so many takes 60 MiB of a Python worker."""
_BLANKS = " \t\r\n"
_NAMED_AT_MOST = 64
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
# Possessive, so that many zeros before something else take no time.
_NUMBER = re.compile(r"([+-]?)0*+(\d++)?(?:\.(\d*+))?([eE][+-]?\d++)?", re.ASCII)
_INFINITIES = {"INF": '"Infinity"', "+INF": '"Infinity"', "-INF": '"-Infinity"'}
_BOOLEANS = {"true": "true", "1": "true", "false": "false", "0": "false"}
_DECLARED = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
_MARKS = (
    *((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
    *((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
)
_NO_ENCODINGS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")
"""Codecs of Python for other ends: they change a text that is none of theirs, or fail in ways of their own."""
_WITHOUT_MARK = ((b"<\0?\0", "utf-16-le"), (b"\0<\0?", "utf-16-be"))


class Rules(NamedTuple):
    """How elements and attributes become columns: Spark's options of that name."""

    row_tag: str
    columns: tuple[tuple[str, Type], ...]
    attribute_prefix: str = "_"
    value_tag: str = "_VALUE"
    without_attributes: bool = False
    without_namespace: bool = False
    strips: bool = True
    null_value: str | None = None
    encoding: str | None = None


class Record(NamedTuple):
    """A record as it stands in its file, its values as a JSON object, or why it is none; and, with the first record of
    a file, the paths of values that stand outside all records."""

    raw: str
    values: str
    fault: str | None
    outside: list[str]


@dataclass(slots=True)
class _Element:
    name: str
    attributes: dict[str, str]
    begin: int
    inner: int | None = None
    end: int = 0
    texts: list[str] = field(default_factory=list)
    children: list[_Element] = field(default_factory=list)


class _Refused(Exception):
    """Why a file is not read."""


def read_records(data: bytes, rules: Rules) -> list[Record]:
    """The records of a file. A file that is not read, or holds values and no record, is one with a fault; one of
    blanks has none."""
    try:
        text = _decode(data, rules.encoding)
        encoded = text.encode()
    except (UnicodeError, _Refused) as error:
        why = f"not valid {error.encoding.upper()}" if isinstance(error, UnicodeDecodeError) else str(error)
        if isinstance(error, UnicodeEncodeError):  # UTF-7 lets it pass
            why = "half of a surrogate pair, which is not a character"
        return [Record(base64.b64encode(data).decode(), "", why, [])]
    if not text.strip(_BLANKS):
        return []
    writer = _Writer(rules, encoded)
    records: list[Record] = []

    def take(element: _Element, fault: str | None) -> None:
        # At once, so that no more than one record is held as a tree.
        raw = writer.data[element.begin : element.end].decode()
        records.append(Record(raw, writer.write(element) if fault is None else "", fault, []))

    parser = _Parser(writer.data, rules.row_tag, take)
    try:
        parser.parse()
    except _Refused as error:
        return [Record(text, "", str(error), [])]
    if not records:
        return [Record(text, "", f"there is no element {rules.row_tag}", [])]
    records[0].outside.extend(parser.outside)
    return records


def _decode(data: bytes, encoding: str | None) -> str:
    """The text by its byte order mark, ``encoding`` or its declaration; without any it is UTF-8."""
    for mark, codec in _MARKS:
        if data.startswith(mark) and (encoding is None or codec.startswith(encoding.lower().replace("_", "-"))):
            return data[len(mark) :].decode(codec)
    declared = _DECLARED.match(data)
    told = encoding or next((codec for begin, codec in _WITHOUT_MARK if data.startswith(begin)), None)
    name = told or (declared[1].decode() if declared else "utf-8")
    if name.upper() in ("UTF-16", "UTF-32"):
        name += "-BE"  # without a mark
    try:
        if codecs.lookup(name).name in _NO_ENCODINGS:
            raise LookupError
        return data.decode(name)
    except LookupError:
        raise _Refused(f"its encoding {name} is not known") from None


class _Parser:
    """Cuts a text (UTF-8) into the elements called ``row_tag`` that lie in no other of that name."""

    def __init__(self, data: bytes, row_tag: str, take: Callable[[_Element, str | None], None]) -> None:
        self._data = data
        self._take = take
        self.outside: list[str] = []
        self._row_tag = row_tag
        self._open: list[_Element] = []  # from the record down
        self._deep = 0
        self._count = 0  # elements of the record
        self._fault: str | None = None
        self._path: list[str] = []  # above the record
        self._started = False  # whether the last event began an element
        self._has_doctype = False
        self._expat = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = False
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.CommentHandler = parser.StartCdataSectionHandler = lambda *_: self._note_inner()
        parser.EndCdataSectionHandler = lambda: None
        parser.ProcessingInstructionHandler = lambda *_: self._note_inner()
        parser.StartDoctypeDeclHandler = self._doctype
        parser.SkippedEntityHandler = self._skipped

    def parse(self) -> None:
        """Give each element to ``take``, and why it is too large to be read. Raises _Refused."""
        try:
            self._expat.Parse(self._data, True)
        except expat.ExpatError as error:
            told = expat.ErrorString(error.code)
            raise _Refused(f"not well-formed XML: {told}, line {error.lineno}, column {error.offset + 1}") from error

    def _note_inner(self) -> None:
        if self._started and self._open:
            self._open[-1].inner = self._expat.CurrentByteIndex
        self._started = False

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._note_inner()
        if self._has_doctype and attributes:
            self._check_entities()
        if self._open:
            self._count += 1
            if len(self._open) >= _DEPTH or self._count >= _ELEMENTS:
                limit = f"{_ELEMENTS:,} elements" if self._count >= _ELEMENTS else f"{_DEPTH} levels of elements"
                self._deep, self._fault = self._deep + 1, f"more than {limit}"
                return
        elif name != self._row_tag:
            self._path.append(name)
            for key in attributes:
                if not _is_namespace(key):
                    self._note_outside(f"@{key}")
            return
        element = _Element(name, attributes, self._expat.CurrentByteIndex)
        if self._open:
            self._open[-1].children.append(element)
        self._open.append(element)
        self._started = True

    def _end(self, name: str) -> None:
        self._note_inner()
        if self._deep:
            self._deep -= 1
        elif not self._open:
            self._path.pop()
        else:
            element = self._open.pop()
            element.end = self._expat.CurrentByteIndex
            if not self._open:
                element.end = _end_of(self._data, element)
                self._take(element, self._fault)
                self._count, self._fault = 0, None

    def _text(self, text: str) -> None:
        self._note_inner()
        if self._open:
            if not self._deep:
                self._open[-1].texts.append(text)
        elif text.strip(_BLANKS):
            self._note_outside(None)

    def _note_outside(self, name: str | None) -> None:
        path = "/" + "/".join(self._path if name is None else [*self._path, name])
        if path not in self.outside and len(self.outside) < _NAMED_AT_MOST:
            self.outside.append(path)

    def _doctype(self, name: str, system_id: str | None, public_id: str | None, has_internal: int) -> None:
        if has_internal:
            raise _Refused("it has a document type definition, which is not read: send it without")
        self._has_doctype = True

    def _check_entities(self) -> None:
        """Of an entity that it does not know expat says nothing where an attribute has it: the value lacks it."""
        match = _TAG.match(self._data, self._expat.CurrentByteIndex)
        assert match is not None
        if unknown := _ENTITY.search(match[0]):
            self._skipped(unknown[1].decode(), False)

    def _skipped(self, name: str, is_parameter: bool) -> None:
        raise _Refused(f"the entity {name} is not known: document type definitions are not read")


_TAG = re.compile(rb"<[^\s<>\"'/]+(?:[^>\"']|\"[^\"]*\"|'[^']*')*>")


_ENTITY = re.compile(rb"&(?!#|(?:amp|lt|gt|quot|apos);)([^;]*);")


def _end_of(data: bytes, element: _Element) -> int:
    """Where the element ends, its last tag included: one that is empty may have a single tag."""
    match = _TAG.match(data, element.begin)
    assert match is not None
    return match.end() if match[0].endswith(b"/>") else data.index(b">", element.end) + 1


def _is_namespace(name: str) -> bool:
    return name == "xmlns" or name.startswith("xmlns:")


class _Writer:
    """Writes elements as JSON, by the types that the schema gives them."""

    def __init__(self, rules: Rules, data: bytes) -> None:
        self.data = data
        self._rules = rules

    def write(self, element: _Element) -> str:
        """A record as a JSON object."""
        return self._struct(element, self._rules.columns)

    def _name(self, name: str) -> str:
        return name.rpartition(":")[2] if self._rules.without_namespace else name

    def _attributes(self, element: _Element) -> Iterator[tuple[str, str]]:
        if not self._rules.without_attributes:
            for name, text in element.attributes.items():
                if not _is_namespace(name):
                    yield self._rules.attribute_prefix + self._name(name), text

    def _own_text(self, element: _Element) -> str:
        text = "".join(element.texts)
        return text.strip(_BLANKS) if self._rules.strips else text

    def _struct(self, element: _Element, fields: tuple[tuple[str, Type], ...]) -> str:
        types = dict(fields)
        known: list[tuple[str, str]] = []
        unknown: dict[str, list[str]] = {}
        for name, text in self._attributes(element):
            if name in types:
                known.append((name, self._scalar(text, types[name])))
            else:
                unknown.setdefault(name, []).append(json.dumps(text, ensure_ascii=False))
        text = self._own_text(element)
        if text.strip(_BLANKS) or (self._rules.value_tag in types and not element.children):
            if self._rules.value_tag in types:
                known.append((self._rules.value_tag, self._scalar(text, types[self._rules.value_tag])))
            else:
                unknown.setdefault(self._rules.value_tag, []).append(json.dumps(text, ensure_ascii=False))
        lists: dict[str, list[str]] = {}
        for child in element.children:
            name = self._name(child.name)
            kind, inner = types.get(name, ("", ()))
            if not kind:
                unknown.setdefault(name, []).append(self._anything(child))
                continue
            item = inner[0][1] if kind == "array" else types[name]
            if kind == "array":
                lists.setdefault(name, []).append(self._value(child, item))
            else:
                known.append((name, self._value(child, item)))  # twice: as a key that is twice there
            if item[0] not in ("struct", "map"):
                # A value of one type has no place for attributes, nor one that is not text for elements.
                for attribute, text in self._attributes(child):
                    unknown.setdefault(f"{name}.{attribute}", []).append(json.dumps(text, ensure_ascii=False))
        pairs = [*known, *((name, f"[{','.join(values)}]") for name, values in lists.items())]
        for name, values in unknown.items():
            pairs.append((name, values[0] if len(values) == 1 else f"[{','.join(values)}]"))
        return _object(pairs)

    def _value(self, element: _Element, type_: Type) -> str:
        kind, fields = type_
        if kind == "struct":
            return self._struct(element, fields)
        if kind == "map":
            pairs = [(self._name(child.name), self._value(child, fields[0][1])) for child in element.children]
            pairs += [(name, self._scalar(text, fields[0][1])) for name, text in self._attributes(element)]
            if text := self._own_text(element).strip(_BLANKS):
                pairs.append((self._rules.value_tag, self._scalar(text, fields[0][1])))
            return _object(pairs)
        if kind == "array":
            return f"[{self._value(element, fields[0][1])}]"
        if element.children:
            if kind != "string":
                return self._anything(element)
            inner = self.data[element.inner : element.end].decode()
            return json.dumps(inner.strip(_BLANKS) if self._rules.strips else inner, ensure_ascii=False)
        return self._scalar("".join(element.texts), type_)

    def _scalar(self, text: str, type_: Type) -> str:
        kind = type_[0]
        stripped = text.strip(_BLANKS)
        if kind == "string" and not self._rules.strips:
            stripped = text
        if stripped == self._rules.null_value or (not stripped and kind != "string"):
            return "null"
        if kind in _NUMBERS and (token := _number(stripped)) is not None:
            return token
        if kind in ("float", "double") and stripped in _INFINITIES:
            return _INFINITIES[stripped]
        if kind == "boolean" and stripped.lower() in _BOOLEANS:
            return _BOOLEANS[stripped.lower()]
        return json.dumps(stripped, ensure_ascii=False)

    def _anything(self, element: _Element) -> str:
        """An element that the schema does not have."""
        pairs = [(name, json.dumps(text, ensure_ascii=False)) for name, text in self._attributes(element)]
        if not pairs and not element.children:
            return json.dumps(self._own_text(element), ensure_ascii=False)
        children: dict[str, list[str]] = {}
        for child in element.children:
            children.setdefault(self._name(child.name), []).append(self._anything(child))
        pairs += [(name, found[0] if len(found) == 1 else f"[{','.join(found)}]") for name, found in children.items()]
        if text := self._own_text(element).strip(_BLANKS):
            pairs.append((self._rules.value_tag, json.dumps(text, ensure_ascii=False)))
        return _object(pairs)


def _object(pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in pairs) + "}"


def _number(text: str) -> str | None:
    """A number as JSON writes it, digit for digit: without a plus and zeros before it."""
    match = _NUMBER.fullmatch(text)
    if match is None or not any(letter.isdigit() for letter in text.lower().partition("e")[0]):
        return None
    sign, whole, decimals, exponent = match.groups()
    point = f".{decimals}" if decimals else ""
    return f"{'-' if sign == '-' else ''}{whole or '0'}{point}{exponent or ''}"


def rules_of(options: Mapping[str, Any], columns: tuple[tuple[str, Type], ...]) -> Rules:
    """The rules that reader options give."""
    return Rules(
        row_tag=options["rowTag"],
        columns=columns,
        attribute_prefix=options.get("attributePrefix", "_"),
        value_tag=options.get("valueTag", "_VALUE"),
        without_attributes=options.get("excludeAttribute") == "true",
        without_namespace=options.get("ignoreNamespace") == "true",
        strips=options.get("ignoreSurroundingSpaces", "true") == "true",
        null_value=options.get("nullValue"),
        encoding=options.get("encoding"),
    )
