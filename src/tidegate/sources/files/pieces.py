"""Finds changes of a file that was read, and copies lines that were appended to it (``on_change: reread_tail``).

Files of such a source are not linked into the intake. Their complete lines are copied there: first those of the new
file, later those that were appended. A piece is taken only when the beginning of the file still has its mark, so that
rewritten, replaced and truncated files are recognized.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from tidegate.core.errors import on_failure
from tidegate.sources.files.content import (
    LineCounter,
    Mark,
    NotTaken,
    count_lines,
    ends_in_line_break,
    first_line_end,
    header_end,
    last_line_end,
    line_end,
    mark_of,
    read_range,
    reopen,
)
from tidegate.sources.files.ledger import FileState, LedgerRow
from tidegate.spec.models import FilesSource

if TYPE_CHECKING:
    from tidegate.sources.files.listing import FileStat

GREW, SHRANK, REWRITTEN = "grew", "shrank", "was rewritten"


class Changed(NamedTuple):
    """How a file differs from what was read of it, and how many bytes are unread."""

    how: str
    unread_bytes: int


class Piece(NamedTuple):
    """The bytes [begin, until) of a file.

    In the copy they follow the first ``header`` bytes of the file. ``line_offset`` added to a line's number in the copy
    is its number in the file; ``lines_before`` lines end before ``begin``. ``before`` is the mark of what was read up
    to there.
    """

    begin: int
    until: int
    header: int = 0
    line_offset: int = 0
    lines_before: int = 0
    before: Mark | None = None


def known_state(row: LedgerRow, acknowledged: FileState | None) -> FileState:
    """The newest of the two."""
    if acknowledged is not None:
        return acknowledged
    return FileState(row.read_until, row.mtime_ns, row.ctime_ns, row.mark)


def compare(reader: int | None, found: FileStat, known: FileState) -> Changed | None:
    """Compare a file with its known state; None when its content is unchanged. ``reader`` is None when it cannot be
    opened, and for an object, which is the same one while its ETag is."""
    if not isinstance(found, os.stat_result):
        is_same = (found.st_size, found.st_ctime_ns) == (known.size, known.ctime_ns)
        # Where the ETag is not known by itself, it is in the digits of the time.
        is_same |= known.ctime_ns is None and (found.st_size, found.st_mtime_ns) == (known.size, known.mtime_ns)
        return None if is_same else Changed(REWRITTEN, found.st_size)
    size, mark = found.st_size, known.mark
    same_stamp = (size, found.st_mtime_ns) == (known.size, known.mtime_ns)
    if reader is None or mark is None or mark.size > known.size:
        if same_stamp:
            return None
    elif size < mark.size or mark_of(reader, mark.size) != mark:
        return Changed(SHRANK if size < known.size else REWRITTEN, size)
    elif same_stamp or (size == known.size == mark.size and mark.is_whole):
        return None
    if size > known.size:
        return Changed(GREW, size - known.size)
    return Changed(SHRANK if size < known.size else REWRITTEN, size)


def first_piece(reader: int, size: int, spec: FilesSource, *, is_still: bool) -> Piece | None:
    """The complete lines of a new file, or all of it when ``is_still``; None when there is no complete line."""
    until = size if is_still else last_line_end(reader, 0, size, line_end(spec))
    return Piece(0, until) if until else None


def next_piece(
    reader: int, size: int, spec: FilesSource, row: LedgerRow, acknowledged: FileState | None, *, is_still: bool
) -> Piece | Changed | None:
    """The appended lines of a file that grew; None while there is no complete line."""
    known, ending = known_state(row, acknowledged), line_end(spec)
    begin = known.size
    if begin and not ends_in_line_break(reader, begin, spec):
        behind: int | None
        if acknowledged is not None:
            # A line that was incomplete then, and of which nothing was read, is read as a whole. The rest of a line
            # that was read in part was acknowledged.
            behind = last_line_end(reader, row.read_until, begin, ending)
            if behind == row.read_until and not ends_in_line_break(reader, row.read_until, spec):
                behind = first_line_end(reader, begin, size, ending)
        else:
            behind = _behind_line_break(reader, begin, ending)
            if behind is None and size - begin > len(ending):
                return Changed("grew in the middle of a line that was read", size - begin)
        if behind is None:
            return None
        begin = behind
    until = size if is_still else last_line_end(reader, begin, size, ending)
    if until <= begin:
        return None
    header = header_end(reader, begin, spec) if begin else 0
    if header is None:
        return Changed("grew, and what was read of it has no whole header line", size - known.size)
    if acknowledged is None and begin == known.size and row.lines is not None:
        lines_before = row.lines
    else:
        lines_before = count_lines(reader, begin, ending)
    line_offset = lines_before - count_lines(reader, header, ending)
    return Piece(begin, until, header, line_offset, lines_before, known.mark)


def _behind_line_break(reader: int, begin: int, ending: bytes) -> int | None:
    """The offset after the line break at ``begin``; None when there is none."""
    text = os.pread(reader, len(ending) + 1, begin)
    for one in (ending, b"\r\n") if ending == b"\n" else (ending,):
        if text.startswith(one):
            return begin + len(one)
    return None


def copy_piece(handle: int, piece: Piece, target: str, ending: bytes) -> tuple[int, Mark]:
    """Write a piece to ``target``, with the time stamp of its file, and make it durable.

    Returns how many lines of the file end before ``until``, and the mark of its bytes up to there. Raises NotTaken when
    the part that was read before has changed.
    """
    counter = LineCounter(ending)

    def remove() -> None:
        with contextlib.suppress(OSError):
            os.unlink(target)

    with on_failure(remove), reopen(handle) as reader, open(target, "xb") as out:
        stamp = os.fstat(reader)
        for chunk in read_range(reader, 0, piece.header):
            out.write(chunk)
        for chunk in read_range(reader, piece.begin, piece.until):
            counter.add(chunk)
            out.write(chunk)
        # After the copy, so that the copied bytes followed this beginning.
        if piece.before is not None and mark_of(reader, piece.before.size) != piece.before:
            raise NotTaken("it was rewritten while it was taken")
        mark = mark_of(reader, piece.until)
        out.flush()
        os.utime(out.fileno(), ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        os.fsync(out.fileno())
    return piece.lines_before + counter.count, mark
