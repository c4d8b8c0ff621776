"""Beginning anew: the old checkpoint is set aside, never deleted, and a new birth says where reading starts."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from tidegate import storage
from tidegate.lease import Lease
from tidegate.project import PipelinePaths
from tidegate.staging.birth import Birth


def begin_anew(paths: PipelinePaths, birth: Birth, *, why: str, lease: Lease | None = None) -> PipelinePaths:
    """Set the checkpoint aside and record ``birth``; the paths of the query that begins.

    Killed in between, the next run finds a birth without its checkpoint and says so (CHECKPOINT_GONE).
    """
    folder = paths.set_aside / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    folder.mkdir(parents=True)
    storage.put_if_absent(folder / "why.txt", (why + "\n").encode())
    for path in (paths.checkpoint,):
        if path.exists():
            storage.move(path, folder / path.name)
    if paths.birth.exists():
        storage.put_if_absent(folder / paths.birth.name, paths.birth.read_bytes())
    storage.replace(paths.birth, storage.dump_json(asdict(birth)))
    return paths


# PLACEHOLDER: stands in until a query is retired in the log; the signature is the one that will be.
def replace_query(
    paths: PipelinePaths, query_id: str, birth: Birth, *, why: str, lease: Lease, in_flight: int | None
) -> PipelinePaths | None:
    """Begin the next query; None when batch ``in_flight`` was staged in the meantime."""
    if in_flight is not None and paths.manifest(query_id, in_flight).exists():
        return None
    return begin_anew(paths, birth, why=why, lease=lease)
