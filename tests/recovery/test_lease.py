"""The lease with real processes: killed, frozen, racing, parked between the tasks of one run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.core.errors import TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process import machine
from tidegate.core.process.machine import is_local_disk
from tidegate.state.lease import Lease, acquire, check_token, is_current_token, read_lease

CHILD = """
import sys, time
from pathlib import Path
from tidegate.state.lease import acquire
from tidegate.core.errors import TryAgainError
from tidegate.core.paths import PipelinePaths
state, run_id, expires, go_at = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
paths = PipelinePaths("orders", state, state, state, state)
time.sleep(max(0.0, go_at - time.time()))
try:
    lease = acquire(paths, run_id=run_id, command="run", expires_after_seconds=expires)
except TryAgainError as error:
    print(error.code, flush=True)
    sys.exit(75)
print("GOT", lease.number, flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "current":
        print(lease.is_current(), flush=True)
    elif word == "park":
        lease.park(30)
        print("parked", flush=True)
        sys.exit(0)
    elif word == "release":
        lease.release()
        print("released", flush=True)
        sys.exit(0)
"""

Starter = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    state = tmp_path / "state"
    return PipelinePaths("orders", state, state, state, state)


@pytest.fixture
def start(paths: PipelinePaths) -> Iterator[Starter]:
    started: list[subprocess.Popen[str]] = []

    def start_child(run_id: str = "one", expires: float = 60.0, go_at: float = 0.0) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", CHILD, str(paths.state), run_id, str(expires), str(go_at)]
        child = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(child)
        return child

    yield start_child
    for child in started:
        if child.poll() is None:
            child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()


def read_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def ask(child: subprocess.Popen[str], word: str) -> str:
    assert child.stdin is not None
    child.stdin.write(word + "\n")
    child.stdin.flush()
    return read_line(child)


def take(paths: PipelinePaths, run_id: str = "here", expires: float = 60.0) -> Lease:
    return acquire(paths, run_id=run_id, command="run", expires_after_seconds=expires)


def rewrite_token(paths: PipelinePaths, token: int, **changes: object) -> None:
    path = paths.lease / f"{token:012d}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def token_of(paths: PipelinePaths, number: int) -> str:
    return f"{number}-{json.loads((paths.lease / f'{number:012d}.json').read_text())['nonce']}"


def with_machine_id(patch: pytest.MonkeyPatch, machine_id: str) -> None:
    """This machine has this id, "" for none."""
    read = machine._read_text
    patch.setattr(machine, "_read_text", lambda path: machine_id if path == "/etc/machine-id" else read(path))


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state folder lies on storage that machines share."""
    monkeypatch.setattr("tidegate.core.process.machine.is_local_disk", lambda folder: False)


def test_a_second_writer_is_refused_and_told_who_holds_it(paths: PipelinePaths, start: Starter) -> None:
    child = start("scheduled__2026")
    assert read_line(child) == "GOT 1"
    with pytest.raises(TryAgainError) as refused:
        take(paths)
    assert refused.value.code == "LEASE_HELD"
    for part in ("scheduled__2026", f"pid {child.pid}@", "tidegate run", "expires in", "since 20"):
        assert part in refused.value.message
    seen = read_lease(paths)
    assert seen is not None
    assert (seen.state, seen.holder.run_id, seen.holder.pid) == ("held", "scheduled__2026", child.pid)
    assert ask(child, "release") == "released"
    assert read_lease(paths) is None
    with take(paths) as lease:
        assert lease.number == 2
        assert lease.is_current()


def test_the_same_run_is_refused_too_while_its_first_process_lives(paths: PipelinePaths, start: Starter) -> None:
    assert read_line(start("same")) == "GOT 1"
    assert read_line(start("same")) == "LEASE_HELD"


def test_a_killed_holder_is_replaced_at_once_also_before_it_is_reaped(paths: PipelinePaths, start: Starter) -> None:
    child = start(expires=3600.0)
    assert read_line(child) == "GOT 1"
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, still in the process table
    seen = read_lease(paths)
    assert seen is not None
    assert (seen.state, seen.expires_in_seconds) == ("dead", 0.0)
    with take(paths) as lease:
        assert lease.number == 2


@pytest.mark.parametrize(
    "changes",
    [{"pid_started": 1}, {"boot_id": "another-boot"}, {"pid": 2**22 + 1}],
    ids=["pid reused", "rebooted", "gone"],
)
def test_a_holder_proved_dead_by_its_record_is_replaced(
    paths: PipelinePaths, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_machine_id(monkeypatch, "here")
    old = take(paths, expires=3600.0)
    rewrite_token(paths, 1, **changes)
    with take(paths) as lease:
        assert lease.number == 2
        assert not old.is_current()


def test_a_process_that_may_not_be_looked_at_is_not_dead(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc hides other users' processes (hidepid): a file that cannot be read proves nothing."""
    take(paths, expires=3600.0)
    read = Path.read_bytes

    def hide(path: Path) -> bytes:
        if str(path) == f"/proc/{os.getpid()}/stat":
            raise PermissionError(13, "Permission denied")
        return read(path)

    def other_users(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "read_bytes", hide)
    monkeypatch.setattr(os, "kill", other_users)
    with pytest.raises(TryAgainError, match="is held by"):
        take(paths)
    monkeypatch.undo()
    monkeypatch.setattr(Path, "read_bytes", hide)
    rewrite_token(paths, 1, pid=2**22 + 1)  # gone: that needs no look
    assert take(paths).number == 2


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"machine_id": "m"}, {"pid_namespace": "pid:[1]"}])
def test_a_holder_elsewhere_is_believed_until_it_expires(paths: PipelinePaths, changes: dict[str, object]) -> None:
    old = take(paths, "old", expires=0.3)
    old.release()
    (paths.lease / f"{1:012d}.state.json").unlink()
    rewrite_token(paths, 1, pid=2**22 + 1, **changes)
    with pytest.raises(TryAgainError, match="is held by"):
        take(paths)
    time.sleep(0.4)
    assert take(paths).number == 2


