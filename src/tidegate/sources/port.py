"""The source port: the interface of all kinds of sources for runs, ``plan`` and repair. It does not need Spark.

A kind is a model in :mod:`tidegate.spec.models`, a subclass of :class:`Stream` in a folder next to this module, a
branch in :mod:`tidegate.sources.registry`, and a branch of :class:`tidegate.spark.reading.frames.Frames`, which makes
a DataFrame of it. The default of a method is right for a kind that has nothing to do there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, NotRequired, TypedDict, cast

from tidegate.core.errors import DisagreementError, SourceLostError
from tidegate.core.paths import PipelinePaths
from tidegate.sources import errors
from tidegate.spec.project import Project
from tidegate.state.batch_files import BatchFiles
from tidegate.state.birth import Start
from tidegate.state.checkpoint import CheckpointState
from tidegate.state.manifest import Taken
from tidegate.state.topics import OffsetRanges, Offsets, Positions, RangesJson

if TYPE_CHECKING:
    from tidegate.core.outputs import AdoptedSource, SourceReport, TriedLook


@dataclass(frozen=True)
class SoFar:
    """The progress of a pipeline, as a run finds it on disk."""

    starts: Mapping[str, Start] | None
    """Of the birth record: where each source starts, {} for one that needs no note of it; None before a birth."""
    checkpoint: CheckpointState
    in_flight: int | None
    """A batch that only Spark can finish."""
    positions: Positions | None = None
    """Where sources of topics continue when their checkpoint is no longer used."""


class Loss(ABC):
    """Pending records that a source has lost."""

    @property
    @abstractmethod
    def reaches_begun_batch(self) -> bool:
        """Return whether Spark cannot compute the batch in flight again because of it."""

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """The form that is recorded when the loss is accepted."""

    @abstractmethod
    def to_error(self) -> SourceLostError:
        """Make the error that stops the run: exactly what is lost, and the command that continues without it."""

    @abstractmethod
    def start_behind(self) -> Start:
        """The start of a new checkpoint after the lost records, as the birth record has it ("offsets" among it)."""

    @abstractmethod
    def move_behind(self, checkpoint: Path, in_flight: int | None, check: Callable[[], None]) -> None:
        """Let the query of ``checkpoint``, with its state, and its batch ``in_flight``, if any, continue after the lost
        records. ``check`` is called before each change. May be repeated."""


@dataclass(frozen=True)
class Arrival:
    """The pending records of a stream, and its start."""

    summary: SourceReport
    """As ``plan`` and the report show it."""
    files: int = 0
    bytes: int = 0
    offsets: int = 0
    comes_later: bool = False
    """Whether some files are still settling."""

    @property
    def has_new(self) -> bool:
        """Return whether a run would read anything."""
        return self.files > 0 or self.offsets > 0

    @property
    def partition_columns(self) -> list[str]:
        """Columns that are in folder names, not in the records."""
        return []

    @property
    def start(self) -> Start:
        """Where the stream starts, as the birth record has it; {} when that is not recorded."""
        return {}

    @property
    def grown_start(self) -> Start:
        """:attr:`start` with new parts of the source."""
        return self.start

    @property
    def next_start(self) -> Start:
        """The start of a new checkpoint that continues with the pending records."""
        return self.start

    def find_loss(self) -> Loss | None:
        """Find lost records; None when there are none."""
        return None


class Messages(NamedTuple):
    """Messages that have come since a position."""

    position: object
    """Behind them, as JSON."""
    bodies: Iterable[tuple[str, bytes]] = ()
    """Where each is, and its content. Reading them may raise TryAgainError."""
    missed: str = ""
    """Why some that came since the position are not among them."""


@dataclass(frozen=True)
class ReadFile:
    """A file that another job has read: its path on the local file system, and its modification time then, in
    milliseconds since 1970 UTC (0: unknown)."""

    path: str
    time_ms: int


@dataclass(frozen=True)
class ReadBefore:
    """What another job has read of a source, which it calls ``name``: all files, or the next offsets of topics; neither
    when the source had no records."""

    name: str
    files: Sequence[ReadFile] = ()
    offsets: Offsets = field(default_factory=dict)

    def describe(self) -> str:
        """Describe what it has read, in a few words."""
        if self.offsets:
            return f"source {self.name}: topics {', '.join(sorted({one.topic for one in self.offsets}))}"
        if self.files:
            return f"source {self.name}: files such as {self.files[-1].path}"
        return f"source {self.name}: nothing yet"


@dataclass(frozen=True)
class HandOver:
    """How a source continues for a table that existed before it. ``start`` is for the birth record, ``summary`` for the
    output of ``adopt``, ``notes`` for the user."""

    name: str
    start: Start = field(default_factory=lambda: Start())
    summary: AdoptedSource = field(default_factory=lambda: cast("AdoptedSource", {}))
    notes: Sequence[str] = ()


def warn_of_duplicates(name: str, start: object) -> str:
    """Warn that a source may publish duplicates: it starts without a checkpoint, for a table that existed before."""
    return (
        f"source {name} starts at {start}, as the spec says: without a checkpoint it is not known which of its records "
        "are in the table already, and duplicates are not detected"
    )


class Pinned(TypedDict):
    """The stored version of a static source: the copied files, or offsets of topics."""

    version: str
    folder: NotRequired[str]
    links: NotRequired[list[str]]
    """Relative to the folder."""
    files: NotRequired[list[str]]
    """The user's files that the links are copies of."""
    copies: NotRequired[list[list[int]]]
    """[size, mtime_ns] of each link."""
    partition_columns: NotRequired[list[str]]
    offsets: NotRequired[RangesJson]


