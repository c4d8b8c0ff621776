"""Checkpoints of a table's log, as JSON: what makes a long log cheap to open.

Delta's usual checkpoint is a parquet file, which a plain glob over the table's folder (``**/*.parquet``) takes for rows.
The protocol's V2 checkpoint may be JSON (``<version>.checkpoint.<uuid>.json``) in tables with the feature
``v2Checkpoint``, which a table gets with its first checkpoint. Log compaction files would need no feature, but
deltalake 1.6.6 passes over them (delta-kernel-rs has switched them off).

No commit file is ever removed, so a checkpoint is an aid: whatever is wrong with one, it can go.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate import storage
from tidegate.table.commit import enable_json_checkpoints, sync_log
from tidegate.table.log import LOG_FOLDER, open_table, read_actions, split_lines

if TYPE_CHECKING:
    from deltalake import DeltaTable

VERSIONS_AT_LEAST = 100
"""A checkpoint is due when so many versions have come since the last one, or a hundredth of its lines when those are
more: a commit then pays for at most a hundred lines of it, however many files the table has."""

TOMBSTONE_DAYS = 7
"""How long a removed file stays in checkpoints, as is usual for Delta tables: VACUUM of other writers goes by it."""

HINT = "_last_checkpoint"
_CHECKPOINT = re.compile(r"^\d{20}\.checkpoint\.([\w-]+\.|\d{10}\.\d{10}\.)?(json|parquet)$")
_PART = re.compile(r"\.\d{10}\.\d{10}\.parquet$")


def is_checkpoint_due(table_path: Path, version: int) -> bool:
    """Whether the log, at ``version``, wants a new checkpoint. One or two small files are looked at."""
    log = table_path / LOG_FOLDER
    try:
        hint = storage.read_json(log / HINT)
        last, lines = int(hint["version"]), int(hint["size"])
    except (ValueError, KeyError, TypeError):  # none yet, or torn
        return version + 1 >= VERSIONS_AT_LEAST
    if (log / f"{last:020d}.checkpoint.parquet").exists():  # an earlier tidegate let deltalake write it
        return True
    return version - last >= max(VERSIONS_AT_LEAST, lines // 100)


def write_checkpoint(table_path: Path, check_lease: Callable[[], None]) -> int | None:
    """Write a checkpoint of the newest version, name it as the last one, remove those it makes needless; its version.

    None when it could not be made, which costs readers time and nothing else: parts of the log are gone or not known
    here. Parquet files that hold a checkpoint are removed with it. ``check_lease`` raises when another run has taken
    over. Safe to be killed anywhere and for two at once.
    """
    table = open_table(table_path)
    protocol = table.protocol()
    if "v2Checkpoint" not in (protocol.reader_features or ()):
        check_lease()
        enable_json_checkpoints(table, table_path)
        table = open_table(table_path)
    version = table.version()
    actions = _reconcile(table_path, version)
    if actions is None or not _agrees(actions, table):
        return None
    check_lease()
    sync_log(table_path, version)
    log = table_path / LOG_FOLDER
    lines = actions.lines(version, time.time_ns() // 1_000_000 - TOMBSTONE_DAYS * 86_400_000)
    name = f"{version:020d}.checkpoint.{uuid.uuid4()}.json"
    data = b"\n".join(lines) + b"\n"
    storage.put_if_absent(log / name, data)
    hint = {"version": version, "size": len(lines), "sizeInBytes": len(data), "numOfAddFiles": len(actions.added())}
    before = storage.read_json(log / HINT) if _is_whole(log / HINT) else None
    storage.replace(log / HINT, json.dumps(hint).encode())
    # A reader may have listed the one before just now; of two written at once both stay.
    last = min(version, int((before or hint).get("version", version)))
    _remove_needless(log, last)
    return version


def list_checkpoints(table_path: Path) -> list[str]:
    """The names of all files of checkpoints in the log's folder, by version."""
    try:
        return sorted(name for name in os.listdir(table_path / LOG_FOLDER) if _CHECKPOINT.match(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


@dataclass
class _Actions:
    """Actions by what they speak of: a later one takes the place of an earlier one (Delta's action reconciliation)."""

    by_key: dict[tuple[str, ...], tuple[str, bytes, int]] = field(default_factory=dict)
    """{key: (kind, line, deletion time in ms)}"""

    def apply(self, action: dict[str, Any], line: bytes | None = None) -> None:
        """Take in the next action; ``line`` is its JSON when that can be used as it is."""
        kind, value = next(iter(action.items()))
        deleted_at = 0
        if kind in ("add", "remove"):
            vector = value.get("deletionVector") or {}
            key: tuple[str, ...] = ("file", value["path"], json.dumps(vector, sort_keys=True))
            deleted_at = int(value.get("deletionTimestamp") or 0)
            if value.get("dataChange"):
                line, value = None, {**value, "dataChange": False}
        elif kind in ("protocol", "metaData"):
            key = (kind,)
        elif kind == "txn":
            key = (kind, value["appId"])
        elif kind == "domainMetadata":
            key = (kind, value["domain"])
        else:
            return
        data = line or json.dumps({kind: value}, ensure_ascii=False, separators=(",", ":")).encode()
        self.by_key[key] = (kind, data, deleted_at)

    def added(self) -> set[str]:
        """The paths of the table's files, as the log spells them."""
        return {key[1] for key, (kind, _, _) in self.by_key.items() if kind == "add"}

    def lines(self, version: int, expired_before_ms: int) -> list[bytes]:
        """The checkpoint; without files that were removed before a moment."""
        kept = [
            line
            for kind, line, deleted_at in self.by_key.values()
            if kind != "remove" or deleted_at >= expired_before_ms
        ]
        return [json.dumps({"checkpointMetadata": {"version": version}}).encode(), *kept]


def _reconcile(table_path: Path, version: int) -> _Actions | None:
    """All that the log says up to ``version``: the newest checkpoint that can be read, and the commits after it."""
    for name in [*reversed(list_checkpoints(table_path)), None]:
        if name is not None and int(name[:20]) > version:
            continue
        actions = _Actions()
        try:
            for action, line in _read_checkpoint(table_path / LOG_FOLDER / name) if name else ():
                if "sidecar" in action:  # written by another program, with files beside it
                    raise ValueError(name)
                actions.apply(action, line)
            for number in range(int(name[:20]) + 1 if name else 0, version + 1):
                for action in read_actions(table_path, number):
                    actions.apply(action)
        except (OSError, ValueError, KeyError):
            continue
        return actions
    return None


def _read_checkpoint(path: Path) -> Iterator[tuple[dict[str, Any], bytes | None]]:
    if path.suffix == ".json":
        for line in split_lines(path.read_bytes()):
            yield json.loads(line), line
        return
    import pyarrow.parquet as pq

    if _PART.search(path.name):
        raise ValueError(f"{path.name} is a part of a checkpoint")
    for row in pq.read_table(path).to_pylist(maps_as_pydicts="strict"):
        action = {kind: _without_nulls(value) for kind, value in row.items() if value is not None}
        if action:
            yield action, None


def _without_nulls(value: Any, *, inside_map: bool = False) -> Any:
    """A struct as JSON has it: without fields that are null. In maps of partition values nulls are values."""
    if isinstance(value, dict):
        return {
            name: _without_nulls(one, inside_map=name == "partitionValues")
            for name, one in value.items()
            if one is not None or inside_map
        }
    return value


def _agrees(actions: _Actions, table: DeltaTable) -> bool:
    """Whether the log was understood: it has the files that deltalake finds, and says what the table is."""
    found = set(table.get_add_actions()["path"].to_pylist())
    return {("protocol",), ("metaData",)} <= actions.by_key.keys() and actions.added() == found


def _is_whole(path: Path) -> bool:
    try:
        return isinstance(storage.read_json(path), dict)
    except ValueError:
        return False


def _remove_needless(log: Path, last: int) -> None:
    """Remove checkpoints older than version ``last``, and those that plain globs would read."""
    for name in list_checkpoints(log.parent):
        if int(name[:20]) < last or name.endswith(".parquet"):
            storage.remove(log / name)
    storage.fsync_dir(log)
