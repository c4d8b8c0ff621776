"""Kafka topics as a source: compares offsets of the brokers with those of the checkpoint."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.core.errors import SourceLostError
from tidegate.core.outputs import SourceReport, TriedLook
from tidegate.core.paths import PipelinePaths
from tidegate.sources.kafka.batch_plan import Limits, divide, write_batches
from tidegate.sources.kafka.brokers import OpenBrokers
from tidegate.sources.kafka.former import read_former_positions
from tidegate.sources.kafka.offsets import (
    KafkaBirth,
    KafkaPlan,
    LostRange,
    birth_after_loss,
    check_cluster,
    extend_birth,
    find_loss,
    loss_error,
    loss_to_dict,
    newest_offsets,
    plan_kafka,
    resolve_birth,
)
from tidegate.sources.kafka.settings import settings_of
from tidegate.sources.port import (
    Age,
    Arrival,
    Chosen,
    Cut,
    HandOver,
    Loss,
    Pinned,
    ReadBefore,
    SoFar,
    StaticSource,
    Stream,
    warn_of_duplicates,
)
from tidegate.spec.models import KafkaSource
from tidegate.spec.project import Project
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.birth import Start
from tidegate.state.checkpoint import read_start
from tidegate.state.manifest import Taken
from tidegate.state.topics import (
    OffsetRange,
    Offsets,
    join_ranges,
    offsets_to_json,
    ranges_to_json,
    subtract_ranges,
)

_BYTES_PER_OFFSET = 512
"""A guess at the size of a Kafka record, for choosing driver settings; nothing else depends on it."""


@dataclass(frozen=True, kw_only=True)
class KafkaArrival(Arrival):
    """Pending offsets. ``begun`` is where the batch in flight ends (exclusive), {} without one; ``planned`` where the
    last written batch ends."""

    place: tuple[str, str]
    """(pipeline, source)"""
    birth: KafkaBirth
    plan: KafkaPlan
    begun: Offsets
    planned: Offsets
    limits: Limits

    @property
    def start(self) -> Start:
        """Offsets, topic ids and cluster."""
        return self.birth.to_dict()

    @property
    def grown_start(self) -> Start:
        """With new topics and partitions."""
        return extend_birth(self.birth, self.plan).to_dict()

    @property
    def next_start(self) -> Start:
        """After the last batch whose records are stored."""
        return replace(self.birth, offsets=self.plan.next_offsets).to_dict()

    def find_loss(self) -> KafkaLoss | None:
        """Find offsets that retention, or the deletion of a topic, has removed."""
        lost = find_loss(self.birth, self.plan, self.planned)
        return KafkaLoss(self, lost) if lost else None


@dataclass(frozen=True)
class KafkaLoss(Loss):
    """Pending offsets that are gone."""

    arrival: KafkaArrival
    ranges: Sequence[LostRange]

    @property
    def reaches_begun_batch(self) -> bool:
        """Return whether records or partitions of the batch in flight are gone."""
        for one in self.ranges:
            until = self.arrival.begun.get(one.topic_partition)
            if until is not None and (one.goes_on_at is None or one.lost_from < until):
                return True
        return False

    def to_dict(self) -> dict[str, object]:
        """Every lost range."""
        return loss_to_dict(self.ranges)

    def to_error(self) -> SourceLostError:
        """Make KAFKA_LOSS with every lost range."""
        return loss_error(*self.arrival.place, self.ranges, self.arrival.planned)

    def start_behind(self) -> Start:
        """The birth record of a checkpoint that continues after the lost records."""
        return self._birth_behind().to_dict()

    def move_behind(self, checkpoint: Path, in_flight: int | None, check: Callable[[], None]) -> None:
        """Let the batch in flight end where it was planned to end, or where the topics end now."""
        birth, begun, present = self._birth_behind(), self.arrival.begun, self.arrival.plan.end
        begins = dict(sorted(birth.offsets.items()))
        ends = {one: max(at, min(begun.get(one, at), present[one])) for one, at in begins.items()}
        ranges = {one: OffsetRange(at, ends[one]) for one, at in begins.items()}
        parts = divide(ranges.items(), birth.topic_ids, self.arrival.limits)
        BatchFiles(checkpoint, self.arrival.place[1]).move_behind(begins, ends, in_flight, parts, check)

    def _birth_behind(self) -> KafkaBirth:
        return birth_after_loss(self.arrival.birth, self.arrival.plan, self.ranges)


class KafkaStream(Stream, StaticSource):
    """The topics of one source, static or not. ``brokers`` opens a connection, by default one for each check."""

    keeps_start = True
    start_key = "starting_offsets"

    def __init__(
        self, project: Project, paths: PipelinePaths, name: str, spec: KafkaSource, brokers: OpenBrokers | None = None
    ) -> None:
        super().__init__(project, paths, name)
        self.spec, self._brokers, self._kafka = spec, brokers, project.spec.kafka

    def pin(self, known: Pinned | None) -> Pinned:
        """Pin all offsets that a static source has when a run begins."""
        plan = plan_kafka(self._kafka, self.spec, resolve_birth(self._kafka, self.spec), {})
        offsets = ranges_to_json(plan.ranges)
        version = hashlib.sha256(json.dumps(offsets, sort_keys=True).encode()).hexdigest()[:16]
        return {"version": version, "offsets": offsets}

    def look(self, so_far: SoFar) -> KafkaArrival:
        """Find the offsets that are in no batch.

        Raises SourceLostError TOPIC_MISSING, UsageError KAFKA_CLUSTER_CHANGED, TryAgainError BROKER_AWAY.
        """
        known = (so_far.starts or {}).get(self.name)
        # {}: a source of another kind had this name, and nothing of it was read
        start = KafkaBirth.from_dict(known) if known else resolve_birth(self._kafka, self.spec, self._brokers)
        try:
            taken, begun, planned = self._positions(so_far)
        except ValueError as torn:
            raise self.torn_error(torn) from torn
        plan = self._plan(start, taken)
        summary: SourceReport = {
            "pending_offsets": plan.pending_offsets,
            "offsets": ranges_to_json(plan.ranges),
            "backlog": plan.pending_offsets,
        }
        size = plan.pending_offsets * _BYTES_PER_OFFSET
        place = self.paths.name, self.name
        return KafkaArrival(
            summary,
            offsets=plan.pending_offsets,
            bytes=size,
            place=place,
            birth=start,
            plan=plan,
            begun=begun,
            planned=planned,
            limits=Limits.of(self.spec, Cut.BY_OPTIONS),
        )

    def write_batches(self, arrival: Arrival, cut: Cut, check: Callable[[], None]) -> None:
        """Write batch files after those that Spark has not planned yet, up to the end offsets of ``arrival``."""
        assert isinstance(arrival, KafkaArrival)
        limits = Limits.of(self.spec, cut)
        try:
            write_batches(self.batch_files, arrival.birth, arrival.plan, limits, check)
        except ValueError as torn:
            raise self.torn_error(torn) from torn

    def write_chosen(self, chosen: Chosen, cut: Cut, check: Callable[[], None]) -> None:
        """Write batch file 0."""
        birth = KafkaBirth.from_dict(chosen.start)
        ranges = [self._plan(birth, {}).ranges] if chosen.ranges is None else chosen.ranges
        joined = join_ranges(ranges)
        ends = {**birth.offsets, **{one: of.end for one, of in joined.items()}}
        divided = subtract_ranges(ranges, chosen.passed_over)
        parts = divide(divided, birth.topic_ids, Limits.of(self.spec, Cut.NOWHERE))
        check()
        self.batch_files.put(BatchFile(0, {one: birth.offsets.get(one, 0) for one in ends}, ends, parts))

    def find_age(self, arrival: Arrival) -> Age:
        """By the time stamp of the first pending record, and ``retention.ms`` of its topic."""
        if not isinstance(arrival, KafkaArrival) or not arrival.has_new:
            return Age()
        from tidegate.sources.kafka.records import find_age  # the Kafka client takes its time

        return find_age(self._kafka, self.spec, arrival.plan)

    def range_of(self, batch_id: int) -> Taken:
        """With all partitions, even those of which the batch takes nothing."""
        taken, found = super().range_of(batch_id), self.batch_files.describe_batch(batch_id)
        return replace(taken, offsets={} if found is None else found.ranges)

    def find_gone(self, start: Start, until: Offsets | None = None) -> list[str]:
        """Describe offsets from ``start`` on that the brokers no longer have."""
        birth = KafkaBirth.from_dict(start)
        lost = find_loss(birth, self._plan(birth, {}))
        return [f"source {self.name}: {one.end_at(until or {})}" for one in lost]

    def resolve_start(self) -> Start:
        """The present offsets for ``starting_offsets``."""
        return resolve_birth(self._kafka, self.spec, self._brokers).to_dict()

    def start_at(self, ends: Offsets, before: Start | None) -> Start:
        """The offsets of ``ends``, with the topic ids of ``before``."""
        birth = KafkaBirth.from_dict(before) if before else KafkaBirth({}, {})
        return replace(birth, offsets=ends).to_dict()

    def describe(self) -> str:
        """Its topics."""
        return f"{self.name}: topics {self.spec.topic_pattern or ', '.join(self.spec.topics or self.spec.assign or ())}"

    def may_continue(self, read: ReadBefore) -> bool:
        """Return whether the topics are those of this source."""
        topics = {one.topic for one in read.offsets}
        if read.files or not topics:
            return not read.files
        if self.spec.topic_pattern is not None:
            return all(re.fullmatch(self.spec.topic_pattern, topic) for topic in topics)
        if self.spec.assign is not None:
            return all(one.partition in self.spec.assign.get(one.topic, ()) for one in read.offsets)
        return topics == set(self.spec.topics or ())

    def continue_from(self, read: ReadBefore) -> HandOver:
        """Start at these offsets of the existing topics; a partition without one starts at its beginning."""
        everything = self.spec.replace(starting_offsets="earliest")
        now = resolve_birth(self._kafka, everything, self._brokers).to_dict()
        return HandOver(self.name, self.start_at(read.offsets, now), {"offsets": offsets_to_json(read.offsets)})

    def start_from_spec(self) -> HandOver:
        """Start at the present offsets for ``starting_offsets``."""
        start = self.resolve_start()
        return HandOver(
            self.name, start, {"offsets": start["offsets"]}, [warn_of_duplicates(self.name, self.spec.starting_offsets)]
        )

    def sample(self, folder: Path, rows: int) -> tuple[dict[str, object], TriedLook | None]:
        """Offsets about ``rows`` records before the end, divided among the partitions."""
        offsets, _ = newest_offsets(self._kafka, self.spec, rows)
        return {"starting_offsets": offsets_to_json(offsets)}, None

    def _plan(self, start: KafkaBirth, taken: Offsets) -> KafkaPlan:
        plan = plan_kafka(self._kafka, self.spec, start, taken, self._brokers)
        address = settings_of(self._kafka, self.spec).address
        check_cluster(start.cluster_id, plan.cluster_id, address, pipeline=self.paths.name, source=self.name)
        return plan

    def _positions(self, so_far: SoFar) -> tuple[Offsets, Offsets, Offsets]:
        """Return (next offsets to read, end of the batch in flight, end of the last written batch).

        The pending records begin after the last batch whose records are stored: staged, settled, or committed. A batch
        that was only planned has read nothing yet, nor has a batch of a query with state before its state is committed.
        The second value is {} without such a batch. Raises ValueError.
        """
        if so_far.positions is not None:
            return so_far.positions.get(self.name, {}), {}, {}
        files, last = self.batch_files, so_far.checkpoint.last_offset
        taken: Offsets
        begun: Offsets
        if last is not None and isinstance(read_start(files.checkpoint, last + 1, self.name), dict):
            taken, begun = read_former_positions(files.checkpoint, self.name, last, so_far.in_flight)
            return taken, begun, begun
        there = files.list_open()
        taken, begun = {}, {}
        if last is not None and so_far.in_flight is None:
            taken = files.read_position()
        elif last is not None and files.of_batch(last):
            found = files.describe_batch(last)
            taken, begun = ({}, {}) if found is None else (found.begins, found.ends)
        elif last is not None:  # the batch takes nothing of this source
            taken = begun = files.read_position()
        return taken, begun, there[-1].ends if there else begun
