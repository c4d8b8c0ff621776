"""Offsets that are read again: where a side job starts, and which offsets the brokers no longer have."""

from __future__ import annotations

from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.choose import Choice
from tidegate.rework.backfill.lineage import Lineage
from tidegate.sources.registry import open_sources
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.state.birth import Start, read_birth
from tidegate.state.topics import Offsets, join_ranges, offsets_from_json


def missing_offsets(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, lineage: Lineage, choice: Choice
) -> list[str]:
    """Describe the offsets of ``choice`` that the brokers no longer have."""
    if not any(choice.ranges.values()):
        return []
    sources = open_sources(project, paths, spec)
    starts = starts_of_topics(project, paths, spec, lineage, choice)
    return [gone for name, start in starts.items() for gone in sources[name].find_gone(start)]


def starts_of_topics(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, lineage: Lineage, choice: Choice
) -> dict[str, Start]:
    """The offsets at which a side job starts: the first one that it reads of a partition, and for other partitions
    those that live runs have reached."""
    sources = {name: one for name, one in open_sources(project, paths, spec).items() if one.keeps_start}
    birth = read_birth(paths)
    at = ends_of_topics(lineage)
    starts = {}
    for name, source in sources.items():
        joined = join_ranges(choice.ranges.get(name, []))
        born = birth.sources.get(name) if birth is not None else None
        first = offsets_from_json(born["offsets"]) if born else {}
        begins = {**first, **at.get(name, {}), **{partition: one.begin for partition, one in joined.items()}}
        starts[name] = source.start_at(begins, born)
    return starts


def ends_of_topics(lineage: Lineage) -> dict[str, Offsets]:
    """The offsets that live runs have reached, by source, from the log."""
    at: dict[str, Offsets] = {}
    for increment in lineage.increments:
        for name, ends in increment.ends.items():
            at[name] = {**at.get(name, {}), **ends}
    return at
