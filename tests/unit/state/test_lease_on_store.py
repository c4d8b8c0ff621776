"""The lease of a pipeline whose state is on an object store: two machines, and the clock of the store."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest

from tests.support.faulty_store import FaultyStore, use_store
from tidegate.core import storage
from tidegate.core.errors import TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process import machine
from tidegate.core.storage import ObjectPath, files, limit_patience
from tidegate.core.storage import mirror as copies
from tidegate.core.storage.mirror import Mirror
from tidegate.state import lease as leases
from tidegate.state.lease import Lease, acquire, check_token, read_lease


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    made = FaultyStore()
    use_store(monkeypatch, made)
    monkeypatch.setattr(copies, "_FRESH_SECONDS", 0.0)
    return made


class Machines:
    """Machines that share an object store; each has a boot of its own, and a clock that may be wrong."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch

    def on(self, name: str, *, ahead_seconds: float = 0.0) -> PipelinePaths:
        """Continue on a machine; the paths of the pipeline there."""
        self.patch.setattr(leases, "read_boot_id", lambda: name)
        self.patch.setattr(leases, "find_whereabouts", lambda: self._whereabouts(name))
        self.patch.setattr(machine, "find_whereabouts", lambda: self._whereabouts(name))
        clock = {"beat_at": time.time() + ahead_seconds, "beat_since_boot": time.clock_gettime(time.CLOCK_BOOTTIME)}
        self.patch.setattr(leases, "read_clock", lambda: {**clock, "boot_id": name})
        copy = Mirror(self.folder / name / "copy", ObjectPath("s3://bucket/state/orders"))
        here = self.folder / name
        return PipelinePaths("orders", here, here, here, copy.local, mirror=copy)

    @staticmethod
    def _whereabouts(name: str) -> machine.Whereabouts:
        return {"host": f"host-{name}", "machine_id": name, "boot_id": name, "pid_namespace": "1"}


@pytest.fixture
def machines(tmp_path: Path, store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, monkeypatch)


def take(paths: PipelinePaths, run_id: str, seconds: float = 60.0) -> Lease:
    return acquire(paths, run_id=run_id, command="run", expires_after_seconds=seconds)


def stop_beating(lease: Lease) -> None:
    """The process is suspended: it gives no heartbeat."""
    lease._done.set()
    lease._thread.join()
    lease._done.clear()


def test_the_second_machine_is_told_who_works(machines: Machines) -> None:
    with take(machines.on("a"), "first"):
        with pytest.raises(TryAgainError) as refused:
            take(machines.on("b"), "second")
        assert refused.value.code == "LEASE_HELD"
        assert "run first" in str(refused.value) and "host-a" in str(refused.value)
        state = read_lease(machines.on("c"))
        assert state is not None and state.holder.run_id == "first"
    with take(machines.on("b"), "second") as lease:
        assert lease.number == 2


@pytest.mark.parametrize("ahead_seconds", [-86_400.0, 0.0, 86_400.0])
def test_silence_is_by_the_clock_of_the_store(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, ahead_seconds: float
) -> None:
    """However wrong the clocks of the machines are, a holder is replaced when it was silent for as long as it said."""
    holder = take(machines.on("a", ahead_seconds=ahead_seconds), "first", seconds=30)
    stop_beating(holder)
    other = machines.on("b", ahead_seconds=-ahead_seconds)
    with pytest.raises(TryAgainError):
        take(other, "second")
    now = storage.store_time(ObjectPath("s3://bucket"))
    monkeypatch.setattr("tidegate.core.storage.objects.store_time", lambda folder: now + 25)
    with pytest.raises(TryAgainError):
        take(other, "second")
    monkeypatch.setattr("tidegate.core.storage.objects.store_time", lambda folder: now + 33)
    began = time.monotonic()
    with take(other, "second") as lease:
        assert time.monotonic() - began < 5, "it waits for nothing"
        assert lease.left_by is not None and lease.left_by.run_id == "first"
        for call in (holder.check, lambda: check_token(holder.paths, holder.token)):
            with pytest.raises(TryAgainError) as lost:
                call()
            assert lost.value.code == "LEASE_LOST" and "run second" in str(lost.value)
        assert not holder.is_current()
        lease.check()


def test_a_check_writes_what_is_new(machines: Machines) -> None:
    lease = take(machines.on("a"), "first")
    note = lease.paths.published / "1.json"
    files.replace(note, b"{}")
    lease.check()
    reader = machines.on("b")
    assert [path.name for path in storage.list_folder(reader.published)] == ["1.json"]
    files.replace(lease.paths.published / "2.json", b"{}")
    lease.park(60)
    resumed = take(machines.on("b"), "first")
    assert sorted(storage.list_names(resumed.paths.published)) == ["1.json", "2.json"]
    resumed.release()


def test_a_release_that_fails_leaves_the_lease(
    machines: Machines, store: FaultyStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next holder must know that the copy of the last one is not all in the store."""
    lease = take(machines.on("a"), "first")
    files.replace(lease.paths.published / "1.json", b"{}")
    store.choose = lambda name, at: "lost request"
    with limit_patience(0.1):
        lease.release()
    assert "the lease ends with this process" in capsys.readouterr().err
    store.choose = lambda name, at: None
    monkeypatch.setattr(leases, "is_dead", lambda *holder: True)
    with take(machines.on("a"), "second") as second:
        assert second.left_by is not None
        assert storage.list_names(second.paths.published) == [], "what was not written counts as lost"


def test_another_run_between_any_two_requests(machines: Machines, store: FaultyStore) -> None:
    paths, other = machines.on("a"), machines.on("b")
    take(paths, "before").release()
    for number in range(1, 12):
        last, numbers = len(store.requests) + number, []

        def choose(name: str, at: int, last: int = last, numbers: list[int] = numbers) -> None:
            if at == last:
                with contextlib.suppress(TryAgainError), take(other, "between") as between:
                    between.check()
                    numbers.append(between.number)

        store.choose = choose  # type: ignore[assignment]
        with take(paths, "outer") as lease:
            store.choose = lambda name, at: None
            lease.check()
            assert lease.number not in numbers


def test_requests_of_an_idle_run(machines: Machines, store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease, the journal, a report: an idle tick has twelve requests, with those of its source and its table."""
    monkeypatch.setattr(copies, "_FRESH_SECONDS", 1.0)
    paths = machines.on("a")
    for run_id in ("first", "second"):
        start = len(store.requests)
        lease = take(paths, run_id)
        lease.check()
        files.replace(paths.report(run_id), json.dumps({}).encode())
        lease.release()
    assert store.requests[start:] == ["list", "get", "put", "list", "list", "put", "put"]
