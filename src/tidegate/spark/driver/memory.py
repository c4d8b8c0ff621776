"""The error of a driver that ran out of memory: its memory, the batch it was reading, and how much to give it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tidegate.core.errors import TidegateError, UsageError
from tidegate.spark import errors
from tidegate.spark.driver.order import IngestOrder
from tidegate.state.batch_files import Given
from tidegate.state.topics import offsets_to_json

OUT_OF_MEMORY_EXIT = 52
"""Spark's own, for an OutOfMemoryError that nothing caught; in a local session a task's error ends the driver."""

_SIZE = re.compile(r"(\d+)([a-z]*)", re.IGNORECASE)


def ran_out(exit_code: int, error: TidegateError | None, *, on_cluster: bool) -> bool:
    """Whether the driver ended because its memory was too little: by its exit code, or by its answer ``error``, which
    on a cluster may be about an executor's memory."""
    return exit_code == OUT_OF_MEMORY_EXIT if error is None else error.code == "OUT_OF_MEMORY" and not on_cluster


def out_of_memory(name: str, memory: str, in_hand: str, log_path: Path) -> UsageError:
    """The error when ``memory`` (as ``spark.driver.memory`` has it) was too little for the work ``in_hand``."""
    return errors.DRIVER_OUT_OF_MEMORY(
        where=f"log: {log_path}", memory=memory, in_hand=in_hand, more=_double(memory), name=name
    )


def describe_batch(order: IngestOrder, batch: int | None, given: Mapping[str, Given]) -> str:
    """Describe the input of a batch by source, with the largest file; before the first batch, of the whole order."""
    links = {name: one.links for name, one in given.items()} if batch is not None else order.links
    inputs = [_describe_files(name, list(taken), order) for name, taken in links.items() if taken]
    for name, one in given.items():
        begins, ends = offsets_to_json(one.begins), offsets_to_json(one.ends)
        for topic, numbers in ends.items():
            begin = begins.get(topic, {})
            ranges = ", ".join(f"{number}: {begin.get(number)} to {end}" for number, end in sorted(numbers.items()))
            inputs.append(f"{name}: topic {topic}, partitions and offsets {ranges}"[:400])
    what = "no batch yet" if batch is None else f"batch {batch}"
    return f"{what} ({'; '.join(inputs)})" if inputs else what


def _describe_files(name: str, links: list[str], order: IngestOrder) -> str:
    pending = order.links.get(name, {})
    sizes = {link: pending[link]["size"] if link in pending else 0 for link in links}
    largest = max(sizes, key=sizes.__getitem__)
    size = sizes[largest]
    number = "1 file" if len(links) == 1 else f"{len(links):,} files, the largest"
    return f"{name}: {number} {order.original(largest)} of {size:,} bytes"


def _double(memory: str) -> str:
    match = _SIZE.fullmatch(memory.strip())
    return f"{int(match[1]) * 2}{match[2]}" if match else "4g"
