"""Batch manifests: what one micro-batch read and wrote. The first manifest for a key wins.

A manifest is keyed (query id of the checkpoint, batch id). It is the one authority on a batch: rows and files that no
manifest names do not exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, NotRequired, TypedDict

from tidegate.core import storage
from tidegate.state import errors
from tidegate.state.topics import (
    OffsetRange,
    OffsetRanges,
    Part,
    Positions,
    RangePart,
    TopicPartition,
    join_ranges,
    list_links,
    ranges_from_json,
    ranges_to_json,
)

_TOMBSTONE = {"tombstone": True}

SPAN = "span of times"
"""In :attr:`BatchManifest.partitioned` of a query with state: JSON [column, source, before, after]: the rows of a day
of the column are of records of the source whose event times are between so many milliseconds before the day's
beginning and so many after its end."""


class BatchKey(NamedTuple):
    """The key of a batch: the query id of its checkpoint, and its number there. A list of two in files."""

    query_id: str
    batch_id: int


class Piece(TypedDict):
    """The part of a growing file that was read as a file of its own: bytes [begin, until), ``line_offset`` the lines
    before it, ``lines`` those in it, None where they were not counted."""

    begin: int
    until: int
    line_offset: int
    lines: int | None


class WholeFile(TypedDict):
    """A file that could not be read and is in quarantine whole; ``rows`` by its footer, None where that is unknown."""

    size: int
    rows: int | None


class TakenFile(TypedDict):
    """A file that a batch took: size and time as they were when it was read, ``link`` its place in the intake.

    In a backfill of several days, ``records`` and ``malformed`` are the counts of this file."""

    path: str
    size: int
    mtime_ns: int
    link: str
    piece: NotRequired[Piece]
    records: NotRequired[int]
    malformed: NotRequired[int]
    whole: NotRequired[WholeFile]


class OperatorProgress(TypedDict):
    """An operator that keeps state, as Spark's progress events have it; they have more than is named here."""

    numRowsTotal: int
    memoryUsedBytes: int
    numRowsDroppedByWatermark: int
    customMetrics: NotRequired[dict[str, int]]


@dataclass(frozen=True)
class Taken:
    """The input of a batch from one source: parts of files, or ranges of offsets."""

    parts: Sequence[Part] = ()
    """The parts that tasks read."""
    offsets: OffsetRanges | None = None
    """None for files."""

    @property
    def links(self) -> list[str]:
        """The links of the files, relative to the intake."""
        return list_links(self.parts)

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Taken:
        """Join some parts."""
        ranges = [part for part in parts if isinstance(part, RangePart)]
        offsets = join_ranges(
            {TopicPartition(one.topic, one.partition): OffsetRange(one.begin, one.end)} for one in ranges
        )
        return cls(parts, offsets if ranges else None)

    @classmethod
    def join(cls, some: Iterable[Taken]) -> Taken:
        """Join all of these into one."""
        return cls.of([part for one in some for part in one.parts])

    def split(self) -> list[Taken]:
        """Split it by task."""
        return [Taken.of([part]) for part in self.parts]


@dataclass(frozen=True)
class StagedFile:
    """One parquet file that Spark wrote: ``path`` relative to the state folder, rows and bytes from its footer.

    ``partition`` maps each column of ``partition_by`` to its value in Delta's string form, or None for null.
    ``sha256`` is of the bytes as they were written, in hex; "" of a file that an earlier version of tidegate staged.
    """

    path: str
    rows: int
    size_bytes: int
    partition: dict[str, str | None] = field(default_factory=dict)
    sha256: str = ""

    def below(self, folder: str) -> StagedFile:
        """The same file, by its path relative to the state folder in which ``folder`` lies."""
        return replace(self, path=f"{folder}/{self.path}")


UNKNOWN_NAMES_AT_MOST = 64
"""Fields that the schema lacks, as many as a manifest and a report name for each source."""


