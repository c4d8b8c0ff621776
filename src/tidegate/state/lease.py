"""One writer per pipeline, by a lease with a fencing token.

The folder ``state/<name>/lease/`` holds one file per token, ``<number>.json``, created by put-if-absent and not changed
after that. The highest number is the lease; taking over means creating the next one, so of any number of contenders one
wins. The winner removes the lower ones. A token is its number and a nonce, which its file holds: a folder that was
deleted or restored begins again at 1, and with a number alone a stale process's token would be valid again. A former
holder, also one that was suspended and resumed, opens the file of its token and finds that it is gone or has another
nonce, or lists the folder and finds a higher number. (Opening asks the server of a network file system; a listing may
come from a cache.) The holder, and only the holder, also keeps ``<number>.state.json``: its last heartbeat, and whether
it parked or released the lease.

When a holder is replaced:

- **at once** when it is provably dead (``machine.is_dead``): its process is gone, or this machine (by host name and
  machine id) was restarted since, and the state folder is on a local disk;
- **of the same boot**, but suspended or in another container: when it was silent for as long as it had announced, by
  the clock that runs since boot, which cannot be set;
- **with a state on an object store, on any other machine**: when it was silent for that long by the clock of the store,
  which has the times of its last heartbeat and of an object that the contender writes;
- **any other** (another machine, also one to which this one exports its disk, or a container of an earlier boot):
  clocks of two machines may differ by any amount, in either direction. So when they say that the holder has been silent
  for too long, the contender waits, for as long as the holder had announced, by its own clock, and takes over if it
  sees no heartbeat. It waits for nothing when the last one is a day old or more. A takeover that is wrong after all (a
  clock that is days behind) costs the former holder its run, never the table: it is fenced.

A parked lease has no process that could give a heartbeat; it ends by the clocks alone, and resuming it too late
costs a retry. A heartbeat says that the holder is there, not that it makes progress: a run has no deadline here
(Airflow's ``execution_timeout`` and ``timeout(1)`` are for that), so that a first load may take its days.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypedDict, cast

from tidegate.core import storage
from tidegate.core.errors import TryAgainError, on_failure
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import (
    ProcessRecord,
    find_whereabouts,
    is_dead,
    now_text,
    read_boot_id,
    read_clock,
    read_process_start,
)
from tidegate.state import errors

if TYPE_CHECKING:
    from tidegate.core.outputs import LeaseRow

_TOKEN_FILE = re.compile(r"^(\d{12})(\.state)?\.json$")
_STALE_LEFTOVER_SECONDS = 86400.0
_NAMES_AT_MOST = 20
_BEYOND_DOUBT_SECONDS = 86400.0
"""Silence by the clocks of two machines that no wrong time zone explains."""
_LOOK_AGAIN_SECONDS = 0.01

State = Literal["held", "parked", "released", "expired", "dead"]


class _Beat(TypedDict, total=False):
    """The last heartbeat of a holder, or how it ended; a damaged file lacks some of it."""

    beat_at: float
    beat_since_boot: float
    boot_id: str
    state: State
    parked_seconds: float


class _Record(ProcessRecord, _Beat, total=False):
    """The content of a token's file."""

    token: int
    nonce: str
    run_id: str
    command: str
    acquired_at: str
    expires_after_seconds: float


@dataclass(frozen=True)
class Holder:
    """The present or former holder of a lease; a field that a damaged record lacks is None."""

    run_id: str | None
    command: str | None
    host: str | None
    pid: int | None
    acquired_at: str | None

    @classmethod
    def from_record(cls, record: _Record) -> Self:
        """The holder that a token's record names."""
        who = record.get("run_id"), record.get("command"), record.get("host"), record.get("pid")
        return cls(*who, record.get("acquired_at"))

    def describe(self) -> str:
        """The run, and the process that worked for it."""
        return f"run {self.run_id} ({self.command}, pid {self.pid} on {self.host}, since {self.acquired_at})"


