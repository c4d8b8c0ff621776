"""What the next run would read: found without a JVM, from listings, broker offsets, the ledger and the checkpoint."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.project import PipelinePaths, Project
from tidegate.spec.as_read import KeptSource, SpooledSource, is_to_infer
from tidegate.spec.models import FilesSource, KafkaSource, PipelineSpec
from tidegate.staging.birth import Birth
from tidegate.staging.checkpoint import CheckpointState, read_start

if TYPE_CHECKING:
    from tidegate.source.files import FilesScan
    from tidegate.source.kafka import KafkaBirth, KafkaPlan
    from tidegate.source.kafka_broker import OpenBrokers
    from tidegate.source.ledger import Ledger


@dataclass(frozen=True)
class Pending:
    """What waits in the sources. ``summaries`` maps source names to what ``plan`` and the report show."""

    summaries: dict[str, dict[str, Any]]
    scans: dict[str, FilesScan] = field(default_factory=dict)
    kafka: dict[str, tuple[KafkaBirth, KafkaPlan]] = field(default_factory=dict)
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
    birth: Birth | None,
    checkpoint: CheckpointState,
    ledger: Ledger | None,
    brokers: OpenBrokers | None = None,
) -> Pending:
    """Look at every source. Raises SourceLostError (folder or topic missing), TryAgainError (broker away).

    ``brokers`` opens a connection, by default one for each question to a source.
    """
    summaries: dict[str, dict[str, Any]] = {}
    scans: dict[str, FilesScan] = {}
    kafka: dict[str, tuple[KafkaBirth, KafkaPlan]] = {}
    files = size = offsets = 0
    for name, source in spec.streams.items():
        if isinstance(source, FilesSource):
            from tidegate.source.files import EMPTY_SCAN, scan_files

            assert ledger is not None
            is_spooled = isinstance(source, SpooledSource)
            if is_spooled and not paths.spool(name).is_dir():
                scan = EMPTY_SCAN  # plan, before the first run
            else:
                scan = scan_files(project, paths, name, source, ledger, time.time())
            waiting = ledger.rows(name, state="linked")
            scans[name] = scan
            files += len(scan.new) + len(waiting)
            source_bytes = sum(entry.size for entry in scan.new) + sum(row.size for row in waiting)
            size += source_bytes
            summaries[name] = summarise_scan(scan, len(waiting), source_bytes)
            if isinstance(source, KeptSource) or is_to_infer(source):
                summaries[name]["schema"] = source.schema_
            if is_spooled:
                summaries[name]["replayable"] = False
        elif isinstance(source, KafkaSource):
            from tidegate.source.kafka import KafkaBirth, plan_kafka, resolve_birth

            if birth is not None and name in birth.sources:
                start = KafkaBirth.from_dict(birth.sources[name])
            else:
                start = resolve_birth(project.spec.kafka, source, brokers)
            plan = plan_kafka(project.spec.kafka, source, start, taken_offsets(paths, checkpoint, name), brokers)
            kafka[name] = (start, plan)
            offsets += plan.pending_offsets
            size += plan.pending_offsets * _BYTES_PER_OFFSET
            summaries[name] = {
                "pending_offsets": plan.pending_offsets,
                "offsets": plan.to_dict()["ranges"],
                "backlog": plan.pending_offsets,
            }
    return Pending(summaries, scans, kafka, files, size, offsets)


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
    from dataclasses import asdict, is_dataclass

    if is_dataclass(item) and not isinstance(item, type):
        return asdict(item)
    if hasattr(item, "_asdict"):
        return item._asdict()
    return item


def taken_offsets(paths: PipelinePaths, checkpoint: CheckpointState, source_name: str) -> dict[str, dict[int, int]]:
    """Kafka offsets that the checkpoint's last batch ends at, {} before the first."""
    from tidegate.source.kafka import offsets_from_json

    if checkpoint.last_offset is None:
        return {}
    return offsets_from_json(read_start(paths.checkpoint, checkpoint.last_offset + 1, source_name) or {})
