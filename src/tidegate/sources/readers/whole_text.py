"""Text of which a file is one record."""

from __future__ import annotations

from typing import BinaryIO

from tidegate.sources.bounds import LONGEST_RECORD_BYTES
from tidegate.sources.readers.json_documents import Records, Refused
from tidegate.sources.readers.lines import BLOCK_BYTES

_BOM = b"\xef\xbb\xbf"
_KEPT_BYTES = 1000
"""What is kept of a file that is too large."""


def read_whole(file: BinaryIO) -> Records | Refused:
    """All of ``file``, without its byte order mark, as one record."""
    text = file.read(LONGEST_RECORD_BYTES + len(_BOM) + 1).removeprefix(_BOM)
    if len(text) <= LONGEST_RECORD_BYTES:
        return Records(text, [text], [1])
    size = len(text)
    while piece := file.read(BLOCK_BYTES):
        size += len(piece)
    limit = f"the limit is {LONGEST_RECORD_BYTES:,}, and its beginning is kept"
    return Refused(text[:_KEPT_BYTES], 1, f"a file of {size:,} bytes; {limit}")
