"""The source port: what a run, a look ahead and a repair ask of a stream, whatever its kind. None of it needs Spark.

A kind is a model in :mod:`tidegate.spec.models`, a subclass of :class:`Source` in a folder beside this module, a line
in :mod:`tidegate.sources.registry`, and how it becomes a DataFrame: a subclass of
:class:`tidegate.spark.reading.frames.Frames`.
What a method does by default is right for a kind that has nothing to do there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NotRequired, TypedDict, cast

from tidegate.core.errors import DisagreementError, SourceLostError, catalogue
from tidegate.core.paths import PipelinePaths
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
    """How far a pipeline has come, as a run finds it on disk."""

    starts: Mapping[str, Start] | None
    """Of the birth record: where each source starts, {} for one that needs no note of it; None before a birth."""
    checkpoint: CheckpointState
    in_flight: int | None
    """A batch that only Spark can finish."""
    positions: Positions | None = None
    """Where sources of topics go on whose checkpoint is not used any more."""


class Loss(ABC):
    """What a source lost of the records that a run is still to read."""

    @property
    @abstractmethod
    def reaches_begun_batch(self) -> bool:
        """Whether Spark cannot compute the batch in flight again because of it."""

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """As it goes on record when it is accepted."""

    @abstractmethod
    def to_error(self) -> SourceLostError:
        """The error that stops the run: exactly what is lost, and the command that goes on without it."""

    @abstractmethod
    def start_behind(self) -> Start:
        """Where a new checkpoint starts that goes on behind it, as the birth record has it ("offsets" among it)."""

    @abstractmethod
    def move_behind(self, checkpoint: Path, in_flight: int | None, check: Callable[[], None]) -> None:
        """Have the query of ``checkpoint``, whose state a new one would not have, go on behind it, and so the batch
        ``in_flight``, if there is one. ``check`` is called before each change. May be repeated."""


@dataclass(frozen=True)
class Arrival:
    """What a stream has that no batch holds yet, and how it stands."""

    summary: SourceReport
    """As ``plan`` and the report show it."""
    files: int = 0
    bytes: int = 0
    offsets: int = 0
    comes_later: bool = False
    """Whether there are files that are still settling."""

    @property
    def has_new(self) -> bool:
        """Whether a run would read anything of it."""
        return self.files > 0 or self.offsets > 0

    @property
    def partition_columns(self) -> list[str]:
        """Columns that are in folder names, not in the records."""
        return []

    @property
    def start(self) -> Start:
        """Where the stream starts, as the birth record has it; {} when that needs no note."""
        return {}

    @property
    def grown_start(self) -> Start:
        """:attr:`start` with the parts of the source that have appeared since."""
        return self.start

    @property
    def next_start(self) -> Start:
        """Where a new checkpoint starts that goes on with what no batch holds."""
        return self.start

    def find_loss(self) -> Loss | None:
        """What is gone of it; None when all is there or still to come."""
        return None


@dataclass(frozen=True)
class ReadFile:
    """A file that another job has read: its path on the local file system, and when it was last changed then, in
    milliseconds since 1970 UTC (0: unknown)."""

    path: str
    time_ms: int


@dataclass(frozen=True)
class ReadBefore:
    """What another job has read of a source, which it calls ``name``: every file, or the next offsets of topics. A
    source that had nothing yet has neither."""

    name: str
    files: Sequence[ReadFile] = ()
    offsets: Offsets = field(default_factory=dict)

    def describe(self) -> str:
        """What it read, in a few words."""
        if self.offsets:
            return f"source {self.name}: topics {', '.join(sorted({one.topic for one in self.offsets}))}"
        if self.files:
            return f"source {self.name}: files such as {self.files[-1].path}"
        return f"source {self.name}: nothing yet"


@dataclass(frozen=True)
class HandOver:
    """How a source goes on for a table that was there before it. ``start`` is the birth record's, ``told`` what
    ``adopt`` shows, ``notes`` what a person should know."""

    name: str
    start: Start = field(default_factory=lambda: Start())
    told: AdoptedSource = field(default_factory=lambda: cast("AdoptedSource", {}))
    notes: Sequence[str] = ()


def unsure(name: str, start: object) -> str:
    """What to know of a source that begins for a table that was there before, without a checkpoint."""
    return (
        f"source {name} starts at {start}, as the spec says: without a checkpoint nobody can tell what of it is in the "
        "table, and a record that is there is not found out again"
    )


class Pinned(TypedDict):
    """A static source at one version, as it is stored: the files that were copied, or offsets of topics."""

    version: str
    folder: NotRequired[str]
    links: NotRequired[list[str]]
    """Relative to the folder."""
    files: NotRequired[list[str]]
    """What the links are copies of, as the user knows it."""
    copies: NotRequired[list[list[int]]]
    """[size, mtime_ns] of each link."""
    partition_columns: NotRequired[list[str]]
    offsets: NotRequired[RangesJson]


class StaticSource(ABC):
    """A source that is read whole in each run, to be joined with streams: at one version per run."""

    @abstractmethod
    def pin(self, known: Pinned | None) -> Pinned:
        """The version of this moment, with all that Spark needs to read it; ``known``, the last one, when that is
        still it.

        Raises SourceLostError when it is missing or empty, UsageError STATIC_UNREADABLE, TryAgainError when it changes
        meanwhile.
        """

    def forget_others(self, version: Pinned) -> None:
        """Clear away every other version: ``version`` is noted, and the caller alone holds the pipeline."""
        return

    def is_whole(self, version: Pinned) -> bool:
        """Whether all that the version needs is still as it was made."""
        return True


@dataclass(frozen=True)
class Broker:
    """A service that a source reads from, for ``doctor``."""

    key: object
    """Equal for sources that would put the same question to it."""
    describe: Callable[[], str]
    """Asks it, and says what it has in a sentence; raises TidegateError when it does not answer."""


@dataclass(frozen=True)
class Age:
    """Of what waits: when the oldest of it was written, and when retention would take that, in milliseconds since 1970
    UTC; None for what is not known."""

    oldest_ms: int | None = None
    taken_ms: int | None = None


class Cut(Enum):
    """Where what a source has is cut into micro-batches."""

    NOWHERE = auto()
    """Trigger ``once``."""
    BY_OPTIONS = auto()
    """By the limits that the spec has, or nowhere."""
    BY_SIZE = auto()
    """By the limits that the spec has, or by default: a run that is killed loses one batch."""


@dataclass(frozen=True)
class Chosen:
    """What a backfill or a refresh reads of a source: the files behind ``links``, which are in its intake, or the
    ``ranges`` of topics (None: all that is there from ``start`` on) without those ``passed_over``."""

    links: Iterable[str]
    start: Start
    ranges: Sequence[OffsetRanges] | None
    passed_over: Sequence[OffsetRanges]


class Source(ABC):
    """One stream of a pipeline. The order of the methods is that of a run."""

    listens: ClassVar[bool] = False
    """Whether a run has to receive what comes, before it looks."""
    keeps_start: ClassVar[bool] = False
    """Whether the birth record has to say where it starts."""
    is_replayable: ClassVar[bool] = True
    """Whether what runs have taken can be read again."""
    start_key: ClassVar[str | None] = None
    """The key of a spec that says where it starts."""

    def __init__(self, project: Project, paths: PipelinePaths, name: str) -> None:
        self.project, self.paths, self.name = project, paths, name

    def receive(self) -> list[str]:
        """Bring what comes to a run that listens into files; what a reader of the report should know of it."""
        return []

    @abstractmethod
    def look(self, so_far: SoFar) -> Arrival:
        """What has come. Raises SourceLostError (the source is not there), TryAgainError (it does not answer).

        What a batch in flight will read is among it: nobody has it yet.
        """

    def find_age(self, arrival: Arrival) -> Age:
        """How old what has come is. May ask for it, so that it is for those alone who show it."""
        return Age()

    def describe_ahead(self) -> list[str]:
        """What ``plan`` says of it, beside what has come."""
        return []

    @abstractmethod
    def write_batches(self, arrival: Arrival, cut: Cut, check: Callable[[], None]) -> None:
        """Write the batch files of ``arrival``. ``check`` is called before each change. May be repeated.

        Raises DisagreementError CHECKPOINT_TORN when a batch file or a list that is there cannot be read."""

    def range_of(self, batch_id: int) -> Taken:
        """What a planned batch takes, by its batch files. Raises ValueError when that cannot be read."""
        self.batch_files.check_batch(batch_id)
        return Taken.of([part for one in self.batch_files.of_batch(batch_id) for part in one.parts])

    def settle(self, links: Iterable[str]) -> None:
        """Clear away what was received, behind these links: their rows are in the table's log."""
        return

    @abstractmethod
    def write_chosen(self, chosen: Chosen, cut: Cut, check: Callable[[], None]) -> None:
        """Write the batch files of a backfill or a refresh. ``check`` is called before each."""

    def torn_error(self, fault: ValueError) -> DisagreementError:
        """The error for batch files, or lists of Spark's, that cannot be read."""
        name = self.paths.name
        return catalogue.CHECKPOINT_TORN(where=f"pipeline {name}", name=name, faults=str(fault))

    def forget_batches(self, up_to: int) -> None:
        """Remove the batch files of the batches up to this one, which are in the table's log, but for the last ones."""
        self.batch_files.remove_before(self.batch_files.last_planned(up_to))

    @property
    def batch_files(self) -> BatchFiles:
        """The batch files of the source."""
        return BatchFiles(self.paths.checkpoint, self.name)

    def find_gone(self, start: Start) -> list[str]:
        """What is no longer there of all that has come since ``start``, each in a few words. Files are asked one by
        one, by the ledger."""
        return []

    def resolve_start(self) -> Start:
        """Where the spec says it starts, as the birth record has it."""
        return {}

    def start_at(self, ends: Offsets, before: Start | None) -> Start:
        """Where it starts when the table's log ends at ``ends``; ``before`` is the start that led there."""
        return {}

    def describe(self) -> str:
        """What it reads, in a few words."""
        return f"{self.name}: what it receives"

    def may_continue(self, read: ReadBefore) -> bool:
        """Whether this may be the source of which another job has read that."""
        return False

    def go_on_from(self, read: ReadBefore) -> HandOver:
        """How it goes on behind what another job has read; asked after :meth:`may_continue`. Changes nothing."""
        return HandOver(self.name)

    def begin_beside(self) -> HandOver:
        """How it begins, by the spec, for a table that was there before. Changes nothing."""
        return HandOver(self.name)

    def note_hand_over(self, plan: HandOver, query_id: str) -> None:
        """Note what ``plan``, of this source, says was read, as batch 0 of ``query_id``; the birth record is the
        caller's. May be repeated."""
        return

    def sample(self, folder: Path, rows: int) -> tuple[dict[str, object], TriedLook | None]:
        """For ``try``: the keys of a spec that reads about ``rows`` of its newest records, perhaps copied into
        ``folder``, and what was found there; None where it has no files."""
        return {}, None
