"""Plans which files each micro-batch reads, and which parts of them each task."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.sources.port import Cut
from tidegate.sources.readers.lines import PART_BYTES, is_packed
from tidegate.sources.readers.links import size_link
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource
from tidegate.spec.reader_options import parser_options
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.topics import FilePart, Offsets

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
    """Write batch files for the links ``waiting`` of ``intake``, in this order. See :meth:`BatchFiles.write`."""
    begun = {link for one in files.list_in_flight() for link in one.links}
    left = {link: _size_of(intake / link) for link in waiting if link not in begun}
    files.write(_PendingFiles(left, spec, limits), check)


class _PendingFiles:
    """Links that are in no batch yet, with their sizes."""

    def __init__(self, left: dict[str, int], spec: FilesSource, limits: Limits) -> None:
        self.position: Offsets = {}
        self._left, self._spec, self._limits = left, spec, limits

    def fits(self, one: BatchFile) -> bool:
        if not self.holds(one):  # a file is gone, or was read since
            return False
        # The limits may have become smaller.
        return list(_take({link: self._left[link] for link in one.links}, self._limits)) == one.links

    def holds(self, one: BatchFile) -> bool:
        return self._left.keys() >= set(one.links)

    def take(self, one: BatchFile) -> None:
        for link in one.links:
            del self._left[link]

    def next_batch(self, number: int) -> BatchFile | None:
        links = list(_take(self._left, self._limits))
        parts = [part for link in links for part in divide(link, self._left[link], self._spec)]
        return BatchFile(number, parts=parts) if links else None


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
    """Return whether a large file of ``spec`` is split into parts."""
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
        return size_link(path)
    except OSError:
        return 0
