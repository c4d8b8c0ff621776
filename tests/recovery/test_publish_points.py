"""A publish killed at each of its storage calls, and frozen at each while others go on: the rows are always right."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.readers import read_agreed, read_with_deltalake, read_with_duckdb
from tests.support.staged import QUERY, Stager, make_paths
from tests.support.storage_calls import KilledHere, Sleeper, StorageCalls, kill, split_devices
from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.state.manifest import BatchManifest
from tidegate.table.log.state import list_data_files, read_table_state
from tidegate.table.publish.intent import FileToRemove, PublishIntent, pending_intents, write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.table.publish.publish import finish_intent


class Bench:
    """A pipeline with two batches to publish; the second brings a new column."""

    def __init__(self, root: Path, lake: Path | None = None) -> None:
        self.paths = make_paths(root, lake=lake)
        narrow = Stager(self.paths, {"id": "long", "city": "string"}, ["city"])
        wide = Stager(self.paths, {"id": "long", "city": "string", "note": "string"}, ["city"])
        self.manifests = [
            narrow.stage(0, [{"id": 1, "city": "Oslo"}, {"id": 2, "city": "01"}]),
            wide.stage(1, [{"id": 3, "city": "Oslo", "note": "x"}, {"id": 4, "city": "a/b %", "note": None}]),
        ]

    def run(self, up_to: int, is_current: Callable[[], bool] = lambda: True) -> None:
        """What a run does: finish what was begun, then publish what the log does not have."""
        with storage.listed_once(self.paths.table):
            for intent in pending_intents(self.paths):
                finish_intent(self.paths, intent, is_current=is_current)
            plan = self.plan(up_to)
            if plan is not None:
                finish_intent(self.paths, write_intent(self.paths, plan), is_current=is_current)

    def plan(self, up_to: int) -> PublishIntent | None:
        before = self.last_batch()
        if before >= up_to:
            return None
        return self.intent(self.manifests[: up_to + 1], before)

    def intent(self, manifests: list[BatchManifest], before: int) -> PublishIntent:
        return plan_publish(manifests, run_id="r", partition_by=["city"], app_version_before=before)

    def last_batch(self) -> int:
        state = read_table_state(self.paths.table, (QUERY,))
        return -1 if state is None else state.txns.get(QUERY, -1)

    def replace_all(self, batch_id: int, is_current: Callable[[], bool] = lambda: True) -> None:
        """Compact: one version whose new files hold the rows of all the present ones."""
        rows = read_with_deltalake(self.paths.table)
        stager = Stager(self.paths, {"id": "long", "city": "string", "note": "string"}, ["city"])
        attempt = secrets.token_hex(4)
        manifest = stager.stage(batch_id, [{"note": None, **row} for row in rows], attempt=attempt)
        gone = [
            FileToRemove(file.path, file.rows, file.size_bytes, file.partition)
            for file in list_data_files(self.paths.table)
        ]
        intent = self.intent([manifest], batch_id - 1)
        intent = PublishIntent(**{**intent.__dict__, "files_to_remove": gone})
        finish_intent(self.paths, write_intent(self.paths, intent), is_current=is_current)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in read_agreed(self.paths.table))


def seen_ids(table_path: Path, *, delta: bool) -> list[int]:
    rows = read_with_deltalake(table_path) if delta else read_with_duckdb(table_path)
    return [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("devices", "after"),
    [(1, False), (1, True), (2, False), (0, False), (0, True)],
    ids=["before", "after", "copied", "stored", "stored, after"],
)
def test_killed_at_every_call_and_run_again(tmp_path: Path, devices: int, after: bool, lake: Path | None) -> None:
    points = []
    for at in range(1, 200):
        bench = Bench(tmp_path / str(at), lake and lake / str(at))
        with pytest.MonkeyPatch.context() as patch:
            if devices == 2:
                split_devices(patch, bench.paths.state)
            calls = StorageCalls(patch, at, kill, after=after)
            killed = False
            for up_to in (0, 1):
                try:
                    bench.run(up_to)
                except KilledHere as point:
                    killed = True
                    points.append(str(point))
                    break
        for delta in (False, True):
            counts = Counter(seen_ids(bench.paths.table, delta=delta))
            assert set(counts) <= {1, 2, 3, 4}, f"killed at {at} ({calls.names[-1]}): strange rows {counts}"
            assert max(counts.values(), default=1) == 1, f"killed at {at} ({calls.names[-1]}): doubled rows {counts}"
        bench.run(1)
        assert bench.ids() == [1, 2, 3, 4], f"killed at {at} ({calls.names[-1]})"
        assert pending_intents(bench.paths) == []
        assert storage.list_tree(bench.paths.table, "*.incoming") == []
        if not killed:
            break
    assert not killed, "the sweep ended before the publish did"
    assert {"os.link", "os.unlink", "os.mkdir"} <= set(points)
    assert set(points) & {"os.rename", "store.put", "store.copy", "store.delete"} == (
        {"os.rename"} if devices else {"store.put", "store.copy", "store.delete"}
    )


@pytest.mark.parametrize(
    ("devices", "after"),
    [(1, False), (1, True), (0, False), (0, True)],
    ids=["before", "after", "stored", "stored, after"],
)
def test_replacing_killed_at_every_call(tmp_path: Path, after: bool, lake: Path | None) -> None:
    killed = True
    for at in range(1, 200):
        bench = Bench(tmp_path / str(at), lake and lake / str(at))
        bench.run(1)
        with pytest.MonkeyPatch.context() as patch:
            calls = StorageCalls(patch, at, kill, after=after)
            try:
                bench.replace_all(2)
                killed = False
            except KilledHere:
                pass
        plain = Counter(seen_ids(bench.paths.table, delta=False))
        assert max(plain.values(), default=1) == 1, f"killed at {at} ({calls.names[-1]}): doubled rows {plain}"
        assert sorted(seen_ids(bench.paths.table, delta=True)) == [1, 2, 3, 4], f"killed at {at} ({calls.names[-1]})"
        pending = pending_intents(bench.paths)
        for intent in pending:
            finish_intent(bench.paths, intent, is_current=lambda: True)
        assert bench.ids() == [1, 2, 3, 4], f"killed at {at} ({calls.names[-1]})"
        if not killed:
            break
    assert not killed, "the sweep ended before the replacing did"


@pytest.mark.parametrize(
    ("devices", "fenced", "replacing"),
    [(1, True, False), (1, False, False), (2, False, False), (1, False, True), (0, True, False), (0, True, True)],
    ids=["fenced", "unfenced", "copied", "replacing", "stored", "stored, replacing"],
)
def test_frozen_at_every_call_while_others_go_on(
    tmp_path: Path, devices: int, fenced: bool, replacing: bool, lake: Path | None
) -> None:
    """The sleeper wakes after its batch was published, a later one too, and all files were compacted away."""
    for at in range(1, 200):
        bench = Bench(tmp_path / str(at), lake and lake / str(at))
        if replacing:
            bench.run(1)
        with pytest.MonkeyPatch.context() as patch:
            if devices == 2:
                split_devices(patch, bench.paths.state)

            def work(sleeper: Sleeper, bench: Bench = bench) -> None:
                def is_current() -> bool:
                    return not (fenced and sleeper.is_overtaken)

                if replacing:
                    bench.replace_all(2, is_current=is_current)
                else:
                    bench.run(0, is_current=is_current)

            sleeper = Sleeper(at, work, (TidegateError,))
            sleeper.is_overtaken = True
            bench.run(0)
            bench.run(1)
            if not replacing or bench.last_batch() < 2:
                bench.replace_all(2)
            bench.replace_all(3)
            before = (bench.ids(), storage.list_tree(bench.paths.table, "*.parquet"))
            assert before[0] == [1, 2, 3, 4]
            sleeper.wake()
            after = (bench.ids(), storage.list_tree(bench.paths.table, "*.parquet"))
            assert after == before, f"frozen at {at}"
            bench.run(1)
            assert bench.ids() == [1, 2, 3, 4]
            assert pending_intents(bench.paths) == []
        if sleeper.has_ended:
            return
    raise AssertionError("the sweep ended before the publish did")


@pytest.mark.parametrize(("_round", "devices"), [*((number, 1) for number in range(8)), (8, 0), (9, 0)])
def test_two_publish_the_same_batches_at_once(tmp_path: Path, _round: int, lake: Path | None) -> None:
    """Both hold what they take for the lease, and both write at the same moment."""
    bench = Bench(tmp_path, lake)
    gate = threading.Barrier(2, timeout=30)
    trouble: list[BaseException] = []

    def publish() -> None:
        try:
            gate.wait()
            bench.run(1)
        except TidegateError:
            pass
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=publish) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert trouble == []
    bench.run(1)
    assert bench.ids() == [1, 2, 3, 4]
