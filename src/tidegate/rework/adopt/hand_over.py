"""What the old job had read, by source of the new pipeline.

Without a checkpoint nobody knows what of a source is in the table. Then the spec has to say where each source starts,
and each is looked at once, now.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.core.errors import catalogue
from tidegate.rework.adopt.old_checkpoint import OldCheckpoint
from tidegate.sources.port import HandOver, ReadBefore, Source
from tidegate.spec.models import PipelineSpec


def plan_hand_over(spec: PipelineSpec, sources: Mapping[str, Source], old: OldCheckpoint | None) -> list[HandOver]:
    """Where each of ``sources``, which are those of ``spec`` as it is written, goes on.

    Raises UsageError ADOPT_NO_START, DisagreementError ADOPT_SOURCES, and what a look at a source raises.
    """
    if old is None:
        _need_starts(spec, sources)
        return [source.begin_beside() for source in sources.values()]
    return [sources[name].go_on_from(read) for name, read in _match(sources, old).items()]


def _need_starts(spec: PipelineSpec, sources: Mapping[str, Source]) -> None:
    """Nothing is read from the beginning into a table that may have it already, unless the spec says so in words."""
    unsaid = [
        f"sources.{name}.{source.start_key}"
        for name, source in sources.items()
        if source.start_key is not None and source.start_key not in spec.streams[name].fields_set
    ]
    if unsaid:
        raise catalogue.ADOPT_NO_START(where=f"jobs/{spec.name}/pipeline.yaml", keys=" and ".join(unsaid))


def _match(sources: Mapping[str, Source], old: OldCheckpoint) -> dict[str, ReadBefore]:
    """Which source of the old job each one is. Raises ADOPT_SOURCES unless there is one way alone."""
    left = {name: [one for one in old.sources if source.may_continue(one)] for name, source in sources.items()}
    pairs: dict[str, ReadBefore] = {}
    while sure := next((name for name, some in left.items() if len(some) == 1), None):
        [chosen] = left.pop(sure)
        pairs[sure] = chosen
        left = {name: [one for one in some if one is not chosen] for name, some in left.items()}
    if left or len(pairs) != len(old.sources):
        raise catalogue.ADOPT_SOURCES(
            where=str(old.path),
            old="; ".join(one.describe() for one in old.sources),
            new="; ".join(source.describe() for source in sources.values()),
        )
    return pairs
