"""Reads and converts checkpoints of version 0.1.0, with the offsets of Spark's own Kafka source.

To be removed one release later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tidegate.core.paths import PipelinePaths
from tidegate.sources.kafka.batch_plan import PART_OFFSETS, Limits, divide
from tidegate.sources.kafka.offsets import KafkaBirth
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.birth import Start
from tidegate.state.checkpoint import (
    CheckpointState,
    batch_ids,
    list_entry,
    moved_end,
    read_offsets,
    read_start,
    replace_entry,
    replace_list,
    topic_offsets,
)
from tidegate.state.seal import CheckpointFiles, allow_edits
from tidegate.state.topics import OffsetRange, Offsets

_LIMITS = Limits(None, 1, PART_OFFSETS)


def read_former_positions(checkpoint: Path, source: str, last: int, in_flight: int | None) -> tuple[Offsets, Offsets]:
    """Return (next offsets to read, end of the batch in flight) of a checkpoint whose last batch is ``last``."""
    if in_flight is None:
        return topic_offsets(read_start(checkpoint, last + 1, source)), {}
    taken, ends = topic_offsets(read_start(checkpoint, in_flight, source)), _ends_of(checkpoint, source, in_flight)
    return taken, ends or {}


def has_offsets(checkpoint: Path, source: str) -> bool:
    """Return whether the checkpoint has offsets of the source instead of numbers of batch files. Raises ValueError."""
    return any(_ends_of(checkpoint, source, batch) is not None for batch in _last_batches(checkpoint))


def take_over_former(
    paths: PipelinePaths,
    state: CheckpointState,
    files: CheckpointFiles,
    starts: Mapping[str, Start],
    check: Callable[[], None],
) -> None:
    """Replace the offsets of the last two batches by numbers of batch files. Every step may be repeated; ``check`` is
    called before each."""
    contents: dict[int, bytes] = {}
    batches = _last_batches(paths.checkpoint)
    numbers: dict[int, dict[str, int]] = {batch: {} for batch in batches}
    for source, start in starts.items():
        birth = KafkaBirth.from_dict(start)
        with_it = [batch for batch in batches if source in read_offsets(paths.checkpoint, batch)]
        for number, batch in enumerate(with_it):
            ends = _ends_of(paths.checkpoint, source, batch)
            if ends is None:
                continue
            begins = topic_offsets(read_start(paths.checkpoint, batch, source)) or birth.offsets
            begins = {one: begins.get(one, 0) for one in ends}
            ranges = {one: OffsetRange(begins[one], until) for one, until in ends.items()}
            check()
            plan = BatchFiles(paths.checkpoint, source)
            plan.put(BatchFile(number, begins, ends, divide(ranges.items(), birth.topic_ids, _LIMITS)))
            _write_list(paths.checkpoint, source, number, plan.path(number))
            numbers[batch][source] = number
    for batch in batches:
        contents[batch] = moved_end(paths.checkpoint, batch, numbers[batch])
    check()
    allow_edits(paths, state, files, {f"offsets/{batch}": data for batch, data in contents.items()})
    for batch in reversed(batches):
        check()
        replace_entry(paths.checkpoint, batch, contents[batch])


def _last_batches(checkpoint: Path) -> list[int]:
    """The batches whose ends Spark reads when it starts: the last two, even if the last one is committed."""
    return batch_ids(checkpoint / "offsets")[-2:]


def _ends_of(checkpoint: Path, source: str, batch: int) -> Offsets | None:
    found = read_offsets(checkpoint, batch).get(source)
    return found if isinstance(found, dict) else None


def _write_list(checkpoint: Path, source: str, number: int, path: Path) -> None:
    """Write a list of one file, as Spark's file source writes it."""
    log = checkpoint / "sources" / source / str(number)
    data = b"v1\n" + list_entry(path, number)
    replace_list(log, data)
