"""Find what the sources no longer have, and the older part of a table that stays because of it.

``refresh --keep-older`` keeps the older part of a table whose records are no longer all in the sources: the oldest
publishes, up to the last one with a lost record, and rows that no run has read. It is extended until no file of the
table or of quarantine has rows of both parts. So each record is either in the part that stays or in the part that is
read again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, replace

from tidegate.core import outputs
from tidegate.core.words import count_of, list_first
from tidegate.rework.backfill.choose import Choice, Scope, choose, ranges_of
from tidegate.rework.backfill.lineage import Increment, Lineage, describe_partition
from tidegate.rework.backfill.span import Interval
from tidegate.sources.files.differences import find_differing
from tidegate.sources.registry import open_sources
from tidegate.state.birth import Start, read_birth
from tidegate.state.open_state import text_of_ms
from tidegate.state.topics import Offsets, join_ranges, offsets_from_json
from tidegate.table.log.state import DataFile, list_data_files
from tidegate.table.publish.origins import Batch, read_origins


def missing_offsets(scope: Scope, choice: Choice) -> list[str]:
    """Describe the offsets of ``choice`` that the brokers no longer have."""
    if not any(choice.ranges.values()):
        return []
    sources = open_sources(scope.project, scope.paths, scope.spec)
    gone = []
    for name, start in starts_of_topics(scope, choice).items():
        ends = {partition: one.end for partition, one in join_ranges(choice.ranges.get(name, [])).items()}
        gone += sources[name].find_gone(start, ends)
    return gone


def starts_of_topics(scope: Scope, choice: Choice) -> dict[str, Start]:
    """The offsets at which a side job starts: the first one that it reads of a partition, and for other partitions
    those that live runs have reached."""
    sources = open_sources(scope.project, scope.paths, scope.spec)
    birth = read_birth(scope.paths)
    reached: dict[str, Offsets] = {}
    for increment in scope.lineage.increments:
        for name, ends in increment.ends.items():
            reached[name] = {**reached.get(name, {}), **ends}
    starts = {}
    for name, source in sources.items():
        if source.keeps_start:
            joined = join_ranges(choice.ranges.get(name, []))
            born = birth.sources.get(name) if birth is not None else None
            first = offsets_from_json(born["offsets"]) if born else {}
            begins = {**first, **reached.get(name, {}), **{partition: one.begin for partition, one in joined.items()}}
            starts[name] = source.start_at(begins, born)
    return starts


@dataclass(frozen=True)
class Older:
    """The part that stays: the rows of the first publishes of the lineage, in the files ``stays``; ``lost`` has the
    reasons."""

    stays: list[DataFile]
    lost: list[str]
    until: str | None
    """The time of the last of these publishes."""
    choice: Choice
    """What the rest is rebuilt from."""

    @property
    def leaves_something(self) -> bool:
        """Return whether there is a remaining part to rebuild, or nothing is lost."""
        return not (self.lost and self.choice.is_empty)

    def to_json(self) -> outputs.BackfillOlder:
        """The older part as ``--dry-run`` prints it."""
        return {
            "files": len(self.stays),
            "rows": sum(file.rows for file in self.stays),
            "partitions": sorted({describe_partition([*one.partition.items()]) for one in self.stays if one.partition}),
            "until": self.until,
            "lost": self.lost,
        }


def describe_older(older: outputs.BackfillOlder) -> str:
    """Describe the part that stays, and why, in one sentence."""
    if not older["lost"]:
        return "no part of the table stays as it is: the sources hold all that it was made of"
    files = f"{count_of(older['rows'], 'row')} in {count_of(older['files'], 'file')}"
    partitions = f" of {list_first(older['partitions'])}" if older["partitions"] else ""
    until = f", published until {older['until']}" if older["until"] else ""
    lost = list_first(older["lost"])
    return f"the older part stays as it is: {files}{partitions}{until}; the reason: {lost}"


def find_older(scope: Scope) -> Older:
    """Find the older part of the table; it is empty where the sources have all records. No JVM."""
    lineage, quarantine = scope.lineage, scope.paths.quarantine
    every = choose(scope, Interval({}))
    origins = read_origins(scope.paths.table, [*(file.path for file in scope.files), *lineage.deleted])
    edge, lost = _find_lost(scope, every)
    if lineage.deleted:
        lost.append("another program has deleted rows of it, which would come back")
        deleted = frozenset().union(*(origins.get(path, ()) for path in lineage.deleted))
        edge = max(edge, *(place + 1 for batch, place in _batches_from(edge, lineage).items() if batch in deleted), 0)
    if not lost:
        return Older([], [], None, every)
    quarantined = [file.path for file in list_data_files(quarantine)]
    edge = _grow(edge, lineage, {*origins.values(), *read_origins(quarantine, quarantined).values()})
    newer = _batches_from(edge, lineage)
    # Replays of the older part are not read again.
    rest = replace(lineage, replays=[one for one in lineage.replays if not newer.keys().isdisjoint(one.batches)])
    return Older(
        [file for file in scope.files if newer.keys().isdisjoint(origins.get(file.path, ()))],
        lost,
        text_of_ms(lineage.increments[edge - 1].at_ms) if edge else None,
        choose(replace(scope, lineage=rest), Interval({}), older=edge),
    )


def _find_lost(scope: Scope, every: Choice) -> tuple[int, list[str]]:
    """Return the number of publishes up to the last one that cannot be read again, and the reasons."""
    lineage = scope.lineage
    places = {(one.query_id, batch): place for place, one in enumerate(lineage.increments) for batch in one.batch_ids}
    rows = [row for some in every.files.values() for row in some]
    differing = find_differing(scope.project, scope.paths, scope.spec.file_streams, rows)
    lost = [difference for _, difference in differing] + describe_removed(every)
    gone = [row for row, _ in differing] + [row for row in rows if row.source in every.strange]
    edges = [places[str(row.query_id), int(row.batch_id or 0)] + 1 for row in gone]
    edges += [place + 1 for place, one in _counting(lineage) if not one.ends.keys().isdisjoint(every.strange)]
    if missing := missing_offsets(scope, every):
        lost += missing

        def is_there(edge: int) -> bool:
            rest = [one for place, one in _counting(lineage) if place >= edge]
            return not missing_offsets(scope, replace(every, ranges=ranges_of(scope, rest)))

        edges.append(bisect_left(range(len(lineage.increments)), True, key=is_there))
    if lineage.foreign:
        lost.append("it has rows that no run of the pipeline has read")
    return max(edges, default=0), lost


def describe_removed(choice: Choice) -> list[str]:
    """Describe the sources of ``choice`` that the spec no longer has."""
    return [f"source {name} is not in the spec any more" for name in choice.strange]


def _grow(edge: int, lineage: Lineage, together: Collection[frozenset[Batch]]) -> int:
    """The first edge, from this one on, that does not split any of these sets of batches."""
    while True:
        newer = _batches_from(edge, lineage)
        inside = [[newer[batch] for batch in one if batch in newer] for one in together]
        mixed = [max(some) for some, one in zip(inside, together, strict=True) if 0 < len(some) < len(one)]
        if not mixed:
            return edge
        edge = max(mixed) + 1


def _batches_from(edge: int, lineage: Lineage) -> dict[Batch, int]:
    """The batches from ``edge`` on that can be read again, each with the index of its publish."""
    newer = [(place, one) for place, one in _counting(lineage) if place >= edge]
    return {one.batch(number): place for place, one in newer for number in one.batch_ids}


def _counting(lineage: Lineage) -> list[tuple[int, Increment]]:
    """The publishes whose records can be read again, each with its index."""
    return [(place, one) for place, one in enumerate(lineage.increments) if not one.is_excluded and not one.is_replaced]
