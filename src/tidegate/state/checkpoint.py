"""Reading a Structured Streaming checkpoint without Spark.

Layout (Spark 4.2, with named sources and offset log v2): ``metadata`` holds the query id; ``offsets/<batch>`` is
written before a batch runs, ``commits/<batch>`` after it; ``sources/<name>/<n>`` lists the files of one file-source
offset, ``sources/<name>/<n>.compact`` all files up to it. A change in these formats breaks
tests/spark/test_checkpoint.py.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict, cast
from urllib.parse import unquote

from tidegate.core import storage
from tidegate.state.topics import Offsets, offsets_from_json, offsets_to_json

End = int | Offsets
"""The position of a source: of files the number of the last entry of its log, of topics the next offsets."""


@dataclass(frozen=True)
class CheckpointState:
    """The state of a checkpoint. ``faults`` says why it is unusable (an incomplete restore)."""

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
    """Read the checkpoint at ``path``; ``exists`` is False when it is missing or has only empty folders."""
    offsets, commits = batch_ids(path / "offsets"), batch_ids(path / "commits")
    metadata = path / "metadata"
    if not offsets and not commits and not storage.exists(metadata):
        return CheckpointState(exists=False)
    faults = []
    query_id = None
    try:
        query_id = str(json.loads(storage.read(metadata))["id"])
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
    if not faults:
        faults.extend(_torn_files(path, offsets, commits))
    return CheckpointState(True, query_id, last_offset, last_commit, faults)


def hadoop_checksum(data: bytes) -> bytes:
    """The content of the hidden ``.<name>.crc`` that Hadoop keeps for a local file: a CRC-32 of each 512 bytes."""
    chunks = (data[start : start + 512] for start in range(0, len(data), 512))
    return b"crc\0" + struct.pack(">I", 512) + b"".join(struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)


def batch_ids(folder: Path) -> list[int]:
    """List the numbers that are file names in a folder of the checkpoint, in order."""
    try:
        return sorted(int(name) for name in storage.list_names(folder) if name.isdigit())
    except NotADirectoryError:
        return []


def _torn_files(path: Path, offsets: list[int], commits: list[int]) -> list[str]:
    """Describe unreadable files among those that Spark starts from: the last two batches, and what they refer to."""
    faults = []
    try:
        for batch in offsets[-2:]:
            _read_offset_file(path, batch)
        for batch in commits[-1:]:
            _read_commit(path, batch)
    except ValueError as error:
        return [str(error)]
    for batch in offsets[-1:]:
        faults += _source_log_faults(path, batch)
    return faults


def describe_torn_plan(path: Path, batch_id: int) -> list[str]:
    """Describe what is unreadable of a batch's plan: its offsets, or the lists of its files; [] when it is whole."""
    try:
        return _source_log_faults(path, batch_id)
    except ValueError as error:
        return [str(error)]


def describe_torn_commit(path: Path, batch_id: int) -> list[str]:
    """Why Spark's commit of a batch cannot be read; [] when it is whole."""
    try:
        _read_commit(path, batch_id)
    except ValueError as error:
        return [str(error)]
    return []


def _source_log_faults(path: Path, last_offset: int) -> list[str]:
    """Describe file sources whose log lacks the files that the last offset refers to."""
    faults = []
    for name, offset in read_offsets(path, last_offset).items():
        if isinstance(offset, int):
            try:
                log = _source_log(path / "sources" / name, offset)
                last = json.loads(storage.read(log).rpartition(b"\n")[2])
                if not isinstance(last, dict):
                    raise ValueError(last)
            except FileNotFoundError as error:
                faults.append(f"the file list {error} of source {name} is gone")
            except ValueError:
                faults.append(f"the file list sources/{name}/{log.name} is torn")
    return faults


def read_offsets(path: Path, batch_id: int) -> dict[str, End]:
    """The end offset of every source in batch ``batch_id``, by the source's name; one that had nothing yet is missing.

    Raises FileNotFoundError when the batch was never planned (or long purged), ValueError when the file is torn.
    """
    return _read_offset_file(path, batch_id)[1]


def read_start(path: Path, batch_id: int, source_name: str) -> End | None:
    """The position of a source before batch ``batch_id``: its end in one of the two batches before. A source that is in
    neither begins again from the start, since Spark looks no further back."""
    for earlier in reversed([one for one in batch_ids(path / "offsets") if one < batch_id][-2:]):
        found = read_offsets(path, earlier).get(source_name)
        if found is not None:
            return found
    return None


