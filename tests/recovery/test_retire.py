"""A query that is over: nothing of it comes late, whoever slept over what, and wherever.

The sleeper is frozen before each of its storage calls in turn; meanwhile a repair ends its query and a run reads again
what the table lacked; then the sleeper wakes up and does what it was about to do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.by_hand import ByHand
from tests.support.staged import QUERY, make_schema
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tests.support.sweep import sweep
from tidegate.core import storage
from tidegate.core.errors import DisagreementError, TidegateError, TryAgainError
from tidegate.runs.opening import recover_run
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.restart.new_query import begin_new_query, pin_paths, replace_query, retire_query
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.runs.restart.repair_plan import first_offsets
from tidegate.sources.files.ledger import NewFile, open_ledger
from tidegate.spark.driver.jvm import PINNED
from tidegate.state.birth import new_birth, read_birth
from tidegate.state.lease import Lease
from tidegate.state.manifest import BatchKey, find_tombstones, put_tombstone, read_all_manifests, refuse_tombstone
from tidegate.state.published import read_retired
from tidegate.table.log import commit
from tidegate.table.log.commit import Commit, commit_files, rename_files, retire_in_log, retired_mark
from tidegate.table.log.state import DataFile, find_commit, list_data_files, read_table_state
from tidegate.table.publish.intent import pending_intents


def in_a_thread(work: Callable[[], Any]) -> None:
    """Do it as another process would, while this one is frozen; raises what it raised."""
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def sleep_and_wake(
    root: Path,
    prepare: Callable[[ByHand], Callable[[], Any]],
    meanwhile: Callable[[ByHand], None],
    mode: str = "append",
    *,
    needs_repair: bool = False,
    sample: int = 5,
    may_break: bool = False,
) -> set[str]:
    """Freeze what ``prepare`` gives at its calls, one after the other; the names of those calls."""
    names: set[str] = set()
    for at in _points(root, prepare, mode, sample):
        with pytest.MonkeyPatch.context() as patch:
            scene = ByHand(root / str(at), patch, mode)
            sleeper = prepare(scene)
            with pytest.MonkeyPatch.context() as inner:
                calls = StorageCalls(inner, at, lambda _, scene=scene: in_a_thread(lambda: meanwhile(scene)))  # type: ignore[misc]
                with contextlib.suppress(TidegateError, FileNotFoundError):
                    sleeper()
            names.add(calls.names[at - 1])
            where = f"frozen at call {at}, {calls.names[at - 1]}"
            try:
                seen = [] if may_break else scene.ids()
                assert len(seen) == len(set(seen)), f"doubled {seen}"
                scene.offer(99)
                settle_down(scene, needs_repair)
                assert scene.ids() == sorted(scene.offered)
            except AssertionError as error:
                raise AssertionError(f"{where}: {error}") from error
            except TidegateError as error:
                raise AssertionError(f"{where}: {error}\n{error.where}") from error
    return names


def _points(root: Path, prepare: Callable[[ByHand], Callable[[], Any]], mode: str, sample: int) -> list[int]:
    """Where to freeze: at each link (a commit is one) and rename, and at some of the other calls, or at all calls
    (TIDEGATE_SWEEP=all)."""
    with pytest.MonkeyPatch.context() as patch:
        sleeper = prepare(ByHand(root / "undisturbed", patch, mode))
        with pytest.MonkeyPatch.context() as inner:
            calls = StorageCalls(inner, -1, lambda _: None)
            sleeper()
    chosen = [at for at, name in enumerate(calls.names, 1) if name in ("os.link", "os.rename")]
    others = [at for at, name in enumerate(calls.names, 1) if name in ("os.unlink", "os.replace")]
    if os.environ.get("TIDEGATE_SWEEP") == "all":
        return list(range(1, len(calls.names) + 1))
    return sorted({*chosen, *(others[number - 1] for number in sweep(len(others), sample))})


def settle_down(scene: ByHand, needs_repair: bool) -> None:
    """A run; where that may be refused, what it names: a repair and a run."""
    try:
        scene.run()
    except DisagreementError:
        if not needs_repair:
            raise
        scene.repair()
        scene.run()


def published(scene: ByHand) -> ByHand:
    """One file is in the table, two more wait."""
    scene.offer(1)
    scene.run()
    scene.offer(2, 3)
    return scene


def repair(scene: ByHand) -> None:
    """Somebody changed the spec, and repair begins again."""
    scene.write_spec("data/inbox/.")
    scene.repair()


def repair_and_run(scene: ByHand) -> None:
    """The same, and the next run reads what the table lacks."""
    repair(scene)
    scene.run()


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_a_sleeping_driver(tmp_path: Path, first: bool) -> None:
    """Its manifest comes late: the batch was read again, and is not published twice."""

    def prepare(scene: ByHand) -> Callable[[], Any]:
        if first:
            scene.offer(1, 2, 3)
        else:
            published(scene)
        context = scene.open()
        return lambda: scene.ingest(context)

    # Before Spark made a checkpoint there is nothing to repair, so the next run works with the sleeper's.
    meanwhile = repair_and_run if first else repair
    assert "os.link" in sleep_and_wake(tmp_path, prepare, meanwhile, needs_repair=first)


@pytest.mark.parametrize(
    ("mode", "finishes"),
    [("append", True), ("update", True), ("append", False), ("update", False)],
    ids=["append", "update", "append given up", "update given up"],
)
def test_a_sleeping_publish(tmp_path: Path, mode: str, finishes: bool) -> None:
    """Its moves, commits and removals come late: they find nothing, are refused, and remove nothing.

    Also where the repair cannot finish what was begun, and reads it again.
    """

    def prepare(scene: ByHand) -> Callable[[], Any]:
        published(scene)
        context = scene.open()
        scene.ingest(context)
        return lambda: scene.publish(context)

    def meanwhile(scene: ByHand) -> None:
        if not finishes:
            scene.patch.setattr("tidegate.runs.restart.repair.recover", _fail)
        repair(scene) if mode == "append" else repair_and_run(scene)

    names = sleep_and_wake(tmp_path, prepare, meanwhile, mode, sample=5 if finishes else 99)
    assert {"os.rename", "os.unlink", "os.link"} <= names


def _fail(*_: Any) -> None:
    raise DisagreementError("STAGED_FILES_LOST", "as if a staged file were damaged")


@pytest.mark.parametrize("finishes", [True, False], ids=["finished", "given up"])
def test_a_sleeping_first_publish(tmp_path: Path, finishes: bool) -> None:
    """It makes the table. Where the repair could not, no log was there to refuse it: the next run takes it away."""

    def prepare(scene: ByHand) -> Callable[[], Any]:
        scene.offer(1, 2)
        context = scene.open()
        scene.ingest(context)
        return lambda: scene.publish(context)

    def meanwhile(scene: ByHand) -> None:
        if not finishes:
            scene.patch.setattr("tidegate.runs.restart.repair.recover", _fail)
        repair(scene)

    assert "os.link" in sleep_and_wake(tmp_path, prepare, meanwhile, may_break=not finishes)


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_sleeping_repair(tmp_path: Path, mode: str) -> None:
    """Another one does its work, and runs go on: what it does late undoes nothing of theirs."""

    def prepare(scene: ByHand) -> Callable[[], Any]:
        published(scene)
        context = scene.open()
        scene.ingest(context)  # staged, and backed up by the repair
        scene.write_spec("data/inbox/.")
        return scene.repair

    def meanwhile(scene: ByHand) -> None:
        with contextlib.suppress(DisagreementError):
            scene.repair()
        scene.run()
        scene.offer(4)
        scene.run()

    names = sleep_and_wake(tmp_path, prepare, meanwhile, mode, needs_repair=True)
    assert {"os.link", "os.rename", "os.replace"} <= names


def test_a_loss_is_accepted_while_its_query_goes_on(tmp_path: Path) -> None:
    """Asleep before the new query is begun, it begins one late: that is taken away, since the old one has gone on."""

    def prepare(scene: ByHand) -> Callable[[], Any]:
        return planned(scene)[1]

    assert "os.link" in sleep_and_wake(tmp_path, prepare, lambda scene: scene.run())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_replacing_a_query_is_killed_anywhere(tmp_path: Path, after: bool) -> None:
    """The next run completes it, or nothing was begun: no person is needed."""
    for at in range(1, 100):
        with pytest.MonkeyPatch.context() as patch:
            scene = ByHand(tmp_path / str(at), patch)
            query_id, accept = planned(scene)
            with pytest.MonkeyPatch.context() as inner:
                calls = StorageCalls(inner, at, kill, after=after)
                with contextlib.suppress(KilledHere):
                    accept()
            scene.run()
            assert scene.ids() == sorted(scene.offered), f"killed at {at}, {calls.names[-1]}"
            is_over = read_retired(scene.paths).get(query_id)
            assert is_over == (0 if scene.paths.newest_generation() else None)
            assert find_tombstones(scene.paths.manifests) == []
            if calls.count < at:
                break
    assert at > 10


def planned(scene: ByHand) -> tuple[str, Callable[[], Any]]:
    """A batch is published, one is planned and not staged; what accepting a loss does then, and for which query."""
    published(scene)
    context = scene.open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.by_hand.write_manifest", kill)
        with contextlib.suppress(TypeError):
            scene.ingest(context)
    context = scene.open()
    facts = recover_run(context)
    assert facts.in_flight == 1 and facts.query_id is not None
    query_id, in_flight, paths, lease = facts.query_id, facts.in_flight, context.paths, context.lease
    birth = new_birth(paths, context.spec, {"orders": {}}, dict(PINNED))

    def accept() -> None:
        replace_query(paths, query_id, birth, why="accepted loss", lease=lease, in_flight=in_flight)

    return query_id, accept


def test_a_batch_that_was_staged_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ByHand(tmp_path, monkeypatch)
    published(scene)
    context = scene.open()
    scene.ingest(context)
    query_id = context.facts.query_id if context.facts else None
    assert query_id is not None
    retire_query(context.paths, query_id, lease=context.lease)
    assert read_retired(context.paths) == {query_id: 1}, "what is staged by then still counts"
    facts = gather_facts(context.paths, context.spec)
    assert facts.retired == {query_id: 1} and [one.batch_id for one in facts.unpublished] == [1]
    birth = new_birth(context.paths, context.spec, {"orders": {}}, dict(PINNED))
    begin_new_query(context.paths, birth, why="test", lease=context.lease)
    scene.publish(scene.open())  # as the first run of the next query does
    assert scene.ids() == [1, 2, 3]


def test_a_driver_meets_a_tombstone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot take the batch for staged."""
    path = tmp_path / "q" / f"{4:012d}.json"
    assert put_tombstone(path, "q", 4) and put_tombstone(path, "q", 4)
    assert read_all_manifests(tmp_path) == {}
    with pytest.raises(TryAgainError, match="QUERY_RETIRED"):
        refuse_tombstone(path)


