"""Parts: what one task reads of a source, as batch files name it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FilePart:
    """The bytes [begin, end) of the file behind ``link``, a path relative to the intake of its source; ``end`` None is
    the end of the file."""

    link: str
    begin: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class RangePart:
    """Offsets of one topic partition, ``end`` exclusive; the topic is the one with this id."""

    topic: str
    partition: int
    begin: int
    end: int
    topic_id: str | None = None


Part = FilePart | RangePart


def list_links(parts: Iterable[Part]) -> list[str]:
    """The links of the files that the parts are of, each once, in order."""
    return list(dict.fromkeys(part.link for part in parts if isinstance(part, FilePart)))