@dataclass(frozen=True)
class LeaseState:
    """A lease that was not given back. ``token`` is its number; ``expires_in_seconds`` is 0 when it is expired or dead:
    the next contender gets it."""

    token: int
    holder: Holder
    state: State
    last_heartbeat_at: str
    expires_in_seconds: float

    def to_json(self) -> LeaseRow:
        """Return the form of ``status --json``: the holder's fields and the others, on one level."""
        return {
            "token": self.token,
            "run_id": self.holder.run_id,
            "command": self.holder.command,
            "host": self.holder.host,
            "pid": self.holder.pid,
            "acquired_at": self.holder.acquired_at,
            "state": self.state,
            "last_heartbeat_at": self.last_heartbeat_at,
            "expires_in_seconds": self.expires_in_seconds,
        }


class Lease:
    """The right to write one pipeline, until it is released, parked, or taken over. Made by :func:`acquire`.

    A daemon thread renews it every sixth of ``expires_after_seconds``. As a context manager it releases on leaving
    (nothing happens when it was parked or released before).
    """

    def __init__(self, paths: PipelinePaths, record: _Record) -> None:
        self.paths = paths
        self.number = int(record["token"])
        self.token = f"{self.number}-{record['nonce']}"
        self.run_id: str = record["run_id"]
        self.expires_after_seconds = float(record["expires_after_seconds"])
        self.left_by: Holder | None = None
        """The holder that this one took over from, when that had died or was silent for too long."""
        self._began = float(record["beat_since_boot"])
        self.has_copy = False
        """Whether it has the working copy of a state on an object store."""
        self.names: frozenset[str] = frozenset()
        """What was in its folder when it was acquired."""
        self._has_state = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"tidegate-lease-{paths.name}", daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Whether this process may still write: reads the folder afresh; False after park and release too. Of a state
        on an object store, what was written so far is there then."""
        return not self._done.is_set() and is_current_token(self.paths, self.token)

    def check(self) -> None:
        """Raise TryAgainError LEASE_LOST unless the lease is still held; to be called before each irrevocable step."""
        if self._done.is_set():
            raise _lost(self.paths, self.token)
        check_token(self.paths, self.token)

    def park(self, seconds: float) -> None:
        """Keep the lease for the next step of the same run, which is another process, for ``seconds`` at most."""
        self._finish({"state": "parked", "parked_seconds": float(seconds)})

    def release(self) -> None:
        """Give the lease back. Harmless when it was parked, released or lost before, and in a forked child.

        Never fails: the work is done, or has raised its own error. A lease that cannot be given back ends with this
        process, or when it expires.
        """
        try:
            self._finish({"state": "released"})
        except (OSError, TryAgainError) as error:
            what = str(error).partition("\n")[0]
            print(f"{self.paths.name}: the lease ends with this process, not now: {what}", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def _finish(self, state: _Beat) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._done.is_set():
                return
            self._done.set()
            if self._leave_copy() if self.has_copy else _is_highest(self.paths, self.token):
                self._write_state(state)
        self._thread.join(timeout=1.0)

    def take_copy(self, *, fences: bool) -> None:
        """Of a state on an object store, bring the working copy of this machine up to date. ``fences``: the former
        holder may still be running. Raises TryAgainError LEASE_LOST."""
        if self.paths.mirror is None:
            return
        from tidegate.core.storage.mirror import OvertakenError

        try:
            is_current = partial(_is_highest, self.paths, self.token)
            self.paths.mirror.hold(self.token, is_current, since=self._began, fences=fences)
        except OvertakenError:
            raise _lost(self.paths, self.token) from None
        self.has_copy = True

    def check_copy(self) -> None:
        """Raise TryAgainError LEASE_LOST when another process of this machine has the working copy."""
        assert self.paths.mirror is not None, "it has a copy"
        if not self.paths.mirror.is_of(self.token):
            raise _lost(self.paths, self.token)

    def _leave_copy(self) -> bool:
        """Leave the state to the next holder; False when there is one already."""
        from tidegate.core.storage.mirror import OvertakenError

        assert self.paths.mirror is not None, "it has a copy"
        try:
            self.paths.mirror.let_go(self.token)
        except OvertakenError:
            return False
        return True

    def _renew(self) -> None:
        while not self._done.wait(self.expires_after_seconds / 6):
            with self._lock:
                if self._done.is_set() or not self._beat():
                    return

    def _beat(self) -> bool:
        """Give a heartbeat; False when somebody else has taken over, and there is nothing left to renew."""
        try:
            if not _is_highest(self.paths, self.token):
                return False
            self._write_state({"state": "held"})
        except (OSError, TryAgainError):
            # Neither a full disk nor a read that failed once must cost the lease: a time stamp needs no space.
            with contextlib.suppress(OSError):
                storage.touch(_token_path(self.paths.lease, self.number))
        return True

    def _write_state(self, state: _Beat) -> None:
        path, data = _state_path(self.paths.lease, self.number), storage.dump_json({**read_clock(), **state})
        # The first is a request less on an object store.
        if self._has_state or not storage.is_object(path) or not storage.put_if_absent(path, data):
            storage.replace(path, data)
        self._has_state = True


def acquire(paths: PipelinePaths, *, run_id: str, command: str, expires_after_seconds: float) -> Lease:
    """Take the lease of a pipeline for ``run_id``; ``command`` is shown to the processes that are refused meanwhile.

    The module says when a holder is replaced, and when this call waits for a heartbeat first. A parked lease is
    resumed at once by its own run. Raises TryAgainError LEASE_HELD with the holder, since when, and when it expires,
    and what :func:`tidegate.core.storage.name_cause` makes of a folder that cannot be written to.
    """
    try:
        return _acquire(paths, run_id, command, expires_after_seconds)
    except OSError as error:
        if (named := storage.name_cause(error, paths.lease, paths.state)) is None:
            raise
        raise named from error


def _acquire(paths: PipelinePaths, run_id: str, command: str, expires_after_seconds: float) -> Lease:
    folder = paths.lease
    if paths.mirror is not None:
        paths.mirror.trust()
    while True:
        found = _read_highest(folder, with_released=False)
        if found is not None:
            resumes = found.state == "parked" and found.record.get("run_id") == run_id
            if found.state == "held" and _may_be_own_remains(found.record, run_id) and not _renews(paths, found):
                continue
            if found.state in ("held", "parked") and not resumes:
                raise _held(paths, found)
            if found.in_doubt and _shows_life(paths, found):
                now = _read_highest(folder)
                if now is not None and now.in_doubt and now.number == found.number:  # their clocks differ
                    raise _held(paths, replace(now, state="held", left_seconds=now.limit_seconds))
                continue
        number = found.number + 1 if found else 1
        here, clock = find_whereabouts(), read_clock()
        record: _Record = {
            "token": number,
            "nonce": secrets.token_hex(8),
            "run_id": run_id,
            "command": command,
            "host": here["host"],
            "machine_id": here["machine_id"],
            "boot_id": clock["boot_id"],
            "pid_namespace": here["pid_namespace"],
            "pid": os.getpid(),
            "pid_started": read_process_start(os.getpid()),
            "acquired_at": now_text(),
            "expires_after_seconds": float(expires_after_seconds),
            "beat_at": clock["beat_at"],
            "beat_since_boot": clock["beat_since_boot"],
        }
        if not storage.put_if_absent(_token_path(folder, number), storage.dump_json(record)):
            continue
        names = storage.list_names(folder)
        if _highest_number(names) != number:
            # Suspended between reading and creating, while this very token was created, lost and removed.
            storage.remove(_token_path(folder, number))
            continue
        _clean(folder, names, number)
        lease = Lease(paths, record)
        lease.names = frozenset(names)
        if found is not None and found.state in ("dead", "expired"):
            lease.left_by = Holder.from_record(found.record)
        with on_failure(lease.release):
            lease.take_copy(fences=found is None or lease.left_by is not None)
        return lease


def is_current_token(paths: PipelinePaths, token: str) -> bool:
    """Whether ``token`` is the lease and is held; for the Spark driver, which works under another process's lease."""
    if paths.mirror is not None:
        from tidegate.core.storage.mirror import OvertakenError

        try:
            paths.mirror.check(token)
        except OvertakenError:
            return False
        return True
    if not _is_highest(paths, token):
        return False
    return _read_state(paths.lease, _number(token))[0].get("state", "held") == "held"


