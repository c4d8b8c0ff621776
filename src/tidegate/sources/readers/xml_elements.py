"""The records of an XML file, each an element with all that is in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tidegate.sources.bounds import LONGEST_RECORD_BYTES, TOO_LARGE
from tidegate.sources.readers.lines import KEPT_BYTES
from tidegate.sources.readers.xml_text import TAG, Window

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
    """Whether an attribute declares a namespace."""
    return name == "xmlns" or name.startswith("xmlns:")