@dataclass(frozen=True)
class SourceRange:
    """The input and the counts of a batch for one source.

    ``files`` is of files alone, ``offsets`` of Kafka. ``rows`` counts records read, ``malformed`` those quarantined
    before the transform and ``late`` those that came after everything they belong to was closed.
    """

    rows: int
    malformed: int
    bytes: int | None = None
    files: list[TakenFile] | None = None
    offsets: OffsetRanges | None = None
    unknown_fields: dict[str, str] = field(default_factory=dict)
    """{name of a field that the schema lacks: position of a record that has it}, 64 at most."""
    unknown_records: int = 0
    """Records with such a field."""
    late: int = 0
    partly_late: int = 0
    """Records that came too late for some of their windows and not for others: they are in the table."""
    late_untold: bool = False
    """Whether late records of this source could not be identified."""
    max_event_time_ms: int | None = None
    """The greatest event time of the batch, where the source has a watermark."""
    min_event_time_ms: int | None = None
    """The smallest one."""
    entered: int | None = None
    """Records counted in front of the transform; None of a batch that an earlier version of tidegate staged."""
    whole_files: list[WholeFile] = field(default_factory=list)
    """Each is counted as one malformed record."""
    left_out: int = 0
    """Records that were excluded because they are in quarantine (in side jobs alone)."""


@dataclass(frozen=True)
class BatchManifest:
    """One micro-batch, staged."""

    pipeline: str
    run_id: str
    query_id: str
    batch_id: int
    attempt: str
    sources: dict[str, SourceRange]
    transformed: int
    rejected: int
    staged: int
    files: list[StagedFile]
    quarantine_files: list[StagedFile]
    quarantined: int
    schema_json: str
    """The staged rows' schema as Spark's ``df.schema.json()``, which is Delta's schema string."""
    rejected_by_rule: dict[str, int] = field(default_factory=dict)
    watermark_ms: int | None = None
    """The watermark the batch ran with, in milliseconds since 1970; None for a query without state."""
    state: list[OperatorProgress] = field(default_factory=list)
    dropped_updates: int = 0
    """State updates, not records, that Spark reports as dropped because they were late."""
    staged_at: str = ""
    partitioned: dict[str, str] = field(default_factory=dict)
    """The rule for a row's partition: ``rule``, a digest; of a column that is a source's own, ``<source>.<column>``;
    ``several`` where a record may give several rows; :data:`SPAN` where a day's rows come from known event times. {}
    where it is not known."""
    rejected_by_day: dict[str, int] = field(default_factory=dict)
    """In a backfill of several days: the rejected rows of each day."""

    @property
    def key(self) -> BatchKey:
        """The key of its batch."""
        return BatchKey(self.query_id, self.batch_id)

    @property
    def read(self) -> int:
        """Records read from all sources."""
        return sum(source.rows for source in self.sources.values())

    @property
    def malformed(self) -> int:
        """Records that did not parse or fit the schema."""
        return sum(source.malformed for source in self.sources.values())

    @property
    def entered(self) -> int:
        """Records that were counted in front of the transform."""
        return sum(
            source.rows - source.malformed if source.entered is None else source.entered
            for source in self.sources.values()
        )

    @property
    def duplicates(self) -> int:
        """Rows that a deduplication dropped, by Spark's count."""
        return sum(one.get("customMetrics", {}).get("numDroppedDuplicateRows", 0) for one in self.state)

    @property
    def late(self) -> int:
        """Records that came after everything they belong to was closed."""
        return sum(source.late for source in self.sources.values())

    @property
    def unattributed(self) -> int:
        """State updates that were dropped as late, when not all of the records that caused them were identified."""
        some_found = any(source.late or source.partly_late for source in self.sources.values())
        some_unknown = any(source.late_untold for source in self.sources.values())
        return self.dropped_updates if some_unknown or not some_found else 0


def joined_rule(manifests: Sequence[BatchManifest]) -> dict[str, str]:
    """The rule for a row's partition that all batches share; {} where they differ, or it is not known."""
    rules = [manifest.partitioned for manifest in manifests]
    return dict(rules[0]) if rules and all(rule == rules[0] for rule in rules) else {}


def event_times(manifests: Sequence[BatchManifest]) -> dict[int, dict[str, list[int]]]:
    """{batch: {source: [smallest, greatest event time]}} in milliseconds; a batch of which they are not all known is
    missing, a source without a record that has one too."""
    found: dict[int, dict[str, list[int]]] = {}
    for manifest in manifests:
        times = {
            name: [one.min_event_time_ms, one.max_event_time_ms]
            for name, one in manifest.sources.items()
            if one.max_event_time_ms is not None
        }
        if all(begin is not None for begin, _ in times.values()):
            found[manifest.batch_id] = {name: [int(begin or 0), int(end or 0)] for name, (begin, end) in times.items()}
    return found


