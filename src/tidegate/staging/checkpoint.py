"""Reading a Structured Streaming checkpoint without Spark.

Layout (Spark 4.2, with named sources and offset log v2): ``metadata`` holds the query id; ``offsets/<batch>`` is
written before a batch runs, ``commits/<batch>`` after it; ``sources/<name>/<n>`` lists the files of one file-source
offset, ``sources/<name>/<n>.compact`` all files up to it. A change in these formats breaks
tests/spark/test_checkpoint.py.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tidegate import storage


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
    for name, offset in offsets.items():
        if isinstance(offset, dict) and "logOffset" in offset:
            try:
                log = _source_log(path / "sources" / name, int(offset["logOffset"]))
                json.loads(log.read_bytes().rpartition(b"\n")[2])
            except FileNotFoundError as error:
                faults.append(f"the file list {error} of source {name} is gone")
            except ValueError:
                faults.append(f"the file list sources/{name}/{log.name} is torn")
    return faults


def read_offsets(path: Path, batch_id: int) -> dict[str, Any]:
    """The end offset of every source in batch ``batch_id``, by the source's name; one that had nothing yet is missing.

    Raises FileNotFoundError when the batch was never planned (or long purged), ValueError when the file is torn.
    """
    return _read_offset_file(path, batch_id)[1]


def read_start(path: Path, batch_id: int, source_name: str) -> Any | None:
    """Where a source stood before batch ``batch_id``: its end in the last batch that had it, as Spark looks it up; None
    when no batch that the log still holds did."""
    for earlier in reversed([one for one in _batch_ids(path / "offsets") if one < batch_id]):
        found = read_offsets(path, earlier).get(source_name)
        if found is not None:
            return found
    return None


def _read_offset_file(path: Path, batch_id: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata (``batchWatermarkMs``, ``batchTimestampMs``, ``conf``) and offsets of a planned batch."""
    lines = (path / "offsets" / str(batch_id)).read_text().splitlines()
    try:
        if lines[0] != "v2":
            raise ValueError(f"{lines[0]!r} instead of v2: an earlier version of tidegate made this checkpoint")
        named = [line.partition(":") for line in lines[2:]]
        offsets = {name: json.loads(value) for name, _, value in named if value != "-"}
        return json.loads(lines[1]), offsets
    except (ValueError, IndexError) as error:
        raise ValueError(f"the offsets of batch {batch_id} cannot be read: {error}") from error


def read_pinned_settings(path: Path, batch_id: int) -> dict[str, str]:
    """The settings that Spark pinned with the checkpoint's first batch and repeats in each planned one."""
    return {str(key): str(value) for key, value in _read_offset_file(path, batch_id)[0].get("conf", {}).items()}


def read_watermark(path: Path) -> int:
    """The watermark that the next batch would work with, in milliseconds since 1970; 0 for none."""
    last = (_batch_ids(path / "commits") or [-1])[-1]
    if last < 0:
        return 0
    return int(_read_commit(path, last).get("nextBatchWatermarkMs", 0))


def _read_commit(path: Path, batch_id: int) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((path / "commits" / str(batch_id)).read_text().partition("\n")[2])
    return value


def plan_closing_batch(path: Path, watermark_ms: int) -> int | None:
    """Plan a batch without data that runs with ``watermark_ms``; its id, or None when the last batch had that already.

    Spark plans such a batch itself, but only right after a batch of the same query, and from what it saw since it was
    started; a query that runs on a schedule must be able to do it at any time. It is an entry of the offset log like
    Spark's own: the same end offsets as the last batch's, another watermark. Whoever is first wins, and Spark runs it
    with its next start. Only to be called when no batch is in flight.
    """
    last = (_batch_ids(path / "offsets") or [-1])[-1]
    if last < 0:
        return None
    lines = (path / "offsets" / str(last)).read_text().splitlines()
    metadata = json.loads(lines[1])
    if metadata["batchWatermarkMs"] >= watermark_ms:
        return None
    metadata |= {"batchWatermarkMs": watermark_ms, "batchTimestampMs": time.time_ns() // 1_000_000}
    lines[1] = json.dumps(metadata, separators=(",", ":"))
    storage.put_if_absent(path / "offsets" / str(last + 1), "\n".join(lines).encode())
    return last + 1


def move_end(path: Path, batch_id: int, ends: dict[str, Any]) -> None:
    """Let the committed batch ``batch_id`` end elsewhere: {source: end offset}. The next batch starts there."""
    lines = (path / "offsets" / str(batch_id)).read_text().splitlines()
    offsets = {**read_offsets(path, batch_id), **ends}
    named = [f"{name}:{json.dumps(value, separators=(',', ':'))}" for name, value in sorted(offsets.items())]
    storage.remove(path / "offsets" / f".{batch_id}.crc")  # of the old bytes
    storage.replace(path / "offsets" / str(batch_id), "\n".join([*lines[:2], *named]).encode())


def files_between(path: Path, source_name: str, after: int, until: int) -> list[str]:
    """Paths (decoded, of the local file system) that a file source took in log entries ``after`` < n <= ``until``."""
    folder = path / "sources" / source_name
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