class StaticSource(ABC):
    """A source that each run reads as a whole, at one version, to join it with streams."""

    @abstractmethod
    def pin(self, known: Pinned | None) -> Pinned:
        """Return the present version, with all that Spark needs to read it; ``known``, the last one, if nothing
        changed.

        Raises SourceLostError when the source is missing or empty, UsageError STATIC_UNREADABLE, TryAgainError when it
        changes meanwhile.
        """

    def forget_others(self, version: Pinned) -> None:
        """Remove every other version. ``version`` is recorded, and the caller holds the lease."""
        return

    def is_whole(self, version: Pinned) -> bool:
        """Return whether everything that the version needs is unchanged."""
        return True


@dataclass(frozen=True)
class Age:
    """When the oldest pending record was written, and when retention deletes it, in milliseconds since 1970 UTC; None
    when not known."""

    oldest_ms: int | None = None
    taken_ms: int | None = None


class Cut(Enum):
    """How the pending records of a source are divided into micro-batches."""

    NOWHERE = auto()
    """Trigger ``once``."""
    BY_OPTIONS = auto()
    """By the limits of the spec, or not at all."""
    BY_SIZE = auto()
    """By the limits of the spec or the default limit: a killed run loses one batch."""


@dataclass(frozen=True)
class Chosen:
    """What a backfill or a refresh reads of a source: the files behind ``links`` in its intake, or the ``ranges`` of
    topics (None: all from ``start`` on) except those ``passed_over``."""

    links: Iterable[str]
    start: Start
    ranges: Sequence[OffsetRanges] | None
    passed_over: Sequence[OffsetRanges]