def test_a_run_waits_for_what_its_own_container_left(paths: PipelinePaths, start: Starter) -> None:
    """A container that is restarted in place: the host's name is the same, the namespace of the processes another."""
    lease = take(paths, "one", expires=3.0)
    rewrite_token(paths, 1, pid_namespace="pid:[1]")
    lease._done.set()  # no heartbeat any more
    began = time.monotonic()
    child = start("two")
    assert read_line(child) == "LEASE_HELD" and time.monotonic() - began < 2.9, "another run does not wait"
    child = start("one")
    assert read_line(child) == "GOT 2"
    assert time.monotonic() - began > 2.5


def test_a_run_does_not_wait_for_itself_where_it_lives(paths: PipelinePaths, start: Starter) -> None:
    with take(paths, "one", expires=3.0):
        rewrite_token(paths, 1, pid_namespace="pid:[1]")
        assert read_line(start("one")) == "LEASE_HELD"


def test_a_frozen_holder_is_taken_over_after_expiry_and_finds_out(paths: PipelinePaths, start: Starter) -> None:
    child = start("frozen", expires=0.6)
    assert read_line(child) == "GOT 1"
    first = token_of(paths, 1)
    time.sleep(1.0)
    with pytest.raises(TryAgainError):
        take(paths)  # its heartbeat has kept it
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(0.8)
    with take(paths, expires=3.0) as lease:
        assert lease.number == 2
        os.kill(child.pid, signal.SIGCONT)
        time.sleep(0.3)
        assert ask(child, "current") == "False"
        assert lease.is_current()
        assert ask(child, "release") == "released"
        assert lease.is_current()
        with pytest.raises(TryAgainError) as lost:
            check_token(paths, first)
        assert lost.value.code == "LEASE_LOST"
        assert "run here" in lost.value.message


