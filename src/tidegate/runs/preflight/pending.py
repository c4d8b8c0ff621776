"""What the next run would read: found without a JVM, from listings, broker offsets, the ledger and the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.facts import Facts
from tidegate.sources.files.scan import FilesScan
from tidegate.sources.port import Arrival, SoFar
from tidegate.sources.registry import Connections, open_sources, scans_of
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project

if TYPE_CHECKING:
    from tidegate.core.outputs import SourceReport


@dataclass(frozen=True)
class Pending:
    """What waits in the sources, by source."""

    arrivals: Mapping[str, Arrival]

    @property
    def summaries(self) -> dict[str, SourceReport]:
        """What ``plan`` and the report show."""
        return {name: one.summary for name, one in self.arrivals.items()}

    @property
    def scans(self) -> dict[str, FilesScan]:
        """The listings of those that are files."""
        return scans_of(self.arrivals)

    @property
    def files(self) -> int:
        """How many files wait."""
        return sum(one.files for one in self.arrivals.values())

    @property
    def bytes(self) -> int:
        """How much waits, as it lies there; of Kafka a guess."""
        return sum(one.bytes for one in self.arrivals.values())

    @property
    def has_new(self) -> bool:
        """Whether a run would read anything."""
        return any(one.has_new for one in self.arrivals.values())

    @property
    def comes_later(self) -> bool:
        """Whether a source has files that are still settling."""
        return any(one.comes_later for one in self.arrivals.values())


def find_pending(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, connections: Connections | None = None
) -> Pending:
    """Look at every source. Raises SourceLostError (folder or topic missing), TryAgainError (broker away).

    What a batch in flight will read is pending too: nobody has it yet. ``connections`` has the ledger of a pipeline
    with files.
    """
    starts = None if facts.birth is None else facts.birth.sources
    positions = None if facts.unusable is None else facts.unusable.positions
    so_far = SoFar(starts, facts.checkpoint, facts.in_flight, positions)
    sources = open_sources(project, paths, spec, connections)
    return Pending({name: source.look(so_far) for name, source in sources.items()})
