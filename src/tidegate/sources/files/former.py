"""Checkpoints of version 0.1.0, in which Spark's lists of files name links of the intake: taken over.

One release later this module can go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tidegate import storage
from tidegate.paths import PipelinePaths
from tidegate.sources.files.batch_plan import divide_files
from tidegate.spec.models import FilesSource
from tidegate.staging.batch_files import BatchFile, BatchFiles, is_former, links_between
from tidegate.staging.checkpoint import (
    CheckpointState,
    batch_ids,
    hadoop_checksum,
    list_entry,
    log_entry,
    read_offsets,
    read_start,
)
from tidegate.staging.seal import CheckpointFiles, allow_edits


def find_former_lists(checkpoint: Path, source: str) -> list[int]:
    """The entries of Spark's lists of the last two batches that name links. Raises ValueError."""
    batches = batch_ids(checkpoint / "offsets")[-2:]
    ends = [end for batch in batches if isinstance(end := read_offsets(checkpoint, batch).get(source), int)]
    if not ends:
        return []
    before = log_entry(read_start(checkpoint, batches[0], source))
    return [entry for entry in range(before + 1, ends[-1] + 1) if is_former(checkpoint, source, entry)]


def take_over_lists(
    paths: PipelinePaths,
    state: CheckpointState,
    files: CheckpointFiles,
    sources: Mapping[str, FilesSource],
    check: Callable[[], None],
) -> None:
    """Have the lists of the last two batches name batch files in the place of links. Every step may be repeated;
    ``check`` is called before each."""
    edits: dict[str, bytes] = {}
    for source, spec in sources.items():
        plan, named = BatchFiles(paths.checkpoint, source), dict[int, bytes]()
        for entry in find_former_lists(paths.checkpoint, source):
            links = links_between(paths.checkpoint, source, entry - 1, entry)
            check()
            plan.put(BatchFile(entry, parts=divide_files(paths.intake(source), links, spec)))
            named[entry] = list_entry(plan.path(entry), entry)
        for log in storage.list_folder(paths.checkpoint / "sources" / source):
            before = storage.read(log)
            if log.name.removesuffix(".compact").isdigit() and (after := _rename(before, named)) != before:
                edits[f"sources/{source}/{log.name}"] = after
    check()
    allow_edits(paths, state, files, edits)
    for name, data in edits.items():
        check()
        log = paths.checkpoint / name
        storage.remove(log.with_name(f".{log.name}.crc"))  # of the old bytes
        storage.replace(log, data)
        storage.replace(log.with_name(f".{log.name}.crc"), hadoop_checksum(data))


def _rename(data: bytes, named: Mapping[int, bytes]) -> bytes:
    """A list with one line for each of the entries ``named``."""
    version, *lines = data.split(b"\n")
    entries = [(json.loads(line)["batchId"], line) for line in lines]
    return b"\n".join([version, *dict.fromkeys(named.get(entry, line) for entry, line in entries)])
