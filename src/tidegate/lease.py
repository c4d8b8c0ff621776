"""One writer per pipeline, by a lease with a fencing token.

The folder ``state/<name>/lease/`` holds one file per token, ``<token>.json``, created by put-if-absent and not changed
after that. The highest token is the lease; taking over means creating the next one, so of any number of contenders one
wins, and a former holder, also one that was frozen and thawed, finds a higher token than its own. Beside it the holder,
and only the holder, keeps ``<token>.state.json``: its last heartbeat, and whether it parked or released the lease.

Time. A heartbeat carries the wall clock and the time since boot. A contender on the same boot compares the latter,
which no clock change can move. Any other one compares wall clocks, and a heartbeat further than the limit from now, in
either direction, counts as expired: a holder whose clock was years ahead must not block for years. A takeover that was
wrong by a skewed clock costs the former holder its run, never the table: it is fenced.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from tidegate import storage
from tidegate.errors import TryAgainError
from tidegate.machine import find_whereabouts, is_dead, read_boot_id, read_clock, read_process_start
from tidegate.project import PipelinePaths

_TOKEN_FILE = re.compile(r"^(\d{12})(\.state)?\.json$")
_KEPT_TOKENS = 3
_STALE_LEFTOVER_SECONDS = 86400.0

State = Literal["held", "parked", "released", "expired", "dead"]


class Lease:
    """The right to write one pipeline, until it is released, parked, or taken over. Made by :func:`acquire`.

    A daemon thread renews it every sixth of ``expires_after_seconds``. As a context manager it releases on leaving
    (nothing happens when it was parked or released before).
    """

    def __init__(self, paths: PipelinePaths, token: int, record: dict[str, Any]) -> None:
        self.paths = paths
        self.token = token
        self.run_id: str = record["run_id"]
        self.expires_after_seconds = float(record["expires_after_seconds"])
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"tidegate-lease-{paths.name}", daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """Whether this process may still write: reads the folder afresh; False after park and release too."""
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
        """Give the lease back. Harmless when it was parked, released or lost before, and in a forked child."""
        self._finish({"state": "released"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def _finish(self, state: dict[str, Any]) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._done.is_set():
                return
            self._done.set()
            if _highest_token(self.paths.lease) == self.token:
                storage.replace(_state_path(self.paths.lease, self.token), storage.dump_json({**read_clock(), **state}))
        self._thread.join(timeout=1.0)

    def _renew(self) -> None:
        while not self._done.wait(self.expires_after_seconds / 6):
            with self._lock:
                if self._done.is_set() or _highest_token(self.paths.lease) != self.token:
                    return
                try:
                    beat = storage.dump_json({**read_clock(), "state": "held"})
                    storage.replace(_state_path(self.paths.lease, self.token), beat)
                except (OSError, TryAgainError):
                    # A full disk must not cost the lease: a time stamp needs no space.
                    with contextlib.suppress(OSError):
                        os.utime(_token_path(self.paths.lease, self.token))


def acquire(paths: PipelinePaths, *, run_id: str, command: str, expires_after_seconds: float) -> Lease:
    """Take the lease of a pipeline for ``run_id``; ``command`` is shown to whoever is refused meanwhile.

    A holder that is provably dead (same machine, and its process or its boot is gone) is replaced at once; one on
    another machine, or frozen, when it has been silent for as long as it had announced; a parked lease is resumed at
    once by its own run. Raises TryAgainError LEASE_HELD with the holder, since when, and when it expires.
    """
    folder = paths.lease
    while True:
        found = _read_highest(folder)
        if found is not None:
            resumes = found.state == "parked" and found.record.get("run_id") == run_id
            if found.state in ("held", "parked") and not resumes:
                raise _held(paths, found)
        token = found.token + 1 if found else 1
        record = {
            "token": token,
            "run_id": run_id,
            "command": command,
            **find_whereabouts(),
            "pid": os.getpid(),
            "pid_started": read_process_start(os.getpid()),
            "acquired_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "expires_after_seconds": float(expires_after_seconds),
            **read_clock(),
        }
        if not storage.put_if_absent(_token_path(folder, token), storage.dump_json(record)):
            continue
        if _highest_token(folder) != token:
            # Frozen between reading and creating, while this very token came, went and was cleaned away.
            storage.remove(_token_path(folder, token))
            continue
        _clean(folder, token)
        return Lease(paths, token, record)


def is_current_token(paths: PipelinePaths, token: int) -> bool:
    """Whether ``token`` is the lease and is held; for the Spark driver, which works under another process's lease."""
    if _highest_token(paths.lease) != token:
        return False
    return _read_state(paths.lease, token).get("state", "held") == "held"


def check_token(paths: PipelinePaths, token: int) -> None:
    """Raise TryAgainError LEASE_LOST unless ``token`` is the lease and is held."""
    if not is_current_token(paths, token):
        raise _lost(paths, token)