def check_token(paths: PipelinePaths, token: str) -> None:
    """Raise TryAgainError LEASE_LOST unless ``token`` is the lease and is held."""
    if not is_current_token(paths, token):
        raise _lost(paths, token)


def read_lease(paths: PipelinePaths) -> LeaseState | None:
    """Return the lease for ``status``, or None when it is free."""
    found = _read_highest(paths.lease)
    if found is None or found.state == "released":
        return None
    return LeaseState(
        token=found.number,
        holder=Holder.from_record(found.record),
        state=found.state,
        last_heartbeat_at=found.beat_at.isoformat(timespec="seconds"),
        expires_in_seconds=round(found.left_seconds, 1) if found.state in ("held", "parked") else 0.0,
    )


@dataclass(frozen=True)
class _Found:
    """The highest token, judged now."""

    number: int
    state: State
    record: _Record
    beat_at: datetime
    limit_seconds: float
    left_seconds: float
    in_doubt: bool
    """Expired, but only by the clocks of two machines, and not long ago."""
    signs: tuple[int, float, _Beat]
    """The values that a heartbeat changes."""


def _read_highest(folder: Path, *, with_released: bool = True) -> _Found | None:
    """The highest token; one that was released without its record, unless it is asked for."""
    while (number := _highest_number(names := storage.list_names(folder))) is not None:
        # Only an object store's listing is sure to be complete.
        has_state = _state_path(folder, number).name in names or not storage.is_object(folder)
        state, beaten_at = _read_state(folder, number) if has_state else (_Beat(), 0.0)
        if state.get("state") == "released" and not with_released:
            return _judge(folder, number, {}, state, 0.0, beaten_at)
        try:
            record, touched_at = _read_record(_token_path(folder, number))
        except FileNotFoundError:
            time.sleep(_LOOK_AGAIN_SECONDS)  # withdrawn or replaced between listing and reading
            continue
        return _judge(folder, number, record, state, touched_at, beaten_at)
    return None


