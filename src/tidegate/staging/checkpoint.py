"""Reading a Structured Streaming checkpoint without Spark.

Layout (Spark 4.2): ``metadata`` holds the query id; ``offsets/<batch>`` is written before a batch runs,
``commits/<batch>``
after it; ``sources/<i>/<n>`` lists the files of one file-source offset, ``sources/<i>/<n>.compact`` all files up to it.
A change in these formats breaks tests/spark/test_checkpoint.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True)
class CheckpointState:
    """What a checkpoint says. ``faults`` names what makes it unusable (a restore that was not whole)."""

    exists: bool
    query_id: str | None = None
    last_offset: int | None = None
    last_commit: int | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def in_flight(self) -> int | None:
        """The batch that was planned but not committed, if any."""
        return self.last_offset if self.last_offset != self.last_commit else None


def read_checkpoint(path: Path) -> CheckpointState:
    """The state of the checkpoint at ``path``; ``exists`` is False when there is none or only empty folders."""
    offsets, commits = _batch_ids(path / "offsets"), _batch_ids(path / "commits")
    metadata = path / "metadata"
    if not metadata.exists() and not offsets and not commits:
        return CheckpointState(exists=False)
    faults = []
    query_id = None
    try:
        query_id = str(json.loads(metadata.read_text())["id"])
    except FileNotFoundError:
        faults.append("its metadata file, which holds the query id, is gone")
    except (ValueError, KeyError, TypeError):
        faults.append("its metadata file cannot be read")
    last_offset = offsets[-1] if offsets else None
    last_commit = commits[-1] if commits else None
    if last_commit is not None and (last_offset is None or last_offset < last_commit):
        faults.append(f"batch {last_commit} is committed but its offsets are gone")
    elif last_offset is not None and last_offset - (-1 if last_commit is None else last_commit) > 1:
        faults.append(f"its offsets reach batch {last_offset}, its commits only {last_commit}")
    for name, ids in (("offsets", offsets), ("commits", commits)):
        missing = sorted(set(range(ids[0], ids[-1] + 1)) - set(ids)) if ids else []
        if missing:
            faults.append(f"{name} lack batch {', '.join(map(str, missing[:5]))}")
    if last_offset is not None and not faults:
        faults.extend(_source_log_faults(path, last_offset))
    return CheckpointState(True, query_id, last_offset, last_commit, faults)


def _batch_ids(folder: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _source_log_faults(path: Path, last_offset: int) -> list[str]:
    """A file source whose log does not hold the files that the last offset speaks of."""
    faults = []
    try:
        offsets = read_offsets(path, last_offset)
    except ValueError as error:
        return [str(error)]
    for index, offset in enumerate(offsets):
        if isinstance(offset, dict) and "logOffset" in offset:
            try:
                log = _source_log(path / "sources" / str(index), int(offset["logOffset"]))
                json.loads(log.read_bytes().rpartition(b"\n")[2])
            except FileNotFoundError as error:
                faults.append(f"the file list {error} of source {index} is gone")
            except ValueError:
                faults.append(f"the file list sources/{index}/{log.name} is torn")
    return faults


def read_offsets(path: Path, batch_id: int) -> list[Any]:
    """The end offset of every source in batch ``batch_id``: parsed JSON, or None where a source has none yet.

    Raises FileNotFoundError when the batch was never planned (or long purged), ValueError when the file is torn.
    """
    lines = (path / "offsets" / str(batch_id)).read_text().splitlines()
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise ValueError(f"the offsets of batch {batch_id} cannot be read")
    try:
        return [None if line == "-" else json.loads(line) for line in lines[2:]]
    except ValueError as error:
        raise ValueError(f"the offsets of batch {batch_id} cannot be read: {error}") from error


def files_between(path: Path, source_index: int, after: int, until: int) -> list[str]:
    """Paths (decoded, of the local file system) that a file source took in log entries ``after`` < n <= ``until``."""
    folder = path / "sources" / str(source_index)
    found: list[str] = []
    for entry in range(after + 1, until + 1):
        for line in _source_log(folder, entry).read_text().splitlines()[1:]:
            record = json.loads(line)
            if int(record["batchId"]) == entry:
                # file:///a or file:/a, and no host, query or fragment that urlparse would be needed for.
                found.append(unquote(record["path"].removeprefix("file:").removeprefix("//")))
    return found


def _source_log(folder: Path, entry: int) -> Path:
    """The file that holds log entry ``entry``: its own, or the compacted one that took it in."""
    plain = folder / str(entry)
    if plain.exists():
        return plain
    compacts = sorted(
        (int(item.name.removesuffix(".compact")), item) for item in folder.glob("*.compact") if item.stem.isdigit()
    )
    for number, item in compacts:
        if number >= entry:
            return item
    raise FileNotFoundError(f"sources/{folder.name}/{entry}")