def test_of_twenty_contenders_exactly_one_wins_each_time(paths: PipelinePaths, start: Starter) -> None:
    holder = start("first", expires=3600.0)
    read_line(holder)
    for token in (2, 3):
        holder.kill()
        holder.wait()
        go_at = time.time() + 1.5
        children = [start(f"run{number}", 60.0, go_at) for number in range(20)]
        said = [read_line(child) for child in children]
        assert sorted(said) == sorted([f"GOT {token}"] + ["LEASE_HELD"] * 19)
        holder = children[said.index(f"GOT {token}")]


def test_a_parked_lease_waits_for_the_next_step_of_its_run(paths: PipelinePaths, start: Starter) -> None:
    child = start("run-7")
    read_line(child)
    assert ask(child, "park") == "parked"
    child.wait()
    with pytest.raises(TryAgainError, match="has been waiting for the next step of run run-7"):
        take(paths, "run-8")
    seen = read_lease(paths)
    assert seen is not None
    assert seen.state == "parked"
    assert not is_current_token(paths, token_of(paths, 1))
    with take(paths, "run-7") as lease:
        assert lease.number == 2
        lease.park(0.2)
        assert not lease.is_current()
        with pytest.raises(TryAgainError, match="it is parked"):
            lease.check()
    with pytest.raises(TryAgainError):
        take(paths, "run-8")  # leaving the context did not release what was parked
    time.sleep(0.25)
    seen = read_lease(paths)
    assert seen is not None
    assert seen.state == "expired"
    assert take(paths, "run-8").number == 3


def test_a_clock_set_back_or_forward_does_not_move_a_lease_on_the_same_boot(paths: PipelinePaths) -> None:
    with take(paths) as lease:
        for shift in (-86400.0, 86400.0):
            rewrite_token(paths, 1, beat_at=time.time() + shift)
            os.utime(paths.lease / f"{1:012d}.json", (time.time() + shift, time.time() + shift))
            with pytest.raises(TryAgainError):
                take(paths)
        assert lease.is_current()


@pytest.mark.usefixtures("shared")
def test_a_heartbeat_from_a_clock_years_ahead_elsewhere_expires(paths: PipelinePaths) -> None:
    take(paths, expires=0.4).release()
    (paths.lease / f"{1:012d}.state.json").unlink()
    ahead = time.time() + 1e8
    rewrite_token(paths, 1, host="elsewhere", boot_id="other", beat_at=ahead)
    os.utime(paths.lease / f"{1:012d}.json", (ahead, ahead))
    assert take(paths).number == 2


