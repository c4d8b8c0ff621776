"""What the next run of a pipeline would do: backlog by source, its age, how long Kafka keeps it, and errors.

Lists folders and asks brokers, so pages load it by a separate request.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from typing_extensions import TypedDict

from tidegate.core.errors import Caught, TidegateError
from tidegate.core.outputs import Ahead, Error, Sink, SourceReport
from tidegate.rework.held import HeldWork, list_held_work
from tidegate.runs.preflight.gather import gather_facts
from tidegate.sources.kafka.brokers import survey_brokers
from tidegate.sources.port import Age, Arrival, Stream
from tidegate.sources.registry import Connections, open_streams
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.state.birth import as_read
from tidegate.state.open_state import text_of_ms
from tidegate.views.faults import to_error
from tidegate.views.outlook import look_ahead

_AWAY_SECONDS = 20.0
"""How long brokers that did not answer are not asked again: each request would wait for its timeout."""
_away: dict[str, tuple[float, Error]] = {}


class Backlog(TypedDict):
    """What is pending in a source: files and bytes, or offsets. ``oldest`` is when its oldest record was written,
    ``taken`` when retention would delete that record."""

    source: str
    kind: str
    files: int | None
    bytes: int | None
    offsets: int | None
    settling: int
    oldest: str | None
    taken: str | None


@dataclass
class AheadPage:
    """What the next run would do, and what is pending for it."""

    pipeline: str
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    plan: Ahead | None = None
    backlog: list[Backlog] = field(default_factory=list)
    undecided: list[HeldWork] = field(default_factory=list)
    sinks: list[Sink] = field(default_factory=list)
    unknown: Error | None = None


def look_at_ahead(project: Project, name: str) -> AheadPage:
    """Make the page of what is pending for a pipeline. Errors are in the page."""
    page = AheadPage(name)
    servers = project.spec.kafka.bootstrap_servers
    with Caught() as caught:
        paths = project.paths(name).pinned()
        page.undecided = list_held_work(paths)  # needs no broker
        spec = as_read(load_pipeline(project, name), paths)
        known = _away.get(servers)
        if "kafka" in spec.needs and known is not None and time.monotonic() < known[0]:
            page.unknown = known[1]
            return page
        facts = gather_facts(paths, spec, at_a_glance=True)
        starts = facts.birth.sources if facts.birth is not None else {}
        outlook = look_ahead(project, spec, facts, Connections(survey_brokers(project.spec.kafka, [(spec, starts)])))
    if caught.error is not None:
        page.unknown = to_error(project, name, caught.error)
        return page
    plan = page.plan = outlook.plan
    page.sinks, page.unknown = outlook.sinks, plan["sources_unknown"]
    if page.unknown is not None and page.unknown["code"] == "BROKER_AWAY":
        _away[servers] = (time.monotonic() + _AWAY_SECONDS, page.unknown)
    arrivals = {} if outlook.pending is None else outlook.pending.arrivals
    for one, source in open_streams(project, paths, spec).items():
        summary: SourceReport = plan["sources"].get(one, {})
        page.backlog.append(_describe(source, spec.sources[one].type, summary, arrivals.get(one)))
    return page


def _describe(source: Stream, kind: str, summary: SourceReport, arrival: Arrival | None) -> Backlog:
    age = Age()
    if arrival is not None:
        with contextlib.suppress(TidegateError):  # the errors of the plan include this one
            age = source.find_age(arrival)
    return {
        "source": source.name,
        "kind": kind,
        "files": summary.get("files"),
        "bytes": summary.get("bytes"),
        "offsets": summary.get("pending_offsets"),
        "settling": len(summary.get("settling", [])),
        "oldest": text_of_ms(age.oldest_ms),
        "taken": text_of_ms(age.taken_ms),
    }
