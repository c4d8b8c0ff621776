"""Lines of text as record batches: one column, each line as it is."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pyarrow as pa

from tidegate.sources.readers.batches import Batch, Wrong


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
