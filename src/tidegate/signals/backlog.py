"""What waits in the sources of a pipeline, and since when: from listings, the ledger and the brokers, without a JVM."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.errors import TidegateError
from tidegate.paths import PipelinePaths
from tidegate.pipeline import load_pipeline
from tidegate.preflight.facts import gather_facts
from tidegate.preflight.pending import Pending, find_pending
from tidegate.project import Project
from tidegate.sources.files.ledger import open_ledger
from tidegate.sources.files.source import FilesArrival
from tidegate.sources.kafka.age import find_age
from tidegate.sources.kafka.source import KafkaArrival
from tidegate.sources.port import Arrival
from tidegate.sources.registry import Connections
from tidegate.spec.models import KafkaSource, PipelineSpec
from tidegate.staging.birth import as_read
from tidegate.staging.open_state import text_of_ms


@dataclass(frozen=True)
class Waiting:
    """What waits in a source; None for what its kind does not have. ``oldest`` is when the oldest of it was written,
    None when nothing waits or nobody can tell."""

    source: str
    files: int | None = None
    bytes: int | None = None
    offsets: int | None = None
    oldest: str | None = None

    @property
    def has_any(self) -> bool:
        """Whether anything waits."""
        return bool(self.files or self.offsets)


def look_at_backlog(project: Project, name: str) -> list[Waiting]:
    """What no run of pipeline ``name`` has taken yet, by source. Raises TidegateError where it cannot be found out."""
    paths = project.paths(name).pinned()
    spec = as_read(load_pipeline(project, name), paths)
    arrivals = _find(project, paths, spec).arrivals
    return [_describe(project, spec, source, arrival) for source, arrival in arrivals.items()]


def _find(project: Project, paths: PipelinePaths, spec: PipelineSpec) -> Pending:
    facts = gather_facts(paths, spec, at_a_glance=True)
    if not spec.file_streams:
        return find_pending(project, paths, spec, facts)
    with open_ledger(paths, read_only=True) as ledger:
        return find_pending(project, paths, spec, facts, Connections(ledger=ledger))


def _describe(project: Project, spec: PipelineSpec, name: str, arrival: Arrival) -> Waiting:
    summary, source, oldest = arrival.summary, spec.sources[name], None
    if isinstance(arrival, FilesArrival):
        oldest = min((file.mtime_ns // 1_000_000 for file in arrival.scan.new), default=None)
    elif isinstance(arrival, KafkaArrival) and isinstance(source, KafkaSource):
        try:
            oldest = find_age(project.spec.kafka, source, arrival.plan).oldest_ms
        except TidegateError:
            oldest = None  # how many wait is known; how old they are, the broker did not say
    return Waiting(name, summary.get("files"), summary.get("bytes"), summary.get("pending_offsets"), text_of_ms(oldest))
