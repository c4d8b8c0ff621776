"""Match what the old job had read to the sources of the new pipeline.

Without a checkpoint it is unknown which records are in the table. Then the spec has to say where each source starts,
and each source is examined once, now.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.rework import errors
from tidegate.rework.adopt.old_checkpoint import OldCheckpoint
from tidegate.sources.port import HandOver, ReadBefore, Source
from tidegate.spec.models import PipelineSpec


def plan_hand_over(spec: PipelineSpec, sources: Mapping[str, Source], old: OldCheckpoint | None) -> list[HandOver]:
    """Find where each of ``sources``, as written in ``spec``, continues.

    Raises UsageError ADOPT_NO_START, DisagreementError ADOPT_SOURCES, and what examining a source raises.
    """
    if old is None:
        _need_starts(spec, sources)
        return [source.start_from_spec() for source in sources.values()]
    return [sources[name].continue_from(read) for name, read in _match(sources, old).items()]


def _need_starts(spec: PipelineSpec, sources: Mapping[str, Source]) -> None:
    """Require an explicit start of each source: records may be in the table already."""
    missing = [
        f"sources.{name}.{source.start_key}"
        for name, source in sources.items()
        if source.start_key is not None and source.start_key not in spec.streams[name].fields_set
    ]
    if missing:
        raise errors.ADOPT_NO_START(where=f"jobs/{spec.name}/pipeline.yaml", keys=" and ".join(missing))


def _match(sources: Mapping[str, Source], old: OldCheckpoint) -> dict[str, ReadBefore]:
    """Match each source to one of the old job. Raises ADOPT_SOURCES unless there is exactly one match."""
    left = {name: [one for one in old.sources if source.may_continue(one)] for name, source in sources.items()}
    pairs: dict[str, ReadBefore] = {}
    while sure := next((name for name, some in left.items() if len(some) == 1), None):
        [chosen] = left.pop(sure)
        pairs[sure] = chosen
        left = {name: [one for one in some if one is not chosen] for name, some in left.items()}
    if left or len(pairs) != len(old.sources):
        raise errors.ADOPT_SOURCES(
            where=str(old.path),
            old="; ".join(one.describe() for one in old.sources),
            new="; ".join(source.describe() for source in sources.values()),
        )
    return pairs
