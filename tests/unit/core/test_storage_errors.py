"""Errors of the file system: 75, the path, and an end, at every call of the lease too."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.held import GOOD, NAME, Held, commands
from tests.support.storage_errors import UNKNOWN, FailingCalls
from tidegate.cli.main import main
from tidegate.core import storage
from tidegate.core.errors import TidegateError, TryAgainError, UsageError, walk_causes
from tidegate.core.extras import explain_missing
from tidegate.core.paths import PipelinePaths
from tidegate.core.storage import name_cause
from tidegate.sources.files.ledger import open_ledger
from tidegate.spark.driver.failures import explain
from tidegate.spec.pipeline import load_pipeline
from tidegate.state.lease import Lease, acquire, read_lease

SHOWN = [errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT, errno.EBUSY, UNKNOWN]


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    state = tmp_path / "state"
    return PipelinePaths(NAME, state, state, state, state)


def take(paths: PipelinePaths) -> Lease:
    return acquire(paths, run_id="one", command="run", expires_after_seconds=60.0)


def within(seconds: float, act: Callable[[], Any]) -> BaseException | None:
    """What ``act`` ends with; it has to end."""
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert ended, f"no end after {seconds} seconds"
    return ended[0]


def test_a_walk_over_causes_ends() -> None:
    own, first, second = OSError(5, "own"), ValueError("first"), ValueError("second")
    own.__cause__, first.__cause__, second.__cause__ = own, second, first
    assert list(walk_causes(own)) == [own] and list(walk_causes(first)) == [first, second]
    assert within(5, lambda: [explain_missing(own), explain_missing(first)]) is None


@pytest.mark.parametrize("number", SHOWN)
def test_the_text(number: int) -> None:
    told = name_cause(OSError(number, os.strerror(number), "/srv/a b/x"), "/srv")
    assert told is not None and told.exit_code == 75 and told.where == "/srv/a b/x"
    name = errno.errorcode.get(number, "errno 4095")
    assert f"{os.strerror(number)} ({name})" in told.message and "/srv/a b/x" in told.message
    expected = "ulimit -n" if number in (errno.EMFILE, errno.ENFILE) else "findmnt -T '/srv/a b/x'"
    assert told.fix is not None and expected in told.fix


def test_what_no_file_system_says_has_no_such_text() -> None:
    others: list[Exception] = [FileNotFoundError(2, "gone", "/x"), ConnectionRefusedError(111, "refused")]
    others += [BrokenPipeError(32, "pipe"), OSError("no number"), OSError(-2, "a name that is not known")]
    others += [TimeoutError(110, "a connection"), ValueError("x"), OSError(9, "closed", 3)]
    assert [name_cause(error, "/srv") for error in others] == [None] * len(others)


@pytest.mark.parametrize("number", [errno.ESTALE, UNKNOWN])
def test_every_call_of_the_lease(tmp_path: Path, number: int) -> None:
    """Taken, looked at and given back, with each call failing once."""
    failed = []
    for at in range(1, 200):
        state = tmp_path / str(at) / "state"
        paths = PipelinePaths(NAME, state, state, state, state)
        take(paths).release()
        with pytest.MonkeyPatch.context() as patch:
            calls = FailingCalls(patch, tmp_path, at, number)

            def work(paths: PipelinePaths = paths) -> None:
                with take(paths) as lease:
                    lease.check()

            error = within(10, work)
        if not calls.failed:
            break
        failed.append(calls.failed.partition(" ")[0])
        if error is not None:
            named = error if isinstance(error, TidegateError) else name_cause(error, state)
            assert named is not None and named.exit_code == 75 and str(state) in str(named), (calls.failed, error)
            assert error.__cause__ is not error
    assert not calls.failed, "the sweep ended before the lease did"
    assert {"listdir", "open", "link", "unlink", "fsync", "stat"} <= set(failed)


def test_a_lease_that_cannot_be_given_back_turns_no_success_into_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = Held(tmp_path)
    with commands(lambda: held):
        write = Lease._write_state

        def fail(lease: Lease, state: Any) -> None:
            if state.get("state") == "released":
                raise OSError(errno.EIO, "Input/output error", str(lease.paths.lease))
            write(lease, state)

        with monkeypatch.context() as patch:
            patch.setattr(Lease, "_write_state", fail)
            patch.setattr("tidegate.runs.opening.acquire", acquire)
            assert held.run("R0", GOOD)["outcome"] == "published"
        told = capsys.readouterr().err
        assert "the lease ends with this process, not now: [Errno 5] Input/output error" in told
        found = read_lease(held.paths)
        assert found is not None and found.state == "held"


@pytest.mark.parametrize(("command", "call"), [("run", "fsync"), ("maintain", "listdir"), ("maintain", "unlink")])
def test_a_command_at_the_lease(
    tmp_path: Path, command: str, call: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(tmp_path)
    real = getattr(os, call)

    def fail(target: Any, *more: Any, **options: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
        if "/lease" in path:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), *([path] if call != "fsync" else []))
        return real(target, *more, **options)

    monkeypatch.setattr(sys, "argv", ["tidegate", "--project", str(tmp_path), command, NAME])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        ended = within(30, main)
    assert isinstance(ended, SystemExit) and ended.code == 75
    told = capsys.readouterr().err
    assert told.startswith(f"STORAGE_FAILED: the file system that holds {held.paths.lease}"), told
    assert "failed: Stale file handle (ESTALE)\n" in told and "Traceback" not in told


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("SQLITE_IOERR_FSYNC", "disk I/O error", "LEDGER_UNAVAILABLE"),
        ("SQLITE_CANTOPEN", "unable to open database file", "LEDGER_UNAVAILABLE"),
        ("SQLITE_READONLY", "attempt to write a readonly database", "LEDGER_UNAVAILABLE"),
        ("SQLITE_PROTOCOL", "locking protocol", "LEDGER_UNAVAILABLE"),
        ("SQLITE_NOMEM", "out of memory", "LEDGER_UNAVAILABLE"),
        ("SQLITE_BUSY", "database is locked", "LEDGER_BUSY"),
    ],
)
def test_the_ledger(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch, name: str, text: str, code: str) -> None:
    paths.state.mkdir()
    open_ledger(paths).close()
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name

    class Failing(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            raise error

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, factory=Failing, **more))
    monkeypatch.setattr("tidegate.sources.files.ledger_file.LedgerFile._replace_locked_file", lambda _: False)
    with pytest.raises(TryAgainError, match=code) as told:
        open_ledger(paths)
    assert told.value.where == str(paths.ledger) and told.value.fix is not None
    assert code == "LEDGER_BUSY" or (f"{text} ({name})" in told.value.message and "findmnt -T" in told.value.fix)


def test_a_spec_that_cannot_be_read_now_is_no_bad_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the table of a pipeline move to another folder for it."""
    held = Held(tmp_path)
    project, read = held.project, Path.read_bytes
    file = tmp_path / "jobs" / NAME / "pipeline.yaml"

    def fail(path: Path) -> bytes:
        if path == file:
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    monkeypatch.setattr("tidegate.spec.project._table_path_in", lambda file, stamp: str(fail(Path(file))))
    for look in (lambda: load_pipeline(project, NAME), lambda: project.paths(NAME)):
        with pytest.raises(TryAgainError, match="STORAGE_FAILED") as told:
            look()
        assert told.value.where == str(file)