def test_the_next_query_is_begun_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ByHand(tmp_path, monkeypatch)
    published(scene)
    context = scene.open()
    birth = new_birth(context.paths, context.spec, {"orders": {}}, dict(PINNED))
    begun = begin_new_query(context.paths, birth, why="test", lease=context.lease)
    assert begun.checkpoint != context.paths.checkpoint and context.paths.checkpoint.exists()
    assert scene.paths.birth == begun.birth and scene.paths.checkpoint == begun.checkpoint
    with pytest.raises(TryAgainError, match="LEASE_LOST"):
        begin_new_query(context.paths, birth, why="test", lease=context.lease)


def test_a_birth_that_came_late_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query that it was to replace has gone on since: what the birth begins with was read by that."""
    scene = ByHand(tmp_path, monkeypatch)
    query_id, _ = planned(scene)
    scene.run()
    context = scene.open()
    birth = replace(
        new_birth(context.paths, context.spec, {"orders": {}}, dict(PINNED)), replaces=BatchKey(query_id, 0)
    )
    begin_new_query(context.paths, birth, why="test", lease=context.lease)
    assert scene.paths.newest_generation() == 1
    assert scene.open().paths.generation == 0 == scene.paths.newest_generation()
    assert read_retired(scene.paths) == {}


class Late:
    """A table whose query another process ends: before it is opened here, or between that and the next commit."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, opened_before: bool) -> None:
        self.table = root / "table"
        self.table.mkdir(parents=True)
        (self.table / "a.parquet").touch()
        self.commit(0, add=[DataFile("a.parquet", 1, 0)])
        if not opened_before:
            retire_in_log(self.table, QUERY, last_batch=0)
            return
        mine, real = threading.get_ident(), commit._append

        def append(*args: Any) -> int | None:
            if threading.get_ident() == mine:
                in_a_thread(lambda: retire_in_log(self.table, QUERY, last_batch=0))
            return real(*args)

        monkeypatch.setattr(commit, "_append", append)

    def commit(self, batch: int, *, columns: str = "id", add: Sequence[DataFile] = ()) -> int:
        return commit_files(
            self.table,
            Commit(
                schema_json=make_schema(**dict.fromkeys(columns.split(), "long")),
                add=list(add),
                app_id=QUERY,
                app_version=batch,
                app_version_before=batch - 1,
            ),
        )


