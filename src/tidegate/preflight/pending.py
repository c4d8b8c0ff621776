"""What the next run would read: found without a JVM, from listings, broker offsets, the ledger and the checkpoint."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from tidegate import storage
from tidegate.preflight.facts import Facts
from tidegate.project import PipelinePaths, Project
from tidegate.sources.files.ledger import Ledger
from tidegate.sources.files.scan import EMPTY_SCAN, FilesScan, scan_files
from tidegate.sources.files.starts import summarise_start
from tidegate.sources.kafka.brokers import Offsets, OpenBrokers
from tidegate.sources.kafka.offsets import (
    KafkaBirth,
    KafkaPlan,
    check_cluster,
    offsets_from_json,
    plan_kafka,
    resolve_birth,
    settings_of,
)
from tidegate.spec.as_read import KeptSource, SpooledSource, is_to_infer
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec
from tidegate.staging.checkpoint import read_offsets, read_start


@dataclass(frozen=True)
class Pending:
    """What waits in the sources. ``summaries`` maps source names to what ``plan`` and the report show."""

    summaries: dict[str, dict[str, Any]]
    scans: dict[str, FilesScan] = field(default_factory=dict)
    kafka: dict[str, tuple[KafkaBirth, KafkaPlan]] = field(default_factory=dict)
    begun: dict[str, Offsets] = field(default_factory=dict)
    """Where the batch in flight ends, by Kafka source: {topic: {partition: offset}}, exclusive; {} without one."""
    files: int = 0
    bytes: int = 0
    offsets: int = 0

    @property
    def has_new(self) -> bool:
        """Whether a run would read anything."""
        return self.files > 0 or self.offsets > 0


_BYTES_PER_OFFSET = 512
"""A guess at the size of a Kafka record, for choosing driver settings; nothing else depends on it."""


def find_pending(
    project: Project,
    paths: PipelinePaths,
    spec: PipelineSpec,
    facts: Facts,
    ledger: Ledger | None,
    brokers: OpenBrokers | None = None,
) -> Pending:
    """Look at every source. Raises SourceLostError (folder or topic missing), TryAgainError (broker away).

    What a batch in flight will read is pending too: nobody has it yet.

    ``brokers`` opens a connection, by default one for each question to a source.
    """
    summaries: dict[str, dict[str, Any]] = {}
    scans: dict[str, FilesScan] = {}
    kafka: dict[str, tuple[KafkaBirth, KafkaPlan]] = {}
    begun: dict[str, Offsets] = {}
    birth = facts.birth
    files = size = offsets = 0
    for name, source in spec.streams.items():
        if isinstance(source, FilesSource):
            assert ledger is not None
            is_spooled = isinstance(source, SpooledSource)
            if is_spooled and not storage.exists(paths.spool(name)):
                scan = EMPTY_SCAN  # plan, before the first run
            else:
                scan = scan_files(project, paths, name, source, ledger, time.time())
            waiting = ledger.rows(name, state="linked")
            scans[name] = scan
            files += len(scan.new) + len(waiting)
            source_bytes = sum(entry.size for entry in scan.new) + sum(row.size for row in waiting)
            size += source_bytes
            summaries[name] = summarise_scan(scan, len(waiting), source_bytes)
            summaries[name] |= summarise_start(name, source, scan, ledger)
            if isinstance(source, KeptSource) or is_to_infer(source):
                summaries[name]["schema"] = source.schema_
            if is_spooled:
                summaries[name]["replayable"] = False
        elif isinstance(source, KafkaSource):
            if birth is not None and name in birth.sources:
                start = KafkaBirth.from_dict(birth.sources[name])
            else:
                start = resolve_birth(project.spec.kafka, source, brokers)
            taken, begun[name] = kafka_positions(paths, facts, name, start)
            plan = plan_kafka(project.spec.kafka, source, start, taken, brokers)
            address = settings_of(project.spec.kafka, source).address
            check_cluster(start.cluster_id, plan.cluster_id, address, pipeline=spec.name, source=name)
            kafka[name] = (start, plan)
            offsets += plan.pending_offsets
            size += plan.pending_offsets * _BYTES_PER_OFFSET
            summaries[name] = {
                "pending_offsets": plan.pending_offsets,
                "offsets": plan.to_dict()["ranges"],
                "backlog": plan.pending_offsets,
            }
    return Pending(summaries, scans, kafka, begun, files, size, offsets)


def summarise_scan(scan: FilesScan, waiting: int, size_bytes: int) -> dict[str, Any]:
    """A listing as ``plan`` and the report show it; what is empty is left out."""
    summary: dict[str, Any] = {"files": len(scan.new) + waiting, "bytes": size_bytes, "backlog": len(scan.settling)}
    for key in ("skipped", "changed", "vanished"):
        value = getattr(scan, key)
        if value:
            summary[key] = [_plain(item) for item in value]
    if scan.settling:
        summary["settling"] = [_plain(item) for item in scan.settling]
    return summary


def _plain(item: Any) -> Any:
    if is_dataclass(item) and not isinstance(item, type):
        return asdict(item)
    if hasattr(item, "_asdict"):
        return item._asdict()
    return item


def kafka_positions(paths: PipelinePaths, facts: Facts, source_name: str, birth: KafkaBirth) -> tuple[Offsets, Offsets]:
    """Where a Kafka source stands: (next offset to read, where the batch in flight ends), {topic: {partition: offset}}.

    The pending records begin after the last batch whose records are kept somewhere: staged, settled, or committed. A
    batch that was only planned has read nothing yet; for a query with state neither has one whose state is not
    committed. The second value is {} without such a batch.
    """
    if facts.checkpoint.last_offset is None:
        return {}, {}
    begun = facts.in_flight
    following = facts.checkpoint.last_offset + 1 if begun is None else begun
    taken = offsets_from_json(read_start(paths.checkpoint, following, source_name) or {})
    if begun is None:
        return taken, {}
    ends = offsets_from_json(read_offsets(paths.checkpoint, begun).get(source_name) or {})
    for topic, numbers in ends.items():
        for number in set(numbers) - set(birth.offsets.get(topic, {})) - set(taken.get(topic, {})):
            taken.setdefault(topic, {})[number] = 0  # appeared with this batch: read from its beginning
    return taken, ends
