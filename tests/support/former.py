"""State folders as version 0.1.0 left them, when Spark's own Kafka source noted its offsets in the checkpoint."""

from __future__ import annotations

import json
import shutil

import pytest

from tidegate.paths import PipelinePaths
from tidegate.staging.batch_files import BatchFiles
from tidegate.staging.checkpoint import batch_ids
from tidegate.staging.topics import offsets_to_json


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
    shutil.rmtree(paths.seals)