def files_within(files: Sequence[StagedFile], within: Mapping[str, Sequence[str]]) -> list[StagedFile]:
    """The ``files`` whose rows belong to the partitions ``within``, {column: values}."""
    return [file for file in files if all(file.partition.get(column) in values for column, values in within.items())]


def manifest_to_json(manifest: BatchManifest) -> bytes:
    """The manifest as it is stored."""
    value = asdict(manifest)
    for name, source in manifest.sources.items():
        if source.offsets is not None:
            value["sources"][name]["offsets"] = ranges_to_json(source.offsets)
    return storage.dump_json(value)


def manifest_from_json(data: bytes | str) -> BatchManifest:
    """A stored manifest. Raises ValueError when it is torn or of another version."""
    try:
        value = json.loads(data)
        return BatchManifest(
            **{
                **value,
                "sources": {name: _with_offsets(SourceRange(**one)) for name, one in value["sources"].items()},
                "files": [StagedFile(**file) for file in value["files"]],
                "quarantine_files": [StagedFile(**file) for file in value["quarantine_files"]],
            }
        )
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"not a batch manifest: {error}") from error


def _with_offsets(stored: SourceRange) -> SourceRange:
    return stored if stored.offsets is None else replace(stored, offsets=ranges_from_json(stored.offsets))


def write_manifest(path: Path, manifest: BatchManifest) -> bool:
    """Create the manifest; False when another attempt's manifest for the same key is there already."""
    return storage.put_if_absent(path, manifest_to_json(manifest))


def put_tombstone(path: Path, query_id: str, batch_id: int) -> bool:
    """Create a tombstone in the place of a manifest, so that none can be created any more; False when the batch has
    its manifest already. A tombstone that is there is as good as a new one."""
    tombstone = {**_TOMBSTONE, "query_id": query_id, "batch_id": batch_id}
    return storage.put_if_absent(path, storage.dump_json(tombstone)) or is_tombstone(path)


def is_tombstone(path: Path) -> bool:
    """Whether a tombstone is in the place of a manifest: the batch is not staged, and never will be."""
    try:
        return _is_tombstone(storage.read(path))
    except FileNotFoundError:
        return False


def refuse_tombstone(path: Path) -> None:
    """Raise TryAgainError QUERY_RETIRED when a tombstone is in the place of a manifest that was to be written."""
    if is_tombstone(path):
        raise errors.BATCH_OF_RETIRED_QUERY(where=str(path), name=path.parent.name, path_stem=int(path.stem))


def _is_tombstone(data: bytes) -> bool:
    return data.startswith(storage.dump_json(_TOMBSTONE).rstrip(b"}\n"))


def find_tombstones(folder: Path) -> list[Path]:
    """Every tombstone, of any query."""
    queries = storage.list_folders(folder)
    return [path for query in queries for path in storage.list_folder(query, "[0-9]*.json") if is_tombstone(path)]


def read_manifests(folder: Path, query_id: str) -> list[BatchManifest]:
    """The manifests of one query, by batch id. Tombstones are skipped."""
    found = []
    for path in storage.list_folder(folder / query_id, "[0-9]*.json"):
        data = storage.read(path)
        if not _is_tombstone(data):
            with storage.unreadable_is_named(path):
                found.append(manifest_from_json(data))
    return found


def find_attempt(path: Path) -> str | None:
    """The attempt that a manifest names; None for a tombstone, or nothing."""
    value = storage.read_json(path)
    return None if value is None else value.get("attempt")


def read_all_manifests(folder: Path) -> dict[str, list[BatchManifest]]:
    """The manifests of every query that has some."""
    found = {query.name: read_manifests(folder, query.name) for query in storage.list_folders(folder)}
    return {query_id: manifests for query_id, manifests in found.items() if manifests}


def batch_keys(manifests: Sequence[BatchManifest]) -> list[BatchKey]:
    """The batches of these manifests, sorted."""
    return sorted(manifest.key for manifest in manifests)


def keys_from_json(value: Iterable[tuple[str, int]]) -> list[BatchKey]:
    """Read batches that were stored from :func:`batch_keys`. Raises TypeError, ValueError."""
    return [BatchKey(str(query_id), int(batch_id)) for query_id, batch_id in value]


def end_positions(manifests: Sequence[BatchManifest]) -> Positions:
    """The position of each Kafka source after these batches."""
    positions: Positions = {}
    for manifest in manifests:
        for name, taken in manifest.sources.items():
            for partition, one in (taken.offsets or {}).items():
                positions.setdefault(name, {})[partition] = one.end
    return positions
