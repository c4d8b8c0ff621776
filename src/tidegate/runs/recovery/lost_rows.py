"""Rows that a repair took out of a log with damaged files, until they are rebuilt or a person acknowledges them.

The state folder has one file for each thing that happened: rows were lost, rebuilt, acknowledged, or the table was
rolled back. Files are created and never changed, so no stale process takes back what another one has noted, and no
clean-up of the log removes them. A pipeline without lost rows costs a look for one folder.

What was published counts while the log has its transaction: not after a repair that was killed before its commit, and
not in a table that was restored from a backup or rebuilt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import name_person, now_text
from tidegate.state.lease import Lease
from tidegate.table.log.state import ROLLED_BACK_TO, DataFile, TableState, read_table_state
from tidegate.table.publish.intent import PublishIntent, Target
from tidegate.table.publish.plan import DELIVERED, KEEPS_OLDER, KEYS, REWORK, WITHIN

if TYPE_CHECKING:
    from tidegate.core.outputs import LostFile

Key = tuple[str, str, str]
"""Target, path and repair of a lost file."""


@dataclass(frozen=True)
class LostRows:
    """The rows of one file. ``version`` is the version of the table before the repair ``run_id``."""

    target: Target
    path: str
    rows: int
    partition: Mapping[str, str | None]
    run_id: str
    version: int

    @property
    def key(self) -> Key:
        """Key that identifies these lost rows."""
        return self.target, self.path, self.run_id

    def to_json(self) -> LostFile:
        """As ``status`` shows it."""
        return {
            "of": self.target,
            "path": self.path,
            "rows": self.rows,
            "partition": dict(self.partition),
            "run_id": self.run_id,
        }


class _Event(TypedDict, total=False):
    """What happened, in which ``version`` of the table, by the transaction ``app_id`` with ``app_version``."""

    kind: Literal["lost", "acknowledged", "rebuilt", "rolled back"]
    files: list[dict[str, object]]
    keys: list[list[str]]
    version: int
    to: int
    app_id: str
    app_version: int
    who: str
    at: str
    reason: str


def note_lost_rows(
    paths: PipelinePaths, lease: Lease, target: Target, files: Sequence[DataFile], *, run_id: str, version: int
) -> None:
    """Note the rows of ``files``. Call it before the commit of ``run_id`` that takes them out of the log."""
    lost = [LostRows(target, one.path, one.rows, one.partition, run_id, version) for one in files]
    _note(paths, lease, {"kind": "lost", "files": [asdict(one) for one in lost]})


def acknowledge_lost_rows(paths: PipelinePaths, lease: Lease, chosen: Collection[LostRows], *, reason: str) -> None:
    """Note that a person accepts the loss of these rows."""
    if chosen:
        accepted: _Event = {"who": name_person(), "at": now_text(), "reason": reason}
        _note(paths, lease, {"kind": "acknowledged", "keys": [list(one.key) for one in chosen], **accepted})


def note_rebuilt_rows(paths: PipelinePaths, lease: Lease, intent: PublishIntent, version: int | None) -> None:
    """Note what a publish has rebuilt, or that it was a rollback. It may be repeated.

    ``version`` is that of its commit. Without one, when the commit was removed already, the newest is used instead:
    rows may then be reported that are not lost, and none the other way.
    """
    lost = _list_lost(_read(paths)) if intent.target == "table" else []
    if not lost:
        return
    if version is None:
        table = read_table_state(paths.table)
        version = 0 if table is None else table.version
    done: _Event = {"version": version, "app_id": intent.app_id, "app_version": intent.app_version}
    if ROLLED_BACK_TO in intent.custom_metadata:
        _note(paths, lease, {"kind": "rolled back", "to": int(intent.custom_metadata[ROLLED_BACK_TO]), **done})
    elif rebuilt := [list(one.key) for one in lost if _is_rebuilt(one, intent)]:
        _note(paths, lease, {"kind": "rebuilt", "keys": rebuilt, **done})


def _is_rebuilt(lost: LostRows, intent: PublishIntent) -> bool:
    """Return whether the publish wrote all rows of the lost file again."""
    info, is_of_table = intent.custom_metadata, lost.target == "table"
    if intent.hand_over is not None:
        return True
    if WITHIN in info:
        within = json.loads(info[WITHIN])
        if not within:
            return KEEPS_OLDER not in info
        return is_of_table and all(lost.partition.get(column) in values for column, values in within.items())
    # A run in complete mode writes the whole table.
    return is_of_table and REWORK not in info and DELIVERED in info and KEYS not in info


def list_lost_rows(paths: PipelinePaths) -> list[LostRows]:
    """The rows that are neither rebuilt nor acknowledged."""
    events = _read(paths)
    settled = {_key(key) for event in events if event["kind"] == "acknowledged" for key in event["keys"]}
    lost = {one.key: one for one in _list_lost(events) if one.key not in settled}
    found = list(lost.values())
    if not found:
        return []
    published = [event for event in events if "app_id" in event]
    ids = {"table": {event["app_id"] for event in published}, "quarantine": set[str]()}
    for one in found:
        ids[one.target].add(one.run_id)
    try:
        table = read_table_state(paths.table, tuple(sorted(ids["table"])))
        quarantine = read_table_state(paths.quarantine, tuple(sorted(ids["quarantine"]))) if ids["quarantine"] else None
    except DisagreementError:
        return found  # it cannot be known, so they stay
    return _list_open(found, published, table, quarantine)


def _list_open(
    lost: Iterable[LostRows], published: Sequence[_Event], table: TableState | None, quarantine: TableState | None
) -> list[LostRows]:
    """Those that the tables lack now, by what was published since they were lost."""
    known = {} if table is None else table.txns
    held = [event for event in published if known.get(event["app_id"], -1) >= event["app_version"]]
    jumps = {event["version"]: event["to"] for event in held if event["kind"] == "rolled back"}
    newest = -1 if table is None else table.version
    rebuilt = [event for event in held if event["kind"] == "rebuilt"]
    in_table = {
        _key(key) for event in rebuilt if _is_in_effect(event["version"], newest, jumps) for key in event["keys"]
    }
    ever = {_key(key) for event in rebuilt for key in event["keys"]}
    found = []
    for one in lost:
        if one.target == "quarantine":  # no rollback goes back over it
            is_open = quarantine is not None and one.run_id in quarantine.txns and one.key not in ever
        else:
            is_open = one.run_id in known and _is_in_effect(one.version + 1, newest, jumps) and one.key not in in_table
        found += [one] if is_open else []
    return found


def _is_in_effect(version: int, newest: int, jumps: Mapping[int, int]) -> bool:
    """True if the newest version builds on this one; ``jumps`` are rollbacks, {their version: the version restored}."""
    for number in sorted(jumps, reverse=True):
        if version < number <= newest:
            newest = jumps[number]
    return version <= newest


def _list_lost(events: Iterable[_Event]) -> list[LostRows]:
    return [LostRows(**one) for event in events if event["kind"] == "lost" for one in event["files"]]  # type: ignore[arg-type]


def _key(value: Sequence[str]) -> Key:
    target, path, run_id = value
    return target, path, run_id


def _read(paths: PipelinePaths) -> list[_Event]:
    events = []
    for path in storage.list_folder(paths.lost_rows, "[!.]*.json"):
        value = storage.read_json(path)
        with storage.unreadable_is_named(path):
            events.append(cast(_Event, dict(value or {}, kind=(value or {})["kind"])))
    return events


def _note(paths: PipelinePaths, lease: Lease, event: _Event) -> None:
    lease.check()
    data = storage.dump_json(event, indent=None)
    # By its content: noted again when the work is completed, it is the same file.
    storage.put_if_absent(paths.lost_rows / f"{hashlib.sha256(data).hexdigest()[:24]}.json", data)