def test_a_heartbeat_survives_a_full_disk(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidegate.core.storage.replace", no_space)
    lease = take(paths, expires=0.6)
    time.sleep(2.2)
    with pytest.raises(TryAgainError):
        take(paths)
    assert lease.is_current()
    monkeypatch.undo()
    lease.release()


def test_old_tokens_are_cleaned_and_a_damaged_record_expires(paths: PipelinePaths) -> None:
    for _ in range(20):
        take(paths).release()
    assert len(list(paths.lease.iterdir())) == 2
    lease = take(paths)
    path = paths.lease / f"{lease.number:012d}.json"
    path.write_bytes(b'{"tok')
    with pytest.raises(TryAgainError):
        take(paths)
    os.utime(path, (1e9, 1e9))
    assert take(paths).number == lease.number + 1


def test_a_forked_child_does_not_release_its_parents_lease(paths: PipelinePaths) -> None:
    with take(paths) as lease:
        pid = os.fork()
        if pid == 0:
            lease.release()
            os._exit(0)
        os.waitpid(pid, 0)
        assert lease.is_current()
    with pytest.raises(TryAgainError, match="it is released"):
        lease.check()


def test_a_link_whose_reply_was_lost_is_the_lease(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS sends a request again when the reply is lost, and finds there what the first one made."""
    link = os.link

    def lose_reply(*names: Any) -> None:
        link(*names)
        monkeypatch.setattr(os, "link", link)
        raise FileExistsError

    monkeypatch.setattr(os, "link", lose_reply)
    with take(paths) as lease:
        assert lease.number == 1
        assert lease.is_current()


def in_another_boot(patch: pytest.MonkeyPatch, clock_ahead: float) -> None:
    """What is written to the lease from here on comes from another boot, whose wall clock differs from ours."""

    def read_clock() -> dict[str, Any]:
        return {"beat_at": time.time() + clock_ahead, "beat_since_boot": 10.0, "boot_id": "another-boot"}

    patch.setattr("tidegate.state.lease.read_clock", read_clock)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("clock_ahead", [3600.0, -3600.0, 1e8])
def test_a_live_holder_elsewhere_keeps_its_lease_whatever_its_clock_says(
    paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch, clock_ahead: float
) -> None:
    """Host name and machine id are the same: they were baked into an image."""
    in_another_boot(monkeypatch, clock_ahead)
    with take(paths, expires=0.6) as lease:
        rewrite_token(paths, 1, boot_id="another-boot", beat_at=time.time() + clock_ahead)
        seconds = time.time() + clock_ahead
        os.utime(paths.lease / f"{1:012d}.json", (seconds, seconds))
        time.sleep(0.2)
        began = time.monotonic()
        with pytest.raises(TryAgainError, match="is held by"):
            take(paths)
        assert time.monotonic() - began < 3.0
        assert lease.is_current()


@pytest.mark.parametrize(
    ("changes", "machine_id"),
    [
        ({"host": "worker-b", "machine_id": "b"}, "here"),
        ({"host": "worker-b"}, "here"),
        ({"machine_id": "b"}, "here"),
        ({}, ""),
    ],
    ids=["another machine", "another host", "another machine id", "container without a machine id"],
)
def test_a_live_holder_on_a_disk_that_this_machine_exports_keeps_its_lease(
    paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], machine_id: str
) -> None:
    """The NFS server is a worker too: what its clients share is a local disk for it."""
    monkeypatch.setattr("tidegate.core.process.machine.is_local_disk", lambda folder: True)
    with_machine_id(monkeypatch, machine_id)
    in_another_boot(monkeypatch, clock_ahead=0.0)
    with take(paths, expires=0.6) as lease:
        rewrite_token(paths, 1, boot_id="another-boot", **changes)
        for clock_ahead in (0.0, 3600.0):
            in_another_boot(monkeypatch, clock_ahead)
            time.sleep(0.3)
            with pytest.raises(TryAgainError, match="is held by"):
                take(paths)
            assert lease.is_current()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(("silent", "waits"), [(60.0, True), (-60.0, True), (90000.0, False)])
def test_a_dead_holder_elsewhere_is_replaced_when_it_gave_no_sign_of_life_for_a_period(
    paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch, silent: float, waits: bool
) -> None:
    in_another_boot(monkeypatch, -silent)
    take(paths, expires=0.4).release()
    (paths.lease / f"{1:012d}.state.json").unlink()
    rewrite_token(paths, 1, boot_id="another-boot", pid=2**22 + 1)
    os.utime(paths.lease / f"{1:012d}.json", (time.time() - silent, time.time() - silent))
    monkeypatch.undo()
    monkeypatch.setattr("tidegate.core.process.machine.is_local_disk", lambda folder: False)
    began = time.monotonic()
    assert take(paths).number == 2
    assert (time.monotonic() - began >= 0.4) == waits


def test_what_a_disk_of_this_machine_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(
        b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        b"2 1 0:40 / /srv rw shared:1 - nfs4 nas:/srv rw\n"
        b"3 2 8:2 / /srv/own\\040disk rw - xfs /dev/sdb1 rw\n"
        b"4 1 8:3 / /data rw - ext4 /dev/sdc1 rw\n"
        b"5 1 0:41 / /data rw - fuse.glusterfs nas:/data rw\n"
    )
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(mounts if "mountinfo" in str(path) else path))
    shown = {name: is_local_disk(Path(name)) for name in ("/", "/srv", "/srv/a", "/srvx", "/srv/own disk/a", "/data/a")}
    assert shown == {
        "/": True,
        "/srv": False,
        "/srv/a": False,
        "/srvx": True,
        "/srv/own disk/a": True,
        "/data/a": False,
    }


def test_a_heartbeat_survives_a_folder_that_cannot_be_read_for_a_while(
    paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with take(paths, expires=0.6) as lease:
        listdir, failures = os.listdir, iter(range(3))

        def fail_thrice(folder: Any) -> list[str]:
            if next(failures, None) is not None:
                raise OSError(116, "Stale file handle")
            return listdir(folder)

        monkeypatch.setattr(os, "listdir", fail_thrice)
        time.sleep(1.5)
        with pytest.raises(TryAgainError, match="is held by"):
            take(paths)
        assert lease.is_current()


def test_a_stale_listing_does_not_make_a_former_holder_believe(
    paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may answer a listing from its cache; the open of a file goes to the server."""
    former = take(paths, expires=3600.0)
    rewrite_token(paths, 1, pid_started=1)
    names = os.listdir(paths.lease)
    take(paths)
    monkeypatch.setattr(os, "listdir", lambda folder: names)
    assert not former.is_current()
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.state.lease._read_highest", lambda folder: None)
        with pytest.raises(TryAgainError):
            former.check()


def test_a_sleeper_stays_fenced_when_the_folder_is_deleted_and_numbers_begin_again(paths: PipelinePaths) -> None:
    take(paths).release()
    take(paths).release()
    sleeper = take(paths, "sleeper", expires=3600.0)
    assert sleeper.number == 3
    shutil.rmtree(paths.lease)
    for number in (1, 2, 3):
        assert not sleeper.is_current()
        with take(paths, f"run-{number}") as lease:
            assert (lease.number, lease.is_current(), sleeper.is_current()) == (number, True, False)
    with pytest.raises(TryAgainError, match=r"run run-3 .* took it over as token 3"):
        sleeper.check()
    sleeper.release()
    assert read_lease(paths) is None


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.sampled_from(["take", "die", "release", "park", "delete", "copy", "restore"]), max_size=14),
    data=st.data(),
)
def test_never_two_holders_and_none_comes_back(steps: list[str], data: st.DataObject) -> None:
    """Whatever happens to the folder: one lease at most is current, and to take it again needs a new one."""
    with tempfile.TemporaryDirectory() as name:
        state = Path(name)
        paths = PipelinePaths("orders", state, state, state, state)
        taken: list[Lease] = []
        ended: set[int] = set()
        restored = False
        try:
            for step in steps:
                if step == "take":
                    with contextlib.suppress(TryAgainError):
                        taken.append(take(paths, "run", expires=3600.0))
                elif step == "die" and taken and taken[-1].is_current():
                    rewrite_token(paths, taken[-1].number, pid_started=1)  # it is frozen, and believed dead
                elif step in ("release", "park") and taken:
                    one = data.draw(st.sampled_from(taken))
                    one.release() if step == "release" else one.park(0.0)
                    ended.add(id(one))
                elif step == "delete":
                    shutil.rmtree(paths.lease, ignore_errors=True)
                elif step == "copy" and paths.lease.exists():
                    shutil.rmtree(state / "copy", ignore_errors=True)
                    shutil.copytree(paths.lease, state / "copy")
                elif step == "restore" and (state / "copy").exists():
                    shutil.rmtree(paths.lease, ignore_errors=True)
                    shutil.copytree(state / "copy", paths.lease)
                    restored = True
                current = [one for one in taken if one.is_current()]
                assert len(current) <= 1
                assert not any(id(one) in ended for one in current)
                if current and not restored:  # else the folder says what it said when it was copied
                    assert current == taken[-1:]
        finally:
            for one in taken:
                one.release()
