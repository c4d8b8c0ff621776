"""Text as record batches: one column, each line, or each file, as it is."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers.batches import Batch, Wrong
from tidegate.sources.readers.lines import BLOCK_BYTES, BOM, Records, Refused


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
        """The records of ``lines``; ``block`` is the text that they are the lines of."""
        try:
            return Batch([pa.array(lines, pa.string())], {}, {})
        except (UnicodeDecodeError, pa.ArrowInvalid):
            pass
        return self.read_closely(lines)

    def read_closely(self, lines: Sequence[bytes]) -> Batch:
        """The same, one line at a time."""
        texts: list[bytes | None] = list(lines)
        wrong = {}
        for at, line in enumerate(lines):
            try:
                line.decode()
            except UnicodeDecodeError:
                texts[at] = None
                wrong[at] = Wrong("not valid UTF-8", base64.b64encode(line))
        return Batch([pa.array(texts, pa.string())], wrong, {})
