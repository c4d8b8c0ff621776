"""The text of an XML file, in pieces of UTF-8, and whether all of it is XML that is read.

An internal document type definition is refused, and an external one is not read, so entities cannot load anything.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO
from xml.parsers import expat

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers.values import LONE
from tidegate.spec.encodings import find_encoding

_PIECE_BYTES = 1 << 18
_DECLARED = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
_MARKS = (
    *((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
    *((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
)
_WITHOUT_MARK = ((b"<\0?\0", "utf-16-le"), (b"\0<\0?", "utf-16-be"))
_NO_ENCODINGS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")
"""Python codecs for other purposes: they change other texts, or raise other errors."""
_BLANKS = b" \t\r\n"

TAG = re.compile(rb"<(?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+>")
_ENTITY = re.compile(rb"&(?!#|(?:amp|lt|gt|quot|apos);)([^;]*);")


class NotRead(Exception):
    """Why a file is not read."""


class NotDecoded(NotRead):
    """It is not known which text it is."""


def read_text(file: BinaryIO, encoding: str | None) -> Iterator[bytes]:
    """The text of ``file`` as UTF-8, by its byte order mark, ``encoding`` or its declaration. Raises NotRead."""
    head = file.read(_PIECE_BYTES)
    codec, mark = _find_codec(head, encoding)
    decoder = _open_decoder(codec)
    size, piece, is_last = len(head), head[mark:], not head
    while True:
        try:
            yield decoder.decode(piece, final=is_last).encode()
        except UnicodeDecodeError as error:
            at = size - len(error.object) + error.start + 1
            raise NotDecoded(f"not valid {find_encoding(codec) or codec.upper()}, at byte {at:,}") from None
        except UnicodeEncodeError:  # UTF-7 lets it pass
            raise NotDecoded(LONE) from None
        if is_last:
            return
        piece = file.read(_PIECE_BYTES)
        size, is_last = size + len(piece), not piece


def _find_codec(head: bytes, encoding: str | None) -> tuple[str, int]:
    """(the codec of a text that begins with ``head``, the length of its byte order mark)."""
    wanted = _squeeze(encoding or "")
    for mark, codec in _MARKS:
        if head.startswith(mark) and _squeeze(codec).startswith(wanted):
            return codec, len(mark)
    declared = _DECLARED.match(head)
    name = encoding or next((codec for begin, codec in _WITHOUT_MARK if head.startswith(begin)), None)
    name = name or (declared[1].decode() if declared else "utf-8")
    return name + "-BE" * (_squeeze(name) in ("utf16", "utf32")), 0  # without a mark


def _squeeze(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _open_decoder(codec: str) -> codecs.IncrementalDecoder:
    try:
        if codecs.lookup(codec).name in _NO_ENCODINGS:
            raise LookupError
        b" ".decode(codec)  # there are codecs that are none of texts
    except LookupError:
        raise NotDecoded(f"its encoding {codec} is not known") from None
    except UnicodeDecodeError:  # half of a character
        pass
    return codecs.getincrementaldecoder(codec)()


class Window:
    """Feeds a text to expat piece by piece, and holds what is needed of it."""

    def __init__(self) -> None:
        self.expat = expat.ParserCreate("utf-8")
        self.text = b""
        """What is held."""
        self.begin = 0
        """Where that begins."""
        self.next = 0
        """Where the first tag or text begins that is not complete."""

    @property
    def size(self) -> int:
        """The bytes so far."""
        return self.begin + len(self.text)

    def feed(self, piece: bytes, hold: int | None = None) -> None:
        """Parse one more piece; what is before ``hold`` and complete is not needed any more."""
        before = (self.next if hold is None else min(hold, self.next)) - self.begin
        self.text, self.begin = self.text[before:] + piece, self.begin + before
        self.expat.Parse(piece, False)
        self.next = max(self.next, self.expat.CurrentByteIndex)

    def close(self) -> None:
        """End the text."""
        self.expat.Parse(b"", True)

    def tag_at(self, begin: int) -> re.Match[bytes]:
        """The tag that begins there."""
        match = TAG.match(self.text, begin - self.begin)
        assert match is not None
        return match


def check_text(pieces: Iterable[bytes]) -> bool:
    """True if a text has anything but blanks. Raises NotRead unless it is well-formed, and needs no definition."""
    window, is_blank = Window(), True
    parser = window.expat

    def start_doctype(name: str, system_id: str | None, public_id: str | None, has_internal: int) -> None:
        if has_internal:
            raise NotRead("it has a document type definition, which is not read: send it without")
        parser.StartElementHandler = check_attributes

    def check_attributes(name: str, attributes: dict[str, str]) -> None:
        # Of an entity that it does not know expat says nothing where an attribute has it: the value lacks it.
        if attributes and (unknown := _ENTITY.search(window.tag_at(parser.CurrentByteIndex)[0])):
            skip_entity(unknown[1].decode(), False)

    def skip_entity(name: str, is_parameter: bool) -> None:
        raise NotRead(f"the entity {name} is not known: document type definitions are not read")

    parser.StartDoctypeDeclHandler, parser.SkippedEntityHandler = start_doctype, skip_entity
    try:
        for piece in pieces:
            is_blank = is_blank and not piece.strip(_BLANKS)
            window.feed(piece)
            if window.size - window.next > LONGEST_RECORD_BYTES:
                what = "a tag, a comment or an instruction"
                raise NotRead(f"{what} of more than {LONGEST_RECORD_BYTES:,} bytes, line {parser.CurrentLineNumber:,}")
        window.close()
    except expat.ExpatError as error:
        if not is_blank:
            said = expat.ErrorString(error.code)
            raise NotRead(f"not well-formed XML: {said}, line {error.lineno}, column {error.offset + 1}") from None
    return not is_blank