def read_lease(paths: PipelinePaths) -> dict[str, Any] | None:
    """The lease for ``status``, or None when nobody has it.

    Keys: token, run_id, command, host, pid, acquired_at, ``state`` (held, parked, or expired / dead: the next contender
    gets it), last_heartbeat_at, expires_in_seconds (0 when expired or dead).
    """
    found = _read_highest(paths.lease)
    if found is None or found.state == "released":
        return None
    keys = ("run_id", "command", "host", "pid", "acquired_at")
    return {
        "token": found.token,
        **{key: found.record.get(key) for key in keys},
        "state": found.state,
        "last_heartbeat_at": found.beat_at.isoformat(timespec="seconds"),
        "expires_in_seconds": round(found.left_seconds, 1) if found.state in ("held", "parked") else 0.0,
    }


@dataclass(frozen=True)
class _Found:
    """The highest token, judged now."""

    token: int
    state: State
    record: dict[str, Any]
    beat_at: datetime
    left_seconds: float = field(default=0.0)


def _read_highest(folder: Path) -> _Found | None:
    while (token := _highest_token(folder)) is not None:
        path = _token_path(folder, token)
        try:
            touched_at = path.stat().st_mtime
            record = _read_record(path)
        except FileNotFoundError:
            continue  # withdrawn by its maker between listing and reading
        state = _read_state(folder, token)
        beat = {**record, **state}
        beat_at = max(float(beat.get("beat_at", 0.0)), touched_at)
        stated: State = state.get("state", "held")
        if stated == "released":
            return _Found(token, "released", record, datetime.fromtimestamp(beat_at, UTC))
        if stated == "parked":
            limit = float(state.get("parked_seconds", 0.0))
        else:
            limit = float(record.get("expires_after_seconds", 60.0))
        left = limit - _silent_seconds(beat, touched_at)
        if stated == "held" and is_dead(record):
            stated = "dead"
        elif left <= 0:
            stated = "expired"
        return _Found(token, stated, record, datetime.fromtimestamp(beat_at, UTC), left)
    return None


def _silent_seconds(beat: dict[str, Any], touched_at: float) -> float:
    by_touch = abs(time.time() - touched_at)
    if beat.get("boot_id") == read_boot_id() and "beat_since_boot" in beat:
        silent = time.clock_gettime(time.CLOCK_BOOTTIME) - float(beat["beat_since_boot"])
    else:
        silent = abs(time.time() - float(beat.get("beat_at", 0.0)))
    # The touch counts only where the heartbeat file could not be written; it is never later than the truth.
    return min(silent, by_touch) if touched_at > float(beat.get("beat_at", 0.0)) + 1.0 else silent


def _token_path(folder: Path, token: int) -> Path:
    return folder / f"{token:012d}.json"


def _state_path(folder: Path, token: int) -> Path:
    return folder / f"{token:012d}.state.json"


def _highest_token(folder: Path) -> int | None:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return None
    matches = (_TOKEN_FILE.match(name) for name in names)
    return max((int(match[1]) for match in matches if match and not match[2]), default=None)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        value = storage.read_json(path)
    except ValueError:
        value = {}  # damaged by something else: judged by its time stamp alone
    if value is None:
        raise FileNotFoundError(path)
    return value if isinstance(value, dict) else {}


def _read_state(folder: Path, token: int) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        return _read_record(_state_path(folder, token))
    return {}


def _clean(folder: Path, highest: int) -> None:
    oldest_leftover = time.time() - _STALE_LEFTOVER_SECONDS
    for entry in list(os.scandir(folder)):
        match = _TOKEN_FILE.match(entry.name)
        with contextlib.suppress(OSError):
            replaced = match is not None and int(match[1]) <= highest - _KEPT_TOKENS
            if replaced or (entry.name.endswith(".tmp") and entry.stat().st_mtime < oldest_leftover):
                os.unlink(entry.path)


def _held(paths: PipelinePaths, found: _Found) -> TryAgainError:
    record = found.record
    run_id = record.get("run_id")
    who = f"run {run_id} (tidegate {record.get('command')}, pid {record.get('pid')}@{record.get('host')})"
    if found.state == "parked":
        what = f"pipeline {paths.name} waits for the next step of {who}, since {found.beat_at:%Y-%m-%dT%H:%M:%SZ}"
        ends = f"kept for it for another {found.left_seconds:.0f} s"
        fix = f"let run {run_id} go on, or run again after {found.left_seconds:.0f} s"
    else:
        what = f"pipeline {paths.name} is being written by {who}, since {record.get('acquired_at')}"
        ends = f"expires in {found.left_seconds:.0f} s unless it gives a sign of life"
        fix = f"wait for run {run_id} to end, or stop it; then run again"
    return TryAgainError(
        "LEASE_HELD",
        f"{what}; {ends}",
        where=str(_token_path(paths.lease, found.token)),
        next_run="starts as soon as the lease is free; a holder that died is replaced without a person",
        fix=fix,
    )


def _lost(paths: PipelinePaths, token: int) -> TryAgainError:
    found = _read_highest(paths.lease)
    if found is None:
        now = "the lease folder is gone"
    elif found.token == token:
        now = f"it is {found.state}"
    else:
        who = f"run {found.record.get('run_id')} (tidegate {found.record.get('command')})"
        now = f"{who} took it over as token {found.token}"
    return TryAgainError(
        "LEASE_LOST",
        f"pipeline {paths.name}: this process no longer holds lease token {token}; {now}",
        where=str(paths.lease),
        next_run="goes on from what is staged; this process has changed nothing that a reader sees",
        fix=f"tidegate status {paths.name}",
    )
