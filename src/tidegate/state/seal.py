"""The seal of a checkpoint: a digest of each of its files, taken when they were last seen to fit.

Spark writes each file of a checkpoint once and believes it ever after: numbers, watermark and settings in it are
not compared with anything. So the files that a run has found to fit, and those its driver left, are sealed. A file with
another content later was edited, exchanged, or overwritten by a stale process. Of state files the checksum files that
Hadoop keeps next to them are sealed: Spark itself compares the state's bytes with those.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.state.checkpoint import CheckpointState, hadoop_checksum

_FOLDERS = ("offsets", "commits", "sources")
_STATE_VERSION = re.compile(r"\.(\d+)[._].*\.crc$")


Seal = Mapping[str, list[str]]
"""The digests that each path in the checkpoint may have: one, or two where an edit was allowed."""


@dataclass(frozen=True)
class CheckpointFiles:
    """The files of a checkpoint as they are: digests by path, and those that Hadoop's checksum does not fit."""

    digests: Mapping[str, str] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()


def look_at_files(paths: PipelinePaths, last_commit: int | None) -> CheckpointFiles:
    """Read every file of a checkpoint; of the state only checksum files, of versions that batches up to ``last_commit``
    left: a batch that is computed again writes its version again."""
    checkpoint = paths.checkpoint
    digests: dict[str, str] = {}
    damaged: list[str] = []
    found = {str(path.relative_to(checkpoint)) for path in storage.list_tree(checkpoint)}
    for path in sorted(found):
        folder, slash, name = path.rpartition("/")
        top = path.partition("/")[0]
        if top == "state":
            version = _STATE_VERSION.match(name)  # batch N leaves version N + 1
            final = version is not None and last_commit is not None and int(version[1]) <= last_commit + 1
            data = _read(checkpoint / path) if final else None
        elif not name.startswith(".") and (top in _FOLDERS or path == "metadata"):
            data = _read(checkpoint / path)
            beside = f"{folder}{slash}.{name}.crc"
            checksum = _read(checkpoint / beside) if beside in found else None
            if None not in (data, checksum) and checksum != hadoop_checksum(data or b""):
                damaged.append(path)
        else:
            data = None
        if data is not None:
            digests[path] = digest_of(paths.portable(checkpoint / path, data))
    return CheckpointFiles(digests, tuple(sorted(damaged)))


def _read(path: Path) -> bytes | None:
    try:
        return storage.read(path)
    except FileNotFoundError:  # removed by a driver since it was listed
        return None


def read_seal(paths: PipelinePaths, query_id: str | None) -> Seal:
    """The seal of a query's checkpoint; an empty one where none was set yet."""
    value = storage.read_note(paths.seals / query_id) if query_id is not None else None
    with storage.unreadable_is_named(paths.seals / str(query_id)):
        if value is None:
            return {}
        found: Seal = value.get("files", {})
        return found


def find_edited(files: CheckpointFiles, seal: Seal) -> list[str]:
    """The files that hold something else than when they were sealed. Files that are gone are not among them: Spark
    itself removes old ones."""
    return sorted(path for path, digest in files.digests.items() if digest not in seal.get(path, [digest]))


def set_seal(paths: PipelinePaths, checkpoint: CheckpointState, files: CheckpointFiles, before: Seal) -> None:
    """Seal a checkpoint as it is. A stale process seals less of the same files, or is ignored.

    What a killed driver has left may not be on disk yet. It is synced before the seal is written: or a power cut could
    take a plan, and the seal would refuse every other one.
    """
    if checkpoint.query_id is None:
        return
    if not before:
        for other in storage.list_folders(paths.seals):
            if other.name != checkpoint.query_id:
                storage.remove_tree(other)
    now = {path: [digest] for path, digest in files.digests.items()}
    new = [paths.checkpoint / path for path in files.digests if path not in before and not _is_of_state(path)]
    storage.sync_files(new)
    storage.sync_names_above([one for one in new if storage.exists(one)], paths.state)
    _write(paths, checkpoint, before, now)


def hand_over_seal(side: PipelinePaths, paths: PipelinePaths, query_id: str) -> None:
    """Give the pipeline the seal of a query that a side job has made. May be repeated; a later seal is kept."""
    seal = read_seal(side, query_id)
    if seal:
        storage.write_note(paths.seals / query_id, 0, {"files": seal})


def allow_edits(
    paths: PipelinePaths, checkpoint: CheckpointState, files: CheckpointFiles, edits: Mapping[str, bytes]
) -> None:
    """Let files be replaced: {path in the checkpoint: its new bytes}. Until the next batch either content fits."""
    allowed = {path: [digest] for path, digest in files.digests.items()}
    for path, data in edits.items():
        allowed[path].append(digest_of(paths.portable(paths.checkpoint / path, data)))
    _write(paths, checkpoint, {}, allowed)


def _is_of_state(path: str) -> bool:
    """Its versions are synced before the batch that left them counts (:mod:`tidegate.state.durable`)."""
    return path.startswith("state/")


def digest_of(data: bytes) -> str:
    """The digest by which two contents of a file are compared."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _write(paths: PipelinePaths, checkpoint: CheckpointState, before: Seal, now: Seal) -> None:
    if now != before:
        number = 0 if checkpoint.last_offset is None else checkpoint.last_offset
        # A process that was suspended before an edit was allowed must not replace the seal that allows it.
        is_edited = any(len(digests) > 1 for digests in now.values())
        storage.write_note(paths.seals / str(checkpoint.query_id), 2 * number + is_edited, {"files": now})