def test_a_file_system_without_hard_links(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*names: Any, **options: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(names[0]), None, str(names[1]))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UsageError, match="NO_HARD_LINKS") as told:
        take(paths)
    assert str(paths.lease) in told.value.message and "chmod" not in str(told.value)
    source, target = paths.state / "source", paths.state / "target"
    source.write_bytes(b"x")
    with pytest.raises(UsageError, match="NO_HARD_LINKS"):
        storage.link(source, target)
    assert sorted(one.name for one in paths.state.iterdir()) == ["lease", "source"]


def test_a_link_that_is_refused_where_there_are_hard_links(
    paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a file of another user (fs.protected_hardlinks)."""
    paths.state.mkdir()
    source, target, link = paths.state / "source", paths.state / "target", os.link
    source.write_bytes(b"x")

    def refuse(one: Any, *more: Any, **options: Any) -> None:
        if Path(one) == source:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(one), None, str(more[0]))
        link(one, *more, **options)

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(PermissionError):
        storage.link(source, target)
    assert [one.name for one in paths.state.iterdir()] == ["source"]


def test_what_cannot_be_read_now_is_neither_torn_nor_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a log would be taken for damaged, a plan of Spark be removed, and a folder be passed over."""
    held = Held(tmp_path)
    with commands(lambda: held):
        held.run("R0", GOOD)
    from tidegate.state.durable import drop_torn_plan
    from tidegate.table.log.files import torn_versions
    from tidegate.table.log.state import read_log

    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    read = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.suffix == ".json" or path.name == "metadata":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    for look in (
        lambda: read_log(held.paths.table),
        lambda: torn_versions(held.paths.table),
        lambda: drop_torn_plan(checkpoint, -1, is_named=False, sealed=(), check=lambda: None),
    ):
        with pytest.raises(OSError, match="Stale file handle"):
            look()
    assert (checkpoint / "metadata").exists()
    monkeypatch.undo()
    scandir = os.scandir

    def stale(folder: Any) -> Any:
        if os.fspath(folder).endswith("offsets"):
            raise OSError(errno.ESTALE, "Stale file handle", os.fspath(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", stale)
    with pytest.raises(OSError, match="Stale file handle"):
        storage.list_tree(checkpoint)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("java.io.IOException: Stale file handle", "STORAGE_FAILED"),
        ("java.nio.file.FileSystemException: {state}/checkpoint/offsets/3: Input/output error", "STORAGE_FAILED"),
        ("java.io.FileNotFoundException: {state}/staging/x (Too many open files)", "TOO_MANY_OPEN_FILES"),
    ],
)
def test_what_spark_says_of_the_file_system(tmp_path: Path, text: str, code: str) -> None:
    """Java gives the operating system's own words."""
    error = explain(RuntimeError(text.format(state=tmp_path)), "orders", tmp_path / "jobs", tmp_path)
    assert (error.code, error.exit_code) == (code, 75)
    assert error.where is not None and error.where.startswith(str(tmp_path))
