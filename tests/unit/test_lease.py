"""The lease with real processes: killed, frozen, racing, parked between the tasks of one run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.errors import TryAgainError
from tidegate.lease import Lease, acquire, check_token, is_current_token, read_lease
from tidegate.project import PipelinePaths

CHILD = """
import sys, time
from pathlib import Path
from tidegate.lease import acquire
from tidegate.errors import TryAgainError
from tidegate.project import PipelinePaths
state, run_id, expires, go_at = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
paths = PipelinePaths("orders", state, state, state, state)
time.sleep(max(0.0, go_at - time.time()))
try:
    lease = acquire(paths, run_id=run_id, command="run", expires_after_seconds=expires)
except TryAgainError as error:
    print(error.code, flush=True)
    sys.exit(75)
print("GOT", lease.token, flush=True)
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
    assert (seen["state"], seen["run_id"], seen["pid"]) == ("held", "scheduled__2026", child.pid)
    assert ask(child, "release") == "released"
    assert read_lease(paths) is None
    with take(paths) as lease:
        assert lease.token == 2
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
    assert (seen["state"], seen["expires_in_seconds"]) == ("dead", 0.0)
    with take(paths) as lease:
        assert lease.token == 2


@pytest.mark.parametrize(
    "changes",
    [{"pid_started": 1}, {"boot_id": "another-boot"}, {"pid": 2**22 + 1}],
    ids=["pid reused", "rebooted", "gone"],
)
def test_a_holder_proved_dead_by_its_record_is_replaced(paths: PipelinePaths, changes: dict[str, object]) -> None:
    old = take(paths, expires=3600.0)
    rewrite_token(paths, 1, **changes)
    with take(paths) as lease:
        assert lease.token == 2
        assert not old.is_current()


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"machine_id": "m"}, {"pid_namespace": "pid:[1]"}])
def test_a_holder_elsewhere_is_believed_until_it_expires(paths: PipelinePaths, changes: dict[str, object]) -> None:
    old = take(paths, expires=0.3)
    old.release()
    (paths.lease / f"{1:012d}.state.json").unlink()
    rewrite_token(paths, 1, pid=2**22 + 1, **changes)
    with pytest.raises(TryAgainError, match="is being written"):
        take(paths)
    time.sleep(0.4)
    assert take(paths).token == 2


def test_a_frozen_holder_is_taken_over_after_expiry_and_finds_out(paths: PipelinePaths, start: Starter) -> None:
    child = start("frozen", expires=0.6)
    assert read_line(child) == "GOT 1"
    time.sleep(1.0)
    with pytest.raises(TryAgainError):
        take(paths)  # its heartbeat has kept it
    os.kill(child.pid, signal.SIGSTOP)
    time.sleep(0.8)
    with take(paths, expires=0.6) as lease:
        assert lease.token == 2
        os.kill(child.pid, signal.SIGCONT)
        time.sleep(0.3)
        assert ask(child, "current") == "False"
        assert lease.is_current()
        assert ask(child, "release") == "released"
        assert lease.is_current()
        with pytest.raises(TryAgainError) as lost:
            check_token(paths, 1)
        assert lost.value.code == "LEASE_LOST"
        assert "run here" in lost.value.message


def test_of_twenty_contenders_exactly_one_wins_each_time(paths: PipelinePaths, start: Starter) -> None:
    holder = start("first", expires=3600.0)
    read_line(holder)
    for token in (2, 3, 4):
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
    with pytest.raises(TryAgainError, match="waits for the next step of run run-7"):
        take(paths, "run-8")
    seen = read_lease(paths)
    assert seen is not None
    assert seen["state"] == "parked"
    assert not is_current_token(paths, 1)
    with take(paths, "run-7") as lease:
        assert lease.token == 2
        lease.park(0.2)
        assert not lease.is_current()
        with pytest.raises(TryAgainError, match="it is parked"):
            lease.check()
    with pytest.raises(TryAgainError):
        take(paths, "run-8")  # leaving the context did not release what was parked
    time.sleep(0.25)
    seen = read_lease(paths)
    assert seen is not None
    assert seen["state"] == "expired"
    assert take(paths, "run-8").token == 3


def test_a_clock_set_back_or_forward_does_not_move_a_lease_on_the_same_boot(paths: PipelinePaths) -> None:
    with take(paths) as lease:
        for shift in (-86400.0, 86400.0):
            rewrite_token(paths, 1, beat_at=time.time() + shift)
            os.utime(paths.lease / f"{1:012d}.json", (time.time() + shift, time.time() + shift))
            with pytest.raises(TryAgainError):
                take(paths)
        assert lease.is_current()


def test_a_heartbeat_from_a_clock_years_ahead_elsewhere_expires(paths: PipelinePaths) -> None:
    take(paths)
    ahead = time.time() + 1e8
    rewrite_token(paths, 1, host="elsewhere", boot_id="other", beat_at=ahead)
    os.utime(paths.lease / f"{1:012d}.json", (ahead, ahead))
    assert take(paths).token == 2


def test_a_heartbeat_survives_a_full_disk(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tidegate.storage.replace", no_space)
    lease = take(paths, expires=0.6)
    time.sleep(2.2)
    with pytest.raises(TryAgainError):
        take(paths)
    assert lease.is_current()


def test_old_tokens_are_cleaned_and_a_damaged_record_expires(paths: PipelinePaths) -> None:
    for _ in range(20):
        take(paths).release()
    assert len(list(paths.lease.iterdir())) <= 6
    lease = take(paths)
    path = paths.lease / f"{lease.token:012d}.json"
    path.write_bytes(b'{"tok')
    with pytest.raises(TryAgainError):
        take(paths)
    os.utime(path, (1e9, 1e9))
    assert take(paths).token == lease.token + 1


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
