"""Changes to a checkpoint from outside: by hand, by older_copy, by a JVM that comes late."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.model.world import World
from tidegate.state.batch_files import BatchFiles
from tidegate.state.topics import TopicPartition


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def _move_end(world: World, checkpoint: Path, seed: int) -> bool:
    """The last planned batch file says that it ends elsewhere."""
    last = _numbers(checkpoint / "offsets")
    if not last or world.shape != "kafka":
        return False
    files = BatchFiles(checkpoint, "orders")
    batch = files.read(files.last_planned())
    partition = TopicPartition("t", seed % 2)
    end = seed * 3 % (len(world.kafka.sent[seed % 2]) + 1)
    files.rewrite(replace(batch, ends={**batch.ends, partition: end}))
    return bool(batch.ends.get(partition) != end)


def _swap_files(world: World, checkpoint: Path, seed: int) -> bool:
    """The list of files of the last batch is that of an earlier one, or empty."""
    log = checkpoint / "sources" / "orders"
    entries = _numbers(log)
    if not entries:
        return False
    path, before = log / str(entries[-1]), (log / str(entries[-1])).read_text()
    path.write_text((log / str(entries[0])).read_text() if seed % 2 and len(entries) > 1 else "v1")
    return path.read_text() != before


def _go_back(world: World, checkpoint: Path, seed: int) -> bool:
    """An older copy: the last batch is not there."""
    last = _numbers(checkpoint / "offsets")
    for number in last[-1:]:
        for folder in ("offsets", "commits"):
            (checkpoint / folder / str(number)).unlink(missing_ok=True)
    return bool(last)


def _forget_commit(world: World, checkpoint: Path, seed: int) -> bool:
    last = _numbers(checkpoint / "commits")
    for number in last[-1:]:
        (checkpoint / "commits" / str(number)).unlink()
    return bool(last)


def _tear(world: World, checkpoint: Path, seed: int) -> bool:
    """One of the files is empty, or NUL bytes."""
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file()) if checkpoint.is_dir() else []
    if not files:
        return False
    path = files[seed % len(files)]
    path.write_bytes(b"\0" * path.stat().st_size if seed % 2 else b"")
    return True


def _rename_query(world: World, checkpoint: Path, seed: int) -> bool:
    if not (checkpoint / "metadata").exists():
        return False
    (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.UUID(int=(seed + 1) << 96))}))
    return True


def _delete(world: World, checkpoint: Path, seed: int) -> bool:
    shutil.rmtree(checkpoint, ignore_errors=True)
    return True


EDITS: dict[str, Callable[[World, Path, int], bool]] = {
    "move_end": _move_end,
    "swap_files": _swap_files,
    "older_copy": _go_back,
    "forget_commit": _forget_commit,
    "tear": _tear,
    "rename_query": _rename_query,
    "delete": _delete,
}


def edit(world: World, what: str, seed: int) -> bool:
    """Do one of :data:`EDITS` to the living checkpoint; whether anything is different then."""
    try:
        changed = EDITS[what](world, world.paths.checkpoint, seed)
    except ValueError:  # another edit has torn the file
        return False
    if changed:
        world.disagrees = True
        world.disturbed |= {process.name for process in world.sleepers}
        world.log.append(f"edited: {what} ({seed})")
    return changed
