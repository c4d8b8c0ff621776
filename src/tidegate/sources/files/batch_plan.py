"""Plans which files each micro-batch reads, and which parts of them each task."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.sources.port import Cut
from tidegate.sources.readers.lines import PART_BYTES, is_packed
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource
from tidegate.spec.reader_options import parser_options
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.topics import FilePart

BATCH_BYTES = 512 << 20
"""Default size of a batch. A batch costs 0.8 CPU-seconds, and reading this many bytes about 50. Four
batches of 64 MB made a run of 223 MB, killed at half and run again, cost 42.1 CPU-seconds, where one batch costs 33.9.
"""


@dataclass(frozen=True)
class Limits:
    """Limits of a batch, from the spec of a source (None: no limit)."""

    files: int | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, spec: FilesSource, cut: Cut) -> Limits:
        """Return the limits of ``spec`` that ``cut`` applies, or the default limit."""
        files, size = spec.options.get("maxFilesPerTrigger"), spec.options.get("maxBytesPerTrigger")
        if cut is Cut.NOWHERE:
            return cls()
        if cut is Cut.BY_SIZE and files is None and size is None:
            return cls(bytes=BATCH_BYTES)
        return cls(None if files is None else int(files), None if size is None else int(size))


def write_batches(
    files: BatchFiles,
    intake: Path,
    waiting: Iterable[str],
    spec: FilesSource,
    limits: Limits,
    check: Callable[[], None],
) -> None:
    """Write batch files for the links ``waiting`` of ``intake``, in this order, after those that Spark has not planned
    yet.

    ``check`` is called before each change. Raises ValueError when the plan of Spark cannot be read.
    """
    begun = {link for one in files.list_in_flight() for link in one.links}
    left = {link: _size_of(intake / link) for link in waiting if link not in begun}
    last = planned = files.last_planned()
    for one in files.list_open():
        if not left.keys() >= set(one.links):  # a file is gone, or was read since
            break
        if list(_take({link: left[link] for link in one.links}, limits)) != one.links:  # the limits have become smaller
            break
        for link in one.links:
            del left[link]
        last = one.number
    number = files.pass_over(last, {}, check) + 1
    files.set_times(check)
    if not left and number > planned + 1:
        check()
        files.put(BatchFile(number))  # or a stale process could add one with this number
    while left:
        parts = [part for link in _take(left, limits) for part in divide(link, left[link], spec)]
        check()
        written = files.put(BatchFile(number, parts=parts))
        if left.keys() >= set(written.links):
            for link in written.links:
                del left[link]
        else:
            files.pass_over(number - 1, {}, check)  # a stale process has just written it, from another plan
        number += 1


def divide(link: str, size: int, spec: FilesSource) -> Iterator[FilePart]:
    """Split a file of ``size`` bytes into parts. The last part ends at the end of the file when it is read."""
    whole = not divides_files(spec) or (spec.format not in SELF_DESCRIBING_FORMATS and is_packed(link))
    last = 0 if whole else max(size - 1, 0)
    for begin in range(0, last + 1, PART_BYTES):
        yield FilePart(link, begin, begin + PART_BYTES if begin + PART_BYTES <= last else None)


def divide_files(folder: Path, links: Iterable[str], spec: FilesSource) -> list[FilePart]:
    """Split files of ``folder``, at their present size, into parts, in order."""
    return [part for link in links for part in divide(link, _size_of(folder / link), spec)]


def divides_files(spec: FilesSource) -> bool:
    """Whether a large file of ``spec`` is split into parts."""
    options = parser_options(spec)
    if spec.format == "xml" or "lineSep" in options or "true" in (options.get("multiLine"), options.get("wholetext")):
        return False
    return codecs.lookup(options.get("encoding", "UTF-8")).name == "utf-8"


def _take(left: Mapping[str, int], limits: Limits) -> Iterator[str]:
    """Yield the files of one batch: at least one, and no more than the limits allow."""
    total = 0
    for count, (link, size) in enumerate(left.items()):
        total += size
        is_over = (limits.files is not None and count >= limits.files) or (
            limits.bytes is not None and total > limits.bytes
        )
        if count and is_over:
            return
        yield link


def _size_of(path: Path) -> int:
    """Return the size of a file; 0 when it is missing, which its reader will report."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
