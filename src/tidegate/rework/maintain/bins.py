"""Choose the small files of a table to compact: those of one partition, oldest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tidegate.table.log.state import DataFile
from tidegate.table.publish.intent import FileToRemove

Place = tuple[tuple[str, str | None], ...]
"""A partition: columns with values in Delta's string form."""

PART_FILES = 10_000
PART_BYTES = 1 << 30
"""The limits of one version: the most work that a kill or a lost lease can waste."""


@dataclass(frozen=True)
class Bin:
    """Small files of one partition."""

    place: Place
    files: tuple[DataFile, ...]

    @property
    def size_bytes(self) -> int:
        """The total size of the files."""
        return sum(file.size_bytes for file in self.files)


def place_of(file: DataFile | FileToRemove) -> Place:
    """The partition of a file."""
    return tuple(sorted((name, value or None) for name, value in file.partition.items()))


def find_small(files: Iterable[DataFile], below: int, excluded: Collection[str] = ()) -> list[Bin]:
    """Find the files smaller than ``below`` bytes of each partition that has two or more of them, oldest first.

    Hidden files, files outside of the table's folder (another program may have logged them) and the paths in
    ``excluded`` do not count.
    """
    small: dict[Place, list[DataFile]] = {}
    for file in files:
        if file.size_bytes < below and file.path not in excluded and _is_plain(file.path):
            small.setdefault(place_of(file), []).append(file)
    return [
        Bin(place, tuple(sorted(found, key=lambda file: (file.modified_at_ms, file.path))))
        for place, found in sorted(small.items(), key=lambda one: [(name, value or "") for name, value in one[0]])
        if len(found) > 1
    ]


def choose_part(bins: Sequence[Bin]) -> list[Bin]:
    """Choose as many bins as fit into one version, in order; the last one may be cut."""
    chosen: list[Bin] = []
    room_files, room_bytes = PART_FILES, PART_BYTES
    for one in bins:
        taken: list[DataFile] = []
        for file in one.files:
            # At least two files, however large: otherwise they would never be compacted.
            if len(taken) >= 2 and (room_files <= 0 or room_bytes < file.size_bytes):
                break
            taken.append(file)
            room_files, room_bytes = room_files - 1, room_bytes - file.size_bytes
        chosen.append(Bin(one.place, tuple(taken)))
        if room_files <= 1 or room_bytes <= 0 or len(taken) < len(one.files):
            break
    return chosen


def _is_plain(path: str) -> bool:
    name = path.rpartition("/")[2]
    return not name.startswith((".", "_")) and "://" not in path and not path.startswith("/") and ".." not in path
