"""Which small files of a table are put together: those of one partition, in the order in which they came."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tidegate.table.log.state import DataFile
from tidegate.table.publish.intent import FileToRemove

Place = tuple[tuple[str, str | None], ...]
"""A partition: its columns, each with the value in Delta's string form."""

PART_FILES = 10_000
PART_BYTES = 1 << 30
"""So much goes into one version at most: what a kill, or a lease that was lost, makes for nothing."""


@dataclass(frozen=True)
class Bin:
    """Small files of one partition."""

    place: Place
    files: tuple[DataFile, ...]

    @property
    def size_bytes(self) -> int:
        """What they take up."""
        return sum(file.size_bytes for file in self.files)


def place_of(file: DataFile | FileToRemove) -> Place:
    """The partition that a file belongs to."""
    return tuple(sorted((name, value or None) for name, value in file.partition.items()))


def find_small(files: Iterable[DataFile], below: int, passed_over: Collection[str] = ()) -> list[Bin]:
    """The files smaller than ``below`` bytes of each partition that has two or more of them, oldest first.

    Left out are files that a publish has hidden, files outside the table's folder, which another program may have
    logged, and the paths in ``passed_over``.
    """
    small: dict[Place, list[DataFile]] = {}
    for file in files:
        if file.size_bytes < below and file.path not in passed_over and _is_plain(file.path):
            small.setdefault(place_of(file), []).append(file)
    return [
        Bin(place, tuple(sorted(found, key=lambda file: (file.modified_at_ms, file.path))))
        for place, found in sorted(small.items(), key=lambda one: [(name, value or "") for name, value in one[0]])
        if len(found) > 1
    ]


def choose_part(bins: Sequence[Bin]) -> list[Bin]:
    """As many of them as go into one version, in order; the last one may be cut. [] when there is none."""
    chosen: list[Bin] = []
    room_files, room_bytes = PART_FILES, PART_BYTES
    for one in bins:
        taken: list[DataFile] = []
        for file in one.files:
            # Two files at least, however large: else nothing would ever come of it.
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