class Source(ABC):
    """One stream of a pipeline, or the stored texts that a side job reads in its place."""

    keeps_start: ClassVar[bool] = False
    """Whether the birth record has its start."""
    is_replayable: ClassVar[bool] = True
    """Whether the records that runs have taken can be read again."""
    start_key: ClassVar[str | None] = None
    """The key of the spec for its start."""

    def __init__(self, project: Project, paths: PipelinePaths, name: str) -> None:
        self.project, self.paths, self.name = project, paths, name

    def describe_ahead(self) -> list[str]:
        """Notes for ``plan`` in addition to the pending records."""
        return []

    def range_of(self, batch_id: int) -> Taken:
        """Return what a planned batch takes, by its batch files. Raises ValueError when these cannot be read."""
        self.batch_files.check_batch(batch_id)
        return Taken.of([part for one in self.batch_files.of_batch(batch_id) for part in one.parts])

    def settle(self, links: Iterable[str]) -> None:
        """Remove the received files behind these links, whose rows are in the table's log."""
        return

    @abstractmethod
    def write_chosen(self, chosen: Chosen, cut: Cut, check: Callable[[], None]) -> None:
        """Write the batch files of a backfill or a refresh. ``check`` is called before each."""

    def torn_error(self, fault: ValueError) -> DisagreementError:
        """Make the error for batch files or lists of Spark that cannot be read."""
        name = self.paths.name
        return errors.CHECKPOINT_TORN(where=f"pipeline {name}", name=name, faults=str(fault))

    def forget_batches(self, up_to: int) -> None:
        """Remove the batch files of batches up to this one, which are in the table's log, except the last ones."""
        self.batch_files.remove_before(self.batch_files.last_planned(up_to))

    @property
    def batch_files(self) -> BatchFiles:
        """The batch files of the source."""
        return BatchFiles(self.paths.checkpoint, self.name)

    def find_gone(self, start: Start, until: Offsets | None = None) -> list[str]:
        """Describe records since ``start``, of a partition in ``until`` up to there, that no longer exist. Files are
        checked one by one, with the ledger."""
        return []

    def resolve_start(self) -> Start:
        """The start of the spec, as the birth record has it."""
        return {}

    def start_at(self, ends: Offsets, before: Start | None) -> Start:
        """The start when the table's log ends at ``ends``; ``before`` is the previous start."""
        return {}

    def describe(self) -> str:
        """Describe what it reads, in a few words."""
        return f"{self.name}: what it receives"

    def may_continue(self, read: ReadBefore) -> bool:
        """Return whether this may be the source that another job has read."""
        return False

    def continue_from(self, read: ReadBefore) -> HandOver:
        """Plan to continue after what another job has read; see :meth:`may_continue`. Changes nothing."""
        return HandOver(self.name)

    def start_from_spec(self) -> HandOver:
        """Plan to start as the spec says, for a table that existed before. Changes nothing."""
        return HandOver(self.name)

    def note_hand_over(self, plan: HandOver, query_id: str) -> None:
        """Record what was read according to ``plan``, as batch 0 of ``query_id``. The caller writes the birth record.
        May be repeated."""
        return

    def sample(self, folder: Path, rows: int) -> tuple[dict[str, object], TriedLook | None]:
        """For ``try``: the keys of a spec that reads about ``rows`` of its newest records, copied into ``folder`` if
        needed, and the files found; None for a source without files."""
        return {}, None


class Stream(Source):
    """A source whose pending records a run looks for. Its methods are in the order of a run."""

    listens: ClassVar[bool] = False
    """Whether a run has to receive records first."""

    def receive(self) -> list[str]:
        """Receive records into files, for a source that listens. Returns notes for the report."""
        return []

    @abstractmethod
    def look(self, so_far: SoFar) -> Arrival:
        """Find the pending records, including those of a batch in flight.

        Raises SourceLostError (the source is missing), TryAgainError (it does not answer).
        """

    def find_age(self, arrival: Arrival) -> Age:
        """Find the age of the pending records. May make requests: call it only to show the age."""
        return Age()

    @abstractmethod
    def write_batches(self, arrival: Arrival, cut: Cut, check: Callable[[], None]) -> None:
        """Write the batch files of ``arrival``. ``check`` is called before each change. May be repeated.

        Raises DisagreementError CHECKPOINT_TORN when an existing batch file or list cannot be read."""
