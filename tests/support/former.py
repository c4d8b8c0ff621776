"""State folders as version 0.1.0 left them: Spark's own Kafka source noted its offsets in the checkpoint, and its lists
of files named links."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tidegate.core.paths import PipelinePaths
from tidegate.state.batch_files import BatchFiles
from tidegate.state.checkpoint import batch_ids, files_between
from tidegate.state.topics import offsets_to_json


def keep_batch_files(patch: pytest.MonkeyPatch) -> None:
    """Have runs remove no batch file, so that :func:`go_back` knows all ends."""
    patch.setattr(BatchFiles, "remove_before", lambda *arguments: None)


def go_back(paths: PipelinePaths, source: str) -> None:
    """Have the checkpoint as it was with Spark's Kafka source."""
    checkpoint, files = paths.pinned().checkpoint, BatchFiles(paths.pinned().checkpoint, source)
    for batch in batch_ids(checkpoint / "offsets"):
        if (planned := files.describe_batch(batch)) is None:
            continue
        path = checkpoint / "offsets" / str(batch)
        ends = json.dumps(offsets_to_json(planned.ends), separators=(",", ":"))
        lines = [f"{source}:{ends}" if line.startswith(f"{source}:") else line for line in path.read_text().split("\n")]
        path.write_text("\n".join(lines))
        path.with_name(f".{batch}.crc").unlink(missing_ok=True)
    shutil.rmtree(checkpoint / "sources" / source)
    shutil.rmtree(files.folder)
    shutil.rmtree(paths.seals, ignore_errors=True)


def go_back_to_links(paths: PipelinePaths, source: str, *, compact_at: int | None = None) -> None:
    """Have the checkpoint as it was when Spark's lists named the links of a source of files. Entry ``compact_at`` is in
    the compacted list of all up to it, which stands beside those of the entries before."""
    checkpoint, files = paths.pinned().checkpoint, BatchFiles(paths.pinned().checkpoint, source)
    folder = checkpoint / "sources" / source
    compacted: list[str] = []
    for entry in batch_ids(folder):
        [number] = (int(Path(path).stem) for path in files_between(checkpoint, source, entry - 1, entry))
        uris = [(paths.pinned().intake(source) / link).as_uri() for link in files.read(number).links]
        lines = [json.dumps({"path": uri, "timestamp": 1, "batchId": entry}) for uri in uris]
        compacted += lines
        (folder / f".{entry}.crc").unlink(missing_ok=True)
        (folder / str(entry)).write_text("\n".join(["v1", *lines]))
        if entry == compact_at:
            (folder / str(entry)).unlink()
            (folder / f"{entry}.compact").write_text("\n".join(["v1", *compacted]))
    shutil.rmtree(files.folder)
    shutil.rmtree(paths.seals, ignore_errors=True)