@pytest.mark.parametrize("opened_before", [False, True], ids=["opened afterwards", "opened before"])
@pytest.mark.parametrize("what", ["commit", "columns", "rename"])
def test_a_log_takes_nothing_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, opened_before: bool
) -> None:
    """Whichever snapshot the late process has. A repeated retirement adds no version, and the batch is found."""
    late = Late(tmp_path, monkeypatch, opened_before=opened_before)
    with pytest.raises(TidegateError, match=r"QUERY_RETIRED|COMMIT_FAILED"):
        if what == "rename":
            old = list_data_files(late.table)
            rename_files(late.table, [(old[0], "b.parquet")], app_id=QUERY, app_version=1)
        else:
            late.commit(1, columns="id" if what == "commit" else "id n", add=[DataFile("c.parquet", 1, 0)])
    retire_in_log(late.table, QUERY, last_batch=0)
    state = read_table_state(late.table, (QUERY, retired_mark(QUERY)))
    assert state is not None
    assert (state.version, state.txns) == (1, {QUERY: 0, retired_mark(QUERY): 1})
    assert [file.path for file in list_data_files(late.table)] == ["a.parquet"]
    assert '"n"' not in state.schema_json
    assert find_commit(late.table, QUERY, 0) == 0


def test_repair_after_a_mere_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the increment is moved: that is finished, not read again."""
    scene = ByHand(tmp_path, monkeypatch)
    published(scene)
    context = scene.open()
    scene.ingest(context)
    facts = recover_run(context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.table.publish.publish.commit_files", lambda *_, **__: kill("commit"))
        with contextlib.suppress(KilledHere):
            scene.publish(context)
    assert pending_intents(scene.paths) and facts.unpublished
    shown = repair_pipeline(scene.project, "orders", dry_run=True)
    assert (shown["found"], shown["code"]) == ("nothing disagrees", None) and "run again" in shown["choices"][0]
    assert scene.repair()["found"] == "nothing disagrees"
    assert scene.ids() == [1, 2, 3] and scene.paths.newest_generation() == 0
    scene.run()
    assert scene.ids() == [1, 2, 3]


def test_nothing_is_finished_into_another_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that table knows nothing of the query, so that its log would take the commit."""
    scene = ByHand(tmp_path, monkeypatch)
    scene.offer(1)
    context = scene.open()
    scene.ingest(context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.core.storage.place", kill)
        with contextlib.suppress(KilledHere, TypeError):
            scene.publish(context)
    assert pending_intents(scene.paths)
    storage.write_note(scene.paths.published, 7, {"table_id": "ours", "version": 7, "query_id": None, "batch_id": -1})
    storage.remove_tree(scene.paths.table)
    late = Late(tmp_path / "elsewhere", monkeypatch, opened_before=False)
    shutil.copytree(late.table, scene.paths.table)
    with pytest.raises(DisagreementError, match="TABLE_REPLACED"):
        scene.run()
    assert [file.path for file in list_data_files(scene.paths.table)] == ["a.parquet"]


def test_an_older_token_changes_nothing_in_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = ByHand(tmp_path, monkeypatch)
    old = scene.leases.take()
    with open_ledger(scene.paths, lease=old) as sleeper:
        sleeper.add_links("orders", [NewFile("a", 1, 1, "")])
        with open_ledger(scene.paths, lease=scene.leases.take()) as ledger:
            for change in (
                lambda: sleeper.return_to_linked({}),
                lambda: sleeper.add_links("orders", [NewFile("b", 1, 1, "")]),
            ):
                with pytest.raises(TryAgainError, match="LEASE_LOST"):
                    change()
            assert [row.path for row in ledger.rows()] == ["a"]
            with pytest.raises(TryAgainError, match="LEASE_LOST"):
                open_ledger(scene.paths, lease=old)
            ledger.add_links("orders", [NewFile("c", 1, 1, "")])
    with open_ledger(scene.paths, lease=scene.leases.take()) as later:
        assert [row.path for row in later.rows()] == ["a", "c"]


def test_births_that_came_late_are_taken_away_each_time_and_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = ByHand(tmp_path, monkeypatch)
    scene.offer(1)
    scene.run()
    birth = read_birth(scene.paths)
    assert birth is not None and birth.query_id is not None
    began_behind = {"orders": {"offsets": {"t": {"0": 9}}}}
    late = replace(birth, query_id=None, replaces=BatchKey(str(birth.query_id), -1), sources=began_behind)
    for _ in range(3):
        begin_new_query(scene.paths.pinned(), late, why="a loss", lease=cast(Lease, scene.leases.take()))
        assert pin_paths(scene.paths, cast(Lease, scene.leases.take())).generation == 0
    assert first_offsets(scene.paths, "orders") is None
    scene.offer(2)
    scene.run()
    assert scene.ids() == [1, 2]