def _judge(folder: Path, number: int, record: _Record, state: _Beat, touched_at: float, beaten_at: float) -> _Found:
    """``touched_at`` and ``beaten_at`` are the times of the token's file and of that of its last heartbeat."""
    beat: _Record = {**record, **state}
    beat_at = float(beat.get("beat_at", 0.0))
    same_clock = beat.get("boot_id") == read_boot_id() and "beat_since_boot" in beat
    if same_clock:
        silent = time.clock_gettime(time.CLOCK_BOOTTIME) - float(beat["beat_since_boot"])
    else:
        silent = abs(time.time() - beat_at)
    if touched_at > beat_at + 1.0:
        # The touch counts only where the heartbeat file could not be written; it is never later than the truth.
        silent = min(silent, abs(time.time() - touched_at))
    last = max(beat_at, touched_at)
    stated: State = state.get("state", "held")
    limit = float(state.get("parked_seconds", 0.0) if stated == "parked" else record.get("expires_after_seconds", 60.0))
    in_doubt = False
    if stated in ("held", "parked") and not same_clock and isinstance(folder, storage.ObjectPath):
        # By the clock of the store, which gives whole seconds: those of two machines are not asked.
        last, same_clock = max(touched_at, beaten_at), True
        silent = storage.store_time(folder) - last - 1.0
    if stated == "held" and is_dead(record, None if isinstance(folder, storage.ObjectPath) else folder):
        stated = "dead"
    elif stated in ("held", "parked") and silent >= limit:
        in_doubt = stated == "held" and not same_clock and time.time() - last < _BEYOND_DOUBT_SECONDS
        stated = "expired"
    last_beat = datetime.fromtimestamp(last, UTC)
    signs = (number, touched_at, state)
    return _Found(number, stated, record, last_beat, limit, limit - silent, in_doubt, signs)


def _shows_life(paths: PipelinePaths, found: _Found) -> bool:
    """Whether the lease changes within the time that its holder had announced, by the clock of this process."""
    who = f"run {found.record.get('run_id')} on {found.record.get('host')}"
    what = f"{who} seems to have died; waiting {found.limit_seconds:.0f} s for a heartbeat, since clocks may differ"
    print(f"{paths.name}: {what}", file=sys.stderr, flush=True)
    deadline = time.monotonic() + found.limit_seconds
    while True:
        is_over = time.monotonic() >= deadline  # first: a process that is suspended here looks again when it resumes
        now = _read_highest(paths.lease)
        if now is None or now.signs != found.signs:
            return True
        if is_over:
            return False
        time.sleep(min(1.0, found.limit_seconds / 12))