def log_entry(end: End | None) -> int:
    """The number of the last entry that a source of files has taken; -1 for none. Raises ValueError for topics."""
    if end is not None and not isinstance(end, int):
        raise ValueError("topics have offsets, not a list of files")
    return -1 if end is None else end


def topic_offsets(end: End | None) -> Offsets:
    """The next offsets of a source of topics; {} for none. Raises ValueError for files."""
    if isinstance(end, int):
        raise ValueError("files have a list, not offsets of topics")
    return end or {}


class _OffsetMetadata(TypedDict):
    batchWatermarkMs: int
    batchTimestampMs: int
    conf: NotRequired[dict[str, str]]


def _read_offset_file(path: Path, batch_id: int) -> tuple[_OffsetMetadata, dict[str, End]]:
    """Metadata and offsets of a planned batch."""
    data = storage.read(path / "offsets" / str(batch_id))
    try:
        lines = data.decode().split("\n")
        if lines[0] != "v2":
            raise ValueError(f"{lines[0]!r} instead of v2: no run of tidegate made this checkpoint")
        metadata = json.loads(lines[1])
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is not an object")
        named = [line.partition(":") for line in lines[2:]]
        offsets = {name: _parse_end(name, json.loads(value)) for name, _, value in named if value != "-"}
        return cast(_OffsetMetadata, metadata), offsets
    except (ValueError, IndexError) as error:
        raise ValueError(f"the offsets of batch {batch_id} cannot be read: {error}") from error


def read_pinned_settings(path: Path, batch_id: int) -> dict[str, str]:
    """The settings that Spark pinned with the checkpoint's first batch and repeats in each planned one."""
    return {str(key): str(value) for key, value in _read_offset_file(path, batch_id)[0].get("conf", {}).items()}


def _parse_end(name: str, offset: object) -> End:
    """In Spark's JSON an end offset is {"logOffset": n} of a file source, or {topic: {partition: n}} of Kafka."""
    if isinstance(offset, dict) and set(offset) == {"logOffset"} and isinstance(offset["logOffset"], int):
        return offset["logOffset"]
    try:
        return offsets_from_json(offset)
    except ValueError:
        raise ValueError(f"source {name} ends at {json.dumps(offset)[:80]}, which is not an offset") from None


def read_watermark(path: Path) -> int:
    """The watermark that the next batch would work with, in milliseconds since 1970; 0 for none."""
    last = (batch_ids(path / "commits") or [-1])[-1]
    if last < 0:
        return 0
    return _read_commit(path, last)


def read_batch_watermark(path: Path, batch_id: int) -> int:
    """The watermark that batch ``batch_id`` was planned with, in milliseconds since 1970.

    Raises FileNotFoundError when the checkpoint has no such batch (any more), ValueError when its plan is torn.
    """
    return int(_read_offset_file(path, batch_id)[0]["batchWatermarkMs"])


def _read_commit(path: Path, batch_id: int) -> int:
    """The watermark after a committed batch, in milliseconds since 1970; 0 for none."""
    version, _, text = storage.read(path / "commits" / str(batch_id)).partition(b"\n")
    try:
        value = json.loads(text)
        if version != b"v1" or not isinstance(value, dict) or type(value.get("nextBatchWatermarkMs", 0)) is not int:
            raise ValueError(f"{version[:20]!r}, {text[:80]!r}")
    except ValueError as error:
        raise ValueError(f"the commit of batch {batch_id} cannot be read: {error}") from error
    return int(value.get("nextBatchWatermarkMs", 0))


