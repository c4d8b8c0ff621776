"""Converts checkpoints of version 0.1.0, in which Spark's file lists name links of the intake.

To be removed one release later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.batch_plan import divide_files
from tidegate.spec.models import FilesSource
from tidegate.state.batch_files import BatchFile, BatchFiles, links_between, names_links
from tidegate.state.checkpoint import (
    CheckpointState,
    batch_ids,
    last_entry,
    list_entry,
    log_entry,
    read_start,
    replace_list,
)
from tidegate.state.seal import CheckpointFiles, allow_edits


def find_former_lists(checkpoint: Path, source: str) -> list[int]:
    """Find the entries of Spark's file lists that name links, from the last batch on. Raises ValueError."""
    batches = batch_ids(checkpoint / "offsets")[-1:]
    before = log_entry(read_start(checkpoint, batches[0], source)) if batches else -1
    entries = range(before + 1, last_entry(checkpoint, source) + 1)
    return [entry for entry in entries if names_links(checkpoint, source, entry)]


def take_over_lists(
    paths: PipelinePaths,
    state: CheckpointState,
    files: CheckpointFiles,
    sources: Mapping[str, FilesSource],
    check: Callable[[], None],
) -> None:
    """Replace links by batch files in the lists of the last batch. Every step may be repeated; ``check`` is called
    before each."""
    edits: dict[str, bytes] = {}
    for source, spec in sources.items():
        batch_files = BatchFiles(paths.checkpoint, source)
        named: dict[int, bytes] = {}
        for entry in find_former_lists(paths.checkpoint, source):
            links = links_between(paths.checkpoint, source, entry - 1, entry)
            check()
            batch_files.put(BatchFile(entry, parts=divide_files(paths.intake(source), links, spec)))
            named[entry] = list_entry(batch_files.path(entry), entry)
        for log in storage.list_folder(paths.checkpoint / "sources" / source):
            if log.name.removesuffix(".compact").isdigit():
                before = storage.read(log)
                if (after := _rename(before, named)) != before:
                    edits[f"sources/{source}/{log.name}"] = after
    check()
    allow_edits(paths, state, files, edits)
    # Compacted lists first: Spark reads them first, and looks an entry up in its own list.
    for name, data in sorted(edits.items(), key=lambda edit: not edit[0].endswith(".compact")):
        check()
        replace_list(paths.checkpoint / name, data)


def _rename(data: bytes, named: Mapping[int, bytes]) -> bytes:
    """Replace the lines of each entry in ``named`` by one line."""
    version, *lines = data.split(b"\n")
    entries = [(json.loads(line)["batchId"], line) for line in lines]
    return b"\n".join([version, *dict.fromkeys(named.get(entry, line) for entry, line in entries)])