def _may_be_own_remains(record: _Record, run_id: str) -> bool:
    """Whether the holder may be an earlier try of this run that has ended and cannot be checked: it was on another
    machine, or in another container, also in this one before it was restarted."""
    here = find_whereabouts()
    places = ("host", "machine_id", "pid_namespace")
    return record.get("run_id") == run_id and any(record.get(place) != here.get(place) for place in places)


def _renews(paths: PipelinePaths, found: _Found) -> bool:
    """Wait until a held lease expires; whether it was renewed instead. A retry that does not wait for the lease of an
    earlier try fails, and a run has few retries."""
    print(f"{paths.name}: an earlier try of this run still holds the lease; waiting", file=sys.stderr, flush=True)
    while True:
        time.sleep(min(1.0, found.limit_seconds / 12))
        now = _read_highest(paths.lease)
        if now is None or now.state != "held":
            return False
        if now.signs != found.signs:
            return True


def _token_path(folder: Path, number: int) -> Path:
    return folder / f"{number:012d}.json"


def _state_path(folder: Path, number: int) -> Path:
    return folder / f"{number:012d}.state.json"


def _number(token: str) -> int:
    return int(token.partition("-")[0])


def _is_highest(paths: PipelinePaths, token: str) -> bool:
    """Whether ``token`` is the newest one, in any state."""
    number = _number(token)
    try:
        record, _ = _read_record(_token_path(paths.lease, number))
    except FileNotFoundError:
        return False
    return f"{number}-{record.get('nonce')}" == token and _highest_number(storage.list_names(paths.lease)) == number


def _highest_number(names: Iterable[str]) -> int | None:
    matches = map(_TOKEN_FILE.match, names)
    return max((int(match[1]) for match in matches if match and not match[2]), default=None)


def _read_record(path: Path) -> tuple[_Record, float]:
    """A record and the time stamp of its file."""
    value, touched_at = _read_object(path)
    return cast(_Record, value), touched_at


def _read_state(folder: Path, number: int) -> tuple[_Beat, float]:
    """The last heartbeat, and the time stamp of its file."""
    with contextlib.suppress(FileNotFoundError):
        value, beaten_at = _read_object(_state_path(folder, number))
        return cast(_Beat, value), beaten_at
    return {}, 0.0


def _read_object(path: Path) -> tuple[object, float]:
    data, stat = storage.read_with_stat(path)
    try:
        value = json.loads(data)
    except ValueError:
        value = {}  # damaged by something else: judged by its time stamp alone
    return (value if isinstance(value, dict) else {}), stat.modified_ns / 1e9


def _clean(folder: Path, names: Sequence[str], highest: int) -> None:
    if storage.is_object(folder) and len(names) < _NAMES_AT_MOST:
        return  # a request less: what counts is the highest
    oldest_leftover = time.time() - _STALE_LEFTOVER_SECONDS
    gone = []
    for name in names:
        match = _TOKEN_FILE.match(name)
        with contextlib.suppress(OSError):
            replaced = match is not None and int(match[1]) < highest
            if replaced or (name.endswith(".tmp") and storage.stat(folder / name).modified_ns / 1e9 < oldest_leftover):
                gone.append(name)
    with contextlib.suppress(OSError):
        storage.remove_names(folder, gone)


def _held(paths: PipelinePaths, found: _Found) -> TryAgainError:
    record = found.record
    run_id = record.get("run_id")
    holder = f"run {run_id} (tidegate {record.get('command')}, pid {record.get('pid')}@{record.get('host')})"
    parked = found.state == "parked"
    entry = errors.LEASE_PARKED if parked else errors.LEASE_HELD
    return entry(
        where=str(_token_path(paths.lease, found.number)),
        pipeline=paths.name,
        holder=holder,
        since=f"{found.beat_at:%Y-%m-%dT%H:%M:%SZ}" if parked else record.get("acquired_at"),
        seconds=found.left_seconds,
        run_id=run_id,
    )


def _lost(paths: PipelinePaths, token: str) -> TryAgainError:
    found = _read_highest(paths.lease)
    if found is None:
        now = "the lease folder is gone"
    elif token == f"{found.number}-{found.record.get('nonce')}":
        now = f"it is {found.state}"
    else:
        who = f"run {found.record.get('run_id')} (tidegate {found.record.get('command')})"
        now = f"{who} took it over as token {found.number}"
    return errors.LEASE_LOST(where=str(paths.lease), pipeline=paths.name, holder=now)