def plan_closing_batch(path: Path, watermark_ms: int) -> int | None:
    """Plan a batch without data that runs with ``watermark_ms``; its id, or None when the last batch had that already.

    Spark plans such a batch itself, but only right after a batch of the same query, and from what it saw since it was
    started; a query that runs on a schedule must be able to do it at any time. It is an entry of the offset log like
    Spark's own: the same end offsets as the last batch's, another watermark. The first one wins, and Spark runs it
    with its next start. Only to be called when no batch is in flight.
    """
    last = (batch_ids(path / "offsets") or [-1])[-1]
    if last < 0:
        return None
    lines = storage.read(path / "offsets" / str(last)).decode().split("\n")
    metadata = json.loads(lines[1])
    if metadata["batchWatermarkMs"] >= watermark_ms:
        return None
    metadata |= {"batchWatermarkMs": watermark_ms, "batchTimestampMs": time.time_ns() // 1_000_000}
    lines[1] = json.dumps(metadata, separators=(",", ":"))
    data = "\n".join(lines).encode()
    if storage.put_if_absent(path / "offsets" / str(last + 1), data):
        storage.replace(path / "offsets" / f".{last + 1}.crc", hadoop_checksum(data))
    return last + 1


def moved_end(path: Path, batch_id: int, ends: Mapping[str, int]) -> bytes:
    """The entry of batch ``batch_id`` in the offset log, with other ends of sources of files."""
    lines = storage.read(path / "offsets" / str(batch_id)).decode().split("\n")
    offsets: dict[str, End] = {**read_offsets(path, batch_id), **ends}
    values = {
        name: {"logOffset": end} if isinstance(end, int) else offsets_to_json(end)
        for name, end in sorted(offsets.items())
    }
    named = [f"{name}:{json.dumps(value, separators=(',', ':'))}" for name, value in values.items()]
    return "\n".join([*lines[:2], *named]).encode()


def replace_entry(path: Path, batch_id: int, data: bytes) -> None:
    """Replace the entry with one from :func:`moved_end`. The next batch starts where it ends."""
    storage.remove(path / "offsets" / f".{batch_id}.crc")  # of the old bytes
    storage.replace(path / "offsets" / str(batch_id), data)


def move_lists(path: Path, there: str, here: str) -> None:
    """Change the lists of files from the folder ``there`` of a side job to the folder ``here`` of the pipeline, both
    relative to its state folder: Spark checks the paths of its last batch at each start. May be repeated."""
    before, after = f"/{there}/".encode(), f"/{here}/".encode()
    for source in storage.list_folders(path / "sources"):
        for log in storage.list_folder(source):
            data = storage.read(log)
            if before in data:
                replace_list(log, data.replace(before, after))


def replace_list(log: Path, data: bytes) -> None:
    """Write a list of files to ``log``, whether it exists or not, with its checksum."""
    storage.remove(log.with_name(f".{log.name}.crc"))  # of the old bytes
    storage.replace(log, data)
    storage.replace(log.with_name(f".{log.name}.crc"), hadoop_checksum(data))


def files_between(path: Path, source_name: str, after: int, until: int) -> list[str]:
    """Paths (decoded, of the local file system) that a file source took in log entries ``after`` < n <= ``until``."""
    folder = path / "sources" / source_name
    logs = {entry: _source_log(folder, entry) for entry in range(after + 1, until + 1)}
    entries = {log: _read_source_log(log) for log in set(logs.values())}  # one compacted log holds many entries
    return [taken for entry, log in logs.items() for taken in entries[log].get(entry, ())]


def last_entry(path: Path, source_name: str) -> int:
    """The number of the newest entry in the log of a file source, planned or not; -1 for none."""
    names = [name.removesuffix(".compact") for name in storage.list_names(path / "sources" / source_name)]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def list_entry(file: Path, entry: int) -> bytes:
    """The line of entry ``entry`` in the log of a file source, which takes one file."""
    stamp = storage.stat(file).modified_ns // 1_000_000
    return json.dumps({"path": file.as_uri(), "timestamp": stamp, "batchId": entry}, separators=(",", ":")).encode()


def count_files(path: Path) -> int:
    """Count the lines in the lists of the checkpoint: of batch files, or of links from version 0.1.0."""
    count = 0
    for folder in storage.list_folders(path / "sources"):
        logs = {int(item.stem): item for item in storage.list_folder(folder) if item.stem.isdigit()}
        newest = max((number for number, item in logs.items() if item.suffix == ".compact"), default=-1)
        count += sum(storage.read(item).count(b"\n") for number, item in logs.items() if number >= newest)
    return count


def _read_source_log(log: Path) -> dict[int, list[str]]:
    """The paths that a log of a file source holds, by entry. Raises ValueError when it is torn."""
    found: dict[int, list[str]] = {}
    try:
        for line in storage.read(log).split(b"\n")[1:]:
            record = json.loads(line)
            # file:///a or file:/a, and no host, query or fragment that urlparse would be needed for.
            taken = unquote(record["path"].removeprefix("file:").removeprefix("//"))
            found.setdefault(int(record["batchId"]), []).append(taken)
        if not log.suffix and set(found) != {int(log.name)}:
            raise ValueError("it is the list of another entry")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the file list sources/{log.parent.name}/{log.name} is torn") from error
    return found


def _source_log(folder: Path, entry: int) -> Path:
    """The file that holds log entry ``entry``: its own, or the compacted one that took it in."""
    plain = folder / str(entry)
    if storage.exists(plain):
        return plain
    compacts = {int(one.stem): one for one in storage.list_folder(folder, "*.compact") if one.stem.isdigit()}
    for number in sorted(compacts):
        if number >= entry:
            return compacts[number]
    raise FileNotFoundError(f"sources/{folder.name}/{entry}")
